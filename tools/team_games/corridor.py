"""The corridor: two agents begin at one end of a row of cells and are paid once, for standing at the other together."""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot

CELLS = 12


class Corridor:
    """The game, as a `TeamGame`: left, right or stay; a reward of 1, and the end, where both are at the far end."""

    agents, actions, steps = 2, 3, 40
    size = 2 * CELLS
    state_size = 2 * size

    def begin(self, games: int) -> None:
        """Begins episodes: both stand in the first cell."""
        self._cells = torch.zeros(games, 2, dtype=torch.long)

    def see(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Own cell and the other's, all of that as the state, and open actions, which are all."""
        own = one_hot(self._cells, CELLS).float()
        seen = torch.cat([own, own.flip(1)], -1)
        return seen, seen.flatten(1), torch.ones(len(seen), 2, 3)

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Moves both."""
        self._cells = (self._cells + (actions == 1).long() - (actions == 0).long()).clamp(0, CELLS - 1)
        there = (self._cells == CELLS - 1).all(1)
        return there.float(), there
