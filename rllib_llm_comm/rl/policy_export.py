"""The policy of any RLlib algorithm that trains a module of this package, as a policy folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core.learner.learner import Learner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.policies.numeric_network import BY_TEAM, COMMNET
from rllib_llm_comm.policies.policy_folder import POLICY_FOLDER, PolicyExport, write_policy
from rllib_llm_comm.policies.policy_manifest import LANGUAGE, MANIFEST, NUMERIC, PolicyManifest, names_a_folder
from rllib_llm_comm.rl.env_registration import agents_of, playable_id
from rllib_llm_comm.rl.trials_in_turn import TrialsInTurn

logger = logging.getLogger(__name__)


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

    Returns:
        The policy folder.

    Raises:
        UserError: If no module can be exported, nobody knows how its agents talk or which agent acts by which module,
            or the folder holds something else.
    """
    target = _target(local_path(folder, "folder"))
    if hasattr(algo, "save_policy"):  # an algorithm of this package knows more than its modules and connectors
        algo.save_policy(target)
        return target
    exports: dict[str, PolicyExport] = on_first_learner(algo, _exports)
    if not exports:
        raise UserError(
            f"{type(algo).__name__} trains no module with `export_policy`; give it one of this package in its "
            "`rl_module_spec`, such as LLMCommModule, or write `export_policy` for your own."
        )
    acting = _by_agent(algo, exports)
    export = next(iter(acting.values()))
    files = {f"{agent}/{name}" if agent else name: d for agent, own in acting.items() for name, d in own.files.items()}
    manifest = PolicyManifest(
        algorithm=type(algo).__name__,
        kind=export.kind,
        model_config=with_team(export, algo.config),
        base_model_digest=export.base_model_digest,
        agents=sorted(filter(None, acting)),
        provenance={"training_iteration": algo.training_iteration},
        env=env or playable_id(algo.config.env),
        env_config=dict(algo.config.env_config or {}),
        **_records(algo, talks=export.kind == LANGUAGE),
    )
    return write_policy(target, files, manifest)


def with_team(export: PolicyExport, config: Any) -> Mapping[str, Any]:
    """The `model_config` of a policy; of numeric ones that hear or judge a team with `team`, the names in it, sorted.

    Args:
        export: The policy.
        config: The algorithm's config.
    """
    told = export.model_config
    if export.kind != NUMERIC or (told["network"] != COMMNET and told["critic_observation"] != BY_TEAM):
        return told
    return {**told, "team": sorted(map(str, agents_of(config.env, config.env_config)))}


def on_first_learner(algo: Algorithm, function: Any, *, everywhere: bool = False, **kwargs: Any) -> Any:
    """Runs a function of a Learner there and returns its result.

    Args:
        algo: The algorithm.
        function: Called with the Learner and `kwargs`.
        everywhere: Run it on all Learners, not only on the first.
        **kwargs: Passed on.
    """
    group = algo.learner_group
    ids = None if everywhere or group.is_local else group._worker_manager.actor_ids()[:1]
    for result in group.foreach_learner(function, remote_actor_ids=ids, **kwargs):
        answer = result.get()
        if isinstance(answer, Exception):
            cause = getattr(answer, "cause", None)
            raise cause if isinstance(cause, UserError) else answer
        first = answer
        break
    return first


class PolicyBesideCheckpoint(TrialsInTurn):
    """Trials in turn, and `policy/` in checkpoints where the module can, for algorithms of other packages."""

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
    if hasattr(algorithm, "save_policy"):
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


def _exports(learner: Learner) -> dict[str, PolicyExport]:
    modules = {name: module.unwrapped() for name, module in learner.module._rl_modules.items()}
    return {name: module.export_policy() for name, module in modules.items() if hasattr(module, "export_policy")}


def _can_export(learner: Learner) -> bool:
    modules = getattr(learner.module, "_rl_modules", {})
    return any(hasattr(module.unwrapped(), "export_policy") for module in modules.values())


def _by_agent(algo: Algorithm, exports: Mapping[str, PolicyExport]) -> dict[str, PolicyExport]:
    """The export of each agent's module; where all act by one module its export, under no name.

    Raises:
        UserError: If agents act by modules that cannot be exported, or by modules that differ in more than weights.
    """
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
    told = [one.policy_record() for one in classes if hasattr(one, "policy_record")]
    runners = algo.env_runner_group.foreach_env_runner(_told_by_connectors) if talks else []
    if talks and not any("communication" in one for one in runners):
        raise UserError(
            "No `MessageExchange` is among the env-to-module connectors, so that nobody knows how the agents talk; put "
            "it into `env_to_module_connector`, with `communication={'messages': 'none'}` if they are silent."
        )
    return {"communication": {}} | {name: value for one in (*told, *runners) for name, value in one.items()}


def _told_by_connectors(runner: Any) -> dict[str, Any]:
    pieces = _pieces(getattr(runner, "_env_to_module", None))
    records = [piece.policy_record() for piece in pieces if hasattr(piece, "policy_record")]
    return {name: value for one in records for name, value in one.items()}


def _pieces(connector: Any) -> Iterator[Any]:
    """A connector, or all pieces of a pipeline."""
    if connector is not None:
        yield connector
        for piece in getattr(connector, "connectors", ()):
            yield from _pieces(piece)
