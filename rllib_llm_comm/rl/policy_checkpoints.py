"""Checkpoints that also hold a policy folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_RL_MODULE
from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.policy_folder import POLICY_FOLDER, PolicyExport, write_policy
from rllib_llm_comm.policies.policy_manifest import MANIFEST, PolicyManifest, read_manifest
from rllib_llm_comm.rl.agent_policies import agents_apart
from rllib_llm_comm.rl.plain_errors import raise_told
from rllib_llm_comm.rl.policy_export import on_first_learner, with_team
from rllib_llm_comm.rl.trials_in_turn import TrialsInTurn


class PolicyCheckpointMixin(TrialsInTurn):
    """Writes `policy/` into every checkpoint of an algorithm whose module has `export_policy`."""

    _runners_judge = False  # True if EnvRunners use the critic, too
    _came_from: Mapping[str, Any] = MappingProxyType({})  # provenance in the checkpoint that was restored

    @override(Checkpointable)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves as RLlib does, and the policy folder beside it."""
        where = super().save_to_path(path, **kwargs)
        if Path(where).is_dir():
            self.save_policy(os.path.join(where, POLICY_FOLDER))
        return where

    def save_policy(self, folder: str | os.PathLike[str]) -> None:
        """Writes the policy folder alone."""
        self.write_exports(folder, self.policy_exports(), training_iteration=self.training_iteration)

    def policy_exports(self) -> dict[str, PolicyExport]:
        """The policy for its folder: by agent where each has its own, else one entry."""
        exports: dict[str, PolicyExport] = on_first_learner(self, _export, agents=agents_apart(self.config))
        return exports

    def write_exports(
        self,
        folder: str | os.PathLike[str],
        exports: Mapping[str, PolicyExport],
        algorithm: str | None = None,
        **provenance: Any,
    ) -> None:
        """Writes a policy folder.

        Args:
            folder: The folder; one that is there is replaced.
            exports: The policy, as of `policy_exports`.
            algorithm: Name of the algorithm that trained it, if not this one.
            **provenance: Origin of the policy, such as `training_iteration`.
        """
        config = self.config
        agents = agents_apart(config)
        export = next(iter(exports.values()))
        files = {
            f"{agent}/{name}" if agents else name: content
            for agent, own in exports.items()
            for name, content in own.files.items()
        }
        write_policy(
            folder,
            files,
            PolicyManifest(
                algorithm=algorithm or type(self).__name__,
                kind=export.kind,
                model_config=with_team(export, config),
                base_model_digest=export.base_model_digest,
                agents=agents,
                provenance={**provenance, **self.provenance()},
                **self.environment(),
                **config.policy_record(),
            ),
        )

    def training_step(self) -> None:
        """RLlib's step; what games did wrong in EnvRunners elsewhere is raised here."""
        super().training_step()
        if self.env_runner_group is not None:
            raise_told(self.env_runner_group)

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

    @override(Checkpointable)
    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restores as RLlib does, and makes sure that all EnvRunners act with the restored weights.

        RLlib unpickles what it restores: only from checkpoints whose origin you know.

        Raises:
            UserError: If the checkpoint is another algorithm's, whose weights of the same shapes mean something else.
        """
        folder = Path(str(path)) / POLICY_FOLDER
        manifest = read_manifest(folder) if (folder / MANIFEST).is_file() else None
        self._came_from = dict(manifest.provenance) if manifest else {}
        if manifest:
            self._require_own_algorithm(path, manifest.algorithm)
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
        """Tells of settings that a checkpoint was trained with and that differ from those of this algorithm; none.

        Args:
            path: The checkpoint that is restored.
            manifest: That of its policy folder.
        """

    def sync_runners(self) -> None:
        """Waits until all EnvRunners act with the weights of the Learners."""
        # RLlib's own sync does not wait, and drops its request if an earlier one is still on its way, as the one
        # from building the algorithm may be: remote runners would then act with untrained weights.
        state = self.learner_group.get_state(
            components=f"{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}", inference_only=not self._runners_judge
        )[COMPONENT_LEARNER]
        weights = {COMPONENT_RL_MODULE: state[COMPONENT_RL_MODULE]}
        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(lambda runner: runner.set_state(weights))


def _export(learner: Learner, agents: Sequence[str]) -> dict[str, PolicyExport]:
    """By module id the export of every agent's own module; without `agents` that of the first module that has one."""
    exports: dict[str, PolicyExport] = {}
    for module_id, module in learner.module._rl_modules.items():
        if hasattr(module.unwrapped(), "export_policy") and (module_id in agents or not (agents or exports)):
            exports[module_id] = module.unwrapped().export_policy()
    if exports:
        return {agent: exports[agent] for agent in agents} if agents else exports
    raise UserError("no module of this algorithm has `export_policy`, so there is no policy folder to write.")
