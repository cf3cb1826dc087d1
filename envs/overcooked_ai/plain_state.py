"""The state of a kitchen as plain values with names, for code and language models that know nothing of arrays."""

from __future__ import annotations

from typing import Any

from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, POT, Cell
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS
from rllib_llm_comm.envs.overcooked_ai.rules import Item, Kitchen


def plain_state(kitchen: Kitchen) -> dict[str, Any]:
    """The whole state, JSON-able.

    Args:
        kitchen: The game.

    Returns:
        `time`: game steps so far. `cooks`, by name: `cell` and `faces` (names of places, such as "floor 2,3" and "left
        pot"; who stands there is not told) and `holds` ("nothing", "onion", "dish", "soup" or "tomato").
        `pots`, by name: `onions` (0 to 3) and `cooking` ("no", "yes" or "ready") with `steps_left`, and `tomatoes`
        where the kitchen has some. `counters`, by name: what lies there.
    """
    places = places_of(kitchen.layout)
    cooks = {}
    for i, name in enumerate(COOKS):
        cook = kitchen.cook(i)
        dx, dy = STEPS[cook.facing]
        faced = places.names[cook.cell[0] + dx, cook.cell[1] + dy]
        cooks[name] = {"cell": places.names[cook.cell], "faces": faced, "holds": _kind(cook.held)}
    pots = {places.names[cell]: _pot(kitchen, cell) for cell in places.fixtures[POT]}
    counters = {places.names[cell]: _kind(kitchen.item(cell)) for cell in places.fixtures[COUNTER]}
    return {"time": kitchen.time, "cooks": cooks, "pots": pots, "counters": counters}


def _kind(item: Item | None) -> str:
    return "nothing" if item is None else item.kind


def _pot(kitchen: Kitchen, cell: Cell) -> dict[str, Any]:
    item = kitchen.item(cell)
    told: dict[str, Any] = {"onions": 0 if item is None else item.onions}
    if kitchen.layout.has_tomatoes:
        told["tomatoes"] = 0 if item is None else item.tomatoes
    cooking = "no" if item is None or item.tick == IDLE else "ready" if item.ready else "yes"
    return {**told, "cooking": cooking, "steps_left": item.left if item is not None and cooking == "yes" else 0}
