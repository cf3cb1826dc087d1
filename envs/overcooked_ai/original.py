"""Kitchens of the original package: their files, rules, and saved states and actions, turned into ours."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.envs.overcooked_ai.recipes import (
    CONTENTS,
    COOK_TIME,
    FULL,
    SHAPED,
    SOUP_REWARD,
    SOUPS,
    Recipes,
    contents,
    ingredients,
)

PREFIX = "original:"
"""Before a name it says that the original's kitchen of that name is meant, not ours."""


@cache
def original_kitchens() -> dict[str, dict[str, Any]]:
    """The dictionaries of all kitchens by the original's names; not to be changed."""
    text = (Path(__file__).parent / "original_layouts.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)["layouts"]
    return found


KEYS = (
    "grid",
    "terrain",
    "start_player_positions",
    "layout_name",
    "start_all_orders",
    "start_bonus_orders",
    "start_state",
    "order_bonus",
    "rew_shaping_params",
    "delivery_reward",
    "recipe_values",
    "onion_value",
    "tomato_value",
    "cook_time",
    "recipe_times",
    "onion_time",
    "tomato_time",
    "num_items_for_soup",
    "max_num_ingredients",
    "old_dynamics",
)
_SHAPED_KEYS = ("PLACEMENT_IN_POT_REW", "DISH_PICKUP_REWARD", "SOUP_PICKUP_REWARD")
_UNUSED_SHAPED_KEYS = ("DISH_DISP_DISTANCE_REW", "POT_DISTANCE_REW", "SOUP_DISTANCE_REW")
# Of what a soup's points and its cook time are made: for all soups, for each recipe, for each ingredient.
_POINTS = ("delivery_reward", "recipe_values", "onion_value", "tomato_value")
_TIMES = ("cook_time", "recipe_times", "onion_time", "tomato_time")
_MOST_BYTES = 2**20
_LONGEST = 127
"""Longest cook time: the channels of the lossless encoding are 8 bits wide here."""


def read_layout_file(path: str | Path) -> dict[str, Any]:
    """Content of a `.layout` file of the original. The original executes such files as Python; here they are data.

    Raises:
        UserError: If it cannot be read or is no dictionary of plain values.
    """
    source = Path(path)
    try:
        tree = ast.parse(read_text(source, _MOST_BYTES).strip(), mode="eval")
        params = ast.literal_eval(_Infinities().visit(tree))
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(
            f"`layout` is {str(path)!r}, which cannot be read as a layout ({error}); give a .layout file as the "
            "original package has them: one dictionary of plain values with the key 'grid'."
        ) from error
    if not isinstance(params, dict):
        raise UserError(f"`layout` is {str(path)!r}, which holds a {type(params).__name__}; it must be a dictionary.")
    return {"layout_name": source.stem, **params}


class _Infinities(ast.NodeTransformer):
    """Reads `float("inf")`, the only call that the original's files make."""

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802 (a name of `ast`)
        is_float = isinstance(node.func, ast.Name) and node.func.id == "float" and not node.keywords
        values = [one.value for one in node.args if isinstance(one, ast.Constant)]
        if is_float and len(node.args) == 1 and values == ["inf"]:
            return ast.copy_location(ast.Constant(math.inf), node)
        return node


def check_keys(params: Mapping[str, Any]) -> None:
    """Refuses a dictionary with a key that a kitchen does not have, or without a map.

    Raises:
        UserError: For the first such key, or if there is no map.
    """
    for key in params:
        if key not in KEYS:
            raise UserError(
                f"`layout` has the key {key!r} but a kitchen has {', '.join(KEYS)}.{did_you_mean(str(key), KEYS)}"
            )
    if "grid" not in params and not {"terrain", "start_player_positions"} <= params.keys():
        raise UserError("`layout` has no 'grid' (nor 'terrain' and 'start_player_positions'); give the map's rows.")
    if params.get("max_num_ingredients", FULL) != FULL:
        raise UserError(
            f"`layout` has 'max_num_ingredients' {params['max_num_ingredients']!r} but pots take {FULL} here; leave "
            "it away."
        )


def read_rows(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The rows of the map with 1 and 2 where the players begin.

    Args:
        params: The dictionary: `grid` (a text or rows), or `terrain` (rows of signs) and `start_player_positions`.

    Raises:
        UserError: If they are no rows.
    """
    try:
        if "grid" in params:
            grid = params["grid"]
            rows = grid.split("\n") if isinstance(grid, str) else ["".join(row) for row in grid]
            return tuple(row.strip() for row in rows)
        cells = [list("".join(row)) for row in params["terrain"]]
        for number, (x, y) in enumerate(params["start_player_positions"], 1):
            cells[y][x] = str(number)
        return tuple("".join(row) for row in cells)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise UserError(
            f"`layout` has no map that can be read ({error}); give 'grid', the rows as one text."
        ) from error


def read_recipes(params: Mapping[str, Any]) -> Recipes:
    """The recipes of a kitchen.

    The orders are those of `start_state` if there is one, else `start_all_orders`; none at all means every soup. A soup
    that is ordered brings `delivery_reward`, else its entry in `recipe_values` (in the order of `start_all_orders`),
    else the sum of `onion_value` and `tomato_value` of its ingredients, else 20, times `order_bonus` if it is one of
    the bonus orders. It cooks for `cook_time`, `recipe_times`, `onion_time` and `tomato_time`, or 20 steps, likewise.
    As in the original, 0 as a value for all soups or for an ingredient counts as not given.

    Raises:
        UserError: For a value that the original refuses, too, or that cannot be played.
    """
    start = params.get("start_state") or params
    prefix = "" if params.get("start_state") else "start_"
    listed = _orders(params, "start_all_orders")
    orders = _orders(start, f"{prefix}all_orders") or list(SOUPS)
    bonus = _orders(start, f"{prefix}bonus_orders")
    for name, those in (("orders", orders), ("bonus orders", bonus)):
        if len(set(those)) != len(those):
            raise UserError(f"`layout` has the same soup twice among its {name}; name each once.")
    if not set(bonus) <= set(orders):
        raise UserError("`layout` has bonus orders that are not among 'start_all_orders'; add them there.")
    values = _by_soup(params, _POINTS, listed, float(SOUP_REWARD))
    times = _by_soup(params, _TIMES, listed, float(COOK_TIME))
    for soup in SOUPS:
        if not (times[soup].is_integer() and 0 <= times[soup] <= _LONGEST):
            raise UserError(
                f"`layout` has a soup that cooks for {times[soup]:g} steps but it must be a whole number from 0 to "
                f"{_LONGEST}."
            )
    factor = _number(params, "order_bonus", 2.0)
    points = [0.0] * CONTENTS
    for soup in orders:
        points[soup] = values[soup] * (factor if soup in bonus else 1.0)
        if math.isnan(points[soup]) or points[soup] < 0:
            raise UserError(f"`layout` has a soup that brings {points[soup]:g} points but it must be 0 or more.")
    return Recipes(
        tuple(sorted(orders)), tuple(sorted(bonus)), tuple(int(time) for time in times), tuple(points), _shaped(params)
    )


def _orders(params: Mapping[str, Any], key: str) -> list[int]:
    """The contents of the soups of a list of orders."""
    found = []
    try:
        for order in params.get(key) or ():
            names = list(order["ingredients"])
            onions, tomatoes = names.count("onion"), names.count("tomato")
            if onions + tomatoes != len(names) or not 1 <= len(names) <= FULL:
                raise ValueError(f"{names} are no ingredients of a soup")
            found.append(contents(onions, tomatoes))
    except (TypeError, KeyError, ValueError) as error:
        raise UserError(
            f"`layout` has {key!r} that cannot be read ({error}); give a list such as "
            "[{'ingredients': ['onion', 'tomato']}], one to three of each order."
        ) from error
    return found


def _by_soup(params: Mapping[str, Any], keys: Sequence[str], listed: Sequence[int], usual: float) -> list[float]:
    """A number for each soup by its contents: from one for all, one per recipe, one per ingredient, or the usual."""
    for_all, per_recipe, onion, tomato = keys
    if (onion in params) != (tomato in params):
        raise UserError(f"`layout` has only one of {onion!r} and {tomato!r}; give both or none.")
    given = [key for key in (for_all, per_recipe, onion) if key in params]
    if len(given) > 1:
        raise UserError(f"`layout` has {given[0]!r} and {given[1]!r}, which exclude each other; omit one.")
    table: dict[int, float] = {}
    if per_recipe in params:
        numbers = params[per_recipe]
        if not listed or not isinstance(numbers, list | tuple) or len(numbers) != len(listed):
            raise UserError(f"`layout` has {per_recipe!r} {numbers!r} but needs one number per 'start_all_orders'.")
        table = {soup: _checked(per_recipe, number) for soup, number in zip(listed, numbers, strict=True)}
    everything, onions, tomatoes = (_number(params, key, 0.0) for key in (for_all, onion, tomato))
    result = [usual] * CONTENTS
    for soup in SOUPS:
        own = ingredients(soup)
        if everything:
            result[soup] = everything
        elif soup in table:
            result[soup] = table[soup]
        elif onions and tomatoes:
            result[soup] = own[0] * onions + own[1] * tomatoes
    return result


def _shaped(params: Mapping[str, Any]) -> tuple[float, float, float]:
    """The three shaped rewards that the original gives; those for distances are read there but never paid."""
    shaping = params.get("rew_shaping_params")
    if shaping is None:
        return SHAPED
    known = (*_SHAPED_KEYS, *_UNUSED_SHAPED_KEYS)
    if not isinstance(shaping, Mapping) or not set(_SHAPED_KEYS) <= shaping.keys() <= set(known):
        raise UserError(
            f"`layout` has 'rew_shaping_params' {shaping!r} but it must have {', '.join(_SHAPED_KEYS)} and may have "
            f"{', '.join(_UNUSED_SHAPED_KEYS)}."
        )
    first, second, third = (_number(shaping, key, 0.0) for key in _SHAPED_KEYS)
    return first, second, third


def _number(params: Mapping[str, Any], key: str, usual: float) -> float:
    value = params.get(key)
    return usual if value is None else _checked(key, value)


def _checked(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UserError(f"`layout` has {key!r} {value!r} but it must be a number.")
    return float(value)


_WAYS = ((0, -1), (0, 1), (1, 0), (-1, 0))
_STAY, _INTERACT = 4, 5
_LEGACY_READY = 20


def read_action(action: Any) -> int:
    """The number of a primitive action.

    Args:
        action: [0, -1] and the like, [0, 0] for stay, "interact" in any case; or already a number.

    Raises:
        ValueError: If it is none.
    """
    if isinstance(action, int) and not isinstance(action, bool) and 0 <= action <= _INTERACT:
        return action
    if isinstance(action, str) and action.lower() == "interact":
        return _INTERACT
    way = tuple(action) if isinstance(action, list | tuple) else None
    if way == (0, 0):
        return _STAY
    if way not in _WAYS:
        raise ValueError(f"{action!r} is no action")
    return _WAYS.index(way)


def read_state(state: Mapping[str, Any], recipes: Recipes) -> dict[str, Any]:
    """A state as `SoupKitchen.snapshot` gives it. The order of ingredients in a soup is left out: it has no effect.

    Args:
        state: `players`, `objects` and `timestep`; soups with `_ingredients` and `cooking_tick`, or with `state` as
            in the first version of the original.
        recipes: Those of the kitchen.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: If it is none.
    """
    players = []
    for player in state["players"]:
        held = player.get("held_object")
        facing = _WAYS.index(tuple(player["orientation"]))
        players.append([*player["position"], facing, _thing(held, recipes) if held else None])
    loose = state["objects"]
    things = [*loose.values()] if isinstance(loose, Mapping) else loose
    objects = sorted([*thing["position"], *_thing(thing, recipes)] for thing in things)
    return {"t": int(state.get("timestep", 0)), "players": players, "objects": objects}


def cook_times(state: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    """The cook times that a state, as of `read_state`, tells of soups that have been started, by place."""
    held = [player["held_object"] for player in state["players"] if player.get("held_object")]
    loose = state["objects"]
    things = [*held, *(loose.values() if isinstance(loose, Mapping) else loose)]
    soups = [thing for thing in things if thing["name"] == "soup" and _tick(thing) >= 0]
    return {tuple(soup["position"]): soup["cook_time"] for soup in soups if "cook_time" in soup}


def _tick(soup: Mapping[str, Any]) -> int:
    if "state" in soup:
        return int(soup["state"][2]) or -1
    return int(soup.get("cooking_tick", soup.get("_cooking_tick", -1)))


def _thing(thing: Mapping[str, Any], recipes: Recipes) -> list[Any]:
    if thing["name"] != "soup":
        if thing["name"] not in ("onion", "tomato", "dish"):
            raise ValueError(f"{thing['name']!r} is no thing of a kitchen")
        return [thing["name"]]
    tick = _tick(thing)
    if "state" in thing:
        kind, number, _ = thing["state"]
        onions, tomatoes = (0, int(number)) if kind == "tomato" else (int(number), 0)
    else:
        names = [ingredient["name"] for ingredient in thing["_ingredients"]]
        onions, tomatoes = names.count("onion"), names.count("tomato")
        if onions + tomatoes != len(names):
            raise ValueError(f"{names} are no ingredients")
    if not 1 <= onions + tomatoes <= FULL:
        raise ValueError(f"a soup has {onions + tomatoes} ingredients")
    if "state" in thing and tick >= _LEGACY_READY:
        tick = recipes.times[contents(onions, tomatoes)]
    return ["soup", onions, tomatoes, tick]
