"""The state of a kitchen as plain values with names, for code and language models that know nothing of arrays."""

from __future__ import annotations

from typing import Any

from rllib_llm_comm.envs.overcooked_ai.kernel import COOK_TIME, IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, POT
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS
from rllib_llm_comm.envs.overcooked_ai.rules import Item, Kitchen


def plain_state(kitchen: Kitchen) -> dict[str, Any]:
    """The whole state, JSON-able.

    Args:
        kitchen: The game.

    Returns:
        `time`: game steps so far. `cooks`, by name: `cell` and `faces` (names of places, such as "floor 2,3" and "left
        pot"; who stands there is not told) and `holds` ("nothing", "onion", "dish" or "soup"). `pots`, by
        name: `onions` (0 to 3) and `cooking` ("no", "yes" or "ready") with `steps_left`. `counters`, by name: what lies
        there.
    """
    places = places_of(kitchen.layout)
    cooks = {}
    for i, name in enumerate(COOKS):
        cook = kitchen.cook(i)
        dx, dy = STEPS[cook.facing]
        faced = places.names[cook.cell[0] + dx, cook.cell[1] + dy]
        cooks[name] = {"cell": places.names[cook.cell], "faces": faced, "holds": _kind(cook.held)}
    pots = {places.names[cell]: _pot(kitchen.item(cell)) for cell in places.fixtures[POT]}
    counters = {places.names[cell]: _kind(kitchen.item(cell)) for cell in places.fixtures[COUNTER]}
    return {"time": kitchen.time, "cooks": cooks, "pots": pots, "counters": counters}


def _kind(item: Item | None) -> str:
    return "nothing" if item is None else item.kind


def _pot(item: Item | None) -> dict[str, Any]:
    if item is None:
        return {"onions": 0, "cooking": "no", "steps_left": 0}
    cooking = "no" if item.tick == IDLE else "ready" if item.ready else "yes"
    return {"onions": item.onions, "cooking": cooking, "steps_left": COOK_TIME - item.tick if cooking == "yes" else 0}
