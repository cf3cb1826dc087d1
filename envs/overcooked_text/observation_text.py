"""Observation of a cook in words: sentences for what it sees, a phrase per action, and the mask."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rllib_llm_comm.envs.overcooked_text.layouts import CELLS, SIZE, recipe_foods
from rllib_llm_comm.envs.overcooked_text.rules import (
    DISTANCE,
    EVERYTHING,
    NOTHING,
    WAIT,
    Effect,
    Food,
    TextKitchen,
)
from rllib_llm_comm.envs.overcooked_text.rules import Item as Thing
from rllib_llm_comm.envs.told_to import ALL, NAMES, ONE, PLANNER

BOWL = "bowl"
LEFT, RIGHT, ONE_ROOM = "left", "right", "one"
COUNTER, SHELF = "counter", "shelf"
BOARDS = ("first board", "second board")


class SeenItem(NamedTuple):
    """A food or a bowl.

    Attributes:
        name: A food's name or `"bowl"`.
        chopped: For a food, whether it is chopped.
        contents: For a bowl, the names of the (chopped) foods in it, sorted.
    """

    name: str
    chopped: bool = False
    contents: tuple[str, ...] = ()

    @property
    def is_bowl(self) -> bool:
        """True if this is a bowl."""
        return self.name == BOWL


@dataclass(frozen=True)
class View:
    """View of one cook: its sight and the item in its hands.

    Attributes:
        name: The cook's own name.
        dish: Names of the foods of the dish, sorted; empty for a cook that is not told the order.
        room: `"left"`, `"right"` or `"one"` (nothing divides the kitchen).
        at: The board or delivery spot that the cook stands in front of, or the empty string.
        holding: Item in its hands.
        boards: For each board its name and what lies on it, for boards that are seen.
        counter: Items in sight on the shared counter, or `None` if there is none in sight.
        shelf: Items in sight on the shelves along the walls.
        partners: Name and item in the hands of each other cook that is seen.
        others_told: Whether every other cook is told the order, too; for teachers, no sentence says it.
    """

    name: str
    dish: tuple[str, ...]
    room: str
    at: str = ""
    holding: SeenItem | None = None
    boards: tuple[tuple[str, SeenItem | None], ...] = ()
    counter: tuple[SeenItem, ...] | None = None
    shelf: tuple[SeenItem, ...] = ()
    partners: tuple[tuple[str, SeenItem | None], ...] = ()
    others_told: bool = True


class Option(NamedTuple):
    """Effect that an action would have now.

    Attributes:
        kind: One of `wait`, `get` (take `item` from `place`), `fill` (put the chopped food `item` at `place` into
            the own bowl), `add` (put the own chopped food `item` into the bowl at `place`), `place` (put `item` on
            the board `place`), `counter` (put `item` on the counter), `walk` (go to `place`), `chop` (`item` on the
            board in front), `serve` (bring `item` to the delivery), `move` (one step, direction in `place`),
            `nothing` (the action would have no effect).
        item: The thing concerned.
        place: A board, `"counter"`, `"shelf"`, or a direction.
    """

    kind: str
    item: SeenItem | None = None
    place: str = ""


def dish_name(dish: Sequence[str]) -> str:
    """The dish's name in words, such as `lettuce tomato salad`."""
    return " ".join([*dish, "salad"])


_PHRASES = {
    "wait": "wait",
    "get": "get the {item} from the {where}",
    "fill": "put the {item} from the {where} into my bowl",
    "add": "put my {item} into the bowl on the {where}",
    "place": "put the {item} on the {where}",
    "counter": "put the {item} on the counter",
    "walk": "walk to the {where}",
    "chop": "chop the {name}",
    "serve": "serve the {item}",
    "move": "step {where}",
    "nothing": "do nothing",
}


def item_words(item: SeenItem) -> str:
    """An item in words, such as `raw tomato`, `empty bowl`, `bowl of lettuce and tomato`."""
    if not item.is_bowl:
        return f"{'chopped' if item.chopped else 'raw'} {item.name}"
    return f"bowl of {' and '.join(item.contents)}" if item.contents else "empty bowl"


def _listed(items: Sequence[SeenItem]) -> str:
    return ", ".join(item_words(item) for item in items) if items else "nothing"


def describe_view(view: View) -> str:
    """View of a cook in sentences.

    Told are the dish, the own place and hands, then what is in sight: boards, the shared counter, the shelves, the
    other cooks and what they hold. What is out of sight is not mentioned.
    """
    room = {LEFT: "left room", RIGHT: "right room", ONE_ROOM: "kitchen"}[view.room]
    place = f" at the {view.at}" if view.at else ""
    sentences = [
        f"make a {dish_name(view.dish)}",
        f"i am {view.name} in the {room}{place}",
        f"i hold {item_words(view.holding) if view.holding else 'nothing'}",
    ]
    sentences.extend(f"{board}: {item_words(item) if item else 'empty'}" for board, item in view.boards)
    if view.counter is not None:
        sentences.append(f"counter: {_listed(view.counter)}")
    if view.shelf:
        sentences.append(f"shelf: {_listed(view.shelf)}")
    sentences.extend(f"{name} holds {item_words(item) if item else 'nothing'}" for name, item in view.partners)
    return ". ".join(sentences) + "."


@functools.cache  # there are few different ones
def phrase(option: Option) -> str:
    """True effect of an action, as the end of a sentence that begins with "next i"."""
    words = _PHRASES[option.kind]
    if "{" not in words:
        return words
    item, where = item_words(option.item) if option.item else "nothing", option.place or COUNTER
    return words.format(item=item, where=where, name=option.item.name if option.item else "nothing")


_NO_OPTION, _WAITS = Option("nothing"), Option("wait")
_DOES_NOTHING = phrase(_NO_OPTION)
_KINDS = {
    "none": "nothing", "pick_up": "get", "put_down": "counter", "place_on_board": "place", "deliver": "serve",
}  # fmt: skip
_BOARD_NAMES = {f"knife{k}": name for k, name in enumerate(BOARDS, 1)}
_WALL_COLUMN = 3  # where the counter between the rooms of maps B and C stands
_WALL = range(SIZE + _WALL_COLUMN, SIZE * (SIZE - 1), SIZE)


def _kitchen(state: Any) -> TextKitchen:
    kitchen = getattr(state, "kitchen", state)
    assert isinstance(kitchen, TextKitchen)
    return kitchen


def as_item(thing: Thing, chopped: bool | None = None) -> SeenItem:
    """A thing of the kitchen as cooks know it; `chopped` says what a food is taken for, by default what it is."""
    if isinstance(thing, Food):
        return _made_item(thing.name, thing.chopped if chopped is None else chopped)
    return _made_item(BOWL, False, tuple(sorted([food.name for food in thing.contents])))


_made_item = functools.cache(SeenItem)  # there are few different ones


def _surface(kitchen: TextKitchen, cell: int) -> str:
    """The name in words of a counter cell."""
    return COUNTER if cell in _WALL and kitchen.map_name != "A" else SHELF


def _room(kitchen: TextKitchen, y: int) -> str:
    if kitchen.map_name != "B":
        return ONE_ROOM
    return LEFT if y < _WALL_COLUMN else RIGHT


def _lying(kitchen: TextKitchen, seen: bytes) -> dict[str, tuple[SeenItem, ...]]:
    """Items in sight on counter and shelves, sorted so that equal scenes give equal texts."""
    off = {agent.held for agent in kitchen.agents} | {board.on for board in (*kitchen.knives, kitchen.delivery)}
    off.update(*[plate.contents for plate in kitchen.plates])
    found: dict[str, list[SeenItem]] = {COUNTER: [], SHELF: []}
    for thing in kitchen.items.values():
        if seen[thing.cell] and thing not in off:
            found[_surface(kitchen, thing.cell)].append(as_item(thing))
    return {
        place: tuple(sorted(items, key=lambda item: (item.is_bowl, item.name, item.contents)))
        for place, items in found.items()
    }


def view(state: Any, index: int, everything: bool = False, order: bool = False) -> View:
    """View of one cook: its sight and the item in its hands.

    Args:
        state: The kitchen, or what carries one as `.kitchen`.
        index: The cook's index.
        everything: Whether the cook sees the whole kitchen, as teachers do.
        order: Whether it knows the order even if it is not told it.
    """
    kitchen = _kitchen(state)
    told = kitchen.setup.told
    cook = kitchen.agents[index]
    seen = EVERYTHING if everything else kitchen.sight(index)
    boards = list(zip(BOARDS, kitchen.knives, strict=False))
    places = [*boards, ("delivery", kitchen.delivery)]
    at = next((name for name, place in places if DISTANCE[cook.cell][place.cell] == 1), "")
    lying = _lying(kitchen, seen)
    wall_seen = kitchen.map_name != "A" and any(seen[_WALL.start : _WALL.stop : SIZE])
    return View(
        name=NAMES[index],
        dish=tuple(sorted(kitchen.recipe_foods)) if told[index] or order else (),
        room=_room(kitchen, cook.y),
        at=at,
        holding=as_item(cook.held) if cook.held else None,
        boards=tuple([(name, as_item(knife.on) if knife.on else None) for name, knife in boards if seen[knife.cell]]),
        counter=lying[COUNTER] if wall_seen else None,
        shelf=lying[SHELF],
        partners=tuple(
            [
                (NAMES[other], as_item(agent.held) if agent.held else None)
                for other, agent in enumerate(kitchen.agents)
                if other != index and seen[agent.cell]
            ]
        ),
        others_told=all(flag for other, flag in enumerate(told) if other != index),
    )


def describe(state: Any, index: int, order: bool = False) -> str:
    """View of one cook in words; `order` tells the order even if the cook is not told it."""
    return describe_view(view(state, index, order=order))


def _place(kitchen: TextKitchen, effect: Effect) -> str:
    if effect.place == COUNTER and effect.cell is not None:
        return _surface(kitchen, effect.cell[0] * SIZE + effect.cell[1])
    return _BOARD_NAMES.get(effect.place, effect.place)


def option(state: Any, index: int, effect: Effect) -> Option:
    """An effect of an action of one cook as the cook knows it."""
    if effect == NOTHING:  # as most are
        return _NO_OPTION
    if effect == WAIT:
        return _WAITS
    kitchen = _kitchen(state)
    place, belief = _place(kitchen, effect), kitchen.beliefs[index]
    thing = kitchen.items.get(effect.item)
    if thing is None:
        item = None
    elif kitchen.sight(index)[thing.cell]:
        item = as_item(thing)
    elif isinstance(thing, Food):
        item = as_item(thing, belief.food_status(thing.name) >= 1.0 - 1e-9)
    else:
        # Out of sight a bowl holds what was last seen in its place.
        there = belief.cell(thing.name)
        item = _made_item(BOWL, False, tuple(sorted(f for f in kitchen.foods if belief.cell(f) == there)))
    if effect.kind == "add_to_plate":
        return Option("fill" if effect.into_held else "add", item, place)
    return Option(_KINDS.get(effect.kind, effect.kind), item, place)


def options(runner: Any, index: int) -> list[Option]:
    """Effect of each action of a runner of macro-actions for a cook at this moment."""
    return [option(runner, index, runner.preview(index, action)) for action in range(len(runner.macros))]


def candidates(runner: Any, index: int) -> tuple[list[str], list[int]]:
    """A phrase for each action index, and which of them are offered.

    An action without any effect is not offered, nor is one whose phrase stands before it already (of two equal
    empty bowls on the shelf the first is offered).
    """
    phrases, mask = [], []
    seen: set[str] = {_DOES_NOTHING}
    for action in range(len(runner.macros)):
        effect = runner.preview(index, action)
        text = _DOES_NOTHING if effect is NOTHING else phrase(option(runner, index, effect))  # most of them are nothing
        phrases.append(text)
        mask.append(int(text not in seen))
        seen.add(text)
    return phrases, mask


def task(recipes: Sequence[str], orders: int = 1) -> str:
    """The goal of every episode, of so many orders among some recipes, in words, as all cooks may know it."""
    if len(recipes) == 1 and orders == 1:
        dish = f"serve a {dish_name(sorted(recipe_foods(recipes[0])))}"
    else:
        dish = "serve the salad that is ordered"
    times = "" if orders == 1 else f"; do so {orders} times, each order comes when the one before is served"
    return f"{dish}: chop its foods on a board, put them into one bowl and bring it to the delivery{times}"


def brief(state: Any, recipes: Sequence[str] = (), told_to: str | Sequence[str] = ALL) -> str:
    """The game in a few sentences, for a teacher that does not know it; `recipes` are those that can be ordered."""
    kitchen = _kitchen(state)
    rooms = {
        "A": "All cooks work in one room and block each other's way.",
        "B": "A counter divides the kitchen. The boards and the delivery are in the left room, all foods and bowls in "
        "the right room; things pass over the counter.",
        "C": "A counter with a gap divides the kitchen. The boards and the delivery are in the left room, all foods "
        "and bowls in the right room.",
    }[kitchen.map_name]
    return (
        f"Cooks prepare a salad together. Foods are chopped on a board and collected in a bowl. {rooms} "
        f"Every cook sees only what is near.{_secrecy(recipes, told_to)}"
    )


def _secrecy(recipes: Sequence[str], told_to: str | Sequence[str]) -> str:
    among = ", ".join(dish_name(sorted(recipe_foods(recipe))) for recipe in recipes)
    drawn = f" The order is one of these: {among}." if len(recipes) > 1 else ""
    if told_to == ALL:
        return drawn
    if told_to == PLANNER:
        return f"{drawn} No cook is told the order, only a planner is, if there is one."
    some = f"Only {' and '.join(told_to)} {'is' if len(told_to) == 1 else 'are'}"
    knows = "One cook, drawn for each episode, is" if told_to == ONE else some
    return f"{drawn} {knows} told the order; who is not told has to learn it from the others."


SCENES = 50_000
"""Scenes that `wording` keeps per set of rules."""
_limit = SCENES
_NO_MASK = np.zeros(0, np.int8)
_NO_NAMES: list[str] = []
# Shared by all kitchens of a process that have the same rules and actions.
_KNOWN: dict[Hashable, dict[Hashable, Wording]] = {}


class Wording(NamedTuple):
    """The parts of one cook's observation, ready to be shown.

    Attributes:
        text: Its sight and the item in its hands.
        candidates: A phrase per action.
        mask: int8 (actions,): 1 where an action would do something. Do not change it.
        vector: float32 (n,): its sight as numbers, as `TextKitchen.seen_vector` gives it. Do not change it.
    """

    text: str
    candidates: tuple[str, ...]
    mask: np.ndarray
    vector: np.ndarray


def wording(runner: Any, index: int) -> Wording:
    """Text, phrases, mask and vector of one cook; those of a scene that came before are taken from memory."""
    kitchen: TextKitchen = runner.kitchen
    known = _KNOWN.setdefault((runner.rules, kitchen.told(index)), {})
    sight = _sight(kitchen, index)
    key = (sight, *_memory(kitchen, index))
    found = known.get(key)
    if found is None:
        if len(known) >= _limit:
            known.clear()
        seen = known.get(sight)
        if seen is None:  # text and vector depend on the sight alone, of which there are far fewer than of memories
            text, vector = describe(runner, index), kitchen.seen_vector(index)
            seen = known[sight] = Wording(text, (), _NO_MASK, np.array(vector, np.float32))
        phrases, mask = candidates(runner, index)
        found = known[key] = seen._replace(candidates=tuple(phrases), mask=np.array(mask, np.int8))
    return found


def limit_memory(scenes: int = SCENES) -> None:
    """Empties the memory of `wording`, and bounds it to so many scenes per set of rules (for measurements)."""
    global _limit
    _limit = scenes
    _KNOWN.clear()


def _sight(kitchen: TextKitchen, index: int) -> Hashable:
    """All that text and numbers of a cook depend on; what it may do depends on its memory of the rest, too."""
    seen = kitchen.sight(index)
    surfaces = (*kitchen.knives, kitchen.delivery)  # which never move
    return (
        index,
        int.from_bytes(kitchen.cells, "big") & _window(seen),
        *[food.cell + CELLS * food.chops if seen[food.cell] else -1 for food in kitchen.foods.values()],
        *[(plate.cell, *_names(plate.contents)) if seen[plate.cell] else -1 for plate in kitchen.plates],
        *[surface.on and surface.on.name for surface in surfaces if seen[surface.cell]],
        *[(cook.cell, cook.held and cook.held.name) if seen[cook.cell] else -1 for cook in kitchen.agents],
    )


def _names(things: Sequence[Thing]) -> list[str]:
    return [thing.name for thing in things] if things else _NO_NAMES


def _memory(kitchen: TextKitchen, index: int) -> tuple[Hashable, ...]:
    """All of a cook's memory on which its candidates depend: places of foods and bowls, and which foods are chopped.

    Boards and the delivery never move. A cook that is believed out of sight is passable wherever that is, unless it
    hides an item that is believed in the same place and would not be.
    """
    belief, seen = kitchen.beliefs[index], kitchen.sight(index)
    items = belief.cells[: len(kitchen.items)]
    return (
        *items,
        *[status >= 1 for status in belief.status],
        *[cell if seen[cell] or cell in items else -1 for cell in belief.cells[-kitchen.num_agents :]],
    )


@functools.cache
def _window(seen: bytes) -> int:
    """The seen cells as the bits of a number that holds a byte per cell."""
    return int.from_bytes(bytes(255 * flag for flag in seen), "big")
