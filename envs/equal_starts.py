"""Games side by side that begin alike in groups and play one episode each, one round after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_SEEDS = 2**31 - 1


@dataclass(frozen=True)
class Start:
    """A start that a group of games shares.

    Attributes:
        name: Tells it from all others of a run: `runner/round/group`.
        seed: Of the reset.
    """

    name: str
    seed: int


class EqualStarts:
    """The starts of the games of one EnvRunner.

    Games stand in groups of `size` neighbours. In each round every game plays exactly one episode, and those of a group
    get the same reset seed, drawn from (seed, runner, group, round). A game that is done waits for the others, since
    RLlib's `complete_episodes` would let it play another one meanwhile and throw away the episodes that last longest:
    which returns a group has would depend on what they are. The round ends when all games are done.

    Attributes:
        rounds: Rounds begun so far.
    """

    def __init__(
        self,
        games: int,
        size: int,
        seed: int | None = None,
        runner: int = 0,
        rounds: int = 0,
        played: Callable[[], int] | None = None,
    ) -> None:
        """Sets the groups.

        Args:
            games: Number of games, a multiple of `size`.
            size: Games per group, >= 1.
            seed: Of the run; `None` takes one from the operating system.
            runner: Number of the EnvRunner.
            rounds: Rounds that were begun already, by games which these replace.
            played: Gives a number that is no less than the rounds of the run so far; asked before the first one.
        """
        if games % size:
            raise ValueError(f"{games} games cannot stand in groups of {size}")
        self.rounds = rounds
        self._played = played
        self._games, self._size, self._runner = games, size, runner
        self._entropy = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._done: set[int] = set()

    def begin(self, game: int) -> Start | None:
        """Begins an episode; the first game's begins a round.

        Args:
            game: Number of the game that is reset.

        Returns:
            Its start; `None` if it has played in this round and must wait for others.
        """
        # A game that is over is reset in the next step of all, but RLlib resets all of them, the first one first, when
        # the last is over. So a reset of the first one with all over can be nothing but the next round.
        if game == 0 and (game not in self._done or len(self._done) == self._games):
            if not self.rounds and self._played is not None:
                self.rounds = self._played()
            self.rounds += 1
            self._done.clear()
        elif game in self._done:
            return None
        group = game // self._size
        numbers = np.random.SeedSequence([self._entropy, self._runner, group, self.rounds])
        return Start(f"{self._runner}/{self.rounds}/{group}", int(numbers.generate_state(1)[0]) % _SEEDS)

    def end(self, game: int) -> None:
        """Notes the end of a game's episode."""
        self._done.add(game)
