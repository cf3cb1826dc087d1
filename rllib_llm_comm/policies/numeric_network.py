"""Actor and critic on numeric observations, without RLlib: plain MLPs, or CommNet, and their layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from rllib_llm_comm.core.settings import FreshWeights, Settings, Several
from rllib_llm_comm.envs.interface import ACTION_MASK

WORTH_IT = 0.75
"""Share of columns with anything in them above which leaving out the others is slower than it helps (ours)."""
LEAST_VARIANCE = 1e-2
MOST_LAYERS, MOST_WIDTH = 16, 65536
VECTOR = "vector"
TEAM_VECTORS = "team_vectors"
STATE = "state"  # the game's whole state, as an environment tells it
CRITIC_STATE = "critic_state"  # the same, flat, as the connector leaves it
COMMNET = "commnet"
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
AUTO, BY_STATE, BY_TEAM, BY_OWN, BY_PARTNER = "auto", "state", "team", "own", "partner"
_CENTRAL = {BY_STATE: CRITIC_STATE, BY_TEAM: TEAM_VECTORS, BY_PARTNER: CRITIC_STATE}
FORBIDDEN = -1e9  # not -inf: its gradient would be NaN


class NarrowLinear(nn.Linear):
    """Linear layer that also takes inputs without the columns that hold zeros only.

    A zero adds nothing to an output, and its weight gets no gradient. So outputs and gradients are those of the whole
    input, up to the order of sums. The planes of an onion-soup kitchen leave four of five columns at zero for good.

    Attributes:
        columns: Indices (k,) of the columns that a narrow input has; `None` before the first.

    Args:
        inputs: Width of a whole input.
        outputs: Width of an output.
        before: Columns in front of the part of which some may be left out.
    """

    columns: torch.Tensor | None = None

    def __init__(self, inputs: int, outputs: int, before: int = 0) -> None:
        super().__init__(inputs, outputs)
        self.before = before

    def keep(self, columns: torch.Tensor, size: int) -> None:
        """Tells what narrow inputs have from here on.

        Args:
            columns: Indices (k,) of the columns that are left of the part.
            size: Width of the whole part.
        """
        behind = torch.arange(self.before + size, self.in_features, device=columns.device)
        front = torch.arange(self.before, device=columns.device)
        self.columns = torch.cat([front, columns + self.before, behind])

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Outputs (B, out) of inputs (B, in), or (B, k) of the columns in `columns`."""
        if self.columns is None or seen.shape[-1] == self.in_features:
            return super().forward(seen)
        return functional.linear(seen, self.weight.index_select(1, self.columns), self.bias)


def live_columns(seen: torch.Tensor) -> torch.Tensor | None:
    """Indices (k,) of the columns of a batch that are not zero in all rows; `None` where most columns are not.

    Args:
        seen: (..., size).
    """
    columns = seen.flatten(0, -2).any(0).nonzero()[:, 0]
    return None if len(columns) > WORTH_IT * seen.shape[-1] else columns


def take_columns(seen: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Some columns (..., k) of a batch (..., size), as floats.

    Args:
        seen: (..., size).
        columns: Their indices (k,).
    """
    # Of a matrix: of anything else torch takes columns slowly.
    rows = seen.reshape(-1, seen.shape[-1]).index_select(1, columns)
    return rows.float().reshape(*seen.shape[:-1], -1)


def without_zero_columns(seen: torch.Tensor, layers: list[NarrowLinear]) -> torch.Tensor:
    """A batch of inputs as floats without its columns of zeros; the layers that read it are told which are left.

    Args:
        seen: Inputs (B, in).
        layers: The layers that will read all or a part of its rows.

    Returns:
        (B, k), or the inputs as they are where most columns hold something.
    """
    columns = live_columns(seen)
    if columns is None:
        return seen
    for layer in layers:
        layer.keep(columns, seen.shape[1])
    return take_columns(seen, columns)


def moments(values: torch.Tensor) -> torch.Tensor:
    """Count, sum and sum of squares (3,) of values, in double precision; those of several parts can be added.

    Args:
        values: (B,), in units of reward.
    """
    exact = values.detach().double()
    return torch.stack([torch.full_like(exact.sum(), exact.numel()), exact.sum(), exact.square().sum()])


class ValueNorm(nn.Module):
    """Keeps mean and variance of returns as debiased exponential averages and converts values with them.

    After Yu et al. 2022 (arXiv 2103.01955), whose code averages mean m and mean square q with decay b from 0, divides
    both by 1 - b^n after n updates, and takes q - m^2, at least 0.01, as the variance. Here the same averages are kept
    in the debiased form and the variance itself in place of the mean square, so that returns far from 0 lose no digits.
    All numbers are buffers: they are in checkpoints and never touched by an optimizer.

    Args:
        beta: Decay per update, in [0, 1).
    """

    mean: torch.Tensor
    variance: torch.Tensor
    updates: torch.Tensor

    def __init__(self, beta: float = 0.99999) -> None:
        super().__init__()
        self.beta = beta
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.zeros(()))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @property
    def std(self) -> torch.Tensor:
        """The standard deviation (), at least 0.1."""
        return self.variance.clamp(min=LEAST_VARIANCE).sqrt()

    @torch.no_grad()
    def update(self, batch: torch.Tensor) -> None:
        """Takes a batch of returns into account.

        Args:
            batch: Its `moments` (3,).
        """
        count, total, squares = batch.unbind()
        mean = total / count
        variance = (squares / count - mean.square()).clamp(min=0.0)
        self.updates += 1
        # The weight of the newest batch in a debiased average: 1 at first, 1 - beta in the long run.
        share = (1.0 - self.beta) / (1.0 - self.beta ** int(self.updates))
        shift = mean - self.mean
        self.variance.copy_((1.0 - share) * (self.variance + share * shift.square()) + share * variance)
        self.mean.copy_(self.mean + share * shift)

    def normalize(self, values: torch.Tensor) -> torch.Tensor:
        """Values (B,) in units of reward, as the critic is to say them."""
        return (values - self.mean) / self.std

    def denormalize(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs of the critic (B,), in units of reward."""
        return outputs * self.std + self.mean


class ValueNormSettings(Settings):
    """How the returns that a critic learns are normalised."""

    use_value_norm: bool = False
    """True if the critic learns returns normalised by a `ValueNorm` (MAPPO)."""
    value_norm_beta: float = Field(0.99999, ge=0, lt=1)
    """Decay of their running mean and variance per update (MAPPO)."""


class NumericSettings(FreshWeights, ValueNormSettings):
    """Settings of a `NumericModule`: its `model_config`."""

    network: Literal["mlp", "commnet"] = "mlp"
    """`"mlp"` (each agent for itself) or `"commnet"`."""
    hiddens: Several[Annotated[int, Field(ge=1, le=MOST_WIDTH)]] = Field((64, 64), min_length=1, max_length=MOST_LAYERS)
    """Widths of the hidden layers of actor and critic (MAPPO: 64, 64). CommNet has one width, the last (IC3Net's code:
    64). Carroll: three convolutions of 25 filters and three layers of 64, shared."""
    communication: Literal["hidden", "observations"] = "hidden"
    """CommNet only. `"hidden"`: agents hear the mean of the others' hidden states, through which gradients flow
    (Sukhbaatar et al. 2016). `"observations"`: they hear the mean of all agents' observations, as the Verco paper
    describes it."""
    communication_passes: int = Field(2, ge=1, le=64)
    """CommNet's K: how often agents hear before they act. The original: 2; IC3Net's code: 1."""
    share_passes: bool = False
    """True if all passes have the same weights. The original: no."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Behind every hidden layer of an MLP. MAPPO: relu; Carroll: leaky ReLU."""
    layer_norm: bool = False
    """True if an MLP has LayerNorm on its inputs and behind every hidden layer (MAPPO). It takes away an observation's
    mean and scale, so turn it off where an agent sees one or two numbers."""
    critic_observation: Literal["auto", "state", "team", "own", "partner"] = "own"
    """Input of the critic: `"own"`, that of the actor (IPPO); `"state"`, the game's state; `"team"`, the vectors of all
    agents as they were seen last, the agent's own first; `"auto"` (ours): the state where all agents have it, otherwise
    the team; `"partner"` (ours): the actor's and who the frozen partner is (`BestResponsePPO`), so that differences
    between partners are no noise in the advantages; not for populations that grow (COLE, PBT)."""

    @property
    def hears(self) -> bool:
        """True if agents see more than their own observation."""
        return self.network == COMMNET

    @property
    def inputs(self) -> tuple[str, str]:
        """The parts of an observation that the actor reads."""
        return (TEAM_VECTORS if self.hears else VECTOR), ACTION_MASK

    @property
    def critic_input(self) -> str:
        """The part of an observation that the critic reads; `critic_observation` must not be `"auto"` any more."""
        return _CENTRAL.get(self.critic_observation, self.inputs[0])


def team_vectors(agent: str, agents: list[str], latest: dict[str, np.ndarray]) -> np.ndarray:
    """The vectors of a team (agents, size), the agent itself first, the others in order.

    Args:
        agents: The whole team.
        latest: Observation of each agent at its last decision.
    """
    order = [agent, *(other for other in agents if other != agent)]
    return np.stack([latest.get(other, np.zeros_like(latest[agent])) for other in order])


class NumericNetwork(nn.Module):
    """Actor and critic with separate weights, so that each has its own optimizer.

    They have the same shape, unless the critic sees more than the actor (`critic_observation`): then it is an MLP.

    Args:
        settings: Settings of the network; `critic_observation` must not be `"auto"` any more.
        size: Length of an agent's vector.
        actions: Number of actions.
        critic_size: Length of what a central critic reads; `None` where it sees what the actor sees.
    """

    def __init__(self, settings: NumericSettings, size: int, actions: int, critic_size: int | None = None) -> None:
        super().__init__()
        self.settings = settings
        with torch.random.fork_rng(devices=[], enabled=settings.init_seed is not None):
            if settings.init_seed is not None:
                torch.manual_seed(settings.init_seed)
            self.actor = _build(settings, size, actions, 0.01)
            if critic_size is None:
                self.critic = _build(settings, size, 1, 1.0)
            else:
                self.critic = nn.Sequential(nn.Flatten(1), _mlp(settings, critic_size, 1, 1.0))
        self.value_norm = ValueNorm(settings.value_norm_beta) if settings.use_value_norm else None

    def logits(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits (B, K) of all actions; forbidden ones get next to no probability.

        Args:
            observations: `action_mask` (B, K) and `vector` (B, size), or for CommNet `team_vectors` (B, agents, size)
                with the agent itself first.
        """
        seen, mask = (observations[name] for name in self.settings.inputs)
        logits: torch.Tensor = self.actor(seen.float())
        return logits.masked_fill(mask == 0, FORBIDDEN)

    def values(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """State values (B,), in units of reward."""
        outputs = self.critic_outputs(observations)
        return outputs if self.value_norm is None else self.value_norm.denormalize(outputs)

    def critic_outputs(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Outputs of the critic (B,): normalised values if there is a `value_norm`, otherwise values.

        Args:
            observations: The part `settings.critic_input`: as for `logits`, or `critic_state` (B, critic_size).
        """
        value: torch.Tensor = self.critic(observations[self.settings.critic_input].float())
        return value.squeeze(-1)

    def narrow(self, observations: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Observations to learn from without columns that are zero in all rows; figures stay, up to rounding.

        Args:
            observations: All rows of an update, as for `logits` and `critic_outputs`. Later ones may be some of these.
        """
        narrow = dict(observations)
        readers: dict[str, list[nn.Module]] = {self.settings.inputs[0]: [self.actor]}
        readers.setdefault(self.settings.critic_input, []).append(self.critic)
        for name, networks in readers.items():
            layers = [layer for one in networks for layer in one.modules() if isinstance(layer, NarrowLinear)]
            if len(layers) == len(networks) and observations[name].dim() == 2:
                narrow[name] = without_zero_columns(observations[name], layers)
        return narrow


class CommNetNetwork(nn.Module):
    """h_i <- tanh(e_i + H_k h_i + C_k mean of h_j over the others), K times, from h_i = e_i = tanh(E o_i).

    All rows of a team are computed from its observations, so gradients reach the encoder through what was heard as
    well. (Sukhbaatar et al. 2016, with the skip connection from the encoder; a team of one hears zeros.)

    Args:
        size: Length of an agent's vector.
        width: Length of the hidden states.
        outputs: Length of the output.
        passes: K.
        share: True if all passes have the same weights.
        scale: Gain of the output layer.
    """

    def __init__(self, size: int, width: int, outputs: int, passes: int, share: bool, scale: float) -> None:
        super().__init__()
        self.encoder = _linear(size, width)
        count = 1 if share else passes
        self.own = nn.ModuleList(_linear(width, width) for _ in range(count))
        self.heard = nn.ModuleList(_linear(width, width) for _ in range(count))
        self.head = _linear(width, outputs, scale)
        self.passes = passes

    def forward(self, team: torch.Tensor) -> torch.Tensor:
        """Outputs (B, outputs) of each team's first agent.

        Args:
            team: (B, agents, size).
        """
        encoded = torch.tanh(self.encoder(team))
        hidden = encoded
        others = max(1, team.shape[1] - 1)
        for k in range(self.passes):
            own, heard = self.own[k % len(self.own)], self.heard[k % len(self.heard)]
            mean = (hidden.sum(1, keepdim=True) - hidden) / others
            hidden = torch.tanh(encoded + own(hidden) + heard(mean))
        out: torch.Tensor = self.head(hidden[:, 0])
        return out


class MeanOfObservations(nn.Module):
    """An MLP on an agent's vector beside the mean of all agents' vectors.

    Args:
        settings: Widths and activation.
        size: Length of an agent's vector.
        outputs: Length of the output.
        scale: Gain of the output layer.
    """

    def __init__(self, settings: NumericSettings, size: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.mlp = _mlp(settings, 2 * size, outputs, scale)

    def forward(self, team: torch.Tensor) -> torch.Tensor:
        """Outputs (B, outputs) of each team's first agent; `team` is (B, agents, size)."""
        out: torch.Tensor = self.mlp(torch.cat([team[:, 0], team.mean(1)], dim=-1))
        return out


def _build(settings: NumericSettings, size: int, outputs: int, scale: float) -> nn.Module:
    if settings.network == "mlp":
        return _mlp(settings, size, outputs, scale)
    if settings.communication == "observations":
        return MeanOfObservations(settings, size, outputs, scale)
    width = settings.hiddens[-1]
    return CommNetNetwork(size, width, outputs, settings.communication_passes, settings.share_passes, scale)


def _mlp(settings: NumericSettings, inputs: int, outputs: int, scale: float) -> nn.Sequential:
    layers: list[nn.Module] = [nn.LayerNorm(inputs)] if settings.layer_norm else []
    for place, width in enumerate(settings.hiddens):
        kind = nn.Linear if place or settings.layer_norm else NarrowLinear
        layers += [_linear(inputs, width, kind=kind), ACTIVATIONS[settings.activation]()]
        layers += [nn.LayerNorm(width)] if settings.layer_norm else []
        inputs = width
    return nn.Sequential(*layers, _linear(inputs, outputs, scale))


def _linear(inputs: int, outputs: int, gain: float = 2**0.5, kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    layer = kind(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
