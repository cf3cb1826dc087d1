"""The wanted pot: the only one whose soups pay, drawn for each episode and told to some of the cooks.

The compiled rules know nothing of it. What follows from a step is read off the states before and after: the pot that
each soup came out of, and whether it pays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.kernel import FACING, FIELDS, HELD, PLAYER, SOUP, X, Y
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, POT, SERVING, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.places import STEPS, places_of
from rllib_llm_comm.envs.told_to import ALL, ONE, draw_told, fact_generators

Where = int | Cell
"""Place of a soup: in the hands of player 0 or 1, or on the counter of a cell."""


class WantedPot:
    """Wanted pot of an episode, whose soups pay, with the cooks that are told it and the pot that each soup came from.

    Attributes:
        pots: The pots among which it is drawn, all as likely, row by row.
        pot: The wanted one.
        told: Per player whether it is told.
        origins: The pot of each soup that is held or lies on a counter.
        unpaid: Soups delivered so far that did not pay.

    Args:
        layout: The kitchen.
        pots: The pots that cooks can fill and empty, row by row (`subgoals.pots_in_use`).
        agents: Names of the agents.
        told_to: "all", "one" (drawn for each episode), or names of agents.
        anew: Whether the pot is drawn anew after each soup that pays; the same one may come again.

    Raises:
        UserError: If the kitchen has less than two pots.
    """

    def __init__(
        self, layout: Layout, pots: Sequence[Cell], agents: Sequence[str], told_to: str | Sequence[str], anew: bool
    ) -> None:
        self.pots = tuple(pots)
        if len(self.pots) < 2:
            raise UserError(
                f"`wanted` is 'pot' but the kitchen {layout.name!r} has one pot only that cooks can use; take one with "
                "two, such as 'forced_coordination', or omit `wanted`."
            )
        self._layout, self._agents, self.anew = layout, tuple(agents), anew
        self.told_to = told_to
        self.begin(0, {agent: player for player, agent in enumerate(agents)})

    def begin(self, seed: int, players: Mapping[str, int]) -> None:
        """Begins an episode; `players` tells which one each agent is. A seed gives the same pots, whoever is told."""
        self._pots, told_to = fact_generators(seed, 2)
        told = draw_told(self.told_to, self._agents, told_to)
        by_player = dict(zip((players[agent] for agent in self._agents), told, strict=True))
        self.told = (by_player[0], by_player[1])
        self.origins: dict[Where, Cell] = {}
        self.unpaid = 0
        self._draw()

    @property
    def name(self) -> str:
        """The wanted pot in words, without article: "upper pot"."""
        return places_of(self._layout).names[self.pot]

    @property
    def names(self) -> list[str]:
        """All pots that may be wanted, in words."""
        return [places_of(self._layout).names[pot] for pot in self.pots]

    def private(self, player: int) -> str | None:
        """Private information of a player: the wanted pot in words, or None."""
        return self.name if self.told[player] else None

    def paid(self, before: np.ndarray, after: np.ndarray, sparse: Sequence[float]) -> tuple[float, float]:
        """The reward of one step, and what it did to soups.

        Hands change by a cook's own interact only, in which it neither moves nor turns; player 0's comes first. A soup
        pays if it came out of the pot that is wanted when it is delivered.

        Args:
            before: `SoupKitchen.state` before the step.
            after: The state after it.
            sparse: The reward for delivered soups per player by the game's own rules.

        Returns:
            What of it is paid.
        """
        paid: list[float] = [0, 0]
        for player in range(2):
            at = PLAYER + FIELDS * player
            had, has = before[at + HELD] == SOUP, after[at + HELD] == SOUP
            if had == has:
                continue
            dx, dy = STEPS[before[at + FACING]]
            cell = (int(before[at + X]) + dx, int(before[at + Y]) + dy)
            kind = self._layout.kind(cell)
            if kind == POT:
                self.origins[player] = cell
            elif kind == COUNTER:
                start, end = (player, cell) if had else (cell, player)
                if (pot := self.origins.pop(start, None)) is not None:
                    self.origins[end] = pot
            elif kind == SERVING:
                paid[player] = self._deliver(player, sparse[player])
        return paid[0], paid[1]

    def _deliver(self, player: int, worth: float) -> float:
        if self.origins.pop(player, None) != self.pot or not worth:
            self.unpaid += 1
            return 0
        if self.anew:
            self._draw()
        return worth

    def _draw(self) -> None:
        self.pot = self.pots[int(self._pots.integers(len(self.pots)))]


def told_words(told_to: str | Sequence[str]) -> str:
    """Cooks that are told, in words: "both cooks are told"."""
    if isinstance(told_to, str):
        return {ALL: "both cooks are told", ONE: "one of the cooks, drawn for each game, is told"}[told_to]
    return "both cooks are told" if len(told_to) > 1 else f"only {told_to[0]} is told"
