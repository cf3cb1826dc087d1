"""Legal states of the onion soup game, drawn at random."""

from __future__ import annotations

import random

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DYNAMICS, LAYOUT_NAMES, POT, Cell
from rllib_llm_comm.envs.overcooked_ai.places import STEPS, places_of
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen

# The best scores of the original's scripted cook in the golden data's notes (eps 0 to .02).
MARKS = {
    "cramped_room": 220,
    "asymmetric_advantages": 300,
    "coordination_ring": 200,
    "forced_coordination": 200,
    "counter_circuit": 140,
}
EVERY_GAME = [(layout, dynamics) for layout in LAYOUT_NAMES for dynamics in DYNAMICS]


def random_item(rng: random.Random, dynamics: str) -> list | None:
    soup = ["soup", 3 if dynamics == "old" else rng.randint(1, 3), 0, 20]
    return rng.choice([None, None, None, ["onion"], ["dish"], soup])


def random_pot(rng: random.Random, dynamics: str) -> list | None:
    tick = rng.choice([-1, -1, 20, rng.randint(1, 19)])
    onions = rng.randint(1, 3) if dynamics == "new" else 3 if tick > 0 else rng.randint(1, 2)
    return rng.choice([None, ["soup", onions, 0, tick]])


def random_kitchen(name: str, dynamics: str, seed: int) -> SoupKitchen:
    """A legal state: each cook anywhere in its room, things on usable counters and in pots."""
    rng, kitchen = random.Random(seed), SoupKitchen(name, dynamics)
    places, layout = places_of(kitchen.layout), kitchen.layout
    while True:
        at = [rng.choice([c for c, room in places.room_of.items() if room == places.room_of[s]]) for s in layout.starts]
        if at[0] != at[1]:
            break
    players = [[*cell, rng.randrange(4), random_item(rng, dynamics)] for cell in at]
    objects = [[*cell, *item] for cell in places.fixtures[COUNTER] if (item := random_item(rng, dynamics))]
    objects += [[*cell, *soup] for cell in places.fixtures[POT] if (soup := random_pot(rng, dynamics))]
    kitchen.restore({"t": rng.randrange(400), "players": players, "objects": objects})
    return kitchen


def copied(kitchen: SoupKitchen) -> SoupKitchen:
    copy = SoupKitchen(kitchen.layout.name, kitchen.dynamics)
    copy.restore(kitchen.snapshot())
    return copy


def faced(kitchen: SoupKitchen, i: int) -> Cell:
    cook = kitchen.cook(i)
    return cook.cell[0] + STEPS[cook.facing][0], cook.cell[1] + STEPS[cook.facing][1]
