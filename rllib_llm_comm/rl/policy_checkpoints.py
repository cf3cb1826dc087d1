"""Checkpoints that also hold a policy folder, and that of any algorithm whose modules can be exported."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.tune.result import TRIAL_INFO
from ray.tune.trainable import Trainable

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.minirts.officers import checkpoints_of
from rllib_llm_comm.policies.numeric_network import BY_TEAM, COMMNET
from rllib_llm_comm.policies.policy_folder import PolicyExport, write_policy
from rllib_llm_comm.policies.policy_manifest import (
    LANGUAGE,
    MANIFEST,
    NUMERIC,
    POLICY_FOLDER,
    PolicyManifest,
    names_a_folder,
    read_manifest,
    require_same_network,
)
from rllib_llm_comm.rl.env_runner import raise_user_errors
from rllib_llm_comm.rl.rllib_adapter import agents_of, playable_id
from rllib_llm_comm.rl.strict_config import StrictConfigMixin, agents_apart

logger = logging.getLogger(__name__)


@runtime_checkable
class Exportable(Protocol):
    """A module whose policy can be written into a folder; `load_policy` knows the kinds of such policies."""

    model_config: Any

    def export_policy(self) -> PolicyExport:
        """What of the folder is the module's part."""


@runtime_checkable
class HasPolicyRecord(Protocol):
    """A connector or callback that tells policy folders what else a policy needs: ways to talk, teacher, planner."""

    def policy_record(self) -> dict[str, Any]:
        """Fields of a `PolicyManifest`."""


class ActorReuseMixin(Algorithm):
    """Lets Tune's `reuse_actors` give a process the next trial: the algorithm is built again in the same process.

    What a process keeps between two trials are caches that change no result: the frozen base model, tokens of known
    texts, compiled games. RLlib seeds a process's draws whenever an algorithm with a `seed` is built.
    """

    @override(Trainable)
    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Stops the last trial and builds the next one.

        Returns:
            False if Tune keeps a process's output in a file per trial, which needs a process per trial; else true.
        """
        if self._stdout_file or self._stderr_file:
            return False
        self.cleanup()
        storage, trial = self._storage, self._trial_info
        # What `stop` reads, in case the next trial cannot be built.
        needed = {name: value for name, value in vars(self).items() if name.startswith(("_std", "_monitor"))}
        self.__dict__.clear()
        self.__dict__.update(needed)
        gc.collect()  # the old algorithm has reference cycles; its memory is freed before the next one needs some
        self.__init__({**new_config, TRIAL_INFO: trial}, storage=storage)  # type: ignore[misc]
        return True


def export_policy(algo: Algorithm, folder: str | os.PathLike[str], *, env: str | None = None) -> Path:
    """Writes what an algorithm has trained as a policy folder, which `load_policy` and the command line take.

    Works with all algorithms of RLlib's new API stack whose modules have `export_policy`, such as a stock PPO with
    `LLMCommModule` and `MessageExchange`. What the policy needs beside its weights is told by connectors and callbacks
    that have a `policy_record`: the way of talking, teacher and planner.

    Args:
        algo: The algorithm, built and not stopped.
        folder: The folder to write, which appears at once or not at all; a policy folder of that name is replaced. Of
            an RLlib checkpoint its `policy/` is written.
        env: Id of the environment in PettingZoo's registry, if it is not the one by which RLlib knows it.

    Raises:
        UserError: If no module can be exported, nobody knows how its agents talk or which agent acts by which module,
            or the folder holds something else.
    """
    target = _target(local_path(folder, "folder"))
    if isinstance(algo, PolicyCheckpointMixin):  # it knows more than its modules and connectors
        algo.save_policy(target)
        return target
    exports: dict[str, PolicyExport] = on_first_learner(algo, _exports)
    if not exports:
        raise UserError(
            f"{type(algo).__name__} trains no module with `export_policy`; give it one of this package in its "
            "`rl_module_spec`, such as LLMCommModule, or write `export_policy` for your own."
        )
    acting = _by_agent(algo, exports)
    manifest = _manifest(
        acting,
        algo.config,
        algorithm=type(algo).__name__,
        agents=sorted(filter(None, acting)),
        provenance={"training_iteration": algo.training_iteration},
        env=env or playable_id(algo.config.env),
        env_config=dict(algo.config.env_config or {}),
        **_records(algo, talks=next(iter(acting.values())).kind == LANGUAGE),
    )
    return write_policy(target, _files(acting), manifest)


def _manifest(
    exports: Mapping[str, PolicyExport], config: Any, env_config: Mapping[str, Any], **others: Any
) -> PolicyManifest:
    """The manifest of exports, which are alike but for their weights; `others` are its other fields."""
    export = next(iter(exports.values()))
    return PolicyManifest(
        kind=export.kind,
        model_config=with_team(export, config),
        base_model_digest=export.base_model_digest,
        base_model_sha256=export.base_model_sha256,
        env_config=_executors_from_anywhere(env_config),
        **others,
    )


def _executors_from_anywhere(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a game, however nested, in which the paths of executors' checkpoints hold in every folder."""
    found = dict(settings)
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found[key] = _executors_from_anywhere(value)
        elif key == "executor" and (paths := checkpoints_of(value)):
            here = [str(Path(path).absolute()) if Path(path).exists() else path for path in paths]
            found[key] = ":".join([value.partition(":")[0], *here])
    return found


def _files(exports: Mapping[str, PolicyExport]) -> dict[str, bytes]:
    """The files of exports by agent, each in a folder of its name; that of no name in none."""
    return {
        f"{agent}/{name}" if agent else name: content
        for agent, own in exports.items()
        for name, content in own.files.items()
    }


def with_team(export: PolicyExport, config: Any) -> Mapping[str, Any]:
    """The `model_config` of a policy; of numeric ones that hear or judge a team with `team`, the sorted names in it."""
    told = export.model_config
    if export.kind != NUMERIC or (told["network"] != COMMNET and told["critic_observation"] != BY_TEAM):
        return told
    return {**told, "team": sorted(map(str, agents_of(config.env, config.env_config)))}


def on_first_learner(algo: Algorithm, function: Any, **kwargs: Any) -> Any:
    """Calls a function with the first Learner, where that lives, and returns its result."""
    group = algo.learner_group
    ids = None if group.is_local else group._worker_manager.actor_ids()[:1]
    return _call_learners(group, function, ids, kwargs)


def on_every_learner(algo: Algorithm, function: Any, **kwargs: Any) -> Any:
    """Calls a function with every Learner, and returns the first result."""
    return _call_learners(algo.learner_group, function, None, kwargs)


def _call_learners(group: LearnerGroup, function: Any, ids: list[int] | None, arguments: Mapping[str, Any]) -> Any:
    """The first result; raises the error of any Learner."""
    results = [result.get() for result in group.foreach_learner(function, remote_actor_ids=ids, **arguments)]
    for result in results:
        if isinstance(result, Exception):
            cause = getattr(result, "cause", None)
            raise cause if isinstance(cause, UserError) else result
    return results[0]


class PolicyBesideCheckpoint(ActorReuseMixin):
    """For other packages' algorithms: reuse of actors, and `policy/` in checkpoints of modules that can be exported."""

    @override(Checkpointable)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves as RLlib does, and the policy folder beside it; without one training goes on all the same."""
        where = super().save_to_path(path, **kwargs)
        if Path(where).is_dir() and self.learner_group is not None and on_first_learner(self, _can_export):
            try:
                export_policy(self, Path(where) / POLICY_FOLDER)
            except UserError as error:
                logger.warning("The checkpoint %s has no policy folder: %s", where, error)
        return where


def with_policy_folder(algorithm: type[Algorithm]) -> type[Algorithm]:
    """The same algorithm under the same name, which writes policy folders into its checkpoints.

    Args:
        algorithm: Any; one that writes them already is given back as it is.
    """
    if issubclass(algorithm, PolicyCheckpointMixin):
        return algorithm
    names = {"__module__": algorithm.__module__, "__doc__": algorithm.__doc__}
    return type(algorithm.__name__, (PolicyBesideCheckpoint, algorithm), names)


def _target(folder: Path) -> Path:
    if (folder / Algorithm.METADATA_FILE_NAME).is_file():
        return folder / POLICY_FOLDER
    empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not empty and not (folder / MANIFEST).is_file():
        raise UserError(
            f"`folder` is {str(folder)!r}, which holds something else than a policy; give a folder that is not there "
            "yet, a policy folder, or an RLlib checkpoint."
        )
    return folder


def _exportable(learner: Learner) -> dict[str, Exportable]:
    modules = learner.module.items() if isinstance(learner.module, MultiRLModule) else ()
    return {name: own for name, module in modules if isinstance(own := module.unwrapped(), Exportable)}


def _can_export(learner: Learner) -> bool:
    return bool(_exportable(learner))


def _exports(learner: Learner) -> dict[str, PolicyExport]:
    return {name: module.export_policy() for name, module in _exportable(learner).items()}


def _model_config(learner: Learner) -> dict[str, Any]:
    return next((dict(module.model_config) for module in _exportable(learner).values()), {})


def _by_agent(algo: Algorithm, exports: Mapping[str, PolicyExport]) -> dict[str, PolicyExport]:
    """The export of each agent's module; where all act by one module its export, under no name."""
    config = algo.config
    if len(exports) == 1 and set(exports) == set(config.policies):
        return {"": next(iter(exports.values()))}
    agents = agents_of(config.env, config.env_config)
    modules = {str(agent): config.policy_mapping_fn(agent, MultiAgentEpisode()) for agent in agents}
    stuck = {agent: module for agent, module in modules.items() if module not in exports}
    if stuck or not modules:
        listed = ", ".join(f"{agent} by {module!r}" for agent, module in stuck.items()) or "nobody is known"
        raise UserError(
            f"The modules {', '.join(map(repr, exports))} can be exported but agents act otherwise ({listed}); a "
            "policy folder needs a module with `export_policy` for every agent."
        )
    used = {module: exports[module] for module in modules.values()}
    first = next(iter(used.values()))
    if len(used) == 1:
        return {"": first}
    alike = all(dict(one.model_config) == dict(first.model_config) for one in used.values())
    if first.kind != LANGUAGE or not alike or not all(map(names_a_folder, modules)):
        raise UserError(
            f"Agents act by the modules {', '.join(map(repr, used))}; a policy folder holds several only if they are "
            "language models with the same `model_config`, and agents' names are letters, digits, '_' and '-'; give "
            "all agents one module, or modules that differ in their weights alone."
        )
    return {agent: exports[module] for agent, module in modules.items()}


def _records(algo: Algorithm, talks: bool) -> dict[str, Any]:
    """What connectors of the EnvRunners and callbacks tell, as fields of a `PolicyManifest`."""
    used = algo.config.callbacks_class
    classes = used if isinstance(used, list | tuple) else [used]
    told = [one.policy_record() for one in classes if isinstance(one, HasPolicyRecord)]
    runners = algo.env_runner_group.foreach_env_runner(_told_by_connectors) if talks else []
    if talks and not any("communication" in one for one in runners):
        raise UserError(
            "No `MessageExchange` is among the env-to-module connectors, so that nobody knows how the agents talk; put "
            "it into `env_to_module_connector`, with `communication={'messages': 'none'}` if they are silent."
        )
    return {"communication": {}} | {name: value for one in (*told, *runners) for name, value in one.items()}


def _told_by_connectors(runner: Any) -> dict[str, Any]:
    pieces = _pieces(getattr(runner, "_env_to_module", None))
    records = [piece.policy_record() for piece in pieces if isinstance(piece, HasPolicyRecord)]
    return {name: value for one in records for name, value in one.items()}


def _pieces(connector: Any) -> Iterator[Any]:
    """A connector, or all pieces of a pipeline."""
    if connector is not None:
        yield connector
        for piece in getattr(connector, "connectors", ()):
            yield from _pieces(piece)


class PolicyCheckpointMixin(ActorReuseMixin):
    """Writes `policy/` into every checkpoint of an algorithm whose module has `export_policy`.

    Attributes:
        config_class: Class of the algorithm's settings; `build_algo` of it makes the class that named it first.
    """

    config_class: ClassVar[type[AlgorithmConfig]]
    _runners_use_critic = False  # True if EnvRunners need the weights of the critic, too
    _restored_provenance: Mapping[str, Any] = MappingProxyType({})  # of the checkpoint that was restored

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get("config_class")
        if own is not None and issubclass(own, StrictConfigMixin) and not vars(own).get("algorithm"):
            own.algorithm = (cls,)

    @classmethod
    @override(Algorithm)
    def get_default_config(cls) -> Any:
        """The default settings: of `config_class`, or RLlib's where a class names none."""
        if own := vars(cls).get("config_class"):
            return own(algo_class=cls)
        return cls.config_class() if hasattr(cls, "config_class") else super().get_default_config()

    @override(Checkpointable)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves as RLlib does, and the policy folder beside it."""
        where = super().save_to_path(path, **kwargs)
        if Path(where).is_dir():
            self.save_policy(os.path.join(where, POLICY_FOLDER))
        return where

    def save_policy(self, folder: str | os.PathLike[str]) -> None:
        """Writes the policy folder alone."""
        exports = self.policy_exports()
        write_policy(folder, _files(exports), self.manifest_of(exports, training_iteration=self.training_iteration))

    def policy_exports(self) -> dict[str, PolicyExport]:
        """The policy for its folder: by agent where each has its own, else one entry under no name."""
        exports: dict[str, PolicyExport] = on_first_learner(self, _export, agents=agents_apart(self.config))
        return exports

    def manifest_of(
        self, exports: Mapping[str, PolicyExport], algorithm: str | None = None, **provenance: Any
    ) -> PolicyManifest:
        """The manifest of a policy folder.

        Args:
            exports: The policy, as of `policy_exports`.
            algorithm: Name of the algorithm that trained it, if not this one.
            **provenance: Origin of the policy, such as `training_iteration`.
        """
        return _manifest(
            exports,
            self.config,
            algorithm=algorithm or type(self).__name__,
            agents=agents_apart(self.config),
            provenance={**provenance, **self.provenance()},
            **self.environment(),
            **self.config.policy_record(),
        )

    def training_step(self) -> None:
        """RLlib's step; what games did wrong in EnvRunners elsewhere is raised here."""
        super().training_step()
        if self.env_runner_group is not None:
            raise_user_errors(self.env_runner_group)

    def environment(self) -> dict[str, Any]:
        """Id and settings of the environment, for the policy folder."""
        env = self.config.env
        return {
            "env": env if isinstance(env, str) else None,
            "env_config": dict(self.config.env_config or {}),
        }

    def provenance(self) -> dict[str, Any]:
        """More about how the policy came about."""
        return {}

    def _game_steps(self) -> int:
        """Environment steps of all EnvRunners so far."""
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))

    @override(Checkpointable)
    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restores as RLlib does, and makes sure that all EnvRunners act with the restored weights.

        RLlib unpickles what it restores: only from checkpoints whose origin you know.

        Raises:
            UserError: If the checkpoint is another algorithm's, whose weights of the same shapes mean something else,
                or of another network.
        """
        folder = Path(str(path)) / POLICY_FOLDER
        manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
        self._restored_provenance = dict(manifest.provenance) if manifest else {}
        if manifest:
            self._require_own_algorithm(path, manifest.algorithm)
            own = on_first_learner(self, _model_config)
            require_same_network(manifest.model_config, own, f"the checkpoint {str(path)!r}")
            self.tell_other_settings(path, manifest)
        if self.env_runner_group is None:  # RLlib's own would look for it
            Checkpointable.restore_from_path(self, path, *args, **kwargs)
        else:
            super().restore_from_path(path, *args, **kwargs)
            self.sync_runners()

    def _require_own_algorithm(self, path: Any, wrote: str) -> None:
        own = type(self).__name__
        if wrote != own:
            raise UserError(
                f"{str(path)!r} is a checkpoint of {wrote}, but {own} would take over its weights and optimizers as if "
                f"they were its own; restore it into {wrote}, or take one of its adapters alone with "
                "`message_checkpoint` or `action_checkpoint`."
            )

    def tell_other_settings(self, path: Any, manifest: PolicyManifest) -> None:
        """Tells of settings that a checkpoint was trained with and that differ from those of this algorithm; none."""

    def sync_runners(self) -> None:
        """Waits until all EnvRunners act with the weights of the Learners."""
        # RLlib's own sync does not wait, and drops its request if an earlier one is still on its way, as the one
        # from building the algorithm may be: remote runners would then act with untrained weights.
        state = self.learner_group.get_state(
            components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}", inference_only=not self._runners_use_critic
        )[COMPONENT_LEARNER]
        weights = {COMPONENT_RL_MODULE: state[COMPONENT_RL_MODULE]}
        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(lambda runner: runner.set_state(weights))


def _export(learner: Learner, agents: Sequence[str]) -> dict[str, PolicyExport]:
    """The export of every agent's own module; without `agents` that of the first module that has one, under no name."""
    modules = _exportable(learner)
    if not modules:
        raise UserError("no module of this algorithm has `export_policy`, so there is no policy folder to write.")
    used = {agent: modules[agent] for agent in agents} or {"": next(iter(modules.values()))}
    return {agent: module.export_policy() for agent, module in used.items()}
