"""The state of a kitchen as plain values."""

from __future__ import annotations

import json

import pytest
from random_kitchens import EVERY_GAME, random_kitchen

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, POT
from rllib_llm_comm.envs.overcooked_ai.places import find_place
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen, plain_state


def test_a_state_in_full():
    kitchen = SoupKitchen("cramped_room")
    players = [[1, 1, 0, ["onion"]], [3, 1, 3, ["soup", 3, 0, 20]]]
    objects = [[2, 0, "soup", 3, 0, 7], [4, 2, "dish"]]
    kitchen.restore({"t": 5, "players": players, "objects": objects})
    state = plain_state(kitchen)
    assert state["time"] == 5
    assert state["cooks"]["alice"] == {"cell": "floor 1,1", "faces": "counter 1", "holds": "onion"}
    assert state["cooks"]["bob"] == {"cell": "floor 3,1", "faces": "floor 2,1", "holds": "soup"}
    assert state["pots"] == {"pot": {"onions": 3, "cooking": "yes", "steps_left": 13}}
    assert {name: thing for name, thing in state["counters"].items() if thing != "nothing"} == {"counter 4": "dish"}


@pytest.mark.parametrize(("layout", "dynamics"), EVERY_GAME)
def test_everything_that_can_change_is_told(layout, dynamics):
    """Two states of a kitchen that differ in more than soups of fewer onions differ in plain values, too."""
    seen = {}
    for seed in range(60):
        kitchen = random_kitchen(layout, dynamics, seed)
        state = plain_state(kitchen)
        assert json.loads(json.dumps(state)) == state
        for part, kind in (("pots", POT), ("counters", COUNTER)):
            for name in state[part]:
                assert kitchen.layout.kind(find_place(kitchen.layout, name)) == kind
        snapshot = kitchen.snapshot()
        assert seen.setdefault(json.dumps(state), snapshot) == snapshot
