"""Orders that differ from episode to episode, that not every cook is told, or that follow each other; random starts."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_play import golden, play, same, story
from test_overcooked_text_rules import check_invariants

from rllib_llm_comm.envs.interface import EPISODE_METRICS, PRIVATE, asked
from rllib_llm_comm.envs.overcooked_text import observation_text, parallel_env
from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner
from rllib_llm_comm.envs.overcooked_text.cooks import ScriptedTeam
from rllib_llm_comm.envs.overcooked_text.layouts import AGENT, COUNTER, DELTAS, FLOOR, MAPS, RECIPES, SIZE
from rllib_llm_comm.envs.overcooked_text.rules import TextKitchen

ONE_FOOD = ["tomato salad", "lettuce salad", "onion salad"]
SECRET = {"recipe": ONE_FOOD, "told_to": ["alice"]}


# ---- contracts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("map_name", "level", "legacy"),
    [("A", "macro", False), ("A", "macro", True), ("A", "primitive", False), ("B", "macro", False),
     ("B", "primitive", True), ("C", "macro", False), ("C", "primitive", False)],
)  # fmt: skip
def test_without_the_new_settings_random_play_is_as_before_they_came(map_name, level, legacy):
    agents = 3 if map_name == "A" else 2
    settings = {"map_name": map_name, "action_level": level, "legacy": legacy, "num_agents": agents}
    told = story(parallel_env(max_game_steps=60, **settings))
    assert told == golden(f"text kitchen {map_name}, {level}{', legacy' * legacy}")


# ---- what is drawn -----------------------------------------------------------------------------------


def setup_of(seed, **settings):
    env = parallel_env(**settings)
    env.reset(seed=seed)
    return env.kitchen.setup


def test_the_seed_decides_orders_and_the_start():
    settings = {"recipe": ONE_FOOD, "told_to": "one", "orders": 2, "start": "random"}
    setups = [setup_of(seed, **settings) for seed in range(60)]
    assert setups == [setup_of(seed, **settings) for seed in range(60)]
    orders = Counter(order for setup in setups for order in setup.orders)
    assert set(orders) == set(ONE_FOOD) and min(orders.values()) > 20
    assert len({setup.start.grid for setup in setups}) > 55


@given(st.integers(0, 10**6), st.sampled_from("ABC"), st.integers(1, 3), st.sampled_from(["full", "oneplate"]))
def test_a_random_start_has_the_same_things_in_places_that_can_be_reached(seed, map_name, count, layout):
    env = parallel_env(map_name=map_name, num_agents=count, layout=layout, start="random")
    env.reset(seed=seed)
    kitchen, own = env.kitchen, TextKitchen(map_name, layout, num_agents=count)
    assert Counter(kitchen.cells) == Counter(own.cells)
    fronts = []
    for thing, there in zip(kitchen.things, own.things, strict=True):
        assert thing.name == there.name
        if map_name != "A":
            assert np.sign(thing.y - 3) == np.sign(there.y - 3), thing
        if thing.code == AGENT:
            assert kitchen.skeleton[thing.cell] == FLOOR and kitchen.cells[thing.cell] == AGENT
            continue
        assert kitchen.skeleton[thing.cell] == COUNTER and kitchen.cells[thing.cell] == thing.code
        beside = [thing.cell + delta for delta in DELTAS if 0 <= thing.cell + delta < SIZE * SIZE]
        reached = [c for c in beside if kitchen.skeleton[c] == FLOOR and (c // SIZE == thing.x or c % SIZE == thing.y)]
        assert reached, thing
        fronts.append(reached[0])
    assert len(set(fronts)) == len(fronts)
    assert not kitchen.is_map_start and kitchen.setup.start.grid != bytes(int(c) for row in MAPS[map_name] for c in row)


# ---- who is told -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "start"), [("macro", "random"), ("primitive", "map")])
@pytest.mark.parametrize("map_name", "ABC")
@pytest.mark.parametrize("told", [["alice"], ["bob", "carol"]])
def test_what_an_untold_cook_observes_at_the_start_is_the_same_for_every_order(level, start, map_name, told):
    for radius in (0, 3):
        for layout in ("full", "oneplate"):
            first = {}
            for recipe in RECIPES:
                env = parallel_env(
                    map_name=map_name, layout=layout, recipe=[recipe], told_to=told, start=start, view_radius=radius,
                    action_level=level, num_agents=3, central_critic=True,
                )  # fmt: skip
                observations, infos = env.reset(seed=7)
                for agent, observation in observations.items():
                    fresh = observation_text.describe(env.kitchen, env.possible_agents.index(agent))
                    assert fresh == observation["text"]  # not only what is remembered from another order
                    if agent in told:
                        assert infos[agent][PRIVATE] == recipe
                        assert observation["vector"][-7:].tolist() == [float(name == recipe) for name in RECIPES]
                        assert recipe.removesuffix(" salad").split("-")[0] in observation["text"].split(".")[0]
                        assert observation["critic_text"] == observation["text"]
                    else:
                        assert infos[agent][PRIVATE] is None
                        assert not observation["vector"][-7:].any()
                        assert observation["text"].startswith("make a salad. i am ")
                        assert same(observation, first.setdefault(agent, observation), besides=["critic_text"])
                        words = recipe.removesuffix(" salad").split("-")
                        assert observation["critic_text"].startswith(f"make a {' '.join(sorted(words))} salad. i am ")
            assert set(first) == {"alice", "bob", "carol"} - set(told)


@given(st.integers(0, 10**6), st.sampled_from("ABC"))
def test_what_an_untold_cook_observes_later_depends_on_the_order_by_deliveries_only(seed, map_name):
    envs = [parallel_env(map_name=map_name, recipe=recipe, told_to=["alice"]) for recipe in RECIPES]
    results = [env.reset(seed=seed) for env in envs]
    rng = random.Random(seed)
    for _ in range(40):
        bobs = [result[0]["bob"] for result in results]
        assert all(same(bobs[0], bob) for bob in bobs[1:])
        infos = results[0][-1]
        masks = {agent: results[0][0][agent]["action_mask"] for agent in asked(envs[0].agents, infos)}
        actions = {agent: rng.choice(np.flatnonzero(mask).tolist()) for agent, mask in masks.items()}
        results = [env.step(actions) for env in envs]
        happened = [event for info in results[0][4].values() for event in info["events"]]
        if not all(env.agents for env in envs) or any("delivery" in event for event in happened):
            break


def test_told_cooks_read_the_next_order_at_once():
    env = parallel_env(recipe=list(RECIPES), told_to=["alice"], orders=3, max_game_steps=400)
    team = ScriptedTeam(env)
    observations, infos = env.reset(seed=5)
    read = [observations["alice"]["text"].split(".")[0]]
    while env.agents:
        served = env.kitchen.served
        observations, _, _, _, infos = env.step(team.act(infos))
        assert observations["bob"]["text"].startswith("make a salad. ")
        if env.kitchen.served > served and env.agents:
            read.append(observations["alice"]["text"].split(".")[0])
            assert infos["alice"][PRIVATE] == env.kitchen.setup.orders[env.kitchen.served]
    dishes = [" ".join(sorted(order.removesuffix(" salad").split("-"))) for order in env.kitchen.setup.orders]
    assert read == [f"make a {dish} salad" for dish in dishes]


# ---- several orders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("map_name", "ABC")
def test_after_a_delivery_the_bowl_and_its_foods_come_back_and_the_next_order_counts(map_name):
    env = parallel_env(map_name=map_name, recipe=list(RECIPES), orders=3, max_game_steps=600)
    team = ScriptedTeam(env)
    for seed in range(5):
        _, infos = env.reset(seed=seed)
        team.begin(seed)
        kitchen, total, deliveries = env.kitchen, 0.0, 0
        starts = {name: item.cell for name, item in kitchen.items.items()}
        while env.agents:
            orders, served = kitchen.setup.orders, kitchen.served
            assert kitchen.recipe == orders[served]
            assert infos["alice"][EPISODE_METRICS] == {"orders_served": served}
            bowls = {plate.name: [food.name for food in plate.contents] for plate in kitchen.plates}
            _, rewards, terminations, _, infos = env.step(team.act(infos))
            total += rewards["alice"]
            assert terminations["alice"] == infos["alice"]["task_success"] == (kitchen.served == 3)
            if kitchen.served == served:
                continue
            deliveries += 1
            ordered = sorted(orders[served].split()[0].split("-"))
            full = [name for name, foods in bowls.items() if sorted(foods) == ordered]
            if kitchen.served < 3:
                assert kitchen.paid == set() and kitchen.delivery.on is None
                (back,) = [plate for plate in kitchen.plates if plate.name in full and not plate.contents]
                for item in [back, *(kitchen.foods[name] for name in bowls[back.name])]:
                    assert getattr(item, "chops", 0) == 0
                    assert item.cell == starts[item.name] or kitchen.cells[starts[item.name]] != COUNTER
                    assert kitchen.cells[item.cell] == item.code
        assert deliveries == 3 and kitchen.delivered
        foods = sum(len(order.split("-")) for order in kitchen.setup.orders)
        assert total <= 3 + 0.2 * foods and total > 3


@given(st.integers(0, 10**6))
def test_random_play_with_several_orders_loses_nothing(seed):
    env = parallel_env(map_name="A", recipe=ONE_FOOD, orders=3, start="random", max_game_steps=150)
    for _ in play(env, np.random.default_rng(seed), seed=seed):
        if not env.kitchen.delivered:
            check_invariants(env.kitchen)


# ---- saving and drawing ------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
def test_snapshots_keep_orders_and_start(seed):
    env = parallel_env(recipe=list(RECIPES), told_to="one", orders=2, start="random", map_name="C")
    team = ScriptedTeam(env)
    _, infos = env.reset(seed=seed)
    team.begin(seed)
    for _ in range(seed % 60):
        if env.agents:
            _, _, _, _, infos = env.step(team.act(infos))
    state = json.loads(json.dumps(env.runner.snapshot()))
    twin = MacroRunner(TextKitchen("C"))
    twin.restore(state)
    assert json.loads(json.dumps(twin.snapshot())) == state
    assert twin.kitchen.setup == env.kitchen.setup and twin.kitchen.recipe == env.kitchen.recipe
    assert env.kitchen.copy().snapshot() == env.kitchen.snapshot()
    rng = random.Random(seed)
    for _ in range(20):
        actions = [rng.randrange(twin.num_actions) for _ in range(2)]
        assert twin.step(actions) == env.runner.step(actions)


def test_pictures_show_the_order_and_who_knows_it():
    pictures = []
    for told_to, said in ((["bob"], " (told to bob)"), ("all", "")):
        env = parallel_env(recipe=["onion salad"], told_to=told_to, orders=2)
        env.reset(seed=0)
        assert env.render("ansi").startswith(f"onion salad{said}, order 1 of 2, step 0\n")
        pictures.append(env.render("rgb_array"))
    changed = np.argwhere((pictures[0] != pictures[1]).any(-1))
    (top, left), (bottom, right) = changed.min(0) // 64, changed.max(0) // 64
    assert (top, left) == (bottom, right) == (1, 4)  # bob's cell
