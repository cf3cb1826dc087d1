"""The onion-soup game: golden data, the batched form, layouts, ways and the scripted cooks."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_kitchens import MARKS

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.golden import check_golden
from rllib_llm_comm.envs.overcooked_ai.kernel import INTERACT, STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import FLOOR, LAYOUT_NAMES, POT, get_layout
from rllib_llm_comm.envs.overcooked_ai.places import UNREACHABLE, Routes, routes_of
from rllib_llm_comm.envs.overcooked_ai.planner import CookWalker, ScriptedCooks, goal_places
from rllib_llm_comm.envs.overcooked_ai.rules import KitchenBatch, SoupKitchen
from tests.refusal import refused

GOLDEN = Path(__file__).parents[1] / "data" / "overcooked_ai_golden.jsonl.gz"


def test_equals_the_original_in_everything():
    report = check_golden(GOLDEN)
    assert (report.game, report.episodes, report.steps) == ("overcooked_ai", 30, 10_500)
    assert report.ok, report.mismatches[:3]


def changed_golden(folder, change):
    """A file with the first recorded episode, in which something is changed."""
    with gzip.open(GOLDEN, "rt") as lines:
        episode = json.loads(next(lines))
    change(episode)
    path = folder / "golden.jsonl"
    path.write_text(json.dumps(episode) + "\n")
    return path


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("state", lambda e: e["states"][3]["players"][0].__setitem__(2, 3 - e["states"][3]["players"][0][2])),
        ("sparse reward", lambda e: e["sparse_r"].__setitem__(2, [20, 0])),
        ("shaped reward", lambda e: e["shaped_r"].__setitem__(2, [0, 3])),
        ("events", lambda e: e["events"][2].append(["soup_drop", 1])),
        ("done", lambda e: e["done"].__setitem__(2, 1)),
        ("features", lambda e: e.__setitem__("featurize", e["lossless"] | {"shape": [401, 2, 520], "dtype": "int8"})),
    ],
)
def test_each_difference_is_found(tmp_path, field, change):
    report = check_golden(changed_golden(tmp_path, change))
    assert any(mismatch.field == field for mismatch in report.mismatches)


@pytest.mark.parametrize("change", [{"kind": "novel"}, {"lossless": {}}, {"layout": "den"}, {"states": [3]}])
def test_damaged_golden_files_get_one_sentence(tmp_path, change):
    with pytest.raises(UserError, match="cramped_room/old/random/1"):
        check_golden(changed_golden(tmp_path, lambda episode: episode.update(change)))


@pytest.mark.parametrize(("dynamics", "threads"), [("old", 1), ("old", 3), ("new", 9)])
@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_many_games_at_once_are_those_one_by_one(layout, dynamics, threads):
    rng = np.random.default_rng(3)
    batch = KitchenBatch(5, layout, dynamics, horizon=60, num_threads=threads)
    kitchens = [SoupKitchen(layout, dynamics, horizon=60) for _ in range(5)]
    for _ in range(90):
        # Interacting often, so that something happens.
        actions = np.where(rng.random((5, 2)) < 0.5, INTERACT, rng.integers(0, 6, (5, 2)))
        sparse, shaped, done = batch.step(actions)
        for game, kitchen in enumerate(kitchens):
            result = kitchen.step(actions[game].tolist())
            assert (tuple(sparse[game]), tuple(shaped[game])) == (result.sparse, result.shaped)
            assert done[game] == kitchen.over
            if kitchen.over:
                kitchen.reset()
        batch.restart(done)
        for game, kitchen in enumerate(kitchens):
            np.testing.assert_array_equal(batch.states[game], kitchen.state)
        np.testing.assert_array_equal(batch.lossless(), np.stack([kitchen.lossless() for kitchen in kitchens]))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(LAYOUT_NAMES), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=80))
def test_snapshots_give_the_same_state_back(layout, actions):
    kitchen, twin = SoupKitchen(layout), SoupKitchen(layout)
    for pair in actions:
        kitchen.step(pair)
    twin.restore(json.loads(json.dumps(kitchen.snapshot())))
    np.testing.assert_array_equal(kitchen.state, twin.state)
    for pair in actions[::-1]:
        assert kitchen.step(pair) == twin.step(pair)


def test_states_of_other_kitchens_are_refused():
    snapshot = SoupKitchen("asymmetric_advantages").snapshot()
    for wrong in (snapshot, {"t": 1}):
        with pytest.raises(UserError, match="no state.*'cramped_room'"):
            SoupKitchen().restore(wrong)


# ---- layouts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("simple_o", ["XXPXX", "X  2X", "X1  O", "XXDSX"]),
        ("cramped_room_o_3orders", ["XXPXX", "O  2X", "X1  X", "XDXSX"]),
        ("tutorial_0", ["XXPXXXX", "O   2 S", "XXPDXXX", "O   1 S", "XXXXXXX"]),
    ],
)
def test_rows_alone_of_kitchens_with_other_rules_are_refused(name, rows):
    with pytest.raises(UserError, match=f"layout='{name}'"):
        get_layout(rows)
    mirrored = [row.translate(str.maketrans("12", "21")) for row in rows]
    assert get_layout(mirrored).name == "custom" and get_layout(mirrored).classic
    empty = tuple(row.translate(str.maketrans("12", "  ")) for row in rows)
    assert not get_layout(name).classic and tuple(get_layout(name).rows) == empty


@pytest.mark.parametrize("make", [SoupKitchen, partial(KitchenBatch, 2)])
def test_unknown_dynamics_are_refused_without_an_environment_too(make):
    with refused("dynamics", "choice"):
        make("cramped_room", "newest")


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("kitchenette", "must be one of"),
        ([], "different lengths or none"),
        (["XXPXX", "O1 2O", "XDXS"], "different lengths"),
        (["XXPXX", "O1 2Q", "XDXSX"], "holds 'Q'"),
        (["XXPXX", "O1  O", "XDXSX"], "1 and 2 exactly once"),
        (["XXXXX", "O1 2O", "XDXSX"], "has no 'P'"),
        (["XXPXX", "O1 2 ", "XDXSX"], "floor on its border"),
        (["X" * 40] * 3, "larger than"),
        (["XXPXX", "O1 2T", "XDXSX"], "tomatoes but no orders"),
    ],
)
def test_bad_layouts_are_refused(layout, why):
    with pytest.raises(UserError, match=why):
        SoupKitchen(layout)


# ---- ways --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_ways_cost_what_they_say(layout):
    kitchen = get_layout(layout)
    routes = routes_of(kitchen)
    assert isinstance(routes, Routes) and routes is routes_of(get_layout(layout))
    for start in kitchen.starts:
        for number in range(kitchen.terrain.size):
            target = (number % kitchen.width, number // kitchen.width)
            cost, way = routes.cost(start, 0, target), routes.path((start, 0), target)
            assert (way is None) == (cost == UNREACHABLE)
            assert way is None or len(way) == cost


LEGAL = {"cramped_room": 16, "asymmetric_advantages": 18, "coordination_ring": 21, "forced_coordination": 11,
         "counter_circuit": 36}  # fmt: skip


@pytest.mark.parametrize(("layout", "legal"), LEGAL.items())
def test_legal_goal_cells(layout, legal):
    kitchen = get_layout(layout)
    assert [int(routes_of(kitchen).reachable(start).sum()) for start in kitchen.starts] == [legal, legal]
    places = goal_places(kitchen)
    assert all(kitchen.kind(cell) != FLOOR for cell in places) and set(kitchen.cells(POT)) <= set(places)


def test_a_walker_fetches_and_brings():
    kitchen = SoupKitchen("cramped_room")
    walker = CookWalker(kitchen, 0)
    walker.reset(np.random.default_rng(0))
    for goal, wanted in (((0, 1), "onion"), ((2, 0), None), ((1, 3), "dish")):
        for _ in range(8):
            action = walker.action(goal)
            kitchen.step((action, STAY))
            if action == INTERACT:
                break
        held = kitchen.cook(0).held
        assert (held.kind if held else None) == wanted
    assert kitchen.item((2, 0)).onions == 1
    assert routes_of(kitchen.layout).cost((1, 2), 0, (4, 0)) == UNREACHABLE and walker.action((4, 0)) == STAY


@pytest.mark.parametrize("seed", range(3))
def test_walkers_that_meet_in_a_corridor_get_past_each_other(seed):
    """Both want to where the other one is, on the ring of counter_circuit: nobody may wait for ever."""
    kitchen = SoupKitchen("counter_circuit")
    walkers = [CookWalker(kitchen, player) for player in range(2)]
    for player, walker in enumerate(walkers):
        walker.reset(np.random.default_rng([seed, player]))
    goals = [(3, 0), (3, 4)]  # one is below and wants up, the other above and wants down
    reached = [0, 0]
    for _ in range(120):
        kitchen.step([walkers[player].action(goals[player]) for player in range(2)])
        for player in range(2):
            if walkers[player].arrived(goals[player]):
                reached[player] += 1
                goals[player] = (3, 4) if goals[player] == (3, 0) else (3, 0)
    assert min(reached) >= 3


@pytest.mark.parametrize(("layout", "mark"), MARKS.items())
def test_scripted_cooks_reach_the_mark_of_the_originals(layout, mark):
    for seed in range(2):
        kitchen = SoupKitchen(layout)
        cooks, score = ScriptedCooks(kitchen, seed), 0
        while not kitchen.over:
            score += sum(kitchen.step(cooks.actions()).sparse)
        assert score >= mark
