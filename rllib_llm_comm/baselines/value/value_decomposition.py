"""Value decomposition: what VDN, QMIX and the systems built on them share, on stock DQN's machinery."""

from __future__ import annotations

import copy
import io
import logging
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQN, DQNConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from ray.rllib.utils.schedules.scheduler import Scheduler
from typing_extensions import Self

from rllib_llm_comm.baselines.value.joint_game import (
    ACTIONS,
    ACTIVE,
    FILLED,
    MASK,
    REWARDS,
    SEEN,
    STATE,
    TERMINATED,
    EpisodeBuffer,
    last_actions,
)
from rllib_llm_comm.baselines.value.joint_runners import JointEnvRunner, KitchenTeamRunner, make_joint_game
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam, Unrolled, epsilon_greedy, open_values
from rllib_llm_comm.core.errors import LARGEST, UserError, require_whole, shown
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.policies.numeric_network import live_columns, take_columns
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import VALUED
from rllib_llm_comm.rl.actor_critic import SetupErrorsMixin
from rllib_llm_comm.rl.callbacks import EpisodeMetrics, PhaseSeconds
from rllib_llm_comm.rl.env_runner import raise_user_errors
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin, on_first_learner
from rllib_llm_comm.rl.rllib_adapter import ensure_registered
from rllib_llm_comm.rl.strict_config import Discount, StrictConfigMixin, require_schedule, select_fields

logger = logging.getLogger(__name__)

Batch = Mapping[str, torch.Tensor]
"""A batch of `joint_game.joined`, as tensors."""
MEMORY, LAST = "memory", "last_actions"
EPSILON, TEAM = "epsilon", "team"
_LAST_COPY = "last_target_copy"
_MODULE = Path(COMPONENT_LEARNER_GROUP, COMPONENT_LEARNER, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID)
_FREE = "init_seed"  # of fresh weights, which a checkpoint replaces
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


class ValueTraining(Discount):
    """The optimisation; values are PyMARL's, unless marked (ours)."""

    lr: Annotated[float, Field(ge=0)] | list[Any] = 5e-4
    """Learning rate, or a schedule of pairs [game steps, value]. PyMARL2: 1e-3."""
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


@dataclass
class UnrolledTeams:
    """A batch, and what the live and the target team make of it.

    Attributes:
        live: Of the live team, (B, T + 1, n, A).
        target: Of the target team, without gradients.
        target_best: (B, T + 1, n), the target team's values of the actions that the live team likes best among the open
            ones.
        target_total: (B, T + 1, m), the target team's values of them together, without gradients.
    """

    batch: Batch
    live: Unrolled
    target: Unrolled
    target_best: torch.Tensor
    target_total: torch.Tensor


class TeamLoss:
    """Squared error of a team's values over whole episodes, unrolled from zero memories.

    y_t = r_t + gamma (1 - term_t) Q_tot^-(s_{t+1}, a*), a* = argmax of the live values (double Q-learning); with
    `td_lambda` the targets of later steps count, too. An episode cut by a time limit has no `term` and is bootstrapped.
    `live` is the team that learns, `target` the one whose values Q^- are.

    Args:
        settings: The optimisation, as of `training`; `None` for the defaults.
    """

    training: ClassVar[type[ValueTraining]] = ValueTraining
    """The model of its settings."""

    def __init__(self, settings: ValueTraining | None = None) -> None:
        self.settings = settings or self.training()

    def __call__(self, live: QTeam, target: QTeam, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss, and figures to report."""
        unrolled = unroll_teams(live, target, narrow(live, target, batch))
        rewards = self.rewards(live, unrolled)
        error, values, targets = self._temporal_difference(live, unrolled, rewards)
        auxiliary = self.auxiliary_losses(live, unrolled, rewards)
        report = {
            "td_loss": float(error.detach()),
            "q_mean": float(values.detach().mean()),
            "target_mean": float(targets.mean()),
            **{name: float(term.detach()) for name, term in auxiliary.items()},
        }
        loss = torch.stack([error, *auxiliary.values()]).sum() if auxiliary else error
        return loss, report

    def rewards(self, live: QTeam, unrolled: UnrolledTeams) -> torch.Tensor:
        """Team rewards (B, T) that targets are made of: those of the game."""
        return unrolled.batch[REWARDS].float()

    def auxiliary_losses(self, live: QTeam, unrolled: UnrolledTeams, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """Weighted terms that are added to the loss, by name; none here."""
        return {}

    def squared_errors(self, errors: torch.Tensor, unrolled: UnrolledTeams) -> torch.Tensor:
        """Squared errors (B, T, m) of team values, errors being values minus targets; a subclass may weight them."""
        return errors.square()

    def _temporal_difference(
        self, live: QTeam, unrolled: UnrolledTeams, rewards: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, filled = unrolled.batch, unrolled.batch[FILLED].float()
        values = live.total(chosen(unrolled.live.values, batch[ACTIONS]), batch[STATE][:, :-1])
        with torch.no_grad():
            following = unrolled.target_total[:, 1:]
            going_on = 1.0 - batch[TERMINATED].float()
            targets = self._targets(rewards, going_on, following, filled)
        squared = self.squared_errors(values - targets, unrolled).mean(-1) * filled
        played = filled.bool()
        return squared.sum() / filled.sum(), values[played], targets[played]

    def _targets(
        self, rewards: torch.Tensor, going_on: torch.Tensor, following: torch.Tensor, filled: torch.Tensor
    ) -> torch.Tensor:
        """Targets (B, T, m) of rewards (B, T), values of next states (B, T, m) and whether they count (B, T)."""
        discount, share = self.settings.gamma * going_on[..., None], self.settings.td_lambda
        if not share:
            return rewards[..., None] + discount * following
        # A target is `now + later * (the next one)`, with all that is no target in `now`. Behind an episode's last step
        # there is nothing but the value of its last state.
        goes_on = torch.cat([filled[:, 1:], torch.zeros_like(filled[:, :1])], 1)[..., None] > 0
        now = rewards[..., None] + discount * torch.where(goes_on, (1 - share) * following, following)
        later = torch.where(goes_on, share * discount, torch.zeros_like(discount))
        targets = [now[:, -1]]
        for here, weight in zip(reversed(now[:, :-1].unbind(1)), reversed(later[:, :-1].unbind(1)), strict=True):
            targets.append(torch.addcmul(here, weight, targets[-1]))
        return torch.stack(targets[::-1], 1)


def unroll_teams(live: QTeam, target: QTeam, batch: Batch) -> UnrolledTeams:
    """Unrolls both teams over a batch."""
    filled = batch[FILLED].float()
    valid = torch.cat([torch.ones_like(filled[:, :1]), filled], 1)
    # Behind an episode's end nobody is asked, but that must not make the unrolling slow.
    active = torch.where(valid[..., None] > 0, batch[ACTIVE].float(), torch.ones_like(batch[ACTIVE], dtype=torch.float))
    before = last_actions(batch[ACTIONS], active)
    inputs: dict[str, Any] = {"seen": batch[SEEN], "last_actions": before, "active": active, "valid": valid}
    ours = live.unroll(**inputs)
    with torch.no_grad():
        theirs = target.unroll(**inputs)
        best = open_values(ours.values, batch[MASK]).argmax(-1, keepdim=True)
        target_best = theirs.values.gather(-1, best)[..., 0]
        target_total = target.total(target_best, batch[STATE])
    return UnrolledTeams(batch, ours, theirs, target_best, target_total)


def narrow(live: QTeam, target: QTeam, batch: Batch) -> Batch:
    """A batch without the columns of observations and states that are zero in all its steps.

    Losses and gradients stay as they are, up to rounding.
    """
    left = {name: live_columns(batch[name]) for name in (SEEN, STATE)}
    for team in (live, target):
        team.keep_columns(left[SEEN], left[STATE])
    cut = {name: take_columns(batch[name], columns) for name, columns in left.items() if columns is not None}
    return {**batch, **cut}


def chosen(values: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Values (B, T, n) of the actions (B, T, n) that were played, out of values (B, T + 1, n, A)."""
    return values[:, :-1].gather(-1, actions.long()[..., None])[..., 0]


class JointQLearner(DQNTorchLearner):
    """Stock DQN's learner with the loss of a `JointQModule`'s config (`team_loss`).

    Target teams are copied by stock DQN, every `target_network_update_freq` game steps; buffers (statistics) go along.
    """

    @override(DQNTorchLearner)
    def build(self) -> None:
        """Builds as stock DQN does, and the loss."""
        super().build()
        self._team_loss: TeamLoss = self.config.team_loss()

    @override(DQNTorchLearner)
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """One optimizer for agents and mixer."""
        parameters = list(self.module[module_id].unwrapped().team.parameters())
        start = config.lr if isinstance(config.lr, int | float) else config.lr[0][1]
        if config.optimizer_name == "rmsprop":
            optimizer: torch.optim.Optimizer = torch.optim.RMSprop(
                parameters, lr=float(start), alpha=config.rmsprop_alpha, eps=config.rmsprop_epsilon
            )
        else:
            optimizer = torch.optim.Adam(parameters, lr=float(start), eps=config.adam_epsilon)
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    @override(DQNTorchLearner)
    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> torch.Tensor:
        """The team's loss."""
        module = self.module[module_id].unwrapped()
        module.team.train()
        module.target.eval()  # RLlib trains all parts of a module, but statistics of a copy are those of its model
        loss, report = self._team_loss(module.team, module.target, batch)
        self.metrics.log_dict(report, key=module_id, window=1)
        return loss

    @override(DQNTorchLearner)
    def compute_gradients(self, loss_per_module: dict[str, Any], **kwargs: Any) -> dict[Any, Any]:
        """Gradients of the weights that are in the loss; an ablation leaves some out, which RLlib takes for a fault."""
        gradients = super().compute_gradients(loss_per_module, **kwargs)
        return {name: gradient for name, gradient in gradients.items() if gradient is not None}

    @override(DQNTorchLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Copies target teams if it is time."""
        before = dict(self.last_update_ts_by_mid)
        super().after_gradient_based_update(timesteps=timesteps)
        for module_id, step in self.last_update_ts_by_mid.items():
            if step != before.get(module_id, 0):
                for live, target in self.module[module_id].unwrapped().get_target_network_pairs():
                    for ours, theirs in zip(live.buffers(), target.buffers(), strict=True):
                        theirs.copy_(ours)

    @override(Learner)
    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state and the step of the last copy, without which a restored run would copy at once."""
        return {**super().get_state(*args, **kwargs), _LAST_COPY: dict(self.last_update_ts_by_mid)}

    @override(Learner)
    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        self.last_update_ts_by_mid.update(state.get(_LAST_COPY, {}))

    @classmethod
    @override(DQNTorchLearner)
    def rl_module_required_apis(cls) -> list[type]:
        """Target networks; values are the loss's own business."""
        return [TargetNetworkAPI]


class JointQModule(SetupErrorsMixin, TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI):
    """All agents of a team, with the mixer and the target team; observations are those of a `JointGame`.

    `model_config` holds the fields of `QSettings`; `epsilon`, a number or a schedule over game steps; and `team`, which
    names the agents and the forms of their observations for policy folders.

    Attributes:
        team: The team that learns.
        target: The team that targets are taken from; only Learners have it.
    """

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds the team."""
        config = dict(self.model_config)
        settings = QSettings.from_mapping({name: config[name] for name in QSettings.model_fields if name in config})
        spaces: Any = self.observation_space
        agents, actions = spaces[MASK].shape
        self.team = QTeam(settings, spaces[SEEN].shape[1], actions, agents, spaces[STATE].shape[0])
        self._epsilon = Scheduler(fixed_value_or_schedule=config.get(EPSILON, 0.0), framework="torch")

    @override(TorchRLModule)
    def set_state(self, state: dict[str, Any]) -> None:
        """Sets weights.

        Raises:
            UserError: If they are of other sizes: another team's, or another network's.
        """
        for name, weight in self.state_dict().items():
            if name in state and np.shape(state[name]) != weight.shape:
                raise UserError(
                    f"`{name}` has the shape {tuple(np.shape(state[name]))} in the state that is set but "
                    f"{tuple(weight.shape)} here; take weights of the same team, game and network settings."
                )
        super().set_state(state)

    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        """The target team is not needed to act."""
        return ["target"]

    @override(TargetNetworkAPI)
    def make_target_networks(self) -> None:
        """Copies the team."""
        self.target = copy.deepcopy(self.team).eval().requires_grad_(False)

    @override(TargetNetworkAPI)
    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """The team, mixer included, and its target."""
        return [(self.team, self.target)]

    @override(TargetNetworkAPI)
    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Nothing: the loss unrolls the target team itself."""
        return {}

    @override(TorchRLModule)
    def get_initial_state(self) -> dict[str, Any]:
        """Memory of a team that begins an episode: zeros, and no last action."""
        memory = self.team.initial_memory(1)[0]
        return {MEMORY: memory.cpu().numpy(), LAST: torch.full(memory.shape[:1], -1, dtype=torch.long).numpy()}

    def epsilon_at(self, step: int) -> float:
        """The share of random actions after so many game steps."""
        self._epsilon.update(step)
        return float(self._epsilon.get_current_value())

    @override(TorchRLModule)
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, 0.0, sample=False)

    @override(TorchRLModule)
    def _forward_exploration(self, batch: dict[str, Any], t: int = 0, **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, self.epsilon_at(t), sample=True)

    @override(TorchRLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {}  # the loss unrolls the team itself, beside its target

    def _act(self, batch: dict[str, Any], epsilon: float, sample: bool) -> dict[str, Any]:
        seen, state = batch[Columns.OBS], batch[Columns.STATE_IN]
        self.team.eval()
        with torch.no_grad():
            active = seen[ACTIVE] != 0
            out = self.team.unroll(seen[SEEN], state[LAST].unsqueeze(1), state[MEMORY], active, sample=sample)
            actions = epsilon_greedy(out.values, seen[MASK], epsilon)
            last = torch.where(active[:, -1], actions[:, -1], state[LAST].long())
        return {Columns.ACTIONS: actions, Columns.STATE_OUT: {MEMORY: out.memory, LAST: last}}

    def export_policy(self) -> PolicyExport:
        """Settings, sizes and the agents' weights; the mixer is not needed to act."""
        agents = copy.deepcopy(self.team)
        agents.mixer = agents.distance = None
        config = {**self.team.settings.to_dict(), **agents.sizes, "state_size": 0, **self.model_config[TEAM]}
        return PolicyExport(VALUED, network_file(agents), config)


def facts_of(observation_space: Any, model_config: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that weights of a `JointQModule` depend on, by name: the team, sizes, settings of the network.

    Args:
        model_config: The module's. Settings that it lacks, as those of older checkpoints may, have their defaults.
    """
    known = {name: model_config[name] for name in QSettings.model_fields if name in model_config}
    settings = {**QSettings().to_dict(), **known}
    return {
        **model_config.get(TEAM, {}),
        "size": observation_space[SEEN].shape[-1],
        "actions": observation_space[MASK].shape[-1],
        "state_size": observation_space[STATE].shape[-1],
        **{name: value for name, value in settings.items() if name != _FREE},
    }


def facts_of_learner(learner: Learner) -> dict[str, Any]:
    """Those of a Learner's module."""
    module = learner.module[DEFAULT_MODULE_ID].unwrapped()
    return facts_of(module.observation_space, module.model_config)


class _WithoutOurClasses(pickle.Unpickler):
    """Reads arguments beside which a class stands that may have another home by now."""

    def find_class(self, module: str, name: str) -> Any:
        """The class; an empty one for those of this package."""
        return type(name, (), {}) if module.startswith("rllib_llm_comm.") else super().find_class(module, name)


def facts_of_checkpoint(path: str | Path) -> dict[str, Any] | None:
    """Those of a checkpoint, which RLlib wrote beside the weights; `None` where there are none.

    Unpickles them, as RLlib does with all of a checkpoint.

    Raises:
        UserError: If they are damaged, or of a module of another kind.
    """
    file = Path(path) / _MODULE / Checkpointable.CLASS_AND_CTOR_ARGS_FILE_NAME
    if not file.is_file():
        return None
    try:
        _, kwargs = _WithoutOurClasses(io.BytesIO(file.read_bytes())).load()["ctor_args_and_kwargs"]
        return facts_of(kwargs["observation_space"], kwargs["model_config"])
    except Exception as error:  # a damaged pickle may raise anything
        raise UserError(
            f"{str(file)!r} is damaged, or not of a team that learns by value decomposition ({type(error).__name__}: "
            f"{error}); restore another checkpoint, or begin anew."
        ) from error


def require_same(theirs: Mapping[str, Any], own: Mapping[str, Any], origin: str) -> None:
    """Raises a `UserError` unless weights of one team can be those of the other.

    Args:
        theirs: Facts of the team that wrote them.
        own: Facts of the team that takes them.
        origin: Their place, for the message.
    """
    for name, wanted in own.items():
        if name in theirs and theirs[name] != wanted:
            raise UserError(
                f"`{name}` is {shown(theirs[name])} in {origin} but {shown(wanted)} in this run; a checkpoint must be "
                "of the same team, game and network, so restore it with the settings of its training or begin anew."
            )


class ValueDecompositionConfig(StrictConfigMixin, DQNConfig):
    """Settings that VDN, QMIX and the systems built on them share; of stock DQN's those that this class names count."""

    settings_models = {"training": ValueTraining, "policy_network": select_fields(QSettings, *AGENT_SETTINGS)}
    acts_by_vectors: ClassVar[bool] = True
    kind: ClassVar[str] = "plain"
    mixer: ClassVar[str]
    loss_class: ClassVar[type[TeamLoss]] = TeamLoss
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

    def policy_network(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the networks of agents and mixer; the settings are those of `settings_models["policy_network"]`."""
        return self.assign("policy_network", settings, values)

    @override(DQNConfig)
    def training(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the optimisation; the settings are those of `settings_models["training"]` and of `DQNConfig.training`.

        Those of distributions over values, duelling, noise and n steps mean nothing here and are refused.
        """
        return self.assign("training", settings, values)

    def network_settings(self) -> QSettings:
        """Settings of agents and mixer, checked.

        Raises:
            UserError: If a value is not allowed.
        """
        return QSettings.from_attributes(self, init_seed=self.seed)

    def team_loss(self) -> TeamLoss:
        """The loss of a batch of episodes."""
        return self.loss_class(self.checked_settings("training"))

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
        self.validate_training()
        self.network_settings()
        if self.array_games:
            self._validate_array_games()
        if self.env is not None:
            self._team_told = self._ask_the_game()
        self.add_callback(EpisodeMetrics)
        self.add_callback(PhaseSeconds)
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

    def validate_training(self) -> None:
        """Checks which settings do not fit together, before a game is made; subclasses add their own."""
        require_whole("num_env_runners", self.num_env_runners, 0)
        if self.is_multi_agent and not isinstance(self.policies, str):
            raise UserError(
                f"`policies` is {shown(sorted(map(str, self.policies)))}, but a team is one policy, whose agents share "
                "their weights; omit `multi_agent`."
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
                    f"{self.algo_class.__name__}; omit it."
                )


class ValueDecomposition(PolicyCheckpointMixin, DQN):
    """Stock DQN whose one agent is a team; episodes are replayed as a whole. Its settings are of `config_class`."""

    config_class: ClassVar[type[ValueDecompositionConfig]]

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
        raise_user_errors(self.env_runner_group)
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
