"""Made-up kitchens: random views with the things a cook could do in them.

They are drawn from no game: no map, no path, no order of events. A view says which things lie where, and the options
follow from what the hands hold. The foods of the package's own games never occur here.
"""

from __future__ import annotations

import numpy as np

from rllib_llm_comm.envs.overcooked_text.observation_text import (
    BOARDS,
    BOWL,
    COUNTER,
    LEFT,
    ONE_ROOM,
    RIGHT,
    SHELF,
    Option,
    SeenItem,
    View,
)

COOKS = ("alice", "bob", "carol")
HELD_OUT_FOODS = ("lettuce", "onion", "tomato")
FOODS = (
    "apple", "apricot", "avocado", "banana", "basil", "bean", "beet", "broccoli", "cabbage", "carrot", "celery",
    "cherry", "chili", "corn", "cress", "cucumber", "fennel", "fig", "garlic", "ginger", "grape", "kale", "leek",
    "lemon", "lime", "mango", "melon", "mint", "mushroom", "olive", "orange", "parsley", "pea", "peach", "pear",
    "pepper", "plum", "potato", "pumpkin", "radish", "spinach", "squash", "turnip",
)  # fmt: skip
_PLACES = ("shelf", "counter", "board", "hand", "partner", "bowl", "unseen")
# Probability that a thing lies in each of these places, by room.
_WEIGHTS = {
    LEFT: (0.02, 0.28, 0.3, 0.14, 0.04, 0.1, 0.12),
    RIGHT: (0.45, 0.2, 0.0, 0.15, 0.04, 0.04, 0.12),
    ONE_ROOM: (0.35, 0.03, 0.25, 0.12, 0.08, 0.08, 0.09),
}


def random_view(rng: np.random.Generator, foods: tuple[str, ...] = FOODS) -> View:
    """A random view.

    Args:
        rng: Source of randomness.
        foods: The foods that may occur.
    """
    room = str(rng.choice([LEFT, RIGHT, ONE_ROOM], p=[0.4, 0.3, 0.3]))
    names = [str(f) for f in rng.choice(foods, size=int(rng.integers(3, 6)), replace=len(foods) < 6)]
    names = list(dict.fromkeys(names))
    dish = tuple(sorted(names[: int(rng.integers(1, min(4, len(names) + 1)))]))
    me, *others = (str(name) for name in rng.permutation(COOKS)[: int(rng.choice([2, 3], p=[0.85, 0.15]))])
    slots: dict[str, list[SeenItem]] = {place: [] for place in _PLACES}
    for name in names:
        place = str(rng.choice(_PLACES, p=_WEIGHTS[room]))
        chopped = place in ("board", "counter", "hand", "partner") and room != RIGHT and rng.random() < 0.45
        slots[place].append(SeenItem(name, chopped=bool(chopped)))
    in_bowl = tuple(sorted(i.name for i in slots["bowl"] if i.name in dish or rng.random() < 0.1))
    for index in range(int(rng.integers(1, 3))):
        place = str(rng.choice(_PLACES[:5] + ("unseen",), p=_bowl_weights(room)))
        full = dish if rng.random() < 0.15 else in_bowl  # a finished dish is rare by chance
        slots[place].append(SeenItem(BOWL, contents=full if index == 0 else ()))
    return _seat(rng, room, dish, me, others, slots)


def _bowl_weights(room: str) -> list[float]:
    weights = np.array([*_WEIGHTS[room][:5], _WEIGHTS[room][6]])
    return list(weights / weights.sum())


def _seat(
    rng: np.random.Generator,
    room: str,
    dish: tuple[str, ...],
    me: str,
    others: list[str],
    slots: dict[str, list[SeenItem]],
) -> View:
    boards: list[tuple[str, SeenItem | None]] = []
    if room != RIGHT:
        loose = slots["board"]
        rng.shuffle(loose)  # type: ignore[arg-type]
        on_boards = [loose.pop() if loose and rng.random() < 0.8 else None for _ in BOARDS]
        boards = [(b, i) for b, i in zip(BOARDS, on_boards, strict=True) if i or rng.random() < 0.9]
    holding = slots["hand"][0] if slots["hand"] and rng.random() < 0.8 else None
    partners = []
    held_by_others = list(slots["partner"])
    for name in others:
        if rng.random() < 0.6:
            partners.append((name, held_by_others.pop() if held_by_others else None))
    at = str(rng.choice([b for b, _ in boards])) if boards and rng.random() < 0.6 else ""
    if room != RIGHT and not at and rng.random() < 0.2:
        at = "delivery"
    counter = None if room == ONE_ROOM or rng.random() < 0.1 else tuple(slots["counter"])
    shelf = tuple(slots["shelf"])
    return View(me, dish, room, at, holding, tuple(boards), counter, shelf, tuple(partners))


def options(view: View) -> list[Option]:
    """Options of the cook of a view; `wait` comes first."""
    found = [Option("wait")]
    held = view.holding
    seen = [(item, SHELF) for item in view.shelf] + [(item, COUNTER) for item in view.counter or ()]
    on_boards = [(item, board) for board, item in view.boards if item]
    if held is None:
        takeable = [(i, p) for i, p in on_boards if i.is_bowl or i.chopped]
        found.extend(Option("get", item, place) for item, place in seen + takeable)
        at_raw = [i for i, p in on_boards if p == view.at and not i.is_bowl and not i.chopped]
        found.extend(Option("chop", item, view.at) for item in at_raw)
        found.extend(Option("walk", None, board) for board, _ in view.boards if board != view.at)
        return found
    if held.is_bowl:
        found.extend(Option("fill", i, p) for i, p in seen + on_boards if not i.is_bowl and i.chopped)
    elif held.chopped:
        found.extend(Option("add", held, p) for i, p in seen + on_boards if i.is_bowl)
    found.extend(Option("place", held, board) for board, item in view.boards if item is None)
    if view.counter is not None:
        found.append(Option("counter", held, COUNTER))
    if view.room != RIGHT:
        found.append(Option("serve", held, "delivery"))
    return found
