"""Win rates of several officers beside each other, and whether they fall in the order that RED's paper found."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.json_file import JsonValue, read_json
from rllib_llm_comm.evaluation.information import holm
from rllib_llm_comm.evaluation.statistics import same_share, wilson

ORDER = ("oracle", "none", "random", "adversarial")
"""Commanders by how many games an officer wins under them, most first (RED, Table 1)."""
LEVEL = 0.05
_MOST_GAMES = 10**7
_ROUNDED = 1e-4


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

    Returns:
        Name -> `game` (opponent, number of commanders, length), `seed` (of the first game), and `won` (commander ->
        games won and played).

    Raises:
        UserError: If a file cannot be read, holds no win rates, two have one name, or they are of different games.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        if path.stem in found:
            raise UserError(f"Two files are named {path.stem!r}; give files with different names.")
        held = read_json(path, "play the games again with `rllib officer play`")
        settings, summary = held["settings"], held["summary"].items(least=1)
        if strange := [name for name in summary if not name.isprintable()]:
            raise held["summary"].wrong(f"by names of commanders, not {strange[0]!r}")
        found[path.stem] = {
            "game": {
                "opponent": settings["opponent"].text(),
                "num_agents": settings["num_agents"].whole(low=1),
                "max_tick": settings["max_tick"].whole(low=1),
            },
            "seed": settings["seed"].whole(low=0),
            "won": {name: _won(one) for name, one in summary.items()},
        }
    games = {json.dumps(one["game"]): name for name, one in found.items()}
    if len(games) > 1:
        told = "; ".join(f"{name}: {game[:120]}" for game, name in games.items())
        raise UserError(f"Officers can be compared in the same game only, but these played different ones ({told}).")
    return found


def _won(one: JsonValue) -> tuple[int, int]:
    """Games won and played under a commander, from the share of them that the file tells."""
    games, share = one["games"].whole(1, _MOST_GAMES), one["won"].number()
    won = round(share * games) if 0 <= share <= 1 else -1
    if won < 0 or abs(share * games - won) > _ROUNDED * games:
        raise one["won"].wrong(f"the share of {games} games")
    return won, games


def apart_note(scores: Mapping[str, Mapping[str, Any]]) -> str | None:
    """A sentence if the officers played from different seeds or different numbers of games; `None` if they did not.

    Args:
        scores: As of `read_scores`.
    """
    played = [(name, games) for one in scores.values() for name, (_, games) in one["won"].items()]
    if len({one["seed"] for one in scores.values()}) < 2 and len(set(played)) == len(dict(played)):
        return None
    listed = ", ".join(f"{name} {_counts(one)} from seed {one['seed']}" for name, one in scores.items())
    return (
        f"The files hold different games, per commander: {listed}; so officers differ by their games, too, while each "
        "step is of one file."
    )


def _counts(one: Mapping[str, Any]) -> str:
    """Games per commander of a file."""
    counts = sorted({games for _, games in one["won"].values()})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))


def order_steps(scores: Mapping[str, Mapping[str, Any]]) -> list[Step]:
    """The steps of the order oracle, none, random, adversarial under each officer that played all four.

    Args:
        scores: As of `read_scores`.

    Returns:
        Three per officer, tested by `statistics.same_share` and corrected over all of them. That the same seeds were
        played under all commanders is not used.
    """
    steps = [
        (name, above, below)
        for name, one in scores.items()
        if not missing_commanders(one)
        for above, below in itertools.pairwise(ORDER)
    ]
    pairs = [(wilson(*scores[name]["won"][a]), wilson(*scores[name]["won"][b])) for name, a, b in steps]
    raw = [same_share(*scores[name]["won"][a], *scores[name]["won"][b]) for name, a, b in steps]
    return [
        Step(*step, above.value - below.value, above.overlaps(below), p, corrected)
        for step, (above, below), p, corrected in zip(steps, pairs, raw, holm(raw), strict=True)
    ]


def missing_commanders(one: Mapping[str, Any]) -> list[str]:
    """The commanders of the order under whom an officer of `read_scores` has not played."""
    return [name for name in ORDER if name not in one["won"]]
