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
from rllib_llm_comm.envs.overcooked_text.effects import NOTHING, WAIT, Effect, Food, Plate
from rllib_llm_comm.envs.overcooked_text.effects import Item as Thing
from rllib_llm_comm.envs.overcooked_text.layouts import recipe_foods
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
_WALL_COLUMN = 3  # where the counter between the rooms of maps B and C stands


def _kitchen(state: Any) -> Kitchen:
    kitchen = getattr(state, "kitchen", state)
    assert isinstance(kitchen, Kitchen)
    return kitchen


def _item(thing: Thing | None, chopped: bool | None = None) -> Item | None:
    if thing is None:
        return None
    if isinstance(thing, Food):
        return _made_item(thing.name, thing.chopped if chopped is None else chopped)
    return _made_item(BOWL, False, tuple(sorted([food.name for food in thing.contents])))


_made_item = functools.cache(Item)  # there are few different ones


def _surface(kitchen: Kitchen, x: int, y: int) -> str:
    """The name in words of a counter cell."""
    divided = kitchen.map_name != "A"
    return COUNTER if divided and y == _WALL_COLUMN and 0 < x < 6 else SHELF


def _room(kitchen: Kitchen, y: int) -> str:
    if kitchen.map_name != "B":
        return ONE_ROOM
    return LEFT if y < _WALL_COLUMN else RIGHT


def _lying(kitchen: Kitchen, index: int, everything: bool) -> dict[str, tuple[Item, ...]]:
    """Items in sight on counter and shelves, sorted so that equal scenes give equal texts."""
    seen = kitchen.sight(index)
    near = [thing for thing in kitchen.items.values() if everything or seen[thing.cell]]
    if not near:
        return {COUNTER: (), SHELF: ()}
    off = [agent.held for agent in kitchen.agents] + [board.on for board in kitchen.knives] + [kitchen.delivery.on]
    for plate in kitchen.plates:
        off += plate.contents
    found: dict[str, list[Item]] = {COUNTER: [], SHELF: []}
    for thing in near:
        if not any(thing is other for other in off):
            item = _item(thing)
            assert item is not None
            found[_surface(kitchen, thing.x, thing.y)].append(item)
    return {
        place: tuple(sorted(items, key=lambda i: (i.is_bowl, i.name, i.contents))) for place, items in found.items()
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
    boards = list(zip(BOARDS, kitchen.knives, strict=False))
    at = next((name for name, knife in boards if abs(knife.x - cook.x) + abs(knife.y - cook.y) == 1), "")
    if not at and abs(kitchen.delivery.x - cook.x) + abs(kitchen.delivery.y - cook.y) == 1:
        at = "delivery"
    lying = _lying(kitchen, index, everything)
    counter = None
    if kitchen.map_name != "A":
        cells = [(x, _WALL_COLUMN) for x in range(1, 6)]
        in_sight = everything or any(kitchen.visible(index, x, y) for x, y in cells)
        counter = lying[COUNTER] if in_sight else None
    room = _room(kitchen, cook.y)
    return View(
        name=NAMES[index],
        dish=tuple(sorted(kitchen.recipe_foods)) if told[index] or order else (),
        room=room,
        at=at,
        holding=_item(cook.held),
        boards=tuple(
            (name, _item(knife.on)) for name, knife in boards if everything or kitchen.visible(index, knife.x, knife.y)
        ),
        counter=counter,
        shelf=lying[SHELF],
        partners=tuple(
            Partner(NAMES[other], _item(agent.held))
            for other, agent in enumerate(kitchen.agents)
            if other != index and (everything or kitchen.visible(index, agent.x, agent.y))
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
    if effect.place.startswith("knife"):
        return BOARDS[int(effect.place.removeprefix("knife")) - 1]
    if effect.place == COUNTER and effect.cell is not None:
        return _surface(kitchen, *effect.cell)
    return effect.place


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
    place = _place(kitchen, effect)
    thing = kitchen.items.get(effect.item)
    chopped = None
    if isinstance(thing, Food) and not kitchen.visible(index, thing.x, thing.y):
        chopped = kitchen.beliefs[index].food_status(thing.name) >= 1.0 - 1e-9
    item = _item(thing, chopped)
    if isinstance(thing, Plate) and not kitchen.visible(index, thing.x, thing.y):
        # Out of sight a bowl holds what was last seen in its place.
        belief = kitchen.beliefs[index]
        there = belief.cell(thing.name)
        item = Item(BOWL, contents=tuple(sorted(f for f in kitchen.foods if belief.cell(f) == there)))
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
    effects = [runner.preview(index, action) for action in range(len(runner.macros))]
    phrases = [
        _DOES_NOTHING if effect is NOTHING else phrase(option(runner, index, effect)) for effect in effects
    ]  # most of them are nothing
    seen: set[str] = {_DOES_NOTHING}
    mask = []
    for text in phrases:
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
