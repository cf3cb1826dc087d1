"""Kitchens of the original package: their files, rules, and saved states and actions, turned into ours."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.settings import Settings, Several
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


def _not_nan(value: float) -> float:
    if math.isnan(value):
        raise ValueError("nan is no number")
    return value


_Number = Annotated[float, Field(allow_inf_nan=True), AfterValidator(_not_nan)]
_Rows = Several[str | Several[str]]


class OrderedSoup(Settings):
    """A soup that is ordered."""

    model_config = ConfigDict(extra="ignore")
    ingredients: Several[Literal["onion", "tomato"]] = Field(
        min_length=1, max_length=FULL, examples=["ingredients: [onion, tomato]"]
    )
    """One to three ingredients."""

    @property
    def contents(self) -> int:
        """Its contents as a number."""
        return contents(self.ingredients.count("onion"), self.ingredients.count("tomato"))


class OrdersOfState(Settings):
    """What a state tells of orders; its cooks and things are read by `read_state`."""

    model_config = ConfigDict(extra="ignore")
    all_orders: Several[OrderedSoup] | None = None
    """The soups that are ordered; none at all means every soup."""
    bonus_orders: Several[OrderedSoup] | None = None
    """Those of them that bring more."""


class ShapedRewards(Settings):
    """The shaped rewards that the original gives; those for distances are read there but never paid."""

    PLACEMENT_IN_POT_REW: float
    """For an ingredient into a pot."""
    DISH_PICKUP_REWARD: float
    """For a useful dish."""
    SOUP_PICKUP_REWARD: float
    """For a soup out of a pot."""
    DISH_DISP_DISTANCE_REW: float = 0.0
    """Never paid."""
    POT_DISTANCE_REW: float = 0.0
    """Never paid."""
    SOUP_DISTANCE_REW: float = 0.0
    """Never paid."""


class OriginalRules(Settings):
    """A kitchen as the original's files describe it."""

    grid: str | _Rows | None = None
    """The map: its rows as one text, or as a list."""
    terrain: _Rows | None = None
    """The map without cooks, in place of `grid`."""
    start_player_positions: Several[Several[int]] | None = None
    """With `terrain`: column and row of each cook at the start."""
    layout_name: str | None = None
    """The kitchen's name."""
    start_all_orders: Several[OrderedSoup] | None = None
    """The soups that are ordered; none at all means every soup."""
    start_bonus_orders: Several[OrderedSoup] | None = None
    """Those of them whose points are multiplied."""
    start_state: dict[str, Any] | None = None
    """A state to begin with; its orders are those that count."""
    order_bonus: _Number | None = None
    """What the points of bonus orders are multiplied with; 2 by default."""
    rew_shaping_params: ShapedRewards | None = None
    """Shaped rewards other than the usual ones."""
    delivery_reward: _Number | None = None
    """Points of any soup that is ordered."""
    recipe_values: Several[_Number] | None = None
    """Points of each soup of `start_all_orders`."""
    onion_value: _Number | None = None
    """Points for each onion in a soup."""
    tomato_value: _Number | None = None
    """Points for each tomato in a soup."""
    cook_time: _Number | None = None
    """Steps that any soup cooks."""
    recipe_times: Several[_Number] | None = None
    """Steps that each soup of `start_all_orders` cooks."""
    onion_time: _Number | None = None
    """Steps for each onion in a soup."""
    tomato_time: _Number | None = None
    """Steps for each tomato in a soup."""
    num_items_for_soup: int | None = None
    """Read by the original's first version only."""
    max_num_ingredients: Literal[3] = 3
    """Ingredients that a pot takes."""
    old_dynamics: bool | None = None
    """Whether a pot with three ingredients starts to cook by itself."""


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


def read_rows(rules: OriginalRules) -> tuple[str, ...]:
    """The rows of the map with 1 and 2 where the players begin.

    Raises:
        UserError: If there are none.
    """
    if rules.grid is not None:
        rows = rules.grid.split("\n") if isinstance(rules.grid, str) else map("".join, rules.grid)
        return tuple(row.strip() for row in rows)
    if rules.terrain is None or rules.start_player_positions is None:
        raise UserError("`layout` has no 'grid' (nor 'terrain' and 'start_player_positions'); give the map's rows.")
    cells = [list("".join(row)) for row in rules.terrain]
    try:
        for number, (x, y) in enumerate(rules.start_player_positions, 1):
            cells[y][x] = str(number)
    except (ValueError, IndexError) as error:
        raise UserError(
            f"`layout.start_player_positions` is {shown(rules.start_player_positions)}, which are no places of the map "
            f"({error}); give column and row of each cook."
        ) from error
    return tuple("".join(row) for row in cells)


def read_recipes(rules: OriginalRules) -> Recipes:
    """The recipes of a kitchen.

    The orders are those of `start_state` if there is one, else `start_all_orders`; none at all means every soup. A soup
    that is ordered brings `delivery_reward`, else its entry in `recipe_values` (in the order of `start_all_orders`),
    else the sum of `onion_value` and `tomato_value` of its ingredients, else 20, times `order_bonus` if it is one of
    the bonus orders. It cooks for `cook_time`, `recipe_times`, `onion_time` and `tomato_time`, or 20 steps, likewise.
    As in the original, 0 as a value for all soups or for an ingredient counts as not given.

    Raises:
        UserError: For a value that the original refuses, too, or that cannot be played.
    """
    listed = [order.contents for order in rules.start_all_orders or ()]
    told, bonus_told = rules.start_all_orders, rules.start_bonus_orders
    if rules.start_state:
        state = OrdersOfState.checked("layout.start_state", rules.start_state)
        told, bonus_told = state.all_orders, state.bonus_orders
    orders = [order.contents for order in told or ()] or list(SOUPS)
    bonus = [order.contents for order in bonus_told or ()]
    for name, those in (("orders", orders), ("bonus orders", bonus)):
        if len(set(those)) != len(those):
            raise UserError(f"`layout` has the same soup twice among its {name}; name each once.")
    if not set(bonus) <= set(orders):
        raise UserError("`layout` has bonus orders that are not among 'start_all_orders'; add them there.")
    values = _by_soup(rules, _POINTS, listed, float(SOUP_REWARD))
    times = _by_soup(rules, _TIMES, listed, float(COOK_TIME))
    for soup in SOUPS:
        if not (times[soup].is_integer() and 0 <= times[soup] <= _LONGEST):
            raise UserError(
                f"`layout` has a soup that cooks for {times[soup]:g} steps but it must be a whole number from 0 to "
                f"{_LONGEST}."
            )
    factor = 2.0 if rules.order_bonus is None else rules.order_bonus
    points = [0.0] * CONTENTS
    for soup in orders:
        points[soup] = values[soup] * (factor if soup in bonus else 1.0)
        if math.isnan(points[soup]) or points[soup] < 0:
            raise UserError(f"`layout` has a soup that brings {points[soup]:g} points but it must be 0 or more.")
    shaped = SHAPED
    if (paid := rules.rew_shaping_params) is not None:
        shaped = (paid.PLACEMENT_IN_POT_REW, paid.DISH_PICKUP_REWARD, paid.SOUP_PICKUP_REWARD)
    return Recipes(
        tuple(sorted(orders)), tuple(sorted(bonus)), tuple(int(time) for time in times), tuple(points), shaped
    )


def _by_soup(rules: OriginalRules, keys: Sequence[str], listed: Sequence[int], usual: float) -> list[float]:
    """A number for each soup by its contents: from one for all, one per recipe, one per ingredient, or the usual."""
    for_all, per_recipe, onion, tomato = keys
    there = rules.model_fields_set
    if (onion in there) != (tomato in there):
        raise UserError(f"`layout` has only one of {onion!r} and {tomato!r}; give both or none.")
    given = [key for key in (for_all, per_recipe, onion) if key in there]
    if len(given) > 1:
        raise UserError(f"`layout` has {given[0]!r} and {given[1]!r}, which exclude each other; omit one.")
    everything, numbers, onions, tomatoes = (getattr(rules, key) for key in keys)
    if per_recipe in there and (not listed or numbers is None or len(numbers) != len(listed)):
        raise UserError(f"`layout` has {per_recipe!r} {numbers!r} but needs one number per 'start_all_orders'.")
    table = dict(zip(listed, numbers or (), strict=False))
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
