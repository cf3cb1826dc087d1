"""EMMA's actor in games with one manual, its weights as they are: what texts mean is computed once per text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rllib_llm_comm.policies.numeric_network import FORBIDDEN
from rllib_llm_comm.sama.emma.inputs import EmmaEncoder
from rllib_llm_comm.sama.emma.network import EmmaNetwork

_REMEMBERED = 1024


class FrozenActor:
    """The actor of an `EmmaNetwork` whose weights do not change as long as this object is used.

    Its chances are those of the network, up to the rounding of sums in another batch.

    Args:
        network: The network.
        encoder: Makes arrays of texts.
        manual: The manual of all games.
    """

    def __init__(self, network: EmmaNetwork, encoder: EmmaEncoder, manual: str) -> None:
        self._network, self._encoder, self._manual = network, encoder, manual
        self._rows: dict[str, int] = {}
        self._meant = torch.zeros(0)

    @torch.no_grad()
    def chances(self, frames: np.ndarray, subgoals: Sequence[str], allowed: np.ndarray) -> np.ndarray:
        """Probabilities (B, K) of all actions, 0 for those that are not allowed.

        Args:
            frames: int16 (B, T, H, W, slots), as of `EmmaEncoder.encode`.
            subgoals: The subgoal of each row; empty for none.
            allowed: (B, K), not 0 where an action is allowed.

        Raises:
            UserError: If a subgoal is too long.
        """
        rows = torch.tensor(self._known(subgoals))
        logits = self._network.actor.through(torch.from_numpy(frames).long(), self._meant, rows)
        logits = logits.masked_fill(torch.from_numpy(allowed == 0), FORBIDDEN)
        chances = np.where(allowed != 0, logits.double().softmax(-1).numpy(), 0.0)
        return np.asarray(chances / chances.sum(1, keepdims=True))

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
        table, _ = self._network.meanings(texts, torch.device("cpu"))
        return self._network.actor.mixed_in(table)
