"""Settings with which a trained policy plays episodes in evaluations and replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.evaluation.rollout import Episode
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.policies.load_policy import AS_RECORDED, Loading
from rllib_llm_comm.policies.policy import TrainedPolicy


@dataclass(frozen=True)
class PlaySettings:
    """The policy's, the environment's and the planner's settings in played episodes; by default those of the training.

    Attributes:
        greedy: True if the most likely action is taken instead of a sampled one.
        env_config: Settings of the environment that differ from training.
        loading: Settings with which the policy is loaded, such as another message mode.
        planning: Arguments of `PlannedSubgoals` that differ from training: `planner`, `patience`, `replan`.
        trials: Most reflections per round; `None` plays without reflection.
        recover: Recovery of failed rounds, "snapshot" (if `None`) or "replay"; only with `trials`.
        num_envs: Episodes that are played at once, >= 1; replays and reflection play one after the other.
    """

    greedy: bool = False
    env_config: Mapping[str, Any] = field(default_factory=dict)
    loading: Loading = AS_RECORDED
    planning: Mapping[str, Any] | None = None
    trials: int | None = None
    recover: str | None = None
    num_envs: int = 16

    def stand_ins(self, policy: TrainedPolicy) -> list[str]:
        """What stands in, in a policy's training and under these settings (`agents.stand_ins`).

        Args:
            policy: The policy that `loading` has loaded.
        """
        manifest = policy.manifest
        planning = {**(manifest.planning or {}), **(self.planning or {})}
        return stand_ins(replace(manifest, planning=planning))

    def play(self, policy: TrainedPolicy, *, episodes: int, seed: int, **options: Any) -> list[Episode]:
        """Episodes of a policy under these settings.

        Args:
            policy: The policy that `loading` has loaded.
            episodes: Number of episodes, >= 1.
            seed: Seed of the first; the others count up.
            **options: Further arguments of `play_planned`.

        Raises:
            UserError: If the policy cannot be played under these settings.
        """
        return play_planned(
            policy,
            planning=self.planning,
            trials=self.trials,
            recover=self.recover,
            episodes=episodes,
            seed=seed,
            explore=not self.greedy,
            env_config=self.env_config,
            num_envs=self.num_envs,
            **options,
        )
