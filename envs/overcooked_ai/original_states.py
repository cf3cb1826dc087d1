"""States and actions as the original package writes them to JSON, turned into ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.envs.overcooked_ai.recipes import FULL, Recipes, contents

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
    """A state as `Kitchen.snapshot` gives it. The order of ingredients in a soup is left out: it has no effect.

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
    """The cook times that a state tells of soups that have been started, by place.

    Args:
        state: As of `read_state`.
    """
    held = [player["held_object"] for player in state["players"] if player.get("held_object")]
    loose = state["objects"]
    soups = [thing for thing in [*held, *(loose.values() if isinstance(loose, Mapping) else loose)] if _started(thing)]
    return {tuple(soup["position"]): soup["cook_time"] for soup in soups if "cook_time" in soup}


def _started(thing: Mapping[str, Any]) -> bool:
    return bool(thing["name"] == "soup" and _tick(thing) >= 0)


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
