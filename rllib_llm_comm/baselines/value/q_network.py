"""Networks of teams that value their actions: agents (plain, LDSA, ROMA), mixers and the team; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from rllib_llm_comm.core.settings import FreshWeights
from rllib_llm_comm.policies.numeric_network import MOST_WIDTH, NarrowLinear

CLOSED = -9999999.0  # value of an action that is not open, as of PyMARL
SUBTASK_LOGITS = "subtask_logits"
ROLES, ROLE_MEANS, ROLE_VARIANCES = "roles", "role_means", "role_variances"
INFERRED_MEANS, INFERRED_VARIANCES = "inferred_means", "inferred_variances"


class QSettings(FreshWeights):
    """Settings of a `QTeam`: the `model_config` of a `JointQModule`."""

    kind: Literal["plain", "ldsa", "roma"] = "plain"
    """The agents' network: `"plain"` (a GRU), `"ldsa"` (subtasks) or `"roma"` (roles)."""
    mixer: Literal["vdn", "qmix", "none"] = "qmix"
    """Total of the agents' values: `"vdn"` (their sum), `"qmix"` (monotone in each), or `"none"` (each agent learns
    alone from the team's reward)."""
    width: int = Field(64, ge=1, le=MOST_WIDTH)
    """Units of an agent's layers (PyMARL)."""
    recurrent: bool = True
    """True if agents remember by a GRU (PyMARL); otherwise a layer with ReLU stands in its place."""
    agent_ids: bool = True
    """True if an agent's input has its number in the team, one-hot (PyMARL). Without it agents with equal views act
    equally."""
    last_action: bool = True
    """True if an agent's input has its last action, one-hot (PyMARL)."""
    mixing_width: int = Field(32, ge=1, le=MOST_WIDTH)
    """Units of QMIX's mixing network (PyMARL)."""
    hypernet_layers: int = Field(2, ge=1, le=2)
    """Layers of the two hypernetworks that make QMIX's weights (PyMARL's qmix.yaml)."""
    hypernet_width: int = Field(64, ge=1, le=MOST_WIDTH)
    """Units between two such layers (PyMARL)."""
    subtasks: int = Field(4, ge=2, le=64)
    """LDSA: number of subtasks (authors)."""
    subtask_width: int = Field(64, ge=1, le=MOST_WIDTH)
    """LDSA: length of subtasks and abilities (authors)."""
    random_subtasks: bool = False
    """LDSA: True if an agent's subtask is drawn at random in place of by its ability: the ablation."""
    role_size: int = Field(3, ge=1, le=64)
    """ROMA: numbers of a role (authors)."""
    role_width: int = Field(16, ge=1, le=MOST_WIDTH)
    """ROMA: units of encoder and decoder of roles (authors)."""
    role_variance_floor: float = Field(0.002, gt=0, le=1)
    """ROMA: smallest variance of a role (authors; 1e-4 on other maps)."""
    distance_width: int = Field(0, ge=0, le=MOST_WIDTH)
    """MASER: units of the network of distances; 0: there is none."""


@dataclass
class Unrolled:
    """Values of a piece of an episode, and what agents remember behind it.

    Attributes:
        values: (B, T, n, A), one value per agent and action.
        memory: (B, n, M), what agents remember behind the last step.
        more: Tensors that only some kinds of agents have, by name, for their own losses.
    """

    values: torch.Tensor
    memory: torch.Tensor
    more: dict[str, torch.Tensor] = field(default_factory=dict)


def agent_inputs(
    settings: QSettings, seen: torch.Tensor, last_actions: torch.Tensor, actions: int, ids: torch.Tensor
) -> torch.Tensor:
    """The inputs of agents: what they see, then what they did last and who they are, where the settings say so.

    Args:
        seen: (..., n, size).
        last_actions: (..., n), whole numbers; -1 for none.
        actions: A, number of actions.
        ids: (n, N), the agents' numbers in the team, one-hot.
    """
    parts = [seen.float()]
    if settings.last_action:
        # One class more, for no action, which is cut off again.
        parts.append(functional.one_hot(last_actions.long() % (actions + 1), actions + 1)[..., :actions].float())
    if settings.agent_ids:
        parts.append(ids.expand(*seen.shape[:-1], ids.shape[-1]))
    return torch.cat(parts, -1)


class MemoryLayer(nn.Module):
    """A layer with ReLU and a GRU, or a second layer with ReLU where nothing is remembered."""

    def __init__(self, inputs: int, width: int, recurrent: bool = True) -> None:
        super().__init__()
        self.encode = NarrowLinear(inputs, width)
        self.gru = nn.GRU(width, width, batch_first=True) if recurrent else None
        self.layer = None if recurrent else nn.Linear(width, width)

    def forward(
        self, inputs: torch.Tensor, memory: torch.Tensor, active: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states (B, T, n, H) and the memory (B, n, H) behind the last step.

        Args:
            inputs: (B, T, n, size).
            memory: (B, n, H) of before; zeros where an episode begins.
            active: (B, T, n), false where an agent is not asked: what it remembers stays as it is. `None`: all are.
        """
        batch, steps, agents = inputs.shape[:3]
        encoded = torch.relu(self.encode(inputs))
        if self.gru is None:
            assert self.layer is not None
            return torch.relu(self.layer(encoded)), memory
        rows = encoded.transpose(1, 2).reshape(batch * agents, steps, -1)
        hidden = memory.reshape(1, batch * agents, -1).contiguous()
        if active is None or bool(active.all()):
            out, hidden = self.gru(rows, hidden)
        else:
            asked = active.bool().transpose(1, 2).reshape(batch * agents, steps, 1)
            parts, last = [], hidden[0]
            for step in range(steps):
                new = self.gru(rows[:, step : step + 1], last[None].contiguous())[0][:, 0]
                parts.append(new)
                last = torch.where(asked[:, step], new, last)
            out, hidden = torch.stack(parts, 1), last[None]
        shaped = out.reshape(batch, agents, steps, -1).transpose(1, 2)
        return shaped, hidden[0].reshape(batch, agents, -1)


class PlainAgents(nn.Module):
    """Agents that share a GRU and a linear layer of values (PyMARL's rnn_agent).

    Attributes:
        memory_size: Length of what one agent remembers.

    Args:
        inputs: Length of an agent's input.
        actions: A.
    """

    def __init__(self, settings: QSettings, inputs: int, actions: int) -> None:
        super().__init__()
        self.memory_size = settings.width
        self.memory = MemoryLayer(inputs, settings.width, settings.recurrent)
        self.head = nn.Linear(settings.width, actions)

    def forward(
        self,
        inputs: torch.Tensor,
        memory: torch.Tensor,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """Values of a piece of an episode.

        Args:
            inputs: (B, T, n, size).
            memory: (B, n, memory_size).
            active: As of `MemoryLayer.forward`.
            valid: (B, T), false where an episode has ended already; `None`: nowhere.
            sample: True while acting to learn and while learning; false in a test. Nothing is drawn here.
        """
        hidden, memory = self.memory(inputs, memory, active)
        return Unrolled(self.head(hidden), memory)


def open_values(values: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Values (..., A) with `CLOSED` where a mask (..., A) is 0, as an action is not open."""
    return values.masked_fill(masks == 0, CLOSED)


def epsilon_greedy(
    values: torch.Tensor, masks: torch.Tensor, epsilon: float, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Actions (...): each agent's best one or, with a probability of `epsilon` for itself, a random open one.

    Args:
        values: (..., A).
        masks: (..., A), 0 where an action is not open.
        epsilon: In [0, 1].
        generator: Draws; `None` for torch's own.
    """
    greedy = open_values(values, masks).argmax(-1)
    if epsilon <= 0:
        return greedy
    flat = (masks != 0).float().reshape(-1, masks.shape[-1])
    drawn = torch.multinomial(flat, 1, generator=generator)[:, 0].reshape(greedy.shape)
    chance = torch.rand(greedy.shape, generator=generator, device=values.device)
    return torch.where(chance < epsilon, drawn, greedy)


class SubtaskAgents(nn.Module):
    """Values sum_j z_ij Q_ij, with z_i one-hot: the subtask j whose representation x_j fits the agent's ability e_i.

    x_j = tanh(MLP(one-hot j)); e_i is linear in a GRU's state of its own; z_i is drawn from softmax(e_i . x_j) by
    straight-through Gumbel-softmax while acting to learn and while learning, and is the most likely one in a test. The
    weights of Q_ij are linear in x_j, from which no gradient flows back, and stand on a second GRU.

    Attributes:
        memory_size: Length of what one agent remembers: both GRUs' states.

    Args:
        inputs: Length of an agent's input.
        actions: A.
    """

    def __init__(self, settings: QSettings, inputs: int, actions: int) -> None:
        super().__init__()
        self.settings, self.actions = settings, actions
        width, task = settings.width, settings.subtask_width
        self.memory_size = 2 * width
        self.ability_memory = MemoryLayer(inputs, width, settings.recurrent)
        self.ability = nn.Linear(width, task)
        self.memory = MemoryLayer(inputs, width, settings.recurrent)
        self.subtask = nn.Sequential(nn.Linear(settings.subtasks, task), nn.ReLU(), nn.Linear(task, task), nn.Tanh())
        self.weight = nn.Linear(task, width * actions)
        self.bias = nn.Linear(task, actions)
        self.register_buffer("names", torch.eye(settings.subtasks), persistent=False)

    def subtasks(self) -> torch.Tensor:
        """The representations x (k, subtask_width)."""
        representations: torch.Tensor = self.subtask(self.names)
        return representations

    def forward(
        self,
        inputs: torch.Tensor,
        memory: torch.Tensor,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """As of `PlainAgents.forward`, with `subtask_logits` (B, T, n, k) beside."""
        before = memory.chunk(2, -1)
        able, able_memory = self.ability_memory(inputs, before[0], active)
        hidden, hidden_memory = self.memory(inputs, before[1], active)
        tasks = self.subtasks()
        logits = self.ability(able) @ tasks.T
        fixed = tasks.detach()
        weight = self.weight(fixed).unflatten(-1, (self.settings.width, self.actions))
        each = torch.einsum("btnh,kha->btnka", hidden, weight) + self.bias(fixed)
        values = (each * self._choices(logits, sample).unsqueeze(-1)).sum(-2)
        return Unrolled(values, torch.cat([able_memory, hidden_memory], -1), {SUBTASK_LOGITS: logits})

    def _choices(self, logits: torch.Tensor, sample: bool) -> torch.Tensor:
        if self.settings.random_subtasks:
            drawn = torch.randint(logits.shape[-1], logits.shape[:-1], device=logits.device)
            return functional.one_hot(drawn, logits.shape[-1]).to(logits.dtype)
        if sample:
            return functional.gumbel_softmax(logits, tau=1.0, hard=True)
        return functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)


class RoleAgents(nn.Module):
    """Roles rho_i ~ N(mu, var) of what an agent sees now; weights and bias of its values come from rho_i.

    While learning, a second network q infers the role from what the agent remembered before it saw, and from what it
    sees, for the loss. Without `recurrent` nothing is remembered: in the memory's place q sees the hidden layer of this
    very step, which is made of what the agent sees now and tells nothing more (ours; the authors' agents always
    remember). Batch normalisation counts rows of steps that were played only, and uses running statistics while acting.

    Attributes:
        memory_size: Length of what one agent remembers.
        difference: The network D of pairs of roles, for the loss.

    Args:
        inputs: Length of an agent's input.
        actions: A.
    """

    def __init__(self, settings: QSettings, inputs: int, actions: int) -> None:
        super().__init__()
        self.settings, self.actions = settings, actions
        self.memory_size = width = settings.width
        role, between = settings.role_size, settings.role_width
        self.memory = MemoryLayer(inputs, width, settings.recurrent)
        self.encoder = _normed(inputs, between, 2 * role)
        self.inference = _normed(width + inputs, between, 2 * role, before=width)
        self.decoder = nn.Sequential(nn.Linear(role, between), nn.BatchNorm1d(between), nn.LeakyReLU())
        self.weight = nn.Linear(between, width * actions)
        self.bias = nn.Linear(between, actions)
        self.difference = nn.Sequential(nn.Linear(2 * role, between), nn.LeakyReLU(), nn.Linear(between, 1))

    def forward(
        self,
        inputs: torch.Tensor,
        memory: torch.Tensor,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """As of `PlainAgents.forward`; roles are drawn in a test, too. Beside: the roles and, while learning, what the
        loss needs of them, all (B, T, n, role_size)."""
        hidden, last = self.memory(inputs, memory, active)
        rows = None if valid is None else (valid[..., None] > 0).expand(inputs.shape[:3])
        means, variances = self._gaussian(self.encoder, inputs, rows)
        roles = means + variances.sqrt() * torch.randn_like(means)
        decoded = _where(self.decoder, roles, rows)
        weight = self.weight(decoded).unflatten(-1, (self.settings.width, self.actions))
        values = (hidden.unsqueeze(-1) * weight).sum(-2) + self.bias(decoded)
        more = {ROLES: roles}
        if self.training:
            before = _kept(memory, hidden, active) if self.settings.recurrent else hidden
            seen = torch.cat([before.detach(), inputs], -1)
            inferred = self._gaussian(self.inference, seen, rows)
            more.update({ROLE_MEANS: means, ROLE_VARIANCES: variances})
            more.update({INFERRED_MEANS: inferred[0], INFERRED_VARIANCES: inferred[1]})
        return Unrolled(values, last, more)

    def _gaussian(
        self, network: nn.Module, inputs: torch.Tensor, rows: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        means, logs = _where(network, inputs, rows).chunk(2, -1)
        return means, logs.exp().clamp(min=self.settings.role_variance_floor)


def _normed(inputs: int, between: int, outputs: int, before: int = 0) -> nn.Sequential:
    return nn.Sequential(
        NarrowLinear(inputs, between, before), nn.BatchNorm1d(between), nn.LeakyReLU(), nn.Linear(between, outputs)
    )


def _kept(memory: torch.Tensor, hidden: torch.Tensor, active: torch.Tensor | None) -> torch.Tensor:
    """Memories of agents before each step (B, T, n, H): the state of the last step in which they were asked.

    The states of other steps are only what would have been remembered.
    """
    states = torch.cat([memory.unsqueeze(1), hidden[:, :-1]], 1)
    if active is None:
        return states
    steps = torch.arange(states.shape[1], device=states.device)[:, None]
    # State t + 1 is that behind step t; state 0 is what there was before all steps.
    asked = functional.pad(active[:, :-1] != 0, (0, 0, 1, 0))
    latest = (steps * asked).cummax(1).values
    return states.gather(1, latest.unsqueeze(-1).expand_as(states))


def _where(network: nn.Module, inputs: torch.Tensor, rows: torch.Tensor | None) -> torch.Tensor:
    """A network's outputs in the rows that count (`None`: all), zeros in the others."""
    if rows is None:
        return network(inputs.flatten(0, 2)).unflatten(0, inputs.shape[:3])
    out = network(inputs[rows])
    whole = out.new_zeros(*rows.shape, out.shape[-1])
    whole[rows] = out
    return whole


class Alone(nn.Module):
    """Leaves each agent's value as it is: independent Q-learning."""

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Values (..., n) of the agents, unchanged."""
        return values


class Sum(nn.Module):
    """The sum of the agents' values (VDN, Sunehag et al. 2017, arXiv 1706.05296)."""

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Sums (..., 1) of the values (..., n)."""
        return values.sum(-1, keepdim=True)


class MonotoneMixer(nn.Module):
    """Q_tot = |w2(s)|^T elu(|W1(s)| Q + b1(s)) + V(s): it grows with each Q_i (QMIX, Rashid et al. 2018).

    So the joint greedy action is that of the agents alone. W1 and w2 come from hypernetworks of the state, b1 from a
    linear layer, V from a layer of `mixing_width` units with ReLU and a linear one.

    Args:
        agents: n.
        state_size: Length of the state.
    """

    def __init__(self, settings: QSettings, agents: int, state_size: int) -> None:
        super().__init__()
        self.agents, self.width = agents, settings.mixing_width
        self.first_weight = _hypernet(settings, state_size, agents * self.width)
        self.first_bias = NarrowLinear(state_size, self.width)
        self.last_weight = _hypernet(settings, state_size, self.width)
        self.last_bias = nn.Sequential(NarrowLinear(state_size, self.width), nn.ReLU(), nn.Linear(self.width, 1))

    def forward(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Team values (..., 1) of values (..., n) and states (..., state_size)."""
        first = self.first_weight(states).abs().unflatten(-1, (self.agents, self.width))
        hidden = functional.elu((values.unsqueeze(-1) * first).sum(-2) + self.first_bias(states))
        mixed = (hidden * self.last_weight(states).abs()).sum(-1, keepdim=True)
        total: torch.Tensor = mixed + self.last_bias(states)
        return total


def _hypernet(settings: QSettings, inputs: int, outputs: int) -> nn.Module:
    if settings.hypernet_layers == 1:
        return NarrowLinear(inputs, outputs)
    width = settings.hypernet_width
    return nn.Sequential(NarrowLinear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


_AGENTS = {"plain": PlainAgents, "ldsa": SubtaskAgents, "roma": RoleAgents}


class QTeam(nn.Module):
    """The agents of a team, which share their network, and the mixer.

    Attributes:
        distance: MASER's network of distances between observations (..., size), or `None`.
        sizes: `size` (of what an agent sees), `actions`, `state_size`, and `agents`, the agents' number.

    Args:
        size: Length of what an agent sees.
        actions: A.
        agents: n.
        state_size: Length of the state that the mixer reads; 0 for a team without mixer, that only acts.
    """

    def __init__(self, settings: QSettings, size: int, actions: int, agents: int, state_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.sizes = {"size": size, "actions": actions, "agents": agents, "state_size": state_size}
        inputs = size + settings.last_action * actions + settings.agent_ids * agents
        with torch.random.fork_rng(devices=[], enabled=settings.init_seed is not None):
            if settings.init_seed is not None:
                torch.manual_seed(settings.init_seed)
            self.agents: Any = _AGENTS[settings.kind](settings, inputs, actions)
            mixers: Mapping[str, Callable[[], nn.Module]] = {
                "none": Alone, "vdn": Sum, "qmix": lambda: MonotoneMixer(settings, agents, state_size),
            }  # fmt: skip
            self.mixer = mixers[settings.mixer]() if state_size else None
            self.distance = self._distance_net() if settings.distance_width and state_size else None
        self.register_buffer("ids", torch.eye(agents), persistent=False)

    def _distance_net(self) -> nn.Module:
        """MASER's phi. It draws its weights for itself, so that all other weights are those of QMIX."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.settings.init_seed or 0) + 1)
            size, width = self.sizes["size"], self.settings.distance_width
            return nn.Sequential(NarrowLinear(size, width), nn.ReLU(), nn.Linear(width, self.sizes["actions"]))

    def initial_memory(self, games: int) -> torch.Tensor:
        """Memory (games, n, M) of agents that begin an episode: zeros."""
        return self.ids.new_zeros(games, self.sizes["agents"], self.agents.memory_size)

    def keep_columns(self, seen: torch.Tensor | None, state: torch.Tensor | None) -> None:
        """Tells first layers which columns are left of narrow observations and states.

        Args:
            seen: Indices (k,) among those of what an agent sees; `None` where they are not narrow.
            state: The same of the state.
        """
        for part, columns, size in (
            (self.agents, seen, self.sizes["size"]),
            (self.distance, seen, self.sizes["size"]),
            (self.mixer, state, self.sizes["state_size"]),
        ):
            if part is not None and columns is not None:
                for layer in part.modules():
                    if isinstance(layer, NarrowLinear):
                        layer.keep(columns, size)

    def unroll(
        self,
        seen: torch.Tensor,
        last_actions: torch.Tensor,
        memory: torch.Tensor | None = None,
        active: torch.Tensor | None = None,
        valid: torch.Tensor | None = None,
        sample: bool = True,
    ) -> Unrolled:
        """Values of a piece of an episode.

        Args:
            seen: (B, T, n, size).
            last_actions: (B, T, n); -1 for none.
            memory: (B, n, M) of before; `None` where episodes begin.
            active: (B, T, n), false where an agent is not asked; `None`: all are.
            valid: (B, T), false behind an episode's end; `None`: nowhere.
            sample: As of the agents' `forward`.
        """
        inputs = agent_inputs(self.settings, seen, last_actions, self.sizes["actions"], self.ids)
        memory = self.initial_memory(len(seen)) if memory is None else memory
        out: Unrolled = self.agents(inputs, memory, active, valid, sample)
        return out

    def total(self, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Team values (..., 1) of chosen actions' values (..., n); (..., n) without mixing.

        Args:
            values: (..., n).
            states: (..., state_size).
        """
        assert self.mixer is not None
        mixed: torch.Tensor = self.mixer(values, states.float())
        return mixed
