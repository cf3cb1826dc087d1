"""A trained policy of agents that read a map, a manual and a subgoal, to act with; needs no Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Several
from rllib_llm_comm.envs.interface import ACTION_MASK, SUBGOAL
from rllib_llm_comm.language.base_model import EMBEDDED
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.array_policy import MOST_SIZE, ActorRecord, AgentRequest, ArrayPolicy
from rllib_llm_comm.policies.numeric_network import CRITIC_STATE, FORBIDDEN, STATE
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.recorded_settings import granted
from rllib_llm_comm.sama.emma.network import ENTITIES, MANUAL, EmmaEncoder, EmmaNetwork, EmmaSettings

_REMEMBERED = 1024


class FrozenActor:
    """The actor of an `EmmaNetwork` whose weights do not change as long as this object is used.

    Its probabilities are those of the network, up to the rounding of sums in another batch.

    Args:
        encoder: Makes arrays of texts.
        manual: The manual of all games.
    """

    def __init__(self, network: EmmaNetwork, encoder: EmmaEncoder, manual: str) -> None:
        self._network, self._encoder, self._manual = network, encoder, manual
        self._rows: dict[str, int] = {}
        self._meant = torch.zeros(0)

    @torch.no_grad()
    def probabilities(self, frames: np.ndarray, subgoals: Sequence[str], allowed: np.ndarray) -> np.ndarray:
        """Probabilities (B, K) of all actions, 0 for those that are not allowed.

        Args:
            frames: int16 (B, T, H, W, slots), as of `EmmaEncoder.encode`.
            subgoals: The subgoal of each row; empty for none.
            allowed: (B, K), not 0 where an action is allowed.

        Raises:
            UserError: If a subgoal is too long.
        """
        rows = torch.tensor(self._known(subgoals))
        logits = self._network.actor(torch.from_numpy(frames).long(), self._meant, rows)
        logits = logits.masked_fill(torch.from_numpy(allowed == 0), FORBIDDEN)
        probabilities = np.where(allowed != 0, logits.double().softmax(-1).numpy(), 0.0)
        return np.asarray(probabilities / probabilities.sum(1, keepdims=True))

    def _known(self, subgoals: Sequence[str]) -> list[int]:
        """Each subgoal's row of the tables of meanings; new ones are added."""
        new = [one for one in dict.fromkeys(subgoals) if one not in self._rows]
        if len(self._rows) + len(new) > _REMEMBERED:
            self._rows.clear()
            new = list(dict.fromkeys(subgoals))
        if new:
            kept = [self._meant] if self._rows else []
            self._rows |= {one: len(self._rows) + number for number, one in enumerate(new)}
            self._meant = torch.cat([*kept, *map(self._read, new)])
        return [self._rows[one] for one in subgoals]

    def _read(self, subgoal: str) -> torch.Tensor:
        texts = {name: torch.from_numpy(row[None]) for name, row in self._encoder.texts(subgoal, self._manual).items()}
        meant, _ = self._network.meanings(texts, torch.device("cpu"))
        return meant


class EmmaRecord(EmmaSettings, ActorRecord):
    """`model_config` in the policy folder of agents that read maps."""

    symbols: int = Field(ge=1, le=MOST_SIZE)
    """Number of symbols of the maps."""
    shape: Several[Annotated[int, Field(ge=1, le=MOST_SIZE)]] = Field(min_length=2, max_length=2)
    """Height and width of the maps, in cells."""
    state_size: int = Field(ge=0, le=MOST_SIZE)
    """Length of the state that the critic reads; 0 for none."""


class GroundedPolicy(ArrayPolicy):
    """Acts by maps, manuals and subgoals; an episode's memory holds the earlier maps of each agent."""

    @staticmethod
    def network_builder(settings: dict[str, Any]) -> Callable[[], EmmaNetwork]:
        """Makes a network from `model_config`."""
        told = EmmaRecord.checked(
            "model_config", {**settings, "text_encoder": granted(settings.get("text_encoder", EMBEDDED))}
        )
        own = EmmaSettings.from_attributes(told)
        encoder = load_text_encoder(own.text_encoder)
        height, width = told.shape
        return lambda: EmmaNetwork(own, told.symbols, (height, width), told.actions, told.state_size, encoder)

    def __init__(self, network: Any, manifest: PolicyManifest) -> None:
        super().__init__(network, manifest)
        self._encoder = EmmaEncoder(load_text_encoder(network.settings.text_encoder), network.settings)

    def batch(self, asked: Sequence[AgentRequest]) -> dict[str, torch.Tensor]:
        """The arrays of all rows.

        Raises:
            UserError: If an observation lacks a map, a manual or a subgoal, or the map has another size.
        """
        told = bool(self.network.sizes["state_size"]) and all(STATE in seen for _, _, seen in asked)
        rows = []
        for agent, memory, seen in asked:
            for name in (ENTITIES, MANUAL, SUBGOAL):
                if name not in seen:
                    raise UserError(f"the observation of {agent!r} has no `{name}`, which this policy acts on.")
            shape, own = list(np.shape(seen[ENTITIES])[:2]), list(self.network.sizes["shape"][:2])
            if shape != own:
                raise UserError(
                    f"the map of {agent!r} is {shape[0]} x {shape[1]} cells but this policy was trained with "
                    f"{own[0]} x {own[1]}; play the game with the settings of its training, such as `layout`."
                )
            rows.append(self._encoder.encode(seen, memory.seen.setdefault(agent, []), told))
        names = [name for name in rows[0] if name != ACTION_MASK]
        batch = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in names}
        return {**batch, ACTION_MASK: self.masks(asked)}

    def values(self, asked: Sequence[AgentRequest], batch: dict[str, torch.Tensor]) -> Callable[[], list[float]]:
        """Values of all rows; NaN where the critic wants a state that nobody tells, which acting does not need."""
        if self.network.sizes["state_size"] and CRITIC_STATE not in batch:
            return lambda: [float("nan")] * len(asked)
        return super().values(asked, batch)
