"""Scripted cooks of whom not both are told the wanted pot: what they say, what it means, and what it is worth."""

from __future__ import annotations

import numpy as np
import pytest
from random_play import play

from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.sayings import CookSaying, PotSaying, understand
from rllib_llm_comm.envs.overcooked_ai.scripted_cooks import ScriptedTeam, advise, messages, say

THREE = ["XPXPX", "O1 2P", "XDXSX"]
SECRET = {"layout": "forced_coordination", "wanted": "pot", "told_to": ["bob"]}


# ---- meanings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("I think the Upper  pot!", "upper pot"),
        ("not the right pot, the upper pot", "right pot or upper pot"),
        ("right pot right pot", "right pot"),
        ("i fill the pot, please fetch an onion", ""),
        ("which pot pays", ""),
        ("the bright pot", ""),
        ("the upper potato \ufffd", ""),
        ("", ""),
    ],
)
def test_the_meaning_is_the_pot_that_is_named(message, meant):
    assert parallel_env(**SECRET).meaning(message) == meant


# ---- what is said ------------------------------------------------------------------------------------


def put_onion(kitchen, *pots):
    snapshot = kitchen.snapshot()
    kitchen.restore({**snapshot, "objects": [[*pot, "soup", 1, 0, -1] for pot in pots]})


def test_the_pot_is_told_until_it_is_the_only_one_in_use():
    env = parallel_env(**SECRET)
    env.reset(seed=0)
    kitchen = env.kitchen
    wanted, other = kitchen.wanted.pot, next(pot for pot in kitchen.wanted.pots if pot != kitchen.wanted.pot)
    put_onion(kitchen, wanted)
    assert isinstance(say(kitchen, 1), CookSaying) and isinstance(say(kitchen, 0), CookSaying)
    put_onion(kitchen, other)
    assert say(kitchen, 1) == PotSaying(kitchen.wanted.name) and isinstance(say(kitchen, 0), CookSaying)
    put_onion(kitchen, wanted, other)
    assert say(kitchen, 1) == PotSaying(kitchen.wanted.name) and say(kitchen, 0) == PotSaying("")


def test_where_both_are_told_cooks_speak_of_their_tasks():
    env = parallel_env(**{**SECRET, "told_to": "all"})
    for _ in play(env, np.random.default_rng(0)):
        tasks = plan(env.kitchen)
        for player in range(2):
            saying = say(env.kitchen, player)
            assert isinstance(saying, CookSaying) and saying.mine[0] in (tasks[player].verb, "wait")


@pytest.mark.parametrize("layout", ["asymmetric_advantages", "coordination_ring", "counter_circuit"])
def test_labels_of_who_is_not_told_do_not_depend_on_the_pot(layout):
    env = parallel_env(layout=layout, wanted="pot", told_to=["bob"])
    team, rng = ScriptedTeam(env), np.random.default_rng(0)
    _, infos = env.reset(seed=0)
    met = {"alice": set(), "bob": set()}
    for _ in range(150):
        own = env.kitchen.wanted.pot
        said = []
        for pot in env.kitchen.wanted.pots:
            env.kitchen.wanted.pot = pot
            said.append(messages(env.kitchen, env.possible_agents, np.random.default_rng(1)))
        env.kitchen.wanted.pot = own
        assert len({one["alice"] for one in said}) == 1
        met["alice"].add(type(understand(said[0]["alice"])))
        met["bob"].add(len({one["bob"] for one in said}))
        actions = {agent: action if rng.random() < 0.8 else 5 for agent, action in team.act(infos).items()}
        _, _, _, _, infos = env.step(actions)
    assert met["alice"] == {PotSaying, CookSaying} and max(met["bob"]) == 2


def test_advice_knows_the_pot_for_every_cook():
    env = parallel_env(**SECRET, action_level="goal_cell", horizon=150)
    for seed in range(2):
        env.reset(seed=seed)
        while env.agents:
            env.step({agent: advise(env, agent) for agent in env.agents})
        assert env.score >= 40 and env.kitchen.wanted.unpaid == 0
