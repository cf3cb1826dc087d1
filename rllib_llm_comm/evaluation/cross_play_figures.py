"""Figures of cross-play: matrices by seat, self-play, cross-play, their gap, and partners that nobody has seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.evaluation.page_templates import render_page
from rllib_llm_comm.evaluation.statistics import Estimate, jackknife

_PAIR = 2
_PALE, _FULL = (255, 253, 249), (217, 119, 66)


@dataclass
class CrossPlayResult:
    """Scores of all pairs, and their figures.

    Attributes:
        env: Id of the environment.
        env_config: Its settings.
        metric: The game's metric that is the score, or "return".
        episodes: Episodes per pair and seat.
        seed: Seed of the first episode.
        sampled: True if anybody's actions were sampled.
        agents: The agents of the game.
        players: Settings of the players, the seeds of one method.
        groups: Settings of the unseen partners, by group.
        scores: Per seating (who holds each agent's seat; players first, then all partners in their order) the score of
            each episode.
        notes: Sentences about the figures.
        planning: Settings of the planner of the whole game; `None` if none was given.
        stand_ins: What stands in for what the papers use (`agents.stand_ins`).
    """

    env: str
    env_config: dict[str, Any]
    metric: str
    episodes: int
    seed: int
    sampled: bool
    agents: list[str]
    players: list[dict[str, Any]]
    groups: dict[str, list[dict[str, Any]]]
    scores: dict[tuple[int, ...], list[float]]
    notes: list[str] = field(default_factory=list)
    planning: dict[str, Any] | None = None
    stand_ins: list[str] = field(default_factory=list)

    def matrix(self, seat: int, group: str | None = None) -> np.ndarray:
        """(players, others) mean scores of each player in a seat beside each other one in all other seats.

        Args:
            seat: Number of the player's agent.
            group: The group of the others; `None` for the players themselves.
        """
        count, places = len(self.players), len(self.agents)
        names = [name for name in self.groups for _ in self.groups[name]]
        others = list(range(count)) if group is None else [count + k for k, name in enumerate(names) if name == group]
        return np.array(
            [
                [
                    float(np.mean(self.scores[tuple(ego if place == seat else other for place in range(places))]))
                    for other in others
                ]
                for ego in range(count)
            ]
        )

    def self_play(self) -> Estimate:
        """Mean of each player with itself."""
        own = np.diagonal(self.matrix(0))
        return _over_players(own)

    def cross_play(self, seat: int | None = None) -> Estimate:
        """Mean of each player with all other players.

        Args:
            seat: Number of the player's agent; `None` for the mean over all.
        """
        table = self._over_seats() if seat is None else self.matrix(seat)
        return jackknife(len(table), lambda kept: _off_diagonal(table[np.ix_(kept, kept)]))

    def with_others(self, seat: int) -> np.ndarray:
        """(players,) mean of each player in a seat with all other players; NaN where there are none.

        Among players of two seats the mean over all players is the same in both, as every game has one in each.

        Args:
            seat: Number of the player's agent.
        """
        table = self.matrix(seat)
        count = len(table)
        return (table.sum(1) - np.diagonal(table)) / (count - 1) if count > 1 else np.full(count, math.nan)

    def gap(self) -> Estimate:
        """The share of self-play that is lost with other players: 1 - cross-play / self-play; NaN if self-play is 0."""
        table = self._over_seats()

        def lost(kept: np.ndarray) -> float:
            own = float(np.diagonal(table)[kept].mean())
            return math.nan if own == 0 else 1.0 - _off_diagonal(table[np.ix_(kept, kept)]) / own

        return jackknife(len(table), lost)

    def with_group(self, group: str, seat: int | None = None) -> Estimate:
        """Mean of each player with the partners of a group.

        Args:
            group: The group.
            seat: Number of the player's agent; `None` for the mean over all.
        """
        seats = range(len(self.agents)) if seat is None else [seat]
        return _over_players(np.mean([self.matrix(one, group) for one in seats], axis=(0, 2)))

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values; numbers that are not known are `None`."""
        apart = list(enumerate(self.agents))
        own = {
            name: getattr(self, name)
            for name in ("env", "env_config", "planning", "metric", "episodes", "seed", "sampled")
        }
        cross = {
            "by_seat": {agent: _plain(self.cross_play(seat)) for seat, agent in apart},
            "by_player": {agent: [_known(mean) for mean in self.with_others(seat)] for seat, agent in apart},
        }
        return {
            **own,
            "agents": self.agents,
            "players": self.players,
            "self_play": _plain(self.self_play()),
            "cross_play": {**_plain(self.cross_play()), **cross},
            "gap": _plain(self.gap()),
            "matrix": {agent: _rounded(self.matrix(seat)) for seat, agent in apart},
            "groups": {
                name: {
                    **_plain(self.with_group(name)),
                    "by_seat": {agent: _plain(self.with_group(name, seat)) for seat, agent in apart},
                    "partners": partners,
                    "matrix": {agent: _rounded(self.matrix(seat, name)) for seat, agent in apart},
                }
                for name, partners in self.groups.items()
            },
            "games": [
                {"seats": dict(zip(self.agents, self._names(seating), strict=True)), "scores": _rounded(found)}
                for seating, found in self.scores.items()
            ],
            "notes": self.notes,
            "stand_ins": self.stand_ins,
        }

    def _names(self, seating: tuple[int, ...]) -> list[str]:
        names = [one["name"] for one in [*self.players, *(one for group in self.groups.values() for one in group)]]
        return [names[number] for number in seating]

    def _over_seats(self) -> np.ndarray:
        return np.asarray(np.mean([self.matrix(seat) for seat in range(len(self.agents))], axis=0))


def write_cross_play(result: CrossPlayResult, path: Path) -> Path:
    """Writes the figures as a page with heat-maps, which needs nothing else.

    Args:
        result: The figures.
        path: The file; it appears at once or not at all.

    Returns:
        The path.
    """
    told = result.to_json()
    scores = [value for matrix in _matrices(told) for row in matrix for value in row]
    filters = {"estimate": estimate_text, "colour": _colours(min(scores), max(scores)), "with_others": others_text}
    write_atomically(path, render_page("cross_play.html", filters, told=told))
    return path


def others_text(told: Mapping[str, Any], agent: str, player: int) -> str:
    """A player's mean with all other players in one seat, as text.

    Args:
        told: As of `CrossPlayResult.to_json`.
        agent: The agent whose seat it has.
        player: Its number.
    """
    mean = told["cross_play"]["by_player"][agent][player]
    return "—" if mean is None else f"{mean:.4g}"


def estimate_text(found: Mapping[str, Any]) -> str:
    """A figure with its standard error, as text.

    Args:
        found: `mean` and `standard_error`.
    """
    mean, error = found["mean"], found["standard_error"]
    if mean is None:
        return "—"
    return f"{mean:.4g}" if error is None else f"{mean:.4g} ± {error:.2g}"


def _matrices(told: Mapping[str, Any]) -> list[list[list[float]]]:
    return [*told["matrix"].values(), *(m for group in told["groups"].values() for m in group["matrix"].values())]


def _colours(low: float, high: float) -> Callable[[float], str]:
    """Colour of a score on the scale of all cells, from pale (the least) to full (the most)."""

    def colour(score: float) -> str:
        share = 0.0 if high <= low else (score - low) / (high - low)
        mixed = [round(pale + share * (full - pale)) for pale, full in zip(_PALE, _FULL, strict=True)]
        return f"rgb({mixed[0]}, {mixed[1]}, {mixed[2]})"

    return colour


def _over_players(values: np.ndarray) -> Estimate:
    return jackknife(len(values), lambda kept: float(values[kept].mean()) if len(kept) else math.nan)


def _off_diagonal(table: np.ndarray) -> float:
    count = len(table)
    if count < _PAIR:
        return math.nan
    return float((table.sum() - np.trace(table)) / (count * (count - 1)))


def _plain(found: Estimate) -> dict[str, float | None]:
    mean, error = map(_known, found)
    return {"mean": mean, "standard_error": error}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)


def _rounded(values: Any) -> Any:
    return np.round(np.asarray(values, np.float64), 4).tolist()
