"""Value decomposition: what VDN, QMIX and the systems built on them share, on stock DQN's machinery."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
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
from typing_extensions import Self

from rllib_llm_comm.baselines.value.joint import JointEnvRunner, make_joint_game
from rllib_llm_comm.baselines.value.joint_q_learner import JointQLearner
from rllib_llm_comm.baselines.value.kitchen_team import KitchenTeamRunner
from rllib_llm_comm.baselines.value.module import EPSILON, TEAM, JointQModule
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.q_settings import PLAIN, QSettings
from rllib_llm_comm.baselines.value.same_team import facts_of_checkpoint, facts_of_learner, require_same
from rllib_llm_comm.baselines.value.team_episodes import FILLED, EpisodeBuffer
from rllib_llm_comm.core.errors import LARGEST, UserError, require_whole, shown
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.rl.env_registration import ensure_registered
from rllib_llm_comm.rl.episode_metrics import EpisodeMetrics
from rllib_llm_comm.rl.phase_seconds import PhaseSeconds
from rllib_llm_comm.rl.plain_errors import raise_told
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.policy_export import on_first_learner
from rllib_llm_comm.rl.strict_config import StrictConfigMixin, part, require_schedule

if TYPE_CHECKING:
    from ray.rllib.core.learner import Learner

logger = logging.getLogger(__name__)

REPLAY = "replay_buffer"
# Settings of stock DQN for parts that are not here: heads, losses, steps, priorities, passes over a batch.
_NOT_HERE = (
    "num_atoms", "v_min", "v_max", "noisy", "sigma0", "dueling", "hiddens", "double_q", "n_step", "training_intensity",
    "td_error_loss_fn", "categorical_distribution_temperature", "burn_in_len", "before_learn_on_batch",
    "replay_buffer_config", "minibatch_size", "num_epochs", "clip_rewards", "observation_filter",
)  # fmt: skip
AGENT_SETTINGS = ("width", "recurrent", "agent_ids", "last_action")
_ARRAY_ENV = {
    "observe": ["vector"],
    "vector": "planes",
    "action_level": "primitive",
    "swap_roles": False,
    "wanted": None,
}


class ValueTraining(Settings):
    """The optimisation; values are PyMARL's, unless marked (ours)."""

    lr: Annotated[float, Field(ge=0)] | list[Any] = 5e-4
    """Learning rate, or a schedule of pairs [game steps, value]. PyMARL2: 1e-3."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount per game step."""
    grad_clip: float | None = Field(10.0, gt=0)
    """Gradient norm allowed, over all weights together; None: any."""
    grad_clip_by: Literal["global_norm", "norm", "value"] = "global_norm"
    """As of RLlib."""
    epsilon: Annotated[float, Field(ge=0, le=1)] | list[Any] = [(0, 1.0), (50_000, 0.05)]
    """Share of random actions, or a schedule of pairs [game steps, share]: from 1 to 0.05 in 50,000 steps; PyMARL2:
    100,000."""
    train_batch_size_per_learner: int = Field(32, ge=1, le=LARGEST)
    """**Episodes** per update. PyMARL2: 128."""
    target_network_update_freq: int = Field(10_000, ge=1, le=LARGEST)
    """Game steps between two copies of the target network (ours; PyMARL: 200 episodes)."""
    num_steps_sampled_before_learning_starts: int = Field(0, ge=0, le=LARGEST)
    """Game steps before the first update."""
    tau: float = Field(1.0, gt=0, le=1)
    """Share of the new weights in a copy of the target network."""
    adam_epsilon: float = Field(1e-8, gt=0)
    """Adam's epsilon."""
    store_buffer_in_checkpoints: bool = False
    """True if checkpoints hold the replay."""
    mixer_state: Literal["auto", "game", "observation", "team"] = "auto"
    """Input of the mixer: `"game"`, the environment's `state()`; `"observation"`, the part `state` of the first agent's
    observation; `"team"`, all agents' vectors joined; `"auto"` (ours): the first of these that there is."""
    team_reward: Literal["mean", "sum"] = "mean"
    """`"mean"` (ours) or `"sum"` of the agents' rewards. PyMARL's games pay the team."""
    td_lambda: float = Field(0.0, ge=0, le=1)
    """Weight of later targets. 0, one step; PyMARL2: 0.6."""
    buffer_episodes: int = Field(5000, ge=1, le=LARGEST)
    """Most episodes that are kept. They are whole arrays: reckon their size."""
    episodes_per_update: int = Field(1, ge=1, le=LARGEST)
    """Episodes played for each update. PyMARL2: 8."""
    sequence_length: int | None = Field(None, ge=1, le=LARGEST)
    """Most steps of the piece of each episode that an update sees; None: whole episodes. Pieces (ours) start without
    memory and last action, and targets of many steps end with them."""
    array_games: bool = False
    """True to play the onion-soup kitchens as whole arrays of compiled games, which is many times quicker (ours).
    False: any game, one step at a time."""
    optimizer_name: Literal["rmsprop", "adam"] = "rmsprop"
    """PyMARL2: adam."""
    rmsprop_alpha: float = Field(0.99, gt=0, lt=1)
    """RMSprop's smoothing."""
    rmsprop_epsilon: float = Field(1e-5, gt=0)
    """RMSprop's epsilon."""

    @field_validator("lr", "epsilon")
    @classmethod
    def _a_schedule(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        require_schedule(name, value, 1.0 if name == "epsilon" else math.inf)
        return value

    @model_validator(mode="after")
    def _holds_a_batch(self) -> Self:
        if self.buffer_episodes < self.train_batch_size_per_learner:
            raise UserError(
                f"`buffer_episodes` is {self.buffer_episodes} but a batch has `train_batch_size_per_learner` = "
                f"{self.train_batch_size_per_learner} episodes; make the buffer larger or the batch smaller."
            )
        return self


class ValueDecompositionConfig(StrictConfigMixin, DQNConfig):
    """Settings that VDN, QMIX and the systems built on them share; of stock DQN's those that this class names count."""

    settings_models = {"training": ValueTraining, "policy_network": part(QSettings, *AGENT_SETTINGS)}
    kind: ClassVar[str] = PLAIN
    mixer: ClassVar[str]
    env_config: dict[str, Any]

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: PyMARL's, unless said otherwise in `training` and `policy_network`."""
        super().__init__(algo_class=algo_class)
        self.env_runner_cls = JointEnvRunner
        self.rollout_fragment_length = 20
        self.num_env_runners = 0
        self.num_envs_per_env_runner = 1
        self.replay_buffer_config = {"type": "EpisodeReplayBuffer", "capacity": 0}  # not used: episodes are arrays
        self._team_told: dict[str, Any] | None = None

    def policy_network(self, **settings: Any) -> Self:
        """Sets the networks of agents and mixer; the settings are those of `settings_models["policy_network"]`."""
        return self.assign("policy_network", settings)

    @override(DQNConfig)
    def training(self, **settings: Any) -> Self:
        """Sets the optimisation; the settings are those of `settings_models["training"]` and of `DQNConfig.training`.

        Those of distributions over values, duelling, noise and n steps mean nothing here and are refused.
        """
        return self.assign("training", settings)

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
        self.check_settings()
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
        require_whole("num_env_runners", self.num_env_runners, 0)
        if self.is_multi_agent:
            raise UserError(
                f"`policies` is {shown(sorted(map(str, self.policies)))}, but a team is one policy, whose agents share "
                "their weights; leave `multi_agent` away."
            )
        require_whole("num_learners", self.num_learners, 0)
        if self.num_learners > 1:
            raise UserError(f"`num_learners` is {self.num_learners} but value decomposition learns with 0 or 1.")
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
