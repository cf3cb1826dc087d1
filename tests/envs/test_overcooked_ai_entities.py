"""The kitchen as symbols: against the game's own objects, and the texts that go with them."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.observations import SLOTS, entities, first_place, num_symbols, symbol_names
from rllib_llm_comm.envs.overcooked_ai.places import places_of
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot

_FIXED = {0: "floor", 1: "counter", 2: "onion crate", 4: "dish stack", 5: "serving counter"}
_HOLDING = {None: "{}", "onion": "{} with an onion", "dish": "{} with a dish", "soup": "{} with a soup"}


def told(kitchen: SoupKitchen, player: int, cell: tuple[int, int]) -> dict[str, str]:
    """What should be said of a cell, from the game's objects."""
    kind, item = kitchen.layout.kind(cell), kitchen.item(cell)
    names = dict.fromkeys(SLOTS, "")
    names["place"] = places_of(kitchen.layout).names[cell]
    if kind == 3:
        if item is None:
            names["terrain"] = "empty pot"
        elif item.tick >= 0:
            names["terrain"] = "ready pot" if item.ready else "cooking pot"
        else:
            names["terrain"] = f"pot with {['one onion', 'two onions', 'three onions'][item.onions - 1]}"
    else:
        shared = cell in places_of(kitchen.layout).shared
        names["terrain"] = "shared counter" if shared else _FIXED[kind]
        names["object"] = f"loose {item.kind}" if item else ""
    for slot, who in (("self", player), ("other cook", 1 - player)):
        cook = kitchen.cook(who)
        if cook.cell == cell:
            held = _HOLDING[cook.held.kind if cook.held else None]
            names[slot] = held.format(slot) if cook.held else f"empty-handed {slot}"
    return names


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@pytest.mark.parametrize("dynamics", ["old", "new"])
def test_symbols_are_what_the_game_says(layout, dynamics):
    kitchen = SoupKitchen(layout, dynamics)
    rng = np.random.default_rng(0)
    names = symbol_names(kitchen.layout)
    assert (
        len(names) == num_symbols(kitchen.layout)
        and len(set(names[first_place(kitchen.layout) :])) == kitchen.layout.terrain.size
    )
    for _ in range(12):
        kitchen.restore(random_snapshot(kitchen.layout, dynamics, rng))
        for _ in range(5):
            kitchen.step(rng.integers(6, size=2).tolist())
            seen = entities(kitchen.state, kitchen.layout)
            for player in range(2):
                for y in range(kitchen.layout.height):
                    for x in range(kitchen.layout.width):
                        said = {slot: names[number] for slot, number in zip(SLOTS, seen[player, y, x], strict=True)}
                        assert said == told(kitchen, player, (x, y))
