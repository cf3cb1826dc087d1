"""Subgoals of Overcooked-AI: words and back, which there are, and when they are possible and done."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllib_llm_comm.envs.overcooked_ai.kernel import EAST, INTERACT, NORTH, SOUTH, STAY, WEST
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, POT, get_layout
from rllib_llm_comm.envs.overcooked_ai.places import STEPS, places_of, routes_of
from rllib_llm_comm.envs.overcooked_ai.planner import CookWalker, ScriptedCooks, goal_places
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import (
    VERBS,
    Subgoal,
    all_subgoals,
    completed,
    holdable,
    library,
    parse_subgoal,
    possible,
    possible_subgoals,
    subgoal_number,
    subgoal_text,
)
from rllib_llm_comm.envs.overcooked_ai.text import target_phrases

READY, COOKING = ["soup", 3, 0, COOK_TIME], ["soup", 3, 0, 7]
# One room each, nothing between them: alice has no dishes, bob no onions of his own.
APART = ["XXXXXXX", "O1XPX D", "P XXX2X", "XXSXXSX"]

# ---- words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [*LAYOUT_NAMES, APART])
def test_words_and_back(layout):
    layout = get_layout(layout)
    texts = {subgoal_text(layout, subgoal): subgoal for subgoal in all_subgoals(layout)}
    assert len(texts) == len(all_subgoals(layout)) == len(set(all_subgoals(layout)))
    for text, subgoal in texts.items():
        for variant in (text, f"  {text.upper()}. ", text.replace(" the ", " a "), text.replace("dish", "plate")):
            assert parse_subgoal(layout, variant) == subgoal, variant


@pytest.mark.parametrize(
    ("text", "verb", "kind", "cell"),
    [
        ("Put the plate on shared bar 2.", "put", "dish", (2, 2)),
        ("place one onion on the upper crafting table", "add", "onion", (3, 0)),
        ("pick up a plate from the sideboard", "take", "dish", (0, 3)),
        ("take the soup from the top pot", "plate", "soup", (3, 0)),
        ("fill a plate with the onion soup from the right pot", "plate", "soup", (4, 1)),
        ("fill a dish with the ready soup at the upper pot", "plate", "soup", (3, 0)),
        ("fill the dish at the upper pot", "plate", "soup", (3, 0)),
        ("Serve the soup at the delivery area!", "deliver", "soup", (3, 4)),
        ("put the plated soup on the serving counter", "deliver", "soup", (3, 4)),
        ("move to cell 3,1", "go", "", (3, 1)),
    ],
)
def test_free_wording(text, verb, kind, cell):
    assert parse_subgoal(get_layout("forced_coordination"), text) == Subgoal(verb, kind, cell)


NO_SUBGOALS = [
    "drop an onion into the stove on the right", "fetch an onion from an onion crate",
    "fetch two onions from the upper onion crate", "fetch onions from the upper onion crate",
    "fetch a dish from the upper onion crate", "fetch a cooking soup from the upper pot",
    "put the dish into the upper pot", "put the onion on the shared bar", "deliver the dish at the serving counter",
    "go to floor 2,1", "go to shared counter 1", "go to floor 3,1. go to floor 3,2", "go to floor 3,1?",
    "alice holds an onion", "go to floor 3,1" + " " * 300, "",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_SUBGOALS)
def test_what_is_ambiguous_impossible_or_more_than_a_subgoal_is_none(text):
    assert parse_subgoal(get_layout("forced_coordination"), text) is None


WORDS = ["put", "fetch", "fill", "go", "dish", "onion", "soup", "the", "a", "pot", "counter", "1", "2", "into", "from"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "left", "floor 1,1", "to", ".", "!"])))
def test_any_text_is_a_subgoal_of_the_kitchen_or_none(words):
    layout = get_layout("counter_circuit")
    assert parse_subgoal(layout, " ".join(words)) in [None, *all_subgoals(layout)]


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_words_are_those_of_the_goals_that_cooks_choose_among(layout):
    kitchen, rng, agree = SoupKitchen(layout), np.random.default_rng(1), 0
    for _ in range(30):
        kitchen.restore(random_snapshot(kitchen.layout, "old", rng))
        for player in range(2):
            for subgoal in possible_subgoals(kitchen, player):
                soup = kitchen.item(subgoal.cell)
                if subgoal.verb != "plate" or (soup is not None and soup.ready):
                    (phrase,) = target_phrases(kitchen, player, [subgoal.cell])
                    assert subgoal_text(kitchen.layout, subgoal) == phrase
                    agree += 1
    assert agree > 300


# ---- which there are ---------------------------------------------------------------------------------


def test_each_player_has_what_it_can_reach():
    layout = get_layout("forced_coordination")
    cook, feeder = library(layout, 0), library(layout, 1)
    assert {s.verb for s in cook} == set(VERBS) and {s.verb for s in feeder} == {"take", "put", "go"}
    assert Subgoal("take", "soup", (2, 2)) in feeder and Subgoal("take", "onion", (0, 1)) not in cook
    assert all_subgoals(layout)[subgoal_number(layout, cook[7])] == cook[7]
    assert set(all_subgoals(layout)) == {*cook, *feeder}


def test_what_no_cook_can_bring_is_no_subgoal():
    layout = get_layout(APART)
    assert holdable(layout) == ({"onion"}, {"dish"})
    assert {(s.verb, s.kind) for s in library(layout, 1)} == {("take", "dish"), ("put", "dish"), ("go", "")}
    assert {s.verb for s in library(layout, 0)} == {"take", "put", "add", "go"}
    kitchen, rng = SoupKitchen(APART), np.random.default_rng(0)
    for _ in range(50):
        kitchen.restore(random_snapshot(layout, "old", rng))
        for player, kind in ((0, "onion"), (1, "dish")):
            held = kitchen.cook(player).held
            assert held is None or held.kind == kind


# ---- done, against an independent derivation ---------------------------------------------------------

PICK_OR_DROP = {f"{kind}_{what}": (verb, kind) for kind in ("onion", "dish", "soup")
                for what, verb in (("pickup", "take"), ("drop", "put"))}  # fmt: skip
EVENTS = {**PICK_OR_DROP, "potting_onion": ("add", "onion"), "soup_delivery": ("deliver", "soup")}


def derived(layout, before, after, events):
    """What a player did, from the events and where it stands and looks after the step."""
    done = [Subgoal("go", "", after.cell)] if after.cell != before.cell else []
    (dx, dy), (x, y) = STEPS[after.facing], after.cell
    for verb, kind in (EVENTS[event] for event in events if event in EVENTS):
        plated = (verb, kind) == ("take", "soup") and layout.kind((x + dx, y + dy)) == POT
        done.append(Subgoal("plate" if plated else verb, kind, (x + dx, y + dy)))
    return done


def scripted_actions(kitchen, rng):
    cooks = ScriptedCooks(kitchen, int(rng.integers(100)))
    return lambda: cooks.actions()


def random_actions(kitchen, rng):
    return lambda: [INTERACT if rng.random() < 0.4 else int(rng.integers(6)) for _ in range(2)]


def walking_actions(kitchen, rng):
    """Both walk to one and the same place for a while, so that they meet there."""
    walkers, places = [CookWalker(kitchen, player) for player in range(2)], goal_places(kitchen.layout)

    def actions():
        goal = places[(kitchen.time // 6 * 7) % len(places)]
        return [walker.action(goal) for walker in walkers]

    return actions


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_done_is_what_the_events_say(layout):
    rng, seen = np.random.default_rng(5), set()
    for dynamics, play in product(("old", "new"), (scripted_actions, random_actions, walking_actions)):
        kitchen = SoupKitchen(layout, dynamics)
        for _ in range(2):
            kitchen.restore(random_snapshot(kitchen.layout, dynamics, rng))
            choose = play(kitchen, rng)
            for _ in range(50):
                seen.update(one_step(kitchen, choose()))
    assert seen == set(VERBS)


def one_step(kitchen, actions):
    """Compares what is called done, of all subgoals, with what was done; returns its verbs."""
    before, cooks = kitchen.state.copy(), [kitchen.cook(0), kitchen.cook(1)]
    could = [possible_subgoals(kitchen, player) for player in range(2)]
    result = kitchen.step(actions)
    for player in range(2):
        expected = derived(kitchen.layout, cooks[player], kitchen.cook(player), result.events[player])
        assert [s for s in all_subgoals(kitchen.layout) if completed(before, kitchen.state, player, s)] == expected
        alone = actions[1 - player] == STAY or (player == 0 and actions[1] == INTERACT)
        assert not alone or set(could[player]).issuperset(expected)
        yield from (subgoal.verb for subgoal in expected)


def both_at(layout, held, lying):
    """Both cooks face one and the same shared counter, or pot, with something in their hands."""
    kitchen = SoupKitchen(layout)
    (right, left), cell = {
        "forced_coordination": (((3, 2), (1, 2)), (2, 2)),
        "asymmetric_advantages": (((5, 2), (3, 2)), (4, 2)),
    }[layout]
    players = [[*right, WEST, held[0]], [*left, EAST, held[1]]]
    kitchen.restore({"t": 3, "players": players, "objects": [[*cell, *lying]] if lying else []})
    return kitchen, cell


@pytest.mark.parametrize(
    ("layout", "held", "lying", "done"),
    [
        ("forced_coordination", (["onion"], None), None, (("put", "onion"), ("take", "onion"))),
        ("forced_coordination", (None, ["onion"]), None, (None, ("put", "onion"))),
        ("forced_coordination", (None, None), ["dish"], (("take", "dish"), None)),
        ("forced_coordination", (None, ["onion"]), ["dish"], (("take", "dish"), ("put", "onion"))),
        ("forced_coordination", (["onion"], ["onion"]), None, (("put", "onion"), None)),
        ("forced_coordination", (READY, None), None, (("put", "soup"), ("take", "soup"))),
        ("asymmetric_advantages", (["dish"], ["onion"]), READY, (("plate", "soup"), ("add", "onion"))),
        ("asymmetric_advantages", (["onion"], ["dish"]), READY, (None, ("plate", "soup"))),
        ("asymmetric_advantages", (["dish"], ["dish"]), READY, (("plate", "soup"), None)),
        ("asymmetric_advantages", (["onion"], ["onion"]), ["soup", 2, 0, -1], (("add", "onion"), None)),
        ("asymmetric_advantages", (["dish"], ["onion"]), COOKING, (None, None)),
    ],
)
def test_both_use_one_cell_in_the_same_step(layout, held, lying, done):
    kitchen, cell = both_at(layout, held, lying)
    before = kitchen.state.copy()
    kitchen.step((INTERACT, INTERACT))
    for player in range(2):
        expected = [] if done[player] is None else [Subgoal(*done[player], cell)]
        found = [s for s in all_subgoals(kitchen.layout) if completed(before, kitchen.state, player, s)]
        assert found == expected


@pytest.mark.parametrize(
    ("places", "actions", "arrived"),
    [
        (((1, 1), (2, 1)), (EAST, WEST), ([], [])),  # they would change places
        (((1, 1), (1, 3)), (SOUTH, NORTH), ([], [])),  # both want the cell between them
        (((1, 1), (1, 2)), (EAST, NORTH), ([(2, 1)], [(1, 1)])),  # into the cell just left
        (((1, 1), (1, 2)), (STAY, EAST), ([], [])),  # to be there is not to arrive
    ],
)
def test_to_go_is_done_on_arrival_only(places, actions, arrived):
    kitchen = SoupKitchen("coordination_ring")
    kitchen.restore({"t": 0, "players": [[*place, NORTH, None] for place in places], "objects": []})
    before = kitchen.state.copy()
    kitchen.step(actions)
    for player in range(2):
        found = [s for s in all_subgoals(kitchen.layout) if completed(before, kitchen.state, player, s)]
        assert found == [Subgoal("go", "", cell) for cell in arrived[player]]


# ---- possible, and carried out -----------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_random_starts_are_legal_and_bring_every_subgoal(layout):
    kitchen, rng = SoupKitchen(layout), np.random.default_rng(0)
    places, kinds = places_of(kitchen.layout), holdable(kitchen.layout)
    met = [set(), set()]
    for _ in range(250):
        kitchen.restore(random_snapshot(kitchen.layout, "old", rng))
        for player in range(2):
            cook = kitchen.cook(player)
            assert places.room_of[cook.cell] == places.room_of[kitchen.layout.starts[player]]
            assert cook.held is None or cook.held.kind in kinds[player]
            met[player].update(possible_subgoals(kitchen, player))
        assert kitchen.cook(0).cell != kitchen.cook(1).cell
        soups = [item for item in [*kitchen.items().values(), kitchen.cook(0).held] if item and item.kind == "soup"]
        assert all(soup.onions == 3 and soup.tick >= 1 or soup.onions < 3 and soup.tick == -1 for soup in soups)
    assert [set(library(kitchen.layout, player)) for player in range(2)] == met


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_a_lone_cook_does_all_that_is_possible_and_not_blocked(layout):
    kitchen, rng, tried = SoupKitchen(layout), np.random.default_rng(2), 0
    for number in range(120):
        player = number % 2
        kitchen.restore(random_snapshot(kitchen.layout, "old", rng))
        subgoals, cook = possible_subgoals(kitchen, player), kitchen.cook(player)
        subgoal = subgoals[rng.integers(len(subgoals))]
        other = frozenset({kitchen.cook(1 - player).cell})
        if routes_of(kitchen.layout).path((cook.cell, cook.facing), subgoal.cell, other) is None:
            continue
        walker, done = CookWalker(kitchen, player), False
        for _ in range(40):
            before, actions = kitchen.state.copy(), [STAY, STAY]
            actions[player] = walker.action(subgoal.cell)
            kitchen.step(actions)
            if done := completed(before, kitchen.state, player, subgoal):
                break
        assert done, subgoal
        assert subgoal.verb == "add" or not possible(kitchen, player, subgoal)
        tried += 1
    assert tried >= 100
