"""Self-play PPO in the onion-soup kitchens: one policy for both cooks, many games in compiled arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import ray
import torch
import tree
from pydantic import Field
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.core.columns import Columns
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPO, NumericPPOConfig, NumericTraining
from rllib_llm_comm.baselines.population.kitchen_partners import PartnerPool, SeatedPartners
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.phases import ENV, phase
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.recipes import SOUP_REWARD
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS
from rllib_llm_comm.policies.numeric_network import BY_OWN, BY_PARTNER, CRITIC_STATE, VECTOR, NumericSettings
from rllib_llm_comm.rl.kitchen_games import KitchenGames
from rllib_llm_comm.rl.multi_agent_ppo import PlanningSettings
from rllib_llm_comm.rl.past_policies import KeepsPastPolicies, PastSettings
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, select_fields, with_defaults
from rllib_llm_comm.rl.train_batch import gae_of_steps, standardized

AGENTS = ("alice", "bob")
SELF_PLAY_SCORE, PARTNERS_SCORE = "score_self_play", "score_with_partners"
SCORE_BY_SEAT, SCORE_BY_PARTNER = "score_by_seat", "score_by_partner"


@with_defaults(
    train_batch_size_per_learner=2 * 32 * 200,
    minibatch_size=1600,
    lambda_=0.98,
    vf_clip_param=None,
    target_kl=None,
)
class SelfPlayTraining(PastSettings, NumericTraining):
    """The optimisation, tuned for two CPU cores (ours); for the defaults of Carroll et al. 2019 see the page."""

    shaping_horizon: int | None = Field(1_000_000, ge=0, le=LARGEST)
    """Game steps over which the factor of the shaped rewards falls on a line from 1 to 0; 0 for none (soups alone are
    paid), None to leave it at 1. 1,000,000 (ours); Carroll: 2,500,000 (3,500,000 in coordination ring)."""


class OnionSoupEnvRunner(KitchenGames, MultiAgentEnvRunner):
    """Plays `num_envs_per_env_runner` games with one module for both cooks, or for one beside a frozen partner.

    A roll-out is made of whole arrays: compiled games, one forward pass for all of the learner's cooks per game step
    and one for all partners of one shape, advantages for all games together. Only the learner's cooks are in the batch
    (`kitchen_partners.SeatedPartners`). The usual `sample` still plays the PettingZoo environment (one of it), for
    evaluations.
    """

    @override(MultiAgentEnvRunner)
    def make_env(self) -> None:
        """Makes the games, and one PettingZoo environment for spaces and evaluations."""
        super().make_env()
        games = self.config.num_envs_per_env_runner
        self._score = np.zeros(games)
        self._shaped = np.zeros((games, 2))
        self._pool: PartnerPool | None = None
        self._seated = SeatedPartners(None, self._games, 0)

    @property
    def _partners_told(self) -> int:
        """Length of what the critic is told about the partner; 0 if nothing."""
        if getattr(self.config, "critic_observation", BY_OWN) != BY_PARTNER:
            return 0
        return int(self.config.most_partners()) + 1

    @override(MultiAgentEnvRunner)
    def get_spaces(self) -> dict[str, Any]:
        """The spaces of RLlib, with that of the critic's view."""
        spaces: dict[str, Any] = super().get_spaces()
        if self._partners_told and self.env is not None:
            seen, actions = spaces[SHARED_POLICY]
            read = gym.spaces.Box(0, 255, (math.prod(seen[VECTOR].shape) + self._partners_told,), np.uint8)
            spaces[SHARED_POLICY] = gym.spaces.Dict({**seen.spaces, CRITIC_STATE: read}), actions
        return spaces

    @override(EnvRunner)
    def make_module(self) -> None:
        """Builds the module with its critic."""
        env = self.env.unwrapped if self.env is not None else None
        spec = self.config.get_multi_rl_module_spec(env=env, spaces=self.get_spaces(), inference_only=False)
        self.module = spec.build()

    def use_partners(self, pool: PartnerPool | ray.ObjectRef[PartnerPool] | None, key: str | None) -> None:
        """Seats other partners: all games begin anew, unless they are played with this pool already.

        Args:
            pool: The partners, here or in Ray's store; `None`: the learner plays with itself.
            key: The pool's key; `None` without one.
        """
        if key == (None if self._pool is None else self._pool.key):
            return
        self._pool = ray.get(pool) if isinstance(pool, ray.ObjectRef) else pool
        begun = int(self.metrics.peek(NUM_EPISODES_LIFETIME, default=0))
        seed = [self.config.seed or 0, self.worker_index or 0, begun]
        self._seated = SeatedPartners(self._pool, self._games, seed)
        self._begin_anew(np.ones(len(self._score), bool))

    def roll_out(self, steps: int, shaping: float) -> dict[str, Any]:
        """Plays all games for some steps and computes advantages.

        Args:
            steps: T, steps per game.
            shaping: Factor of the shaped rewards.

        Returns:
            Columns of a train batch with T * R rows, those of the learner's cooks: R is twice the games that it plays
            with itself and once those with partners.
        """
        network = self.module[SHARED_POLICY].unwrapped().network
        games = len(self._games.states)
        rows: list[dict[str, np.ndarray]] = []
        actions = np.zeros(2 * games, int)
        decisions = np.zeros(2, int)
        with torch.no_grad():
            for _ in range(steps):
                own = self._seated.own
                decisions += np.bincount(own % 2, minlength=2)
                with phase(ENV):
                    planes = self._planes()
                    seen = self._seen(planes, own)
                logits, values = _judge(network, seen)
                chosen, log_probs = self._draw(logits)
                actions[own] = chosen
                if self._seated.together:
                    self._seated.act(planes, actions)
                with phase(ENV):
                    sparse, shaped, done = self._games.step(actions.reshape(games, 2))
                rewards = (sparse.sum(1, keepdims=True) + shaping * shaped).reshape(-1)[own]
                row = {**seen, "actions": chosen, "logp": log_probs, "values": values}
                rows.append({**row, "rewards": rewards, "done": done[own // 2]})
                rows[-1]["next"] = self._ended(network, sparse, shaped, done)
            last = _judge(network, self._seen(self._planes(), self._seated.own))[1]
        self._count(steps * games, decisions)
        return self._columns(rows, last)

    def _planes(self) -> np.ndarray:
        """uint8 (2 * games, V): what every cook sees, the cooks of a game beside each other; overwritten by a step."""
        planes = self._games.lossless()
        return planes.reshape(2 * len(planes), -1).view(np.uint8)

    def _seen(self, planes: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Views of the cooks of some rows, and of the critic if it is told who the partner is."""
        seen = planes[rows]
        if not self._partners_told:
            return {VECTOR: seen}
        who = self._seated.partner[rows // 2]  # -1, the last column, in games with itself
        told = np.eye(self._partners_told, dtype=np.uint8)[who]
        return {VECTOR: seen, CRITIC_STATE: np.concatenate([seen, told], axis=1)}

    def _draw(self, logits: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        log_probs = logits.log_softmax(-1)
        chosen = torch.multinomial(log_probs.exp(), 1, generator=self._generator)
        return chosen[:, 0].numpy(), log_probs.gather(1, chosen)[:, 0].numpy()

    def _ended(self, network: Any, sparse: np.ndarray, shaped: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Values (R,) of final states where games ended, which begin anew; 0 elsewhere."""
        own = self._seated.own
        values = np.zeros(len(own), np.float32)
        self._score += sparse.sum(1)
        self._shaped += shaped
        if done.any():
            # Time is up, which is no terminal state: what would have come still counts.
            ended = done[own // 2]
            values[ended] = _judge(network, self._seen(self._planes(), own[ended]))[1]
            for game in np.flatnonzero(done):
                self._log_game(int(game))
            self._begin_anew(done)
            self._seated.redraw(done)
        return values

    def _begin_anew(self, games: np.ndarray) -> None:
        self._games.restart(games)
        self._score[games], self._shaped[games] = 0.0, 0.0

    def _columns(self, rows: list[dict[str, np.ndarray]], last: np.ndarray) -> dict[str, Any]:
        joined = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        config = self.config
        advantages, targets = gae_of_steps(
            joined["rewards"], joined["values"], joined["done"], joined["next"], last, config.gamma, config.lambda_
        )
        flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in joined.items()}
        mask = np.ones((len(flat["actions"]), NUM_ACTIONS), np.int8)
        return {
            # Bytes: the learner takes the columns that hold something and makes floats of them.
            Columns.OBS: {**{name: flat[name] for name in (VECTOR, CRITIC_STATE) if name in flat}, ACTION_MASK: mask},
            Columns.ACTIONS: flat["actions"],
            Columns.ACTION_LOGP: flat["logp"],
            Columns.VF_PREDS: flat["values"],
            Postprocessing.ADVANTAGES: standardized(advantages, config.advantage_floor).reshape(-1),
            Postprocessing.VALUE_TARGETS: targets.reshape(-1).astype(np.float32),
        }

    def _log_game(self, game: int) -> None:
        score = float(self._score[game])
        returns = {agent: score for agent in AGENTS}
        partner = self._seated.name(game)
        learners = 2 if partner is None else 1
        self._log_episode_metrics(
            self._games.horizon, 2 * score, 0.0, returns, {SHARED_POLICY: learners * score}, dict.fromkeys(AGENTS, 0)
        )
        window = self.config.metrics_num_episodes_for_smoothing
        own = {"score": score, "soups": score / SOUP_REWARD, "shaped": float(self._shaped[game].sum())}
        for name, value in own.items():
            self.metrics.log_value(name, value, window=window)
        if self._pool is not None:
            for place in self._kinds(game, partner):
                self.metrics.log_value(place, score, window=window)
        self.metrics.log_value(NUM_EPISODES, 1, reduce="sum")
        self.metrics.log_value(NUM_EPISODES_LIFETIME, 1, reduce="lifetime_sum")

    def _kinds(self, game: int, partner: str | None) -> list[str | tuple[str, str]]:
        """Names under which the score of a game counts beside `score`."""
        if partner is None:
            return [SELF_PLAY_SCORE]
        seat = AGENTS[int(self._seated.seat[game])]
        return [PARTNERS_SCORE, (SCORE_BY_SEAT, seat), (SCORE_BY_PARTNER, partner)]

    def _count(self, steps: int, decisions: np.ndarray) -> None:
        """Counts game steps, and by seat the decisions of the learner: those of partners are not learned from."""
        log = self.metrics.log_value
        log(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        log(NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True)
        for agent, own in zip(AGENTS, decisions.tolist(), strict=True):
            log((NUM_AGENT_STEPS_SAMPLED, agent), own, reduce="sum")
            log((NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent), own, reduce="lifetime_sum")
        rows = int(decisions.sum())
        log((NUM_MODULE_STEPS_SAMPLED, SHARED_POLICY), rows, reduce="sum")
        log((NUM_MODULE_STEPS_SAMPLED_LIFETIME, SHARED_POLICY), rows, reduce="lifetime_sum")


def _judge(network: Any, seen: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, np.ndarray]:
    """Logits (B, 6) and values (B,)."""
    batch: dict[str, torch.Tensor] = {name: torch.from_numpy(part).float() for name, part in seen.items()}
    batch[ACTION_MASK] = torch.ones(len(seen[VECTOR]), NUM_ACTIONS)
    values: torch.Tensor = network.values(batch)
    return network.logits(batch), values.numpy()


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
        "policy_network": select_fields(NumericSettings, "hiddens", activation="relu"),
    }
    own_env: ClassVar[str | None] = ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {"observe": ["vector"], "vector": "planes"}
    partners_in_games: ClassVar[bool] = False
    _rows_in_words: ClassVar[str] = "two cooks x `num_envs_per_env_runner`"

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults."""
        super().__init__(algo_class=algo_class)
        self.env_runner_cls = OnionSoupEnvRunner
        self.num_envs_per_env_runner = 32

    @override(NumericPPOConfig)
    def validate(self) -> None:
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
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
        rows = self.rows_per_step() * max(1, self.num_env_runners)
        if self.total_train_batch_size % rows:
            raise UserError(
                f"`train_batch_size_per_learner` is {self.train_batch_size_per_learner} but all learners' rows must be "
                f"a multiple of {rows}: {self._rows_in_words} x `num_env_runners`."
            )
        super().validate()

    def rows_per_step(self) -> int:
        """Rows of a train batch per game step of one EnvRunner: both cooks of all its games."""
        return 2 * self.num_envs_per_env_runner


class SelfPlayPPO(KeepsPastPolicies, NumericPPO):
    """PPO with one policy for both cooks, on whole arrays of games; settings: `SelfPlayPPOConfig`."""

    _runners_use_critic = True
    kept_as = "SelfPlayPPO"

    config_class = SelfPlayPPOConfig

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Builds as RLlib does, with the critic in all EnvRunners, and keeps the initial policy if it is asked for."""
        super().setup(config)
        self.sync_runners()  # RLlib's own leaves the critic out
        self.keep_initial()

    @override(KeepsPastPolicies)
    def score_of(self, found: Mapping[str, Any]) -> float:
        """Points of a game; NaN where none has ended."""
        return float(found.get("score", math.nan))

    @override(KeepsPastPolicies)
    def set_state(self, state: Any) -> None:
        """Sets RLlib's state and the past policies; EnvRunners judge, too."""
        super().set_state(state)
        self.sync_runners()

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
                from_worker_or_learner_group=self.learner_group, policies={SHARED_POLICY}, inference_only=False
            )

    def _roll_outs(self) -> MultiAgentBatch:
        config = self.config
        runners = max(1, config.num_env_runners)
        steps = config.total_train_batch_size // (config.rows_per_step() * runners)
        shaping = shaping_factor(self._game_steps(), config.shaping_horizon)
        pool, key = self.pool_of_runners()

        def play(runner: OnionSoupEnvRunner) -> tuple[dict[str, Any], Any]:
            runner.use_partners(pool, key)
            return runner.roll_out(steps, shaping), runner.get_metrics()

        parts = self.env_runner_group.foreach_env_runner(play, local_env_runner=config.num_env_runners == 0)
        self.metrics.aggregate([metrics for _, metrics in parts], key=ENV_RUNNER_RESULTS)
        rows = tree.map_structure(lambda *columns: np.concatenate(columns), *(columns for columns, _ in parts))
        return MultiAgentBatch(
            {SHARED_POLICY: SampleBatch(rows)}, env_steps=steps * config.num_envs_per_env_runner * runners
        )

    def pool_of_runners(self) -> tuple[Any, str | None]:
        """The partners that EnvRunners seat, here or in Ray's store, and the pool's key; nobody in self-play."""
        return None, None


def shaping_factor(game_steps: int, horizon: int | None) -> float:
    """The factor of the shaped rewards.

    Args:
        game_steps: Steps played so far.
        horizon: Steps until it is 0, from the beginning for 0; `None` for always 1.
    """
    if horizon is None:
        return 1.0
    return max(0.0, 1.0 - game_steps / horizon) if horizon else 0.0
