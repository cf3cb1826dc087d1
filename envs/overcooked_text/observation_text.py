"""From the game's state to words: what each cook sees, and what each of its actions would do."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rllib_llm_comm.envs.overcooked_text.cook_view import (
    BOARDS,
    BOWL,
    COUNTER,
    LEFT,
    ONE_ROOM,
    RIGHT,
    SHELF,
    Item,
    Option,
    Partner,
    View,
)
from rllib_llm_comm.envs.overcooked_text.effects import NOTHING, WAIT, Effect, Food
from rllib_llm_comm.envs.overcooked_text.effects import Item as Thing
from rllib_llm_comm.envs.overcooked_text.layouts import CELLS, SIZE, recipe_foods
from rllib_llm_comm.envs.overcooked_text.navigation import DISTANCE
from rllib_llm_comm.envs.overcooked_text.rules import Kitchen
from rllib_llm_comm.envs.overcooked_text.view_sentences import describe as describe_view
from rllib_llm_comm.envs.overcooked_text.view_sentences import dish_name, phrase
from rllib_llm_comm.envs.told_to import ALL, ONE, PLANNER

NAMES = ("alice", "bob", "carol")
_NO_OPTION, _WAITS = Option("nothing"), Option("wait")
_DOES_NOTHING = phrase(_NO_OPTION)
_KINDS = {
    "none": "nothing", "pick_up": "get", "put_down": "counter", "place_on_board": "place", "deliver": "serve",
}  # fmt: skip
_BOARD_NAMES = {f"knife{k}": name for k, name in enumerate(BOARDS, 1)}
_WALL_COLUMN = 3  # where the counter between the rooms of maps B and C stands
_WALL = range(SIZE + _WALL_COLUMN, SIZE * (SIZE - 1), SIZE)
_EVERYTHING = bytes([1]) * CELLS


def _kitchen(state: Any) -> Kitchen:
    kitchen = getattr(state, "kitchen", state)
    assert isinstance(kitchen, Kitchen)
    return kitchen


def _item(thing: Thing, chopped: bool | None = None) -> Item:
    if isinstance(thing, Food):
        return _made_item(thing.name, thing.chopped if chopped is None else chopped)
    return _made_item(BOWL, False, tuple(sorted([food.name for food in thing.contents])))


_made_item = functools.cache(Item)  # there are few different ones


def _surface(kitchen: Kitchen, cell: int) -> str:
    """The name in words of a counter cell."""
    return COUNTER if cell in _WALL and kitchen.map_name != "A" else SHELF


def _room(kitchen: Kitchen, y: int) -> str:
    if kitchen.map_name != "B":
        return ONE_ROOM
    return LEFT if y < _WALL_COLUMN else RIGHT


def _lying(kitchen: Kitchen, seen: bytes) -> dict[str, tuple[Item, ...]]:
    """Items in sight on counter and shelves, sorted so that equal scenes give equal texts."""
    off = {agent.held for agent in kitchen.agents} | {board.on for board in (*kitchen.knives, kitchen.delivery)}
    off.update(*[plate.contents for plate in kitchen.plates])
    found: dict[str, list[Item]] = {COUNTER: [], SHELF: []}
    for thing in kitchen.items.values():
        if seen[thing.cell] and thing not in off:
            found[_surface(kitchen, thing.cell)].append(_item(thing))
    return {place: tuple(sorted(items, key=_in_text)) for place, items in found.items()}


def _in_text(item: Item) -> tuple[bool, str, tuple[str, ...]]:
    return item.is_bowl, item.name, item.contents


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
    seen = _EVERYTHING if everything else kitchen.sight(index)
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
        holding=_item(cook.held) if cook.held else None,
        boards=tuple([(name, _item(knife.on) if knife.on else None) for name, knife in boards if seen[knife.cell]]),
        counter=lying[COUNTER] if wall_seen else None,
        shelf=lying[SHELF],
        partners=tuple(
            [
                Partner(NAMES[other], _item(agent.held) if agent.held else None)
                for other, agent in enumerate(kitchen.agents)
                if other != index and seen[agent.cell]
            ]
        ),
        others_told=all(flag for other, flag in enumerate(told) if other != index),
    )


def describe(state: Any, index: int, order: bool = False) -> str:
    """View of one cook in words.

    Args:
        state: The kitchen, or what carries one as `.kitchen`.
        index: The cook's index.
        order: Whether the order is told even if the cook is not told it.
    """
    return describe_view(view(state, index, order=order))


def _place(kitchen: Kitchen, effect: Effect) -> str:
    if effect.place == COUNTER and effect.cell is not None:
        return _surface(kitchen, effect.cell[0] * SIZE + effect.cell[1])
    return _BOARD_NAMES.get(effect.place, effect.place)


def option(state: Any, index: int, effect: Effect) -> Option:
    """An effect as one cook knows it.

    Args:
        state: The kitchen, or what carries one as `.kitchen`.
        index: The cook's index.
        effect: Effect of an action of this cook.
    """
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
        item = _item(thing)
    elif isinstance(thing, Food):
        item = _item(thing, belief.food_status(thing.name) >= 1.0 - 1e-9)
    else:
        # Out of sight a bowl holds what was last seen in its place.
        there = belief.cell(thing.name)
        item = _made_item(BOWL, False, tuple(sorted(f for f in kitchen.foods if belief.cell(f) == there)))
    if effect.kind == "add_to_plate":
        return Option("fill" if effect.into_held else "add", item, place)
    return Option(_KINDS.get(effect.kind, effect.kind), item, place)


def options(runner: Any, index: int) -> list[Option]:
    """Effect of each action index of a cook at this moment.

    Args:
        runner: The game with macro-actions; offers `macros` and `preview(agent, action)`.
        index: The cook's index.
    """
    return [option(runner, index, runner.preview(index, action)) for action in range(len(runner.macros))]


def candidates(runner: Any, index: int) -> tuple[list[str], list[int]]:
    """A phrase for each action index, and which of them are offered.

    An action without any effect is not offered, nor is one whose phrase stands before it already (of two equal
    empty bowls on the shelf the first is offered).

    Args:
        runner: The game with macro-actions.
        index: The cook's index.

    Returns:
        Phrases, and 0/1 per action.
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
    """The goal of every episode in words, as all cooks may know it.

    Args:
        recipes: The dishes among which orders are drawn.
        orders: Number of orders of an episode.
    """
    if len(recipes) == 1 and orders == 1:
        dish = f"serve a {dish_name(sorted(recipe_foods(recipes[0])))}"
    else:
        dish = "serve the salad that is ordered"
    times = "" if orders == 1 else f"; do so {orders} times, each order comes when the one before is served"
    return f"{dish}: chop its foods on a board, put them into one bowl and bring it to the delivery{times}"


def brief(state: Any, recipes: Sequence[str] = (), told_to: str | Sequence[str] = ALL) -> str:
    """The game in a few sentences, for a teacher that does not know it.

    Args:
        state: The kitchen.
        recipes: The dishes among which orders are drawn.
        told_to: Agents that are told the order.
    """
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
