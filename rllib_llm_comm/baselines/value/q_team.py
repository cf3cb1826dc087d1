"""A team that values its actions: agents that share a network, and their mixer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rllib_llm_comm.baselines.value.q_mixers import build_mixer
from rllib_llm_comm.baselines.value.q_network import PlainAgents, Unrolled, agent_inputs
from rllib_llm_comm.baselines.value.q_roles import RoleAgents
from rllib_llm_comm.baselines.value.q_settings import LDSA, PLAIN, ROMA, QSettings
from rllib_llm_comm.baselines.value.q_subtasks import SubtaskAgents
from rllib_llm_comm.policies.narrow_linear import NarrowLinear

_AGENTS = {PLAIN: PlainAgents, LDSA: SubtaskAgents, ROMA: RoleAgents}


class QTeam(nn.Module):
    """The agents of a team, which share their network, and the mixer.

    Attributes:
        settings: Of both.
        agents: The agents' network.
        mixer: The mixer, or `None`.
        distance: MASER's network of distances between observations (..., size), or `None`.
        sizes: `size` (of what an agent sees), `actions`, `state_size`, and `agents`, the agents' number.

    Args:
        settings: Of both.
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
            self.mixer = build_mixer(settings, agents, state_size) if state_size else None
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
