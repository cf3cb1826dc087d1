"""The onion-soup kitchen as a PettingZoo environment."""

from __future__ import annotations

import numpy as np
import pytest
from random_play import play

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_ai import env as env_module
from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.planner import plan


def test_page_tells_the_right_numbers():
    sizes = [parallel_env(layout=name, action_level="goal").action_space("bob").n for name in LAYOUT_NAMES]
    assert f"Discrete({min(sizes)} to {max(sizes)}) for goals" in env_module.__doc__


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"action_level": "goal_cell", "commit": True},
        {"layout": ["XXPXX", "O1 2O", "XDXSX"], "action_level": "goal", "mask_useless": False},
    ],
)
def test_rewards_are_the_teams_soups_and_the_own_shaping(settings):
    steps = list(play(parallel_env(**settings, shaping=0.5), np.random.default_rng(3)))
    paid = sum(sum(rewards.values()) for _, rewards, *_ in steps)
    metrics = steps[-1][4]["alice"]["episode_metrics"]
    assert paid == pytest.approx(2 * metrics["score"] + 0.5 * metrics["shaped"]) and metrics["shaped"] > 0


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_the_planner_plays_well_through_goals(layout):
    """Goals name all that is needed for soups; cooks that commit to them cannot change their minds."""
    env = parallel_env(layout=layout, action_level="goal", observe=["vector"])
    _, infos = env.reset(seed=0)
    while env.agents:
        tasks, actions = plan(env.kitchen), {}
        for agent in asked(env.agents, infos):
            task = tasks[env.players[agent]]
            actions[agent] = 0 if task.verb == "wait" else env.level.goals.index(task.cell) + 1
        _, _, _, _, infos = env.step(actions)
    assert infos["alice"]["episode_metrics"]["score"] >= 80


def test_committed_cooks_are_busy_until_they_are_done():
    env = parallel_env(action_level="goal", observe=["text"])
    observations, _ = env.reset(seed=0)
    fetch = observations["alice"]["candidates"].index("fetch an onion from the left onion crate")
    _, _, _, _, infos = env.step({"alice": fetch, "bob": 0})
    assert infos["alice"]["events"][0] == "onion_pickup" and not infos["bob"]["needs_action"]
    observations, _, _, _, infos = env.step({"alice": 0})
    assert infos["bob"]["needs_action"] and infos["bob"]["game_step"] == 4  # bob's four steps of waiting are over
    assert observations["alice"]["text"].count("hold an onion") == 1
