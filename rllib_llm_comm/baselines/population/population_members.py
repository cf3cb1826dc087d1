"""Members of a population as Ray tasks: a task builds a member's algorithm from its state, trains it, gives it back."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import ray
from ray.rllib.core import COMPONENT_LEARNER
from ray.rllib.core.learner.learner import COMPONENT_METRICS_LOGGER
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import NUM_AGENT_STEPS_SAMPLED_LIFETIME

from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO, BestResponsePPOConfig
from rllib_llm_comm.baselines.population.kitchen_partners import uniform_pool
from rllib_llm_comm.policies.policy_folder import PolicyExport
from rllib_llm_comm.rl.policy_checkpoints import on_first_learner

STATE, POLICY = "learner", "policy"
FIGURES = ("score", "shaped")


class MemberPPO(BestResponsePPO):
    """`BestResponsePPO` whose life began before: shaped rewards fade by the steps of its earlier runs, too."""

    steps_before = 0

    @override(BestResponsePPO)
    def _game_steps(self) -> int:
        return self.steps_before + super()._game_steps()


@dataclasses.dataclass(frozen=True)
class MemberRun:
    """A run of one member.

    Attributes:
        config: Its config, with the run's seed and settings.
        batches: Train batches; 0 builds the member only.
        state: The Learner's state that it goes on from, or `None` at its beginning.
        partner: The frozen partner of all games; `None` with 0 batches.
        steps_before: Game steps of its earlier runs.
    """

    config: BestResponsePPOConfig
    batches: int
    state: Mapping[str, Any] | None = None
    partner: Mapping[str, Any] | None = None
    steps_before: int = 0


@dataclasses.dataclass(frozen=True)
class MemberResult:
    """Results of a run.

    Attributes:
        state: `learner`, the Learner's state (weights and optimizers), and `policy`, a `PolicyExport` as a mapping.
        figures: Means of the last games, as of `OnionSoupEnvRunner`.
        steps: Game steps.
        games: Games that ended.
        decisions: By cook, those that were learned from.
    """

    state: dict[str, Any]
    figures: dict[str, float]
    steps: int
    games: int
    decisions: dict[str, int]


def run_member(run: MemberRun) -> MemberResult:
    """Builds a member's algorithm in this process, trains it and stops it.

    Args:
        run: The run.
    """
    config = run.config.copy(copy_frozen=False)
    algo = MemberPPO(config=config)
    try:
        algo.steps_before = run.steps_before
        if run.state is not None:
            go_on_from(algo, run.state)
        if run.partner is not None:
            algo.set_pool(uniform_pool({"partner": policy_of(run.partner)}))
        steps, games, figures = 0, 0, {}
        decisions: dict[str, int] = {}
        for _ in range(run.batches):
            found = algo.train()["env_runners"]
            steps, games = int(found["num_env_steps_sampled_lifetime"]), int(found.get("num_episodes_lifetime", 0))
            figures = {name: float(found[name]) for name in FIGURES if name in found}
            decisions = {agent: int(count) for agent, count in found[NUM_AGENT_STEPS_SAMPLED_LIFETIME].items()}
        return MemberResult(state_of(algo), figures, steps, games, decisions)
    finally:
        algo.stop()
        with contextlib.suppress(OSError):
            os.rmdir(algo.logdir)  # Tune's folder for log files, of which there are none


run_member_remotely = ray.remote(run_member)


def go_on_from(algo: BestResponsePPO, learner: Mapping[str, Any]) -> None:
    """Gives an algorithm the Learner's state of an earlier run; its EnvRunners act and judge by it, too.

    Args:
        algo: The algorithm.
        learner: `learner` of `state_of`.
    """
    algo.learner_group.set_state({COMPONENT_LEARNER: learner})
    algo.sync_runners()


def state_of(algo: BestResponsePPO) -> dict[str, Any]:
    """Everything that a member goes on from, and its policy.

    Args:
        algo: The member's algorithm.
    """
    learner = algo.learner_group.get_state(
        components=COMPONENT_LEARNER, not_components=f"{COMPONENT_LEARNER}/{COMPONENT_METRICS_LOGGER}"
    )[COMPONENT_LEARNER]
    return {STATE: learner, POLICY: plain(next(iter(algo.policy_exports().values())))}


def plain(policy: PolicyExport) -> dict[str, Any]:
    """A policy as a mapping of plain types, for checkpoints."""
    return dataclasses.asdict(policy)


def policy_of(mapping: Mapping[str, Any]) -> PolicyExport:
    """The policy of such a mapping."""
    return PolicyExport(**mapping)


def act_by(algo: BestResponsePPO, policy: PolicyExport) -> None:
    """Gives an algorithm a policy's weights, its Learners and EnvRunners.

    Args:
        algo: The algorithm.
        policy: A policy of a network like its own.
    """
    on_first_learner(algo, _load, everywhere=True, files=dict(policy.files))
    algo.sync_runners()


def _load(learner: Any, files: Mapping[str, bytes]) -> None:
    from safetensors.torch import load

    (content,) = files.values()
    for module in learner.module._rl_modules.values():
        module.unwrapped().network.load_state_dict(load(content))
