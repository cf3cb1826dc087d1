"""Kitchens of the original package with tomatoes, orders, times and points of their own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from random_play import play

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.golden import check_golden
from rllib_llm_comm.envs.overcooked_ai.checker import check_sentence
from rllib_llm_comm.envs.overcooked_ai.kernel import EVENTS
from rllib_llm_comm.envs.overcooked_ai.layouts import ALIASES, LAYOUT_NAMES, ORIGINAL_NAMES, POT, get_layout
from rllib_llm_comm.envs.overcooked_ai.original import original_kitchens
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks
from rllib_llm_comm.envs.overcooked_ai.recipes import contents
from rllib_llm_comm.envs.overcooked_ai.render import ansi, rgb_array
from rllib_llm_comm.envs.overcooked_ai.rules import KitchenBatch, SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.envs.overcooked_ai.text import cook_sentences, observation_text, state_sentences
from tests.refusal import refused

GOLDEN = Path(__file__).parents[1] / "data" / "overcooked_ai_original.jsonl.gz"
TOMATO_SOUPS = {
    "grid": "XXPXX\nO  2T\nX1  X\nXDXSX",
    "start_all_orders": [{"ingredients": ["onion", "tomato"]}, {"ingredients": ["tomato"] * 3}],
    "start_bonus_orders": [{"ingredients": ["tomato", "onion"]}],
    "onion_value": 5,
    "tomato_value": 3,
    "onion_time": 4,
    "tomato_time": 2,
}


def test_equals_the_original_in_its_own_kitchens():
    report = check_golden(GOLDEN)
    assert report.ok, report.mismatches[:3]
    with gzip.open(GOLDEN, "rt") as lines:
        recorded = [json.loads(line) for line in lines]
    assert {episode["dynamics"] for episode in recorded} == {"old", "new"}
    assert len({episode["layout"] for episode in recorded}) >= 20 and report.steps >= 5_000
    happened = {name for episode in recorded for step in episode["events"] for name, _ in step}
    # The original logs a tomato that is taken from a counter only, and all of these.
    assert happened == set(EVENTS)


@pytest.mark.parametrize("layout", sorted(original_kitchens()))
def test_every_kitchen_of_the_original_begins_and_goes_on(layout):
    kitchen, twin = (SoupKitchen(f"original:{layout}", "new", horizon=40) for _ in range(2))
    rng = np.random.default_rng(0)
    batch = KitchenBatch(2, f"original:{layout}", "new", horizon=40)
    while not kitchen.over:
        actions = rng.integers(0, 6, 2)
        result = kitchen.step(actions.tolist())
        sparse, shaped, _ = batch.step(np.stack([actions, actions]))
        assert tuple(sparse[0]) == result.sparse and tuple(shaped[1]) == result.shaped
        np.testing.assert_array_equal(batch.states[1], kitchen.state)
        if kitchen.time % 4 == 0:
            twin.restore(json.loads(json.dumps(kitchen.snapshot())))
            np.testing.assert_array_equal(twin.state, kitchen.state)
    np.testing.assert_array_equal(batch.lossless()[0], kitchen.lossless())


def test_names_of_the_original_and_old_names_mean_the_same_kitchens():
    assert set(ORIGINAL_NAMES) == set(LAYOUT_NAMES)
    for ours, theirs in ORIGINAL_NAMES.items():
        assert get_layout(f"original:{theirs}").rows == get_layout(ours).rows and get_layout(theirs) == get_layout(ours)
        assert get_layout(f"original:{theirs}").classic
    for alias, name in ALIASES.items():
        assert get_layout(alias) == get_layout(name)
    assert get_layout("counter_circuit").classic and not get_layout("original:counter_circuit").classic
    assert get_layout("cramped_room_tomato") == get_layout("original:cramped_room_tomato")
    with pytest.raises(UserError, match="Did you mean 'cramped_room_tomato'"):
        get_layout("cramped_room_tomatoe")
    with pytest.raises(UserError, match="its own 'counter_circuit' is another kitchen"):
        get_layout("counter_circle")


# ---- descriptions ------------------------------------------------------------------------------------


def test_a_description_of_ones_own():
    recipes = get_layout(TOMATO_SOUPS).recipes
    mixed, red = contents(1, 1), contents(0, 3)
    assert recipes.orders == tuple(sorted((mixed, red))) and recipes.bonus == (mixed,)
    assert (recipes.points[mixed], recipes.points[red], recipes.points[contents(3)]) == (16, 9, 0)
    assert (recipes.times[mixed], recipes.times[red], recipes.times[contents(3)]) == (6, 6, 12)


def test_a_layout_file_is_read_as_data(tmp_path):
    path = tmp_path / "mine.layout"
    path.write_text(repr(TOMATO_SOUPS)[:-1] + ", 'order_bonus': float('inf'), 'rew_shaping_params': None}")
    layout = get_layout(str(path))
    assert layout.name == "mine" and layout.recipes.points[contents(1, 1)] == float("inf")
    env = overcooked_ai.parallel_env(layout=str(path), dynamics="new")
    path.unlink()
    again = overcooked_ai.parallel_env(**env.settings)  # what a checkpoint has goes without the file
    assert again.kitchen.layout == layout
    path.write_text("__import__('os').system('true')")
    with pytest.raises(UserError, match="cannot be read as a layout"):
        get_layout(str(path))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"grids": 1}, ("layout.grids", "unknown", "'grid'")),
        ({"onion_value": None, "tomato_value": "x"}, ("layout.tomato_value", "type")),
        ({"start_all_orders": [{"ingredients": ["leek"]}]}, ("layout.start_all_orders.0.ingredients.0", "choice")),
        ({"start_bonus_orders": [{"ingredients": ["onion"]}]}, ("layout", "invalid", "'start_all_orders'")),
        (
            {"start_all_orders": [{"ingredients": ["onion"]}] * 2, "start_bonus_orders": []},
            ("layout", "invalid", "twice"),
        ),
        ({"cook_time": 5}, ("layout", "invalid", "'cook_time' and 'onion_time'")),
        ({"cook_time": float("nan")}, ("layout.cook_time",)),
        ({"order_bonus": float("nan")}, ("layout.order_bonus",)),
        ({"delivery_reward": 5}, ("layout", "invalid", "exclude")),
        ({"onion_time": 2.5}, ("layout", "invalid", "whole number")),
        ({"onion_time": 100}, ("layout", "invalid", "127")),
        ({"max_num_ingredients": 4}, ("layout.max_num_ingredients", "choice")),
        (
            {"rew_shaping_params": {"SOUP_PICKUP_REWARD": 5}},
            ("layout.rew_shaping_params.PLACEMENT_IN_POT_REW", "missing"),
        ),
        ({"grid": "XXPXX\nO1  T\nX   X\nXDXSX"}, ("layout", "invalid", "exactly once")),
        ({"grid": 3}, ("layout.grid", "type")),
        (
            {"terrain": ["XX"], "start_player_positions": [[0, 5], [0, 0]], "grid": None},
            ("layout.start_player_positions", "invalid", "no places of the map"),
        ),
        ({"start_state": {"players": []}}, ("layout", "invalid", "'start_state'")),
    ],
)
def test_descriptions_that_cannot_be_played_are_refused(change, why):
    with refused(*why):
        get_layout(TOMATO_SOUPS | change)


def test_pots_that_start_by_themselves_want_orders_of_three():
    for make in (lambda: SoupKitchen("cramped_room_tomato"), lambda: KitchenBatch(2, TOMATO_SOUPS)):
        with refused("dynamics"):
            make()
    with pytest.raises(UserError, match="'old_dynamics'"):
        SoupKitchen({**original_kitchens()["simple_o"], "old_dynamics": True}, "new")
    assert SoupKitchen("simple_tomato").dynamics == "old"


def test_shaped_rewards_of_a_kitchen():
    shaping = {"PLACEMENT_IN_POT_REW": 0.5, "DISH_PICKUP_REWARD": 2, "SOUP_PICKUP_REWARD": 7}
    kitchen = SoupKitchen({**TOMATO_SOUPS, "rew_shaping_params": shaping}, "new")
    kitchen.restore({"t": 0, "players": [[2, 1, 0, ["tomato"]], [3, 2, 0, None]], "objects": []})
    assert kitchen.step((5, 4)).shaped == (0.5, 0)
    assert (kitchen.item((2, 0)).onions, kitchen.item((2, 0)).tomatoes) == (0, 1)


# ---- what cooks see ----------------------------------------------------------------------------------


def test_tomatoes_in_words_names_and_pictures():
    kitchen = SoupKitchen(TOMATO_SOUPS, "new")
    players = [[2, 1, 0, ["tomato"]], [3, 1, 2, ["soup", 1, 1, 6]]]
    objects = [[2, 0, "soup", 1, 1, 3], [0, 2, "tomato"], [4, 2, "soup", 0, 3, 6]]
    kitchen.restore({"t": 0, "players": players, "objects": objects})
    text = observation_text(kitchen, 0)
    for sentence in (
        "You hold a tomato.",
        "Bob stands on floor 3,1 and faces the tomato crate.",
        "Bob holds a soup of 1 onion and 1 tomato.",
        "The pot cooks a soup of 1 onion and 1 tomato for 3 more steps.",
        "A soup of 3 tomatoes lies on counter",
        "A tomato lies on counter",
    ):
        assert sentence in text
    drawn = ansi(kitchen)
    assert "A^t" in drawn and "Pot_:3" in drawn and "B>sot" in drawn and " T " in drawn and "sttt" in drawn
    # The crates differ, and so does a pot with a tomato from one with an onion.
    pixels = rgb_array(kitchen)
    assert (pixels[64:128, :64] != pixels[64:128, 256:320]).any()
    onions = SoupKitchen(TOMATO_SOUPS, "new")
    onions.restore(kitchen.snapshot() | {"objects": [[2, 0, "soup", 2, 0, 3]]})
    assert (pixels[:64, 128:192] != rgb_array(onions)[:64, 128:192]).any()


@pytest.mark.parametrize(
    ("layout", "dynamics", "level"), [("simple_tomato", "old", "goal"), ("you_shall_not_pass", "new", "primitive")]
)
def test_the_environment_plays_and_tells_tomatoes(layout, dynamics, level):
    parts = ["vector", "text", "planes", "state", "entities"]
    env = overcooked_ai.parallel_env(layout=layout, dynamics=dynamics, action_level=level, observe=parts, horizon=80)
    phrases = set()
    for observations, *_ in play(env, np.random.default_rng(0)):
        for agent, seen in observations.items():
            assert env.observation_space(agent).contains(seen)
            assert len(set(seen["candidates"])) == len(seen["candidates"])
            phrases |= set(seen["candidates"])
    assert any("a tomato from" in phrase for phrase in phrases)
    assert "brings" in env.brief and "omato" in seen["manual"] and "onion soups" not in env.task


def test_goals_with_tomatoes_bring_points():
    """Alice cooks by what the phrases say, and bob stands out of her way."""
    env = overcooked_ai.parallel_env(layout="simple_tomato", action_level="goal", horizon=200)
    wanted = ("deliver", "fill the dish", "put the tomato into", "fetch a dish", "fetch a tomato")
    observations, infos = env.reset(seed=0)
    (place,) = env.kitchen.layout.cells(POT)
    while env.agents:
        phrases, mask = observations["alice"]["candidates"], observations["alice"]["action_mask"]
        pot = env.kitchen.item(place)
        full = pot is not None and pot.full
        ranked = [k for word in wanted for k, said in enumerate(phrases) if mask[k] and said.startswith(word)]
        ranked = [k for k in ranked if full or "fetch a dish" not in phrases[k]]
        observations, _, _, _, infos = env.step({"alice": ranked[0] if ranked else 0, "bob": 0})
    metrics = infos["alice"]["episode_metrics"]
    assert metrics["soups"] >= 2 and metrics["score"] == 20 * metrics["soups"]
    assert f"{metrics['soups']:.0f} soups are delivered." in observations["alice"]["text"]


def test_the_checker_never_contradicts_the_games_own_sentences():
    found = []
    for layout in ("you_shall_not_pass", "mdp_test", "cramped_room_o_3orders"):
        kitchen, rng = SoupKitchen(layout, "new", horizon=300), np.random.default_rng(1)
        while not kitchen.over:
            kitchen.step([5 if rng.random() < 0.5 else int(rng.integers(5)) for _ in range(2)])
            sentences = [*state_sentences(kitchen, 0), *cook_sentences(kitchen, 0), *cook_sentences(kitchen, 1)]
            found += [(check_sentence(kitchen, sentence, soups=0), sentence) for sentence in sentences]
    assert not [sentence for truth, sentence in found if truth is False]
    unknown = [sentence for truth, sentence in found if not truth]
    assert all(any(word in sentence for word in ("omato", " of ", "holds")) for sentence in unknown)


def test_what_knows_onion_soup_only_refuses_other_kitchens():
    kitchen = SoupKitchen("simple_tomato")
    with pytest.raises(UserError, match="scripted cooks are for kitchens in which three onions"):
        ScriptedCooks(kitchen).actions()
    with pytest.raises(UserError, match="Subgoals are for kitchens"):
        subgoal_env(layout="simple_tomato", action_level="goal_cell")
