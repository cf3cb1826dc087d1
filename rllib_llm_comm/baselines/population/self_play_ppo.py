"""Self-play PPO in the onion-soup kitchens: one policy for both cooks, many games in compiled arrays."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.baselines.population.overcooked_ai import SHARED, OnionSoupEnvRunner
from rllib_llm_comm.baselines.population.past_policies import FINAL, PastPolicy, milestones
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.policies.numeric_network import NumericSettings
from rllib_llm_comm.rl.multi_agent_ppo import PPOTraining
from rllib_llm_comm.rl.planning import PlanningSettings
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.strict_config import part

if TYPE_CHECKING:
    from collections.abc import Mapping

PAST_FOLDER = "past"


class SelfPlayTraining(PPOTraining):
    """The optimisation; for the defaults of Carroll et al. 2019 see the page."""

    shaping_horizon: int | None = Field(1_000_000, ge=0, le=LARGEST)
    """Game steps over which the factor of the shaped rewards falls on a line from 1 to 0; 0 for none (soups alone are
    paid), None to leave it at 1. 1,000,000 (ours); Carroll: 2,500,000 (3,500,000 in coordination ring)."""
    keep_policy_every: int | None = Field(None, ge=1, le=LARGEST)
    """Iterations between two policies that are kept in memory; None: none is kept. The first is the one before the
    first update. Checkpoints then also hold `past/initial` and `past/half_way` (`past_policies.half_way`), for FCP."""


class SelfPlayPPOConfig(NumericPPOConfig):
    """Settings of `SelfPlayPPO`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import SelfPlayPPOConfig

        algo = SelfPlayPPOConfig().environment(env_config={"layout": "coordination_ring"}).build_algo()
        algo.train()
    """

    network: ClassVar[str] = "mlp"
    settings_models = {
        "training": SelfPlayTraining,
        "planning": PlanningSettings,
        "policy_network": part(NumericSettings, "hiddens", "activation"),
    }
    own_env: ClassVar[str | None] = ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {"observe": ["vector"], "vector": "planes"}
    partners_in_games: ClassVar[bool] = False
    _rows_in_words: ClassVar[str] = "two cooks x `num_envs_per_env_runner`"

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: tuned for two CPU cores (ours); see the page for those of Carroll et al. 2019."""
        super().__init__(algo_class=algo_class or SelfPlayPPO)
        self.env_runner_cls = OnionSoupEnvRunner
        self.activation = "relu"
        self.num_envs_per_env_runner = 32
        self.train_batch_size_per_learner = 2 * 32 * 200
        self.minibatch_size = 1600
        self.num_epochs = 4
        self.lr = 1e-3
        self.lambda_ = 0.98
        self.vf_clip_param = None
        self.kl_target = None

    @override(NumericPPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        self.check_settings()  # before they are divided
        self.require_whole_setting("num_envs_per_env_runner", 1)
        if self.env != ENV_ID:
            raise UserError(f"`env` is {self.env!r} but SelfPlayPPO plays {ENV_ID!r} only; use SymbolicPPO or MAPPO.")
        if self.planner is not None or self.subgoal_rewards != "exact":
            raise UserError(
                "`planner` and `subgoal_rewards` mean nothing to SelfPlayPPO, whose games are arrays; use EMMA."
            )
        self._fill_env_config()
        for name, value in self.env_defaults.items():
            if self.env_config[name] != value:
                raise UserError(f"`env_config.{name}` is {self.env_config[name]!r} but must be {value!r} here.")
        level = self.env_config.get("action_level", "primitive")
        if level != "primitive":
            raise UserError(f"`env_config.action_level` is {level!r} but must be 'primitive' for SelfPlayPPO.")
        wanted = self.env_config.get("wanted")
        if wanted is not None:
            raise UserError(
                f"`env_config.wanted` is {wanted!r}, which SelfPlayPPO's arrays of games do not know; use "
                "SymbolicPPO or MAPPO."
            )
        self._require_whole_steps()
        super().validate()

    def rows_per_step(self) -> int:
        """Rows of a train batch per game step of one EnvRunner: both cooks of all its games."""
        return 2 * self.num_envs_per_env_runner

    def _require_whole_steps(self) -> None:
        rows = self.rows_per_step() * max(1, self.num_env_runners)
        if self.total_train_batch_size % rows:
            raise UserError(
                f"`train_batch_size_per_learner` is {self.train_batch_size_per_learner} but all learners' rows must be "
                f"a multiple of {rows}: {self._rows_in_words} x `num_env_runners`."
            )


class SelfPlayPPO(PolicyCheckpointMixin, PPO):
    """PPO with one policy for both cooks, on whole arrays of games; settings: `SelfPlayPPOConfig`."""

    _latest_score = math.nan
    _runners_judge = True

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> SelfPlayPPOConfig:
        """The default settings."""
        return SelfPlayPPOConfig()

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Builds as RLlib does, with the critic in all EnvRunners, and keeps the initial policy if it is asked for."""
        super().setup(config)
        self.sync_runners()  # RLlib's own leaves the critic away
        self._past: list[PastPolicy] = []
        if self.config.keep_policy_every:
            self._past.append(self._policy_now(0, math.nan))

    @override(Algorithm)
    def step(self) -> dict[str, Any]:
        """An iteration; then the policy is kept if it is its turn."""
        results: dict[str, Any] = super().step()
        score = float(results.get(ENV_RUNNER_RESULTS, {}).get("score", math.nan))
        self._latest_score = self._latest_score if math.isnan(score) else score
        every, iteration = self.config.keep_policy_every, self.iteration + 1
        if every and iteration % every == 0:
            self._past.append(self._policy_now(iteration, self._latest_score))
        return results

    def past_policies(self) -> list[PastPolicy]:
        """The policies that were kept, in the order of time, and the one of now."""
        past = list(self._past)
        if not past or past[-1].iteration != self.iteration:
            past.append(self._policy_now(self.iteration, self._latest_score))
        return past

    def _policy_now(self, iteration: int, score: float) -> PastPolicy:
        return PastPolicy(iteration, self._game_steps(), score, next(iter(self.policy_exports().values())))

    @override(PolicyCheckpointMixin)
    def save_to_path(self, path: Any = None, **kwargs: Any) -> str:
        """Saves with the policy folder, and with those of the initial and the half-way policy if past ones are kept."""
        where = super().save_to_path(path, **kwargs)
        if self.config.keep_policy_every and Path(where).is_dir():
            for name, one in milestones(self.past_policies()).items():
                if name != FINAL:
                    self.write_past(Path(where) / PAST_FOLDER / name, one)
        return where

    def write_past(self, folder: Path, past: PastPolicy) -> None:
        """Writes the policy folder of an earlier time.

        Args:
            folder: The folder.
            past: The policy, of this run or of a member's.
        """
        score = None if math.isnan(past.score) else past.score
        name = SelfPlayPPO.__name__
        origin = {"training_iteration": past.iteration, "game_steps": past.game_steps, "score": score}
        self.write_exports(folder, {SHARED: past.policy}, name, **origin)

    @override(Algorithm)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state with the past policies."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        state[PAST_FOLDER] = {"policies": [one.to_state() for one in self._past], "score": self._latest_score}
        return state

    @override(Algorithm)
    def set_state(self, state: Any) -> None:
        """Sets RLlib's state and the past policies."""
        super().set_state(state)
        self.sync_runners()
        past = state.get(PAST_FOLDER, {})
        self._past = [PastPolicy.from_state(one) for one in past.get("policies", ())]
        self._latest_score = past.get("score", math.nan)

    @override(PPO)
    def training_step(self) -> None:
        """One roll-out of all games, one update, one sync of weights."""
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            batch = self._roll_outs()
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            learned = self.learner_group.update(
                batch=batch,
                timesteps={
                    NUM_ENV_STEPS_SAMPLED_LIFETIME: self._game_steps(),
                    NUM_MODULE_STEPS_TRAINED_LIFETIME: self.metrics.peek(
                        (LEARNER_RESULTS, ALL_MODULES, NUM_MODULE_STEPS_TRAINED_LIFETIME), default=0
                    ),
                },
                num_epochs=self.config.num_epochs,
                minibatch_size=self.config.minibatch_size,
                shuffle_batch_per_epoch=self.config.shuffle_batch_per_epoch,
            )
            self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            # The runners judge states, too, so they need the critic.
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, policies={SHARED}, inference_only=False
            )

    def _roll_outs(self) -> MultiAgentBatch:
        config = self.config
        runners = max(1, config.num_env_runners)
        steps = config.total_train_batch_size // (config.rows_per_step() * runners)
        shaping = shaping_factor(self._game_steps(), config.shaping_horizon)
        pool, key = self._pool_of_runners()

        def play(runner: OnionSoupEnvRunner) -> tuple[dict[str, Any], Any]:
            runner.use_partners(pool, key)
            return runner.roll_out(steps, shaping), runner.get_metrics()

        parts = self.env_runner_group.foreach_env_runner(play, local_env_runner=config.num_env_runners == 0)
        self.metrics.aggregate([metrics for _, metrics in parts], key=ENV_RUNNER_RESULTS)
        rows = {name: _joined([columns[name] for columns, _ in parts]) for name in parts[0][0]}
        return MultiAgentBatch({SHARED: SampleBatch(rows)}, env_steps=steps * config.num_envs_per_env_runner * runners)

    def _pool_of_runners(self) -> tuple[Any, str | None]:
        """The partners that EnvRunners seat, here or in Ray's store, and the pool's key; nobody in self-play."""
        return None, None

    def _game_steps(self) -> int:
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))


def shaping_factor(game_steps: int, horizon: int | None) -> float:
    """The factor of the shaped rewards.

    Args:
        game_steps: Steps played so far.
        horizon: Steps until it is 0, from the beginning for 0; `None` for always 1.
    """
    if horizon is None:
        return 1.0
    return max(0.0, 1.0 - game_steps / horizon) if horizon else 0.0


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)
