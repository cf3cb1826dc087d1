"""Scripted cooks of whom not all are told the order: what they say, what it means, and what it is worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_play import play

from rllib_llm_comm.envs.overcooked_text import cooks, observation_text, parallel_env
from rllib_llm_comm.envs.overcooked_text.cooks import Saying, ScriptedTeam, meaning, order, understand
from rllib_llm_comm.envs.overcooked_text.layouts import RECIPES
from rllib_llm_comm.envs.overcooked_text.observation_text import LEFT, RIGHT, Option, SeenItem, View
from tools.embedded_model.kitchens import options, random_view

ONE_FOOD = ["tomato salad", "lettuce salad", "onion salad"]
SHELF = (SeenItem("lettuce"), SeenItem("onion"), SeenItem("tomato"), SeenItem("bowl"))
ALICE = View("alice", ("tomato",), LEFT, counter=(), others_told=False)
BOB = View("bob", (), RIGHT, counter=(), shelf=SHELF)


# ---- meanings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("Here comes the BOWL!", "bowl"), ("tomato, tomato tomato", "tomato"),
        ("bring the bowl and the onion", "bowl onion"), ("salad of tomato and lettuce", "lettuce-tomato salad"),
        ("i serve the salad", ""), ("tell me the order", ""), ("", ""), ("tomatoes \ufffd", ""),
    ],
)  # fmt: skip
def test_the_meaning_is_the_food_or_dish_that_is_named(message, meant):
    assert meaning(message) == meant


# ---- what is said ------------------------------------------------------------------------------------


def test_who_knows_tells_the_order_first_and_then_asks_for_what_is_missing():
    assert cooks.say(ALICE) == Saying("order", "tomato salad")
    begun = replace(ALICE, counter=(SeenItem("tomato"),))
    assert cooks.say(begun) == Saying("bring", "bowl")
    assert cooks.say(begun, [Saying("ask")]) == Saying("order", "tomato salad")
    assert cooks.say(replace(ALICE, others_told=True)) == Saying("bring", "tomato")
    teller = View(
        "bob", ("tomato",), RIGHT, counter=(SeenItem("tomato"), SeenItem("bowl")), shelf=SHELF[:2], others_told=False
    )
    assert cooks.say(replace(teller, others_told=True)) == Saying("wait")
    assert cooks.say(teller) == Saying("order", "tomato salad")


def test_who_is_not_told_asks_until_something_is_under_way():
    assert cooks.say(BOB) == Saying("ask")
    assert cooks.say(replace(BOB, holding=SeenItem("onion"))) == Saying("carry", "onion")
    assert cooks.say(replace(BOB, counter=(SeenItem("onion"),))) == Saying("wait")
    chef = View("alice", (), LEFT, boards=(("first board", SeenItem("onion")),))
    assert cooks.say(chef) == Saying("chop", "onion")


def test_who_is_not_told_does_what_it_hears():
    choices = [Option("wait"), *(Option("get", item, "shelf") for item in SHELF)]
    for food in ("lettuce", "onion", "tomato"):
        for saying in (order([food]), Saying("bring", food)):
            assert choices[cooks.choose(BOB, choices, [saying])].item == SeenItem(food)
    assert cooks.guess(BOB, [order(["onion", "tomato"]), Saying("bring", "lettuce")]) == ("onion", "tomato")
    assert cooks.guess(replace(BOB, counter=(SeenItem("onion"),))) == ("onion",)
    assert cooks.guess(View("bob", (), RIGHT)) == ()


def test_an_empty_bowl_is_no_finished_dish_for_who_is_not_told():
    chef = View("alice", (), LEFT, at="delivery", holding=SeenItem("bowl"))
    assert cooks.choose(chef, [Option("wait"), Option("serve", SeenItem("bowl"), "delivery")]) == 0
    assert cooks.say(chef) != Saying("serve")


@given(st.integers(0, 10**6))
def test_the_cook_has_an_answer_in_every_kitchen_whose_order_it_is_not_told(seed):
    view = replace(random_view(np.random.default_rng(seed)), dish=())
    assert 0 <= cooks.choose(view, options(view)) < len(options(view))
    assert cooks.say(view).kind in {"ask", "carry", "chop", "wait"}


@pytest.mark.parametrize("told", [["alice"], ["bob"], "one"])
@pytest.mark.parametrize("map_name", "ABC")
def test_labels_tell_what_the_speaker_knows(told, map_name):
    """Whoever is not told the order never names a dish, nor a food that it does not hold or have before it."""
    env = parallel_env(map_name=map_name, recipe=ONE_FOOD, told_to=told)
    rng, telling = np.random.default_rng(0), 0
    for seed in range(4):
        first = True
        for _ in play(env, rng, seed=seed):
            said = cooks.messages(env.kitchen, env.possible_agents, rng)
            for index, agent in enumerate(env.possible_agents):
                saying = understand(said[agent])
                if env.kitchen.told(index) is None:
                    assert saying.kind in {"ask", "carry", "chop", "wait"}
                    near = observation_text.view(env.kitchen, index, everything=True)
                    items = [near.holding, *(item for _, item in near.boards)]
                    assert saying.thing in {item.name for item in items if item} | {""}
                elif first and saying.kind == "order":
                    telling += env.meaning(said[agent]) == env.kitchen.recipe
                first = first and not any(food.chops for food in env.kitchen.foods.values())
    assert telling >= 4


# ---- what it is worth --------------------------------------------------------------------------------


@given(
    st.integers(0, 10**6),
    st.sampled_from("ABC"),
    st.sampled_from(["map", "random"]),
    st.sampled_from(["full", "oneplate"]),
)
def test_a_scripted_pair_can_do_every_start_and_order(seed, map_name, start, layout):
    own = {"map_name": map_name, "layout": layout, "start": start}
    env = parallel_env(**own, recipe=list(RECIPES), told_to="one", max_game_steps=600)
    team = ScriptedTeam(env)
    _, infos = env.reset(seed=seed)
    team.begin(seed)
    while env.agents:
        _, _, _, _, infos = env.step(team.act(infos))
    assert env.kitchen.delivered
