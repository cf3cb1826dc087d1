"""What every game of the package keeps, in many of its settings."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import AECEnv
from pettingzoo.env_registry import registration
from pettingzoo.test import api_test, render_test

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import settings_of
from rllib_llm_comm.envs import GAMES, env_ids, make_env, register_games
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_text.layouts import RECIPES
from rllib_llm_comm.testing import check_env

PARTS = ["vector", "text", "planes", "state", "entities"]
ONE_FOOD = ["tomato salad", "lettuce salad", "onion salad"]
POT = {"layout": "forced_coordination", "wanted": "pot", "told_to": ["bob"]}
SHORT = {"max_tick": 1500}
VARIANTS = {
    "door": [{}, {"told_to": "all"}, {"told_to": ["bob"], "reward": "listener"}],
    "referential": [{"told_to": "all"}, {"told_to": ["bob"], "reward": "listener"}],
    "frozen_lake": [
        {},
        {"layout": "8x8", "slip": 0.3, "assignment": "either", "observe": ["text"]},
        {"layout": "random", "size": 5, "holes": 0.3, "assignment": "drawn", "horizon": 20},
        {"layout": ["1..2", "....", "b..a"], "assignment": "drawn", "slip": 1.0, "observe": ["vector"]},
    ],
    "overcooked_text": [
        {},
        {"map_name": "A", "num_agents": 3, "view_radius": 0},
        {"map_name": "A", "num_agents": 1, "layout": "tomato", "recipe": "tomato salad"},
        {"map_name": "C", "layout": "oneplate", "include_moves": True, "advance": "game_step"},
        {"action_level": "primitive", "max_game_steps": 50},
        {"legacy": True, "include_moves": True, "mask_useless": False},
        {"recipe": list(RECIPES), "told_to": "one", "orders": 3, "start": "random", "map_name": "A"},
        {"recipe": ONE_FOOD, "told_to": ["bob", "carol"], "num_agents": 3, "map_name": "C", "central_critic": True},
        {"told_to": ["alice"], "start": "random", "action_level": "primitive", "orders": 2, "max_game_steps": 60},
        {"recipe": ONE_FOOD, "told_to": "planner", "orders": 2, "central_critic": True, "max_game_steps": 60},
    ],
    "overcooked_ai": [
        {"observe": PARTS},
        {"layout": "counter_circuit", "dynamics": "new", "vector": "planes", "observe": ["vector", "planes"]},
        {"layout": "asymmetric_advantages", "action_level": "goal_cell", "swap_roles": True, "observe": ["vector"]},
        {"layout": "coordination_ring", "action_level": "goal_cell", "commit": True, "observe": ["text"]},
        {"layout": "forced_coordination", "action_level": "goal"},
        {"layout": ["XXPXX", "O1 2O", "XDXSX"], "action_level": "goal", "mask_useless": False},
        {**POT, "observe": PARTS, "horizon": 60},
        {**POT, "layout": "counter_circuit", "wanted_anew": True, "told_to": "one", "action_level": "goal"},
        {**POT, "layout": ["XPXPX", "O1 2P", "XDXSX"], "vector": "planes", "action_level": "goal_cell", "commit": True},
        {**POT, "layout": "coordination_ring", "dynamics": "new", "shaping": 0.5, "told_to": "all"},
        {**POT, "layout": "asymmetric_advantages", "swap_roles": True, "observe": ["vector", "entities"]},
    ],
    "overcooked_ai_subgoals": [
        {},
        {"layout": "counter_circuit", "dynamics": "new", "horizon": 60, "patience": 5},
        {"layout": "forced_coordination", "action_level": "goal_cell", "commit": True, "observe": ["planes"]},
        {"layout": "asymmetric_advantages", "subgoals": "planner", "action_level": "goal_cell", "observe": ["text"]},
        {"layout": ["XXPXX", "O1X2O", "XDXSX"], "random_starts": False, "soup_reward": 0.1, "horizon": 50},
    ],
    "minirts": [
        {**SHORT, "num_agents": 1, "observe": ["text", "vector", "planes", "lists"]},
        {**SHORT, "num_agents": 3, "action_level": "red", "side": 1},
        {**SHORT, "truncate_draws": False, "decision_ticks": 200},
        {**SHORT, "told_to": "one", "num_agents": 3, "opponent": "medium2", "producers": "carol"},
        {**SHORT, "told_to": "all", "num_agents": 1, "opponent": "simple", "observe": ["vector", "officer"]},
    ],
}
EACH = [
    pytest.param(env_id, own, id=f"{name}{k}")
    for env_id in env_ids()
    for name in [env_id.removeprefix("rllib_llm_comm/").removesuffix("-v0")]
    for k, own in enumerate(VARIANTS.get(name, [{}]))
]


@pytest.mark.parametrize(("env_id", "settings"), EACH)
def test_keeps_the_contract(env_id, settings):
    """PettingZoo's tests without a warning, spaces, masks, rewards, ends, and RLlib."""
    for result in check_env(env_id, settings=settings, steps=80):
        assert result.ok and (result.status == "skipped" or not result.detail or "legacy" in settings), result


def moves(env, infos, rng):
    actions = {}
    for agent in asked(env.agents, infos):
        space = env.action_space(agent)
        space.seed(int(rng.integers(2**31)))
        actions[agent] = space.sample()
    return actions


@pytest.mark.parametrize(("env_id", "settings"), EACH)
def test_settings_make_the_same_game_again_and_a_pickled_one_goes_on_alike(env_id, settings):
    env, rng = make_env(env_id, **settings), np.random.default_rng(5)
    assert make_env(env_id, **env.settings).settings == env.settings
    assert {*env.settings, "render_mode"} == set(settings_of(type(env)).model_fields)
    _, infos = env.reset(seed=5)
    for _ in range(9):
        infos = env.step(moves(env, infos, rng))[4] if env.agents else env.reset()[1]
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(30):
        if not env.agents:
            assert not twin.agents
            one, two = env.reset(), twin.reset()
        else:
            chosen = moves(env, infos, rng)
            one, two = env.step(chosen), twin.step(chosen)
        infos = one[-1]
        assert data_equivalence(one, two)
    assert data_equivalence(env.reset(), twin.reset())


@pytest.mark.parametrize("env_id", env_ids())
def test_both_registries_have_it_once(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_games()
    made = registration.make("aec", env_id)
    assert isinstance(made, AECEnv) and type(made.unwrapped) is type(env := make_env(env_id))
    assert env.env_id == env_id
    assert made.metadata["name"] == f"{env_id.partition('/')[2].replace('-', '_')}"
    api_test(made, num_cycles=30)


@pytest.mark.parametrize("record", [one for one in GAMES.values() if not one.derived], ids=lambda one: one.name)
def test_it_is_drawn(record, capsys):
    point = next(iter(record.entry_points.values()))
    render_test(load(point.partition(":")[0]).aec_env)
    assert "alice" in capsys.readouterr().out.lower(), "`draw_ansi` has to name the agents, alice among them"
    env = load(point)()
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None


@pytest.mark.parametrize("env_id", env_ids())
@pytest.mark.parametrize(
    ("change", "told"), [({"bob": 999}, "bob"), ({"bob": None}, "bob"), ({"eve": 0}, "eve"), ({"bob": ...}, "bob")]
)
def test_actions_that_cannot_be_get_one_sentence(env_id, change, told):
    env = make_env(env_id)
    env.reset(seed=0)
    actions = {name: action for name, action in {**dict.fromkeys(env.agents, 0), **change}.items() if action is not ...}
    with pytest.raises(UserError, match=f"actions.*'{told}'"):
        env.step(actions)
