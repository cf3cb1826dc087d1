"""Win rates of several officers beside each other, and whether they fall in the order that RED's paper found."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.information import holm
from rllib_llm_comm.evaluation.statistics import same_share, wilson

ORDER = ("oracle", "none", "random", "adversarial")
"""Commanders by how many games an officer wins under them, most first (RED, Table 1)."""
LEVEL = 0.05


class Step(NamedTuple):
    """Two neighbours of the order under one officer.

    Attributes:
        officer: Name of the officer.
        above: The commander under whom it should win more.
        below: The other one.
        difference: Share won under `above` less that under `below`.
        overlap: Whether the two 95 % intervals (Wilson) have a point in common.
        p: Of the two-sided test that both shares are the same.
        p_corrected: The same after Holm's correction over all steps that were asked for.
    """

    officer: str
    above: str
    below: str
    difference: float
    overlap: bool
    p: float
    p_corrected: float

    @property
    def holds(self) -> bool:
        """True if the share under `above` is larger, at the level 0.05 after the correction."""
        return self.difference > 0 and self.p_corrected <= LEVEL


def read_scores(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Files of `rllib officer play`, by their names without the ending.

    Args:
        paths: The files.

    Raises:
        UserError: If a file cannot be read, holds no win rates, two have one name, or they are of different games.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        if path.stem in found:
            raise UserError(f"Two files are named {path.stem!r}; give files with different names.")
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            summary, settings = held["summary"], held["settings"]
            found[path.stem] = {
                "game": {name: settings[name] for name in ("opponent", "num_agents", "max_tick")},
                "won": {name: (round(one["won"] * one["games"]), int(one["games"])) for name, one in summary.items()},
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{str(path)!r} holds no win rates of `rllib officer play` ({error!r}).") from error
        for name, (won, games) in found[path.stem]["won"].items():
            if not 0 <= won <= games or not games:
                raise UserError(f"{str(path)!r} has {won} of {games} games won under {name!r}; play them anew.")
    games = {json.dumps(one["game"], sort_keys=True): name for name, one in found.items()}
    if len(games) > 1:
        told = "; ".join(f"{name}: {game}" for game, name in games.items())
        raise UserError(f"Officers can be compared in the same game only, but these played different ones ({told}).")
    return found


def order_steps(scores: Mapping[str, Mapping[str, Any]]) -> list[Step]:
    """The steps of the order oracle, none, random, adversarial under each officer that played all four.

    Args:
        scores: As of `read_scores`.

    Returns:
        Three per officer, tested by `statistics.same_share` and corrected over all of them.
    """
    steps = [
        (name, above, below)
        for name, one in scores.items()
        if all(commander in one["won"] for commander in ORDER)
        for above, below in itertools.pairwise(ORDER)
    ]
    pairs = [(wilson(*scores[name]["won"][a]), wilson(*scores[name]["won"][b])) for name, a, b in steps]
    raw = [same_share(*scores[name]["won"][a], *scores[name]["won"][b]) for name, a, b in steps]
    return [
        Step(*step, above.value - below.value, above.overlaps(below), p, corrected)
        for step, (above, below), p, corrected in zip(steps, pairs, raw, holm(raw), strict=True)
    ]
