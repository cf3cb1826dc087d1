"""The third embedded model's corpus: what it reads of onion-soup kitchens before it plans for anybody.

Three kinds of documents, each a prompt and an answer:

* *next subgoal*: a moment of a made-up kitchen from a planner's seat (`planner_seats`), and the subgoal that the game's
  rules give the cook there. Half of them are as frequent as in the games, with waiting thinned out; of the others all
  kinds are about as frequent. One answer in twenty is a random one;
* *talk*: the same from a seat that knows its own cook alone, and has heard what the other seat gives its cook;
* *message*: such a moment and what its seat says: what its own cook is told.

It knows: the sentences, names and places; that onions go into the pot, soup onto a dish and to the serving counter;
what the other cook does if it is told. It does not know the game's own kitchens, which are held out: which crate or
counter is near is said by no sentence, and has to be learned in each kitchen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, ONIONS, POT, SERVING, get_layout
from rllib_llm_comm.envs.overcooked_ai.places import UNREACHABLE, routes_of
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from rllib_llm_comm.sama.planner_seats import KitchenSeats, advise, seat_observation
from tools.embedded_model.corpus import Document

NOISE = 0.05
WANDERING = 0.3
"""Share of random subgoals on the way, so that the rules are seen to go on from anywhere."""
SEATS_PER_KITCHEN = 120
USUAL_SHARE = 0.5
WAIT_SHARE = 0.2
_MOMENTS_PER_DOCUMENT = 1.0
_LEAST_MOMENTS = 400
_KINDS = ("next subgoal", "talk", "message")
_SHARES = (0.6, 0.28, 0.12)
_STATIONS = "POOODDS"
_WAIT = "go to"
_SAYINGS = {
    "fetch an onion": "i bring an onion",
    "put the onion": "i bring an onion",
    "fetch a dish": "i bring a dish",
    "put the dish": "i bring a dish",
    "fill the dish": "i bring the soup",
    "fetch a soup": "i bring the soup",
    "put the soup": "i bring the soup to the counter",
    "deliver the soup": "i bring the soup",
    _WAIT: "i wait",
}


@dataclass(frozen=True)
class Moment:
    """A moment from a seat.

    Attributes:
        agent: The cook for whom a subgoal is wanted.
        other: The other cook.
        others_subgoal: What that one is told.
        text: What a seat reads that knows both cooks.
        own: What a seat reads that knows its own cook alone.
        allowed: The subgoals that the cook can be given.
        answer: That of the rules.
    """

    agent: str
    other: str
    others_subgoal: str
    text: str
    own: str
    allowed: tuple[str, ...]
    answer: str


def kind_of(subgoal: str) -> str:
    """The beginning of a subgoal that says what is done, without the place."""
    return next(kind for kind in _SAYINGS if subgoal.startswith(kind))


def saying(subgoal: str) -> str:
    """What a seat says whose cook is told this; nothing of a cook that is told nothing."""
    return _SAYINGS[kind_of(subgoal)] if subgoal else ""


def random_rows(rng: np.random.Generator) -> list[str]:
    """A made-up kitchen in which soup can be served, alone or by handing things over a counter."""
    while True:
        width, height = int(rng.integers(5, 9)), int(rng.integers(4, 7))
        grid = np.full((height, width), "X")
        grid[1:-1, 1:-1] = " "
        if rng.random() < 0.4:  # a wall through the middle, with or without a passage
            column = int(rng.integers(2, width - 2))
            grid[1:-1, column] = "X"
            if rng.random() < 0.6:
                grid[int(rng.integers(1, height - 1)), column] = " "
        elif rng.random() < 0.5:  # an island
            grid[height // 2, 2 : width - 2] = "X"
        floor = np.argwhere(grid == " ")
        beside = [
            (y, x)
            for y, x in np.argwhere(grid == "X").tolist()
            if any(0 <= y + v < height and 0 <= x + u < width and grid[y + v, x + u] == " "
                   for v, u in ((0, 1), (1, 0), (0, -1), (-1, 0)))
        ]  # fmt: skip
        stations = ["P", "O", "D", "S", *rng.choice(list(_STATIONS), size=int(rng.integers(0, 4)))]
        if len(beside) < len(stations) + 2 or len(floor) < 4:
            continue
        for place, station in zip(rng.permutation(len(beside)), stations, strict=False):
            grid[beside[place]] = station
        starts = floor[rng.choice(len(floor), size=2, replace=False)]
        for number, (y, x) in enumerate(starts, 1):
            grid[y, x] = str(number)
        rows = ["".join(row) for row in grid]
        if _can_serve(rows):
            return rows


def _can_serve(rows: list[str]) -> bool:
    """Whether every kind of station can be used by a cook, and what one alone cannot do can be handed over."""
    try:
        layout = get_layout(rows)
    except UserError:
        return False
    ways = routes_of(layout)

    def joined(starts: list[tuple[int, int]], ends: list[tuple[int, int]]) -> bool:
        over = [max(nearest(starts, [c]), nearest([c], ends)) for c in layout.cells(COUNTER)]
        return min(nearest(starts, ends), *over) < UNREACHABLE

    def nearest(starts: list[tuple[int, int]], ends: list[tuple[int, int]]) -> int:
        return min(ways.leg(a, b) for a in starts for b in ends)

    ways_needed = (ONIONS, POT), (DISHES, POT), (POT, SERVING)
    return all(joined(layout.cells(one), layout.cells(other)) for one, other in ways_needed)


def moments(rng: np.random.Generator, kitchens: Sequence[str] = ()) -> Iterator[Moment]:
    """Moments of games in which rules plan, and wander at times.

    Args:
        rng: Source of randomness.
        kitchens: Names of layouts that are played in turn; made-up ones if there are none.
    """
    played = 0
    while True:
        layout = kitchens[played % len(kitchens)] if kitchens else random_rows(rng)
        played += 1
        seats = KitchenSeats(game={"layout": layout}, seats="central")
        seats.reset(seed=int(rng.integers(2**31)))
        begin = int(rng.integers(0, 60))  # not always from the empty kitchen
        for step in range(begin + SEATS_PER_KITCHEN):
            if not seats.agents:
                break
            agent = seats.asked[0]
            seen, best = seats._seen([agent])[agent], advise(seats, agent)
            allowed = np.flatnonzero(seen["action_mask"])
            if step >= begin and len(allowed) > 1:
                yield _moment(seats, agent, seen, best)
            chosen = int(rng.choice(allowed)) if rng.random() < WANDERING else best
            seats.step({agent: chosen})


def _moment(seats: KitchenSeats, agent: str, seen: Mapping[str, Any], best: int) -> Moment:
    candidates, current = seats._candidates, seats._tracker.current()
    (other,) = (one for one in seats.possible_agents if one != agent)
    arguments = seats.game, seats.game.state(), agent, current, seats._tracker.outcomes
    own = seat_observation(*arguments, central=False, candidates=candidates)["text"]
    allowed = tuple(candidates[i] for i in np.flatnonzero(seen["action_mask"]))
    return Moment(agent, other, current.get(other, ""), seen["text"], own, allowed, candidates[best])


def documents(count: int, seed: int) -> Iterator[Document]:
    """Random documents.

    Args:
        count: Number.
        seed: The same seed gives the same documents.
    """
    rng = np.random.default_rng(seed)
    played = list(islice(moments(rng), max(_LEAST_MOMENTS, int(_MOMENTS_PER_DOCUMENT * count))))
    by_kind: dict[str, list[Moment]] = defaultdict(list)
    for moment in played:
        by_kind[kind_of(moment.answer)].append(moment)
    usual = [moment for moment in played if kind_of(moment.answer) != _WAIT or rng.random() < WAIT_SHARE]
    kinds = sorted(by_kind)
    for _ in range(count):
        found = usual if rng.random() < USUAL_SHARE else by_kind[kinds[int(rng.integers(len(kinds)))]]
        moment = found[int(rng.integers(len(found)))]
        yield _document(rng, moment, str(rng.choice(_KINDS, p=_SHARES)))


def _document(rng: np.random.Generator, moment: Moment, kind: str) -> Document:
    if kind == "message":
        return Document(kind, message_prompt(moment.own), saying(moment.answer))
    answer = str(rng.choice(moment.allowed)) if rng.random() < NOISE else moment.answer
    if kind == "next subgoal":
        return Document(kind, action_prompt(moment.text), answer)
    heard = saying(moment.others_subgoal)
    return Document(kind, action_prompt(moment.own, {moment.other: heard} if heard else {}), answer)
