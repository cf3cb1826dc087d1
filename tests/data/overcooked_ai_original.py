"""Records what the original Overcooked-AI does in its own kitchens: the data of `overcooked_ai_original.jsonl.gz`.

    python -m venv original && original/bin/pip install numpy scipy tqdm gym==0.26.2 pygame && \
        original/bin/pip install --no-deps overcooked-ai==1.1.0
    original/bin/python tests/data/overcooked_ai_original.py

Data only: no code of that package is inside. The last five episodes are of master 739950a, which has the old dynamics:
`--dynamics old --append --source FOLDER` with the folder `src` of a checkout. `overcooked_ai_saved.json.gz` is what
`--saved` writes. Each kitchen is played in a process of its own, as the original keeps points and times of the last
kitchen for all. Cooks walk to something that they could use now, and take a random step at every fourth.
"""

from __future__ import annotations

import argparse
import base64
import copy
import gzip
import json
import multiprocessing
import os
import random
import sys
import zlib
from pathlib import Path

STEPS, HORIZON, SEED = 200, 200, 20
# Kitchens with tomatoes, other points or other times; and in the old dynamics, which want orders of three.
NEW = (
    "asymmetric_advantages_tomato",
    "bonus_order_test",
    "counter_circuit",
    "cramped_corridor",
    "cramped_room_o_3orders",
    "cramped_room_tomato",
    "forced_coordination_tomato",
    "inverse_marshmallow_experiment",
    "long_cook_time",
    "marshmallow_experiment",
    "mdp_test",
    "pipeline",
    "simple_o",
    "simple_o_t",
    "simple_tomato",
    "soup_coordination",
    "tutorial_0",
    "tutorial_1",
    "tutorial_2",
    "tutorial_3",
    "you_shall_not_pass",
)
NO_FEATURES = ("you_shall_not_pass",)
"""Here the original's planner, which its features need, takes more than ten minutes to prepare."""
OLD = ("forced_coordination_tomato", "marshmallow_experiment_coordination", "simple_o", "simple_o_t", "simple_tomato")


def pack(array):
    """An array as shape, type and base64 of its zlib-compressed bytes."""
    raw = array.tobytes()
    packed = base64.b64encode(zlib.compress(raw, 9)).decode()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "b64zlib": packed}


def record(task):
    """One episode of one kitchen."""
    layout, dynamics, steps, encoded, own = task
    import numpy as np

    np.Inf = np.inf  # what numpy 2 has no more
    from overcooked_ai_py.mdp.actions import Action
    from overcooked_ai_py.mdp.overcooked_env import OvercookedEnv
    from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld, Recipe

    Recipe.configure({})  # else a kitchen with a start of its own cannot be the first one
    more = {"old_dynamics": True} if dynamics == "old" else {}
    if own is None:
        mdp = OvercookedGridworld.from_layout_name(layout, **more)
    else:
        mdp = OvercookedGridworld.from_grid(own["grid"], {k: v for k, v in own.items() if k != "grid"}, more)
    env = OvercookedEnv.from_mdp(mdp, horizon=HORIZON, info_level=0)
    state = mdp.get_standard_start_state()
    rng = random.Random(f"{SEED} {layout} {dynamics}")
    planner = env.mlam if encoded and layout not in NO_FEATURES else None
    planes, features, pairs, rewards, shaped, events, done = [], [], [], [], [], [], []
    states = [state_of(state)]

    def encode():
        if encoded:
            planes.append(np.stack(mdp.lossless_state_encoding(state, horizon=HORIZON)).astype(np.int8))
        if planner is not None:
            features.append(np.stack(mdp.featurize_state(state, planner)).astype(np.int8))

    encode()
    while len(pairs) < steps:
        pair = [choose(mdp, state, i, rng) for i in range(2)]
        # Not by `OvercookedEnv.step`, which cannot add up points without end (tutorial_3).
        state, info = mdp.get_state_transition(state, [Action.INDEX_TO_ACTION[number] for number in pair])
        pairs.append(pair)
        rewards.append(info["sparse_reward_by_agent"])
        shaped.append(info["shaped_reward_by_agent"])
        done.append(int(state.timestep >= HORIZON))
        events.append(sorted([name, i] for name, by in info["event_infos"].items() for i in range(2) if by[i]))
        states.append(state_of(state))
        encode()
    return {
        "layout": f"original:{layout}" if own is None else own,
        "dynamics": dynamics,
        "id": f"{layout if own is None else own['layout_name']}/{dynamics}",
        "kind": "episode",
        "horizon": HORIZON,
        "actions": pairs,
        "sparse_r": rewards,
        "shaped_r": shaped,
        "events": events,
        "done": done,
        "states": states,
        **({"lossless": pack(np.stack(planes))} if encoded else {}),
        **({"featurize": pack(np.stack(features))} if features else {}),
    }


def choose(mdp, state, i, rng):
    """A random action, or (mostly) one towards something that the cook could use now."""
    if rng.random() < 0.25:
        return rng.choice((0, 1, 2, 3, 4, 5))
    player = state.players[i]
    held = player.held_object.name if player.held_object else ""
    pots = [(place, state.objects.get(place)) for place in mdp.get_pot_locations()]
    filling = [place for place, soup in pots if soup is None or (soup.is_idle and len(soup.ingredients) < 3)]
    idle = [place for place, soup in pots if soup is not None and soup.is_idle]
    started = [place for place, soup in pots if soup is not None and not soup.is_idle]
    if held in ("onion", "tomato"):
        targets = filling
    elif held == "soup":
        targets = mdp.get_serving_locations()
    elif held == "dish":
        targets = started
    else:
        sources = {"onion": mdp.get_onion_dispenser_locations(), "tomato": mdp.get_tomato_dispenser_locations()}
        orders = [sorted(order["ingredients"]) for order in mdp.start_all_orders]
        inside = [sorted(state.objects[place].ingredients) for place in idle]
        done = [place for place, soup in zip(idle, inside, strict=True) if soup in orders or len(soup) == 3]
        soup = rng.choice(inside or [[]])
        missing = [name for order in orders for name in order if order.count(name) > soup.count(name)]
        kind = rng.choice(missing if missing and rng.random() < 0.9 else ["onion", "tomato"])
        targets = sources[kind] or sources["onion"] + sources["tomato"]
        if started and rng.random() < 0.8:
            targets = mdp.get_dish_dispenser_locations()
        elif done and rng.random() < 0.7:
            targets = done
    # What lies about is used, too, so that cooks in separate rooms hand things over.
    counters = mdp.get_counter_locations()
    loose = [place for place in counters if state.has_object(place)]
    free = [place for place in counters if not state.has_object(place)]
    if not held and loose and rng.random() < 0.3:
        targets = loose
    other = state.players[1 - i].position
    found = [search(mdp, player, other, places) for places in (targets, free if held else loose)]
    return next((number for number in found if number is not None), rng.randrange(4))


def search(mdp, player, other, targets):
    """The first action of a shortest way to face one of some places, as if the other cook stood still."""
    ways = [(0, -1), (0, 1), (1, 0), (-1, 0)]
    x, y = player.position
    floor = set(mdp.get_valid_player_positions()) - {other}
    dx, dy = player.orientation
    if (x + dx, y + dy) in targets:
        return 5
    todo, seen = [((x, y), None)], {(x, y)}
    for (a, b), first in todo:
        for number, (dx, dy) in enumerate(ways):
            place = (a + dx, b + dy)
            if place in targets:
                return number if first is None else first
            if place in floor and place not in seen:
                seen.add(place)
                todo.append((place, number if first is None else first))
    return None


def state_of(state):
    """A state as our snapshots have it."""

    def thing(item):
        if item.name != "soup":
            return [item.name]
        names = item.ingredients
        return ["soup", names.count("onion"), names.count("tomato"), item._cooking_tick]

    ways = [(0, -1), (0, 1), (1, 0), (-1, 0)]
    players = [
        [*player.position, ways.index(player.orientation), thing(player.held_object) if player.held_object else None]
        for player in state.players
    ]
    objects = sorted([*place, *thing(item)] for place, item in state.objects.items())
    return {"t": state.timestep, "players": players, "objects": objects}


def save_games(path):
    """Two games of the tomato kitchen as the original itself saves them, gzipped."""
    import numpy as np

    np.Inf = np.inf
    from overcooked_ai_py.agents.agent import Agent, AgentPair
    from overcooked_ai_py.agents.benchmarking import AgentEvaluator
    from overcooked_ai_py.mdp.actions import Action
    from overcooked_ai_py.mdp.overcooked_env import OvercookedEnv
    from overcooked_ai_py.mdp.overcooked_mdp import OvercookedGridworld

    mdp = OvercookedGridworld.from_layout_name("cramped_room_tomato")
    rng = random.Random(SEED)

    class Cook(Agent):
        def action(self, state):
            return Action.INDEX_TO_ACTION[choose(mdp, state, self.agent_index, rng)], {}

    env = OvercookedEnv.from_mdp(mdp, horizon=80, info_level=0)
    games = env.get_rollouts(AgentPair(Cook(), Cook()), num_games=2, info=False)
    AgentEvaluator.save_traj_as_json(games, "saved.json")
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
        zipped.write(Path("saved.json").read_bytes())
    Path("saved.json").unlink()


def main():
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", help="folder with another version of the original")
    parser.add_argument("--dynamics", choices=("old", "new"), default="new")
    parser.add_argument("--layouts", nargs="*")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", default=str(Path(__file__).with_name("overcooked_ai_original.jsonl.gz")))
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--saved", help="write two games as the original saves them to this .json.gz, and no more")
    given = parser.parse_args()
    if given.saved:
        save_games(given.saved)
        return
    if given.source:
        sys.path.insert(0, given.source)
        os.environ["PYTHONPATH"] = given.source
    layouts = given.layouts or (OLD if given.dynamics == "old" else NEW)
    tasks = [(layout, given.dynamics, given.steps, True, None) for layout in layouts]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        episodes = pool.map(record, tasks, chunksize=1)
    old = gzip.decompress(Path(given.out).read_bytes()).decode() if given.append else ""
    text = old + "".join(json.dumps(copy.deepcopy(episode), separators=(",", ":")) + "\n" for episode in episodes)
    with open(given.out, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as zipped:
        zipped.write(text.encode())
    for episode in episodes:
        total = sum(map(sum, episode["sparse_r"]))
        print(episode["id"], total, len({name for step in episode["events"] for name, _ in step}), "kinds of events")


if __name__ == "__main__":
    main()
