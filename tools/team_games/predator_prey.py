"""Predators and prey on a small board: two hunters beside a prey must catch in the same step (rules after stag hunt).

Smaller than the game that PyMARL2 reports on (10 x 10, eight of each, 200 steps): a caught prey pays 10 and takes its
two hunters off the board, so that four hunters earn 20 at most. Alone nobody catches, and a vain catch costs nothing.
"""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot, pad

BOARD, HUNTERS, PREY, PAID, SIGHT = 5, 4, 2, 10.0, 2
CATCH, STAY = 5, 4
MOST = PAID * min(PREY, HUNTERS // 2)
_MOVES = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1], [0, 0], [0, 0]])
_WINDOW = 2 * SIGHT + 1


class PredatorPrey:
    """The game, as a `TeamGame`: up, down, left, right, stay, catch."""

    agents, actions, steps = HUNTERS, 6, 50
    size = 3 * _WINDOW**2 + 2
    state_size = 2 * BOARD**2

    def begin(self, games: int) -> None:
        """Begins episodes: everybody stands in a cell of its own, drawn by torch's generator."""
        cells = torch.rand(games, BOARD**2).argsort(1)[:, : HUNTERS + PREY]
        self._places = torch.stack([cells // BOARD, cells % BOARD], -1)
        self._here = torch.ones(games, HUNTERS + PREY, dtype=torch.bool)

    def see(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Windows of hunters, prey and the board around each hunter; the whole board; open actions."""
        boards = torch.stack([self._board(slice(0, HUNTERS)), self._board(slice(HUNTERS, None))], 1)
        inside = torch.ones(len(boards), 1, BOARD, BOARD)
        around = pad(torch.cat([boards, inside], 1), (SIGHT,) * 4)
        rows, columns = self._places[:, :HUNTERS].unbind(-1)
        reach = torch.arange(_WINDOW)
        games = torch.arange(len(boards))[:, None, None, None]
        windows = around.permute(0, 2, 3, 1)[
            games, (rows[..., None] + reach)[..., None], (columns[..., None] + reach)[:, :, None]
        ]
        own = self._places[:, :HUNTERS].float() / (BOARD - 1)
        seen = torch.cat([windows.flatten(2), own], -1) * self._here[:, :HUNTERS, None]
        mask = torch.ones(len(boards), HUNTERS, self.actions)
        mask[..., CATCH] = self._beside().any(-1).float()
        gone = one_hot(torch.tensor(STAY), self.actions).float()
        return seen, boards.flatten(1), torch.where(self._here[:, :HUNTERS, None], mask, gone)

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Catches, then moves the hunters in a drawn order, then the prey."""
        caught = self._catch(actions)
        for mover in torch.randperm(HUNTERS).tolist():
            self._move(mover, actions[:, mover])
        for prey in range(HUNTERS, HUNTERS + PREY):
            self._move(prey, torch.randint(0, 5, (len(actions),)))
        over = ~self._here[:, HUNTERS:].any(1) | (self._here[:, :HUNTERS].sum(1) < 2)
        return PAID * caught, over

    def _catch(self, actions: torch.Tensor) -> torch.Tensor:
        caught = torch.zeros(len(actions))
        for prey in range(PREY):
            trying = self._beside()[..., prey] & (actions == CATCH) & self._here[:, :HUNTERS]
            success = trying.sum(1) >= 2
            first_two = trying & (trying.long().cumsum(1) <= 2) & success[:, None]
            self._here[:, :HUNTERS] &= ~first_two
            self._here[:, HUNTERS + prey] &= ~success
            caught += success
        return caught

    def _beside(self) -> torch.Tensor:
        """True (games, HUNTERS, PREY) where a hunter stands beside a prey, neither of them gone."""
        hunters, prey = self._places[:, :HUNTERS, None], self._places[:, None, HUNTERS:]
        near = (hunters - prey).abs().sum(-1) == 1
        return near & self._here[:, :HUNTERS, None] & self._here[:, None, HUNTERS:]

    def _move(self, mover: int, actions: torch.Tensor) -> None:
        """Moves one to where it wants, if that is a free cell of the board."""
        wanted = (self._places[:, mover] + _MOVES[actions]).clamp(0, BOARD - 1)
        same = (self._places == wanted[:, None]).all(-1) & self._here
        free = ~same.any(1) & self._here[:, mover]
        self._places[:, mover] = torch.where(free[:, None], wanted, self._places[:, mover])

    def _board(self, which: slice) -> torch.Tensor:
        """Boards (games, BOARD, BOARD) with a 1 where one of these stands."""
        cells = self._places[:, which, 0] * BOARD + self._places[:, which, 1]
        marks = one_hot(cells, BOARD**2) * self._here[:, which, None]
        return marks.sum(1).float().unflatten(-1, (BOARD, BOARD))
