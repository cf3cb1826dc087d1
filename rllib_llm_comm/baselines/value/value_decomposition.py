"""Value decomposition: what VDN, QMIX and the systems built on them share, on stock DQN's machinery."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.dqn import DQN, DQNConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from rllib_llm_comm.baselines.value.joint import JointEnvRunner, make_joint_game
from rllib_llm_comm.baselines.value.joint_game import MIXER_STATES, TEAM_REWARDS
from rllib_llm_comm.baselines.value.joint_q_learner import OPTIMIZERS, JointQLearner
from rllib_llm_comm.baselines.value.kitchen_team import KitchenTeamRunner
from rllib_llm_comm.baselines.value.module import EPSILON, TEAM, JointQModule
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.q_settings import PLAIN, QSettings
from rllib_llm_comm.baselines.value.same_team import facts_of_checkpoint, facts_of_learner, require_same
from rllib_llm_comm.baselines.value.team_episodes import FILLED, EpisodeBuffer
from rllib_llm_comm.core.errors import UserError, require_choice, require_whole, shown
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.rl.env_registration import ensure_registered
from rllib_llm_comm.rl.episode_metrics import EpisodeMetrics
from rllib_llm_comm.rl.phase_seconds import PhaseSeconds
from rllib_llm_comm.rl.plain_errors import raise_told
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.policy_export import on_first_learner
from rllib_llm_comm.rl.strict_config import StrictConfigMixin, require_schedule

if TYPE_CHECKING:
    from ray.rllib.core.learner import Learner
    from typing_extensions import Self

logger = logging.getLogger(__name__)

REPLAY = "replay_buffer"
# Settings of stock DQN for parts that are not here: heads, losses, steps, priorities, passes over a batch.
_NOT_HERE = (
    "num_atoms", "v_min", "v_max", "noisy", "sigma0", "dueling", "hiddens", "double_q", "n_step", "training_intensity",
    "td_error_loss_fn", "categorical_distribution_temperature", "burn_in_len", "before_learn_on_batch",
    "replay_buffer_config", "minibatch_size", "num_epochs", "clip_rewards", "observation_filter",
)  # fmt: skip
_CLIPPED_BY = ("global_norm", "norm", "value")
_ARRAY_ENV = {
    "observe": ["vector"],
    "vector": "planes",
    "action_level": "primitive",
    "swap_roles": False,
    "wanted": None,
}


class ValueDecompositionConfig(StrictConfigMixin, DQNConfig):
    """Settings that VDN, QMIX and the systems built on them share; of stock DQN's those that this class names count."""

    kind: ClassVar[str] = PLAIN
    mixer: ClassVar[str]
    env_config: dict[str, Any]

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: PyMARL's, unless said otherwise in `training` and `policy_network`."""
        super().__init__(algo_class=algo_class)
        self.env_runner_cls = JointEnvRunner
        self.width = 64
        self.recurrent = True
        self.agent_ids = True
        self.last_action = True
        self.mixer_state = "auto"
        self.team_reward = "mean"
        self.td_lambda = 0.0
        self.buffer_episodes = 5000
        self.episodes_per_update = 1
        self.sequence_length = None
        self.array_games = False
        self.optimizer_name = "rmsprop"
        self.rmsprop_alpha = 0.99
        self.rmsprop_epsilon = 1e-5
        self.lr = 5e-4
        self.grad_clip = 10.0
        self.gamma = 0.99
        self.epsilon = [(0, 1.0), (50_000, 0.05)]
        self.train_batch_size_per_learner = 32
        self.target_network_update_freq = 10_000
        self.num_steps_sampled_before_learning_starts = 0
        self.rollout_fragment_length = 20
        self.num_env_runners = 0
        self.num_envs_per_env_runner = 1
        self.replay_buffer_config = {"type": "EpisodeReplayBuffer", "capacity": 0}  # not used: episodes are arrays
        self._team_told: dict[str, Any] | None = None

    def policy_network(
        self,
        *,
        width: int = NotProvided,
        recurrent: bool = NotProvided,
        agent_ids: bool = NotProvided,
        last_action: bool = NotProvided,
    ) -> Self:
        """Sets the agents' network.

        Args:
            width: Units of its layers, >= 1. Default 64 (PyMARL).
            recurrent: True if agents remember by a GRU. Default yes (PyMARL).
            agent_ids: True if an agent's input has its number in the team. Default yes (PyMARL). Without it agents with
                equal views act equally.
            last_action: True if an agent's input has its last action. Default yes (PyMARL).

        Returns:
            This config.
        """
        return self._assign(locals())

    @override(DQNConfig)
    def training(
        self,
        *,
        mixer_state: str = NotProvided,
        team_reward: str = NotProvided,
        td_lambda: float = NotProvided,
        buffer_episodes: int = NotProvided,
        episodes_per_update: int = NotProvided,
        sequence_length: int | None = NotProvided,
        array_games: bool = NotProvided,
        optimizer_name: str = NotProvided,
        rmsprop_alpha: float = NotProvided,
        rmsprop_epsilon: float = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. Defaults are PyMARL's, unless marked (ours).

        Args:
            mixer_state: Input of the mixer: `"game"`, the environment's `state()`; `"observation"`, the part `state`
                of the first agent's observation; `"team"`, all agents' vectors joined; `"auto"` (default, ours): the
                first of these that there is.
            team_reward: `"mean"` (default, ours) or `"sum"` of the agents' rewards. PyMARL's games pay the team.
            td_lambda: Weight of later targets, in [0, 1]. Default 0, one step; PyMARL2: 0.6.
            buffer_episodes: Most episodes that are kept, >= 1. Default 5000. They are whole arrays: reckon their size.
            episodes_per_update: Episodes played for each update, >= 1. Default 1; PyMARL2: 8.
            sequence_length: Most steps of the piece of each episode that an update sees, >= 1; null (default) for whole
                episodes. Pieces (ours) start without memory and last action, and targets of many steps end with them.
            array_games: True to play the onion-soup kitchens as whole arrays of compiled games, which is many times
                quicker (ours). Default no: any game, one step at a time.
            optimizer_name: `"rmsprop"` (default) or `"adam"` (PyMARL2).
            rmsprop_alpha: RMSprop's smoothing, in (0, 1). Default 0.99.
            rmsprop_epsilon: RMSprop's epsilon, > 0. Default 1e-5.
            **kwargs: Settings of `DQNConfig.training`. Defaults here: `lr` 5e-4 (PyMARL2: 1e-3), `gamma` 0.99,
                `grad_clip` 10 over all weights together, `epsilon` from 1 to 0.05 in 50,000 game steps (PyMARL2:
                100,000), `train_batch_size_per_learner` 32 **episodes** (PyMARL2: 128), `target_network_update_freq`
                10,000 game steps (ours; PyMARL: 200 episodes), `store_buffer_in_checkpoints` no. Those of distributions
                over values, duelling, noise and n steps mean nothing here and are refused.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        require_choice("grad_clip_by", kwargs.get("grad_clip_by", self.grad_clip_by), _CLIPPED_BY)
        super().training(**kwargs)
        return self._assign(own)

    def network_settings(self) -> QSettings:
        """Settings of agents and mixer, checked.

        Raises:
            UserError: If a value is not allowed.
        """
        own = {name: getattr(self, name) for name in QSettings.names() if hasattr(self, name)}
        return QSettings(**{**own, "init_seed": self.seed})

    def team_loss(self) -> TeamLoss:
        """The loss of a batch of episodes."""
        return TeamLoss(self.gamma, self.td_lambda)

    @override(DQNConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The module of the whole team."""
        told = self._team_told or self._ask_the_game()
        config = {**self.network_settings().to_dict(), EPSILON: self.epsilon, TEAM: told}
        return RLModuleSpec(module_class=JointQModule, model_config=config)

    def _ask_the_game(self) -> dict[str, Any]:
        """Names, numbers of actions and forms of observations of the game's agents; makes it once."""
        game = make_joint_game(self.env, self.env_config, self.mixer_state, self.team_reward)
        try:
            return game.told()
        finally:
            game.close()

    @override(DQNConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`JointQLearner`."""
        return JointQLearner

    @override(StrictConfigMixin)
    def validate(self) -> None:
        """Checks all settings; registers the environment with RLlib if PettingZoo knows it, and makes it once.

        Raises:
            UserError: If a value is not allowed, or the game is none that a team of choosers can play.
        """
        ensure_registered(self.env)
        self._validate_seed()
        self._validate_training()
        self.network_settings()
        if self.array_games:
            self._validate_array_games()
        if self.env is not None:
            self._team_told = self._ask_the_game()
        self._add_callback(EpisodeMetrics)
        self._add_callback(PhaseSeconds)
        super().validate()

    def _validate_array_games(self) -> None:
        if self.env != ENV_ID:
            raise UserError(f"`array_games` is true but `env` is {self.env!r}; only {ENV_ID!r} can be played so.")
        settings = {**_ARRAY_ENV, **self.env_config}
        for name, value in _ARRAY_ENV.items():
            if settings[name] != value:
                raise UserError(
                    f"`env_config.{name}` is {settings[name]!r} but must be {value!r} with `array_games`, whose cooks "
                    "see planes and know nothing of the environment's other forms."
                )
        if self.mixer_state not in ("auto", "game"):
            raise UserError(f"`mixer_state` is {self.mixer_state!r} but must be 'auto' or 'game' with `array_games`.")
        self.env_config = settings
        self.env_runner_cls = KitchenTeamRunner

    def _validate_training(self) -> None:
        require_choice("array_games", self.array_games, (False, True))
        require_choice("mixer_state", self.mixer_state, MIXER_STATES)
        require_choice("team_reward", self.team_reward, tuple(TEAM_REWARDS))
        require_choice("optimizer_name", self.optimizer_name, OPTIMIZERS)
        for name in ("buffer_episodes", "episodes_per_update", "train_batch_size_per_learner"):
            require_whole(name, getattr(self, name), 1)
        if self.sequence_length is not None:
            require_whole("sequence_length", self.sequence_length, 1)
        self.require_numbers(["gamma", "td_lambda", "rmsprop_alpha", "rmsprop_epsilon"])
        for name in ("gamma", "td_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be in [0, 1].")
        if not 0.0 < self.rmsprop_alpha < 1.0 or not self.rmsprop_epsilon > 0.0:
            raise UserError(
                f"`rmsprop_alpha` is {self.rmsprop_alpha!r} and `rmsprop_epsilon` {self.rmsprop_epsilon!r}, but they "
                "must be in (0, 1) and larger than 0."
            )
        if self.buffer_episodes < self.train_batch_size_per_learner:
            raise UserError(
                f"`buffer_episodes` is {self.buffer_episodes} but a batch has `train_batch_size_per_learner` = "
                f"{self.train_batch_size_per_learner} episodes; make the buffer larger or the batch smaller."
            )
        require_choice("store_buffer_in_checkpoints", self.store_buffer_in_checkpoints, (False, True))
        require_choice("grad_clip_by", self.grad_clip_by, _CLIPPED_BY)
        require_whole("num_env_runners", self.num_env_runners, 0)
        if self.is_multi_agent:
            raise UserError(
                f"`policies` is {shown(sorted(map(str, self.policies)))}, but a team is one policy, whose agents share "
                "their weights; leave `multi_agent` away."
            )
        require_whole("num_learners", self.num_learners, 0)
        if self.num_learners > 1:
            raise UserError(f"`num_learners` is {self.num_learners} but value decomposition learns with 0 or 1.")
        self._validate_steps()
        stock = type(self)()
        if self.train_batch_size != stock.train_batch_size:
            raise UserError(
                f"`train_batch_size` is {self.train_batch_size!r}, a setting of RLlib's old stack; set "
                "`train_batch_size_per_learner`, here a number of episodes."
            )
        for name in _NOT_HERE:
            if getattr(self, name) != getattr(stock, name):
                raise UserError(
                    f"`{name}` is {getattr(self, name)!r}, a setting of stock DQN that means nothing for "
                    f"{self.algo_class.__name__}; leave it away."
                )

    def _validate_steps(self) -> None:
        """Checks schedules and what belongs to single updates."""
        require_schedule("epsilon", self.epsilon, 1.0)
        require_schedule("lr", self.lr, math.inf)
        require_whole("target_network_update_freq", self.target_network_update_freq, 1)
        require_whole("num_steps_sampled_before_learning_starts", self.num_steps_sampled_before_learning_starts, 0)
        self.require_numbers(["tau", "adam_epsilon"])
        if not self.adam_epsilon > 0.0:
            raise UserError(f"`adam_epsilon` is {self.adam_epsilon!r} but must be larger than 0.")
        if not 0.0 < self.tau <= 1.0:
            raise UserError(f"`tau` is {self.tau!r} but must be larger than 0 and at most 1.")
        if self.grad_clip is not None:
            self.require_numbers(["grad_clip"])
            if not self.grad_clip > 0.0:
                raise UserError(
                    f"`grad_clip` is {self.grad_clip!r} but must be larger than 0, or null to clip nothing."
                )


class ValueDecomposition(PolicyCheckpointMixin, DQN):
    """Stock DQN whose one agent is a team; episodes are replayed as a whole."""

    @override(Algorithm)
    def _create_local_replay_buffer_if_necessary(self, config: Any) -> EpisodeBuffer:
        return EpisodeBuffer(self.config.buffer_episodes, self.config.seed)

    @override(Algorithm)
    def setup(self, config: Any) -> None:
        """Builds as RLlib does."""
        super().setup(config)
        self._owed = 0  # episodes played for which no update was made yet

    @override(DQN)
    def training_step(self) -> None:
        """Plays at least one episode, and updates once for every `episodes_per_update` of them."""
        config = self.config
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            wanted, played = max(1, config.episodes_per_update // max(1, config.num_env_runners)), self._game_steps()
            parts = self.env_runner_group.foreach_env_runner(
                lambda runner: (runner.roll_out(wanted, played), runner.get_metrics()),
                local_env_runner=config.num_env_runners == 0,
            )
        raise_told(self.env_runner_group)
        self.metrics.aggregate([metrics for _, metrics in parts], key=ENV_RUNNER_RESULTS)
        episodes = [episode for played, _ in parts for episode in played]
        self.local_replay_buffer.add(episodes)
        self.metrics.log_value((REPLAY, "episodes"), len(self.local_replay_buffer), window=1)
        self._owed += len(episodes)
        updates, self._owed = divmod(self._owed, config.episodes_per_update)
        if len(self.local_replay_buffer) < config.train_batch_size_per_learner:
            return
        if self._game_steps() < config.num_steps_sampled_before_learning_starts:
            return
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            for _ in range(updates):
                self._update()
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, policies={DEFAULT_MODULE_ID}, inference_only=True
            )

    @override(Algorithm)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state and the replay: its draws and, with `store_buffer_in_checkpoints`, its episodes."""
        state: dict[str, Any] = super().get_state(*args, **kwargs)
        stored = self.local_replay_buffer.get_state(episodes=self.config.store_buffer_in_checkpoints)
        state[REPLAY] = {**stored, "owed": self._owed}
        state[TEAM] = on_first_learner(self, facts_of_learner)
        return state

    @override(PolicyCheckpointMixin)
    def _require_own_algorithm(self, path: Any, wrote: str) -> None:
        """Refuses checkpoints of other teams, too, before anything of them is loaded."""
        super()._require_own_algorithm(path, wrote)
        if (facts := facts_of_checkpoint(str(path))) is not None:
            require_same(facts, on_first_learner(self, facts_of_learner), f"the checkpoint {str(path)!r}")

    @override(Algorithm)
    def set_state(self, state: Any) -> None:
        """Sets RLlib's state and the replay; without episodes in it the replay is empty.

        Raises:
            UserError: If it is another team's.
        """
        if TEAM in state:
            require_same(state[TEAM], on_first_learner(self, facts_of_learner), "the state that is set")
        super().set_state(state)
        if REPLAY in state:
            self.local_replay_buffer.set_state(state[REPLAY])
            self._owed = state[REPLAY]["owed"]
            if not len(self.local_replay_buffer):
                logger.warning(
                    "The replay begins empty, as the checkpoint holds none (`store_buffer_in_checkpoints`): no update "
                    "before %d episodes are played.",
                    self.config.train_batch_size_per_learner,
                )

    def _update(self) -> None:
        config = self.config
        batch = self.local_replay_buffer.sample(config.train_batch_size_per_learner, config.sequence_length)
        steps = int(batch[FILLED].sum())
        learned = self.learner_group.update(
            batch=MultiAgentBatch({DEFAULT_MODULE_ID: SampleBatch(batch)}, env_steps=steps),
            timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: self._game_steps()},
        )
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)

    def _game_steps(self) -> int:
        return int(self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0))
