"""RED: officers that win by themselves and follow commands (Xu, Wang, Wu 2022, Grounded Reinforcement Learning)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field, model_validator
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchDistribution
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import EpisodeType, ModuleID, TensorType
from torch import nn
from typing_extensions import Self

from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig, MAPPOLearner, MAPPOTraining
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPO, NumericPPOConfig
from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice
from rllib_llm_comm.baselines.red.officer_cloning import (
    ACTION,
    INDEX,
    OfficerRows,
    decisions_of,
    drawn_decisions,
    mean_nll,
    read_demonstrations,
    split,
    take_step,
    weighted_nll,
)
from rllib_llm_comm.baselines.red.officer_network import SEEN, OfficerNetwork, OfficerSettings, distinct_views
from rllib_llm_comm.baselines.red.officer_policy import load_officer
from rllib_llm_comm.baselines.red.officer_settings import HeldOut
from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.envs.minirts import ENV_ID
from rllib_llm_comm.policies.numeric_network import BY_TEAM
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import OFFICER
from rllib_llm_comm.rl.actor_critic import RLLIB_KEYS, SetupErrorsMixin
from rllib_llm_comm.rl.connectors import ReplaceObservations
from rllib_llm_comm.rl.multi_agent_ppo import ACTOR, MultiAgentPPOLearner
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin, on_every_learner, on_first_learner
from rllib_llm_comm.rl.rllib_adapter import StartApart
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, select_fields, with_defaults
from rllib_llm_comm.rl.train_batch import ROW_GROUP

Decisions = Mapping[str, np.ndarray]
"""Arrays by name with a row for each decision."""
WEIGHT = "weight"
RED_STATE = "rllib_llm_comm_red"
BOTH_PHASES, RL, JOINT = "red", "rl", "joint"
_MOST_ROUNDS = 3
RED_RESULTS = "red"
_NETWORK = ("filters", "stride", "width", "words", "keys")


@with_defaults(
    use_value_norm=False,
    huber_delta=None,
    lr=5e-5,
    critic_lr=5e-4,
    gamma=0.999,
    vf_loss_coeff=0.5,
    grad_clip=0.5,
    num_epochs=4,
    minibatch_size=256,
    train_batch_size_per_learner=4000,
)
class REDTraining(HeldOut, MAPPOTraining):
    """The optimisation; RED's and SAMA's values where they are known, at a size for two cores."""

    method: Literal["red", "rl", "joint"] = "red"
    """`"red"`: both phases. `"rl"`: no cloning phase (MAPPO). `"joint"`: no phases, PPO's loss and `joint_coeff` times
    the cloning loss."""
    demonstrations: str | None = None
    """Folder of `rllib officer demonstrations` (D). Needed unless `method` is `"rl"`."""
    officer: str | None = None
    """A cloned officer to start from; None: fresh weights. The paper starts from one; from scratch its RL fails."""
    rl_updates: int = Field(10, ge=1, le=LARGEST)
    """Updates of the RL phase before each cloning phase. 10 (ours); RED: 100."""
    rl_until: float | None = Field(None, ge=1e-3, le=1)
    """Share of games won in the last `rl_window` updates of an RL phase at which it ends early; None: it does not
    (RED). `stop: {red/cloned_won_share: SHARE}` ends the run behind the cloning phase after the first RL phase that
    ends with so many (ours)."""
    rl_window: int = Field(10, ge=1, le=LARGEST)
    """Updates whose games count for `won_share`; at most `rl_updates` with `rl_until`. Games that were played before
    the actor had learned never count (ours)."""
    critic_first: int = Field(10, ge=0, le=LARGEST)
    """First updates at which the critic learns alone (RED)."""
    warm_up: int = Field(10, ge=0, le=LARGEST)
    """Updates behind these over which `lr` rises from 0 on a line. 10 (ours); SAMA: the first fifth of the run."""
    clone_steps: int = Field(200, ge=1, le=LARGEST)
    """Gradient steps of a cloning phase (ours)."""
    clone_batch_size: int = Field(128, ge=1, le=LARGEST)
    """Decisions per such step."""
    clone_lr: float = Field(2e-4, ge=1e-12, le=1)
    """Learning rate of its Adam (SAMA)."""
    clone_rows: int = Field(50_000, ge=1, le=LARGEST)
    """Most decisions of D in a phase, and of D_k. 50,000 (ours); RED: all."""
    clone_idle: float = Field(0.3, ge=1e-3, le=1)
    """As `OfficerCloningSettings.idle` (ours)."""
    clone_grad_clip: float = Field(0.5, ge=1e-12, le=1e6)
    """Gradient norm allowed in the cloning phase."""
    won_ratio: float = Field(1.0, ge=0, le=1e3)
    """|D_k| : |D|; 0 for an empty D_k (RED)."""
    nll_limit: float | None = Field(1.1, ge=1e-3, le=1e3)
    """A cloning phase goes on, up to three times `clone_steps`, while the held-out loss is more than so many times that
    of `officer`; None: it does not (RED)."""
    joint_coeff: float = Field(1.0, ge=0, le=1e6)
    """Weight of the cloning loss with `"joint"` (ours)."""

    @model_validator(mode="after")
    def _window_within_a_phase(self) -> Self:
        if self.rl_until is not None and self.method == BOTH_PHASES and self.rl_window > self.rl_updates:
            raise UserError(
                f"`rl_window` is {self.rl_window} but must be at most `rl_updates`, which is {self.rl_updates}, for "
                "`rl_until` to end an RL phase."
            )
        return self


class RLPhase:
    """Count of an RL phase's updates, and the share of games won in its last ones.

    Args:
        updates: Updates after which the phase is over, >= 1.
        window: Last updates of the phase whose games count for the share, >= 1.
        until: Share of won games at which the phase is over before, or `None`.
        uncounted: First updates of the run whose games never count: they were played before the actor had learned.
    """

    def __init__(self, updates: int, window: int, until: float | None, uncounted: int = 0) -> None:
        self._updates, self._window, self._until, self._uncounted = updates, window, until, uncounted
        self._done = self._all = 0
        self._games: deque[tuple[int, int]] = deque(maxlen=window)

    def add(self, won: int, games: int) -> None:
        """Notes an update of which so many `games` were `won`."""
        self._done += 1
        self._all += 1
        if self._all > self._uncounted:
            self._games.append((won, games))

    @property
    def won_share(self) -> float:
        """Share of games won in the last `window` updates of the phase; NaN before there were so many."""
        won, games = np.sum(self._games, axis=0) if self._games else (0, 0)
        return float(won / games) if len(self._games) == self._window and games else float("nan")

    @property
    def is_over(self) -> bool:
        """True when the cloning phase is next."""
        enough = self._until is not None and self.won_share >= self._until
        return self._done >= self._updates or enough

    def begin(self) -> None:
        """Begins the next phase."""
        self._done = 0
        self._games.clear()

    def get_state(self) -> dict[str, Any]:
        """The counts, for a checkpoint."""
        return {"done": self._done, "all": self._all, "games": list(self._games)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        self._done = int(state["done"])
        self._all = int(state.get("all", self._uncounted))  # not in checkpoints of the first releases
        self._games = deque([(int(won), int(games)) for won, games in state["games"]], maxlen=self._window)


class WonGames:
    """The last games that were won, up to a number of decisions; the oldest go first.

    Args:
        most: Most decisions, >= 1; the newest game is always kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._games: deque[dict[str, np.ndarray]] = deque()
        self.count = 0
        """Number of decisions that are kept."""

    def add(self, game: Decisions) -> None:
        """Takes in the decisions of a won game, at least one."""
        self._games.append({name: np.asarray(column) for name, column in game.items()})
        self.count += _length(game)
        while len(self._games) > 1 and self.count > self._most:
            self.count -= _length(self._games.popleft())

    def columns(self) -> dict[str, np.ndarray] | None:
        """All kept decisions; `None` if no game was won."""
        if not self._games:
            return None
        return {name: np.concatenate([game[name] for game in self._games]) for name in self._games[0]}

    def __len__(self) -> int:
        """Number of games that are kept."""
        return len(self._games)

    def get_state(self) -> list[dict[str, Any]]:
        """All kept games."""
        return [dict(game) for game in self._games]

    def set_state(self, state: list[dict[str, Any]]) -> None:
        """Sets what `get_state` gave."""
        self._games, self.count = deque(), 0
        for game in state:
            self.add(game)


def mixed_batch(
    demonstrated: Decisions, won: Decisions | None, size: int, ratio: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """A minibatch of D and D_k, drawn with repetition, so that D_k counts as if it had `ratio` times as many rows as D.

    Args:
        demonstrated: Demonstrations (D), at least one row.
        won: Decisions of won games (D_k); `None` if there are none.
        size: Rows of the minibatch.
        ratio: |D_k| : |D|, >= 0. RED: 1.
    """
    of_won = 0 if won is None else int(rng.binomial(size, ratio / (1.0 + ratio)))
    first = rng.integers(_length(demonstrated), size=size - of_won)
    if won is None or not of_won:
        return {name: column[first] for name, column in demonstrated.items()}
    second = rng.integers(_length(won), size=of_won)
    return {name: np.concatenate([demonstrated[name][first], won[name][second]]) for name in demonstrated}


def _length(columns: Decisions) -> int:
    return len(next(iter(columns.values())))


class OfficerObservations(ReplaceObservations):
    """Replaces every new observation by its arrays of `officer_view`, so that episodes stay small.

    Raises:
        UserError: If the spaces do not hold them.
    """

    @override(ReplaceObservations)
    def spaces(self, agents: Mapping[str, gym.Space], actions: Any) -> Mapping[str, gym.Space]:
        """The agents' spaces without the other parts."""
        return {a: _officer_space(f"the observations of {a!r} have", space) for a, space in agents.items()}

    @override(ReplaceObservations)
    def write(self, episode: MultiAgentEpisode, newest: list[tuple[Any, SingleAgentEpisode, Any]]) -> None:
        """Writes the arrays into an episode."""
        for agent, single, seen in newest:
            if len(seen) != len(SEEN):
                single.set_observations(at_indices=-1, new_data={name: seen[name] for name in SEEN})
                single.observation_space = self.observation_space[agent]


def _officer_space(whose: str, space: gym.Space | None) -> gym.spaces.Dict:
    """The parts of a space that officers act on; `whose` begins the sentence about a missing one."""
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if missing := [name for name in SEEN if name not in parts]:
        raise UserError(
            f"{whose} no `{missing[0]}`, which officers act on; use MiniRTS with `action_level: red` and `observe: "
            "[officer]`."
        )
    return gym.spaces.Dict({name: parts[name] for name in SEEN})


class CollectiveDistribution(TorchDistribution):
    """`CollectiveChoice` as RLlib's distributions are.

    Args:
        greedy: True if `sample` takes the most likely value of each part.
    """

    def __init__(self, choice: CollectiveChoice, greedy: bool = False) -> None:
        self._greedy = greedy
        super().__init__(choice)

    @override(TorchDistribution)
    def _get_torch_distribution(self, choice: CollectiveChoice) -> Any:
        return choice

    @override(TorchDistribution)
    def sample(self, *, sample_shape: Any = None) -> torch.Tensor:
        """Actions (B, 58)."""
        actions: torch.Tensor = self._dist.sample(greedy=self._greedy)
        return actions

    @override(TorchDistribution)
    def rsample(self, *, sample_shape: Any = None) -> torch.Tensor:
        """Not possible: actions are whole numbers."""
        raise NotImplementedError("whole numbers have no gradient")

    @override(TorchDistribution)
    def logp(self, value: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Log-probabilities (B,) of actions (B, 58), of the parts that they use."""
        logp: torch.Tensor = self._dist.logp(value)
        return logp

    @override(TorchDistribution)
    def kl(self, other: Any) -> torch.Tensor:
        """Not known in closed form; the learner estimates it from log-probabilities."""
        raise NotImplementedError("the divergence has no closed form")

    @staticmethod
    @override(TorchDistribution)
    def required_input_dim(space: gym.Space, **kwargs: Any) -> int:
        """Not told by the space: it depends on the network's `keys`."""
        raise NotImplementedError("the network's settings say it")

    @classmethod
    @override(TorchDistribution)
    def from_logits(cls, logits: CollectiveChoice, **kwargs: Any) -> CollectiveDistribution:
        """The distributions of `ACTION_DIST_INPUTS`, which are no one array here: most of it would be keys of cells."""
        return cls(logits)

    def to_deterministic(self) -> CollectiveDistribution:
        """The same distributions, of which `sample` takes the most likely values."""
        return CollectiveDistribution(self._dist, greedy=True)


class OfficerModule(SetupErrorsMixin, TorchRLModule, ValueFunctionAPI):
    """One network for all officers, at the action level "red" of MiniRTS (`OfficerNetwork`).

    `model_config` holds the fields of `OfficerSettings`. Observations have the part `officer`. Actions are drawn here,
    so that only they and their log-probabilities are kept of a roll-out: the distributions are large. PPO's learners
    make these anew. Actor and critic share all layers but the last.

    Attributes:
        value_norm: None: returns are not normalised.
    """

    value_norm = None
    observations_connector = OfficerObservations

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds the network."""
        config = {name: value for name, value in dict(self.model_config).items() if name not in RLLIB_KEYS}
        _officer_space("the observation space has", self.observation_space)
        self.network = OfficerNetwork(OfficerSettings.from_mapping(config))
        self.action_dist_cls = CollectiveDistribution

    def actor_parameters(self) -> list[nn.Parameter]:
        """All parameters but those of the last layer of the critic."""
        own = {id(parameter) for parameter in self.critic_parameters()}
        return [parameter for parameter in self.network.parameters() if id(parameter) not in own]

    def critic_parameters(self) -> list[nn.Parameter]:
        """The last layer of the critic."""
        return list(self.network.value.parameters())

    @override(TorchRLModule)
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, greedy=True)

    @override(TorchRLModule)
    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, greedy=False)

    def _act(self, batch: dict[str, Any], greedy: bool) -> dict[str, Any]:
        with torch.no_grad():
            choice = self.network.choice(batch[Columns.OBS])
            actions = choice.sample(greedy=greedy)
            return {Columns.ACTIONS: actions, Columns.ACTION_LOGP: choice.logp(actions)}

    @override(TorchRLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        choice, whole = self.network.choose(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: choice, Columns.EMBEDDINGS: whole}

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """Values (B,) of a batch's observations.

        Args:
            embeddings: Global vectors (B, D) of what the critic reads of these, if `forward_train` has computed them.
        """
        if embeddings is not None:
            return self.network.values(embeddings)
        return self.network.judged(batch[Columns.OBS])

    def export_policy(self) -> PolicyExport:
        """Settings and weights of this module for a checkpoint's policy folder."""
        return PolicyExport(OFFICER, network_file(self.network), self.network.settings.to_dict())


class KeepWonGames(ConnectorV2):
    """Learner connector that keeps the decisions of won games; episodes must be whole games.

    Args:
        won: Takes the games in.
        phase: Takes their number in.
    """

    def __init__(self, *args: Any, won: WonGames, phase: RLPhase, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._won, self._phase = won, phase

    @override(ConnectorV2)
    def __call__(self, *, batch: dict[str, Any], episodes: list[EpisodeType], **kwargs: Any) -> Any:
        """Takes in what was won; the batch stays as it is."""
        games = [[single for single in episode.agent_episodes.values() if len(single)] for episode in episodes]
        # Games that ended in time and paid all their agents.
        won = [one for one in games if one and all(s.is_terminated and s.get_rewards(-1) > 0 for s in one)]
        for singles in won:
            self._won.add(_decisions(singles))
        self._phase.add(len(won), len(games))
        return batch


class KeepPairs(ConnectorV2):
    """Learner connector that lets rows with the same shared view stay in one minibatch, where the critic reads it once.

    It comes behind all others.
    """

    @override(ConnectorV2)
    def __call__(self, *, batch: dict[str, Any], episodes: list[EpisodeType], **kwargs: Any) -> Any:
        """Adds the number of its view to each row."""
        for rows in batch.values():
            rows[ROW_GROUP] = distinct_views(rows[Columns.OBS])[1]
        return batch


class REDLearner(MAPPOLearner):
    """`MAPPOLearner` for officers with RED's second phase.

    The RL phase is PPO; the actor rests for the first `critic_first` updates, then its rate rises for `warm_up` more.
    `phase` tells when it is over. `clone` is the cloning phase, with an Adam of its own. With the method "joint" there
    are no phases: each loss of PPO has the cloning loss of a minibatch of demonstrations on top.

    Settings read from the config, beside those of `MAPPOLearner`: `method`, `demonstrations`, `held_out`,
    `critic_first`, `warm_up`, `clone_steps`, `clone_batch_size`, `clone_lr`, `clone_rows`, `clone_idle`,
    `clone_grad_clip`, `won_ratio`, `nll_limit`, `joint_coeff`, `rl_updates`, `rl_window`, `rl_until`.
    """

    @override(MultiAgentPPOLearner)
    def build(self) -> None:
        """Builds as MAPPO does, and reads the demonstrations."""
        config: Any = self.config
        self._won = WonGames(config.clone_rows)
        # Shares that are only logged need not wait for more updates than a phase has.
        window = min(config.rl_window, config.rl_updates) if config.method == BOTH_PHASES else config.rl_window
        self.phase = RLPhase(config.rl_updates, window, config.rl_until, uncounted=config.critic_first + 1)
        self._draws = np.random.default_rng(config.seed)
        super().build()
        if self._learner_connector is not None:
            self._learner_connector.prepend(KeepWonGames(won=self._won, phase=self.phase))
            if config.critic_observation == BY_TEAM:
                self._learner_connector.append(KeepPairs())
        self._shown: OfficerRows | None = None
        self._first_nll: float | None = None
        if config.method != RL:
            self._shown = read_demonstrations(config.demonstrations)
            self._learned, self._held_out = split(self._shown, config.held_out)
        self._cloner = torch.optim.Adam(self._network().parameters(), lr=config.clone_lr)

    def _network(self) -> OfficerNetwork:
        module_id = next(iter(self.module.keys()))
        network: OfficerNetwork = self.module[module_id].unwrapped().network
        return network

    @override(MultiAgentPPOLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Starts an update; at first the critic learns alone."""
        super().before_gradient_based_update(timesteps=timesteps)
        config: Any = self.config
        share = (self._weights_seq_no - config.critic_first + 1) / max(1, config.warm_up)
        share = 0.0 if self._weights_seq_no < config.critic_first else min(1.0, share)
        for name, optimizer in self._named_optimizers.items():
            if name.rsplit("_", 1)[1] == ACTOR and share < 1.0:
                self._set_optimizer_lr(optimizer, share * self._get_optimizer_lr(optimizer))

    @override(MultiAgentPPOLearner)
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> TensorType:
        """PPO's loss of a minibatch; with the method "joint" and the cloning loss of another."""
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        if config.method != JOINT:
            return loss
        batch = self._demonstrated(config.clone_batch_size)
        cloned = weighted_nll(self._network(), batch, batch[WEIGHT])
        self.log_values(module_id, clone_loss=cloned)
        return loss + config.joint_coeff * cloned

    # ---- the cloning phase -------------------------------------------------------------------------------------

    def note_first_nll(self) -> None:
        """Keeps the held-out loss of the officer from which training starts, for `nll_limit`."""
        self._first_nll = self.held_out_nll()

    def clone(self) -> dict[str, float]:
        """The cloning phase: `clone_steps` gradient steps on demonstrations and won games.

        While the held-out loss is more than `nll_limit` times that of the first officer there are more, up to three
        times as many.

        Returns:
            Figures of the phase: the mean `clone_loss`, the numbers of `won_games` and `won_decisions` in D_k, and the
            `held_out_nll` of demonstrations after it.
        """
        config: Any = self.config
        network = self._network()
        self.phase.begin()
        demonstrated, won = self._demonstrated(config.clone_rows), self._won_decisions()
        losses, nll = list[float](), float("nan")
        for _ in range(_MOST_ROUNDS):
            for _ in range(config.clone_steps):
                batch = mixed_batch(demonstrated, won, config.clone_batch_size, config.won_ratio, self._draws)
                loss = weighted_nll(network, batch, batch[WEIGHT])
                take_step(network, self._cloner, loss, config.clone_grad_clip)
                losses.append(float(loss.detach()))
            nll = self.held_out_nll()
            if None in (config.nll_limit, self._first_nll) or nll <= config.nll_limit * self._first_nll:
                break
        return {
            "clone_loss": float(np.mean(losses)),
            "clone_steps": float(len(losses)),
            "won_games": float(len(self._won)),
            "won_decisions": float(self._won.count),
            "held_out_nll": nll,
        }

    def held_out_nll(self) -> float:
        """Mean negative log-likelihood of the held-out demonstrations, in nats; NaN without demonstrations."""
        if self._shown is None:
            return float("nan")
        return mean_nll(self._network(), self._shown, self._held_out)

    def _demonstrated(self, most: int) -> dict[str, np.ndarray]:
        """At most so many decisions of D, with their weights."""
        config: Any = self.config
        assert self._shown is not None
        among = self._draws.permutation(self._learned)[: round(most / config.clone_idle)]
        return _weighted(self._shown.columns, among, config.clone_idle, most, self._draws)

    def _won_decisions(self) -> dict[str, np.ndarray] | None:
        """The decisions of D_k with their weights; `None` where it is empty, by its ratio or as nothing was won."""
        config: Any = self.config
        columns = self._won.columns() if config.won_ratio else None
        if columns is None:
            return None
        return _weighted(columns, np.arange(self._won.count), config.clone_idle, self._won.count, self._draws)

    # ---- checkpoints -------------------------------------------------------------------------------------------

    @override(Learner)
    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, the won games, and the state of the cloning phase's Adam and draws."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(RED_STATE, components, not_components):
            state[RED_STATE] = {
                "won": self._won.get_state(),
                "phase": self.phase.get_state(),
                "cloner": self._cloner.state_dict(),
                "draws": self._draws.bit_generator.state,
                "first_nll": self._first_nll,
            }
        return state

    @override(Learner)
    def set_state(self, state: dict[str, Any]) -> None:
        """Sets what `get_state` gave."""
        super().set_state(state)
        if kept := state.get(RED_STATE):
            self._won.set_state(kept["won"])
            if "phase" in kept:  # not in checkpoints of the first releases
                self.phase.set_state(kept["phase"])
            self._cloner.load_state_dict(kept["cloner"])
            self._draws.bit_generator.state = kept["draws"]
            self._first_nll = kept["first_nll"]

    @override(TorchLearner)
    def get_parameters(self, module: Any) -> list[torch.nn.Parameter]:
        """All of them."""
        return list(module.parameters())


def _decisions(singles: Sequence[Any]) -> dict[str, np.ndarray]:
    """The decisions of a game, agent after agent, as columns."""
    parts = []
    for single in singles:
        seen = [single.get_observations(step) for step in range(len(single))]
        columns = {name: np.stack([one[name] for one in seen]) for name in SEEN}
        parts.append({**columns, ACTION: np.stack(list(single.get_actions())).astype(np.int16)})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _weighted(
    columns: Any, among: np.ndarray, idle: float, most: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Some decisions, those without orders thinned out and weighted for it."""
    numbers, weights = drawn_decisions(columns[ACTION], among, idle, rng)
    return {**decisions_of(columns, numbers[:most]), WEIGHT: weights[:most]}


class REDConfig(MAPPOConfig):
    """Settings of `RED`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import REDConfig

        config = REDConfig().training(demonstrations="results/demonstrations", officer="results/officer")
        algo = config.build_algo()
        algo.train()
    """

    network: ClassVar[str] = "officer"
    acts_by_vectors: ClassVar[bool] = False
    settings_models = {
        **MAPPOConfig.settings_models,
        "training": REDTraining,
        "policy_network": select_fields(OfficerSettings, *_NETWORK, critic_observation=BY_TEAM),
    }
    own_env: ClassVar[str | None] = ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {
        "action_level": "red", "observe": ["officer"], "num_agents": 2, "opponent": "medium2",
    }  # fmt: skip

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults."""
        super().__init__(algo_class=algo_class)
        self.batch_mode = "complete_episodes"
        self.num_envs_per_env_runner = 4

    @override(NumericPPOConfig)
    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`OfficerSettings`)."""
        return OfficerSettings.from_attributes(self, init_seed=self.seed)

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module."""
        return RLModuleSpec(module_class=OfficerModule, model_config=self.network_settings().to_dict())

    @override(MAPPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`REDLearner`."""
        return REDLearner

    @override(MAPPOConfig)
    def validate_training(self) -> None:
        """Checks that officers order units themselves and learn from whole games, too."""
        super().validate_training()
        level = (self.env_config or {}).get("action_level")
        if self.env == self.own_env and level != "red":  # other actions are no orders, which the network's parts make
            raise UserError(
                f"`env_config.action_level` is {level!r} but must be 'red', since officers order units themselves; set "
                "that, or omit it."
            )
        if self.batch_mode != "complete_episodes":
            raise UserError("`batch_mode` must be 'complete_episodes': RED learns from whole games that were won.")
        self.add_callback(StartApart)
        if self.num_learners > 1:
            raise UserError(f"`num_learners` is {self.num_learners} but must be 0 or 1: won games lie in one Learner.")
        if self.officer is not None:
            held = load_officer(str(self.officer), "officer").settings
            for name in _NETWORK:
                if getattr(held, name) != getattr(self, name):
                    raise UserError(
                        f"`{name}` is {getattr(self, name)!r} but the officer {self.officer!r} has "
                        f"{getattr(held, name)!r}; set the same."
                    )
        # Behind the officer: those of a stage that is still to run are not there yet, and hide what is checked later.
        shown = None if self.demonstrations is None else Path(self.demonstrations) / INDEX
        if self.method != RL and (shown is None or not shown.is_file()):
            raise UserError(
                f"`demonstrations` is {self.demonstrations!r} but must be a folder of `rllib officer demonstrations` "
                "unless `method` is 'rl'."
            )


class RED(NumericPPO):
    """PPO under no command, in turns with cloning on demonstrations and won games; settings: `REDConfig`.

    Results of an iteration, under `red`: `won_share` (as `RLPhase.won_share`, before the cloning phase); with a cloning
    phase also `cloned_won_share`, the same, `clone_loss`, `clone_steps`, `won_games`, `won_decisions`, and
    `held_out_nll` of the demonstrations. Later iterations have NaN for these until the next cloning phase.
    """

    config_class = REDConfig

    @override(Algorithm)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds all parts and takes over the officer to start from."""
        super().setup(config)
        officer = self.config.officer
        if officer is not None:
            weights = {name: tensor.clone() for name, tensor in load_officer(officer, "officer").state_dict().items()}
            on_every_learner(self, _load_weights, weights=weights)
            self.sync_runners()
            if self.config.method == BOTH_PHASES:
                on_first_learner(self, REDLearner.note_first_nll)

    @override(PPO)
    def training_step(self) -> None:
        """A PPO update under no command; at the end of an RL phase a cloning phase."""
        super().training_step()
        config: Any = self.config
        share, is_over = on_first_learner(self, lambda learner: (learner.phase.won_share, learner.phase.is_over))
        results = {"won_share": share}
        if config.method == BOTH_PHASES and is_over:
            results.update({"cloned_won_share": share, **on_first_learner(self, REDLearner.clone)})
            self.sync_runners()
        for name, value in results.items():
            self.metrics.log_value((RED_RESULTS, name), value, window=1)

    @override(PolicyCheckpointMixin)
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config without `officer`: its weights are here, the old folder may be gone."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        return ({**dict(args[0]), "officer": None}, *args[1:]), kwargs

    @override(PolicyCheckpointMixin)
    def provenance(self) -> dict[str, Any]:
        """Demonstrations and first officer, for the policy folder."""
        config: Any = self.config
        return {"method": config.method, "demonstrations": config.demonstrations, "officer": config.officer}


def _load_weights(learner: Learner, weights: Mapping[str, Any]) -> None:
    learner.module[SHARED_POLICY].unwrapped().network.load_state_dict(dict(weights))
