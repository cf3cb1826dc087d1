"""The onion-soup kitchen as a PettingZoo environment."""

from __future__ import annotations

import numpy as np
import pytest
from random_play import play

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
        {"layout": "forced_coordination", "action_level": "goal"},
        {"layout": ["XXPXX", "O1 2O", "XDXSX"], "action_level": "goal", "mask_useless": False},
    ],
)
def test_rewards_are_the_teams_soups_and_the_own_shaping(settings):
    env = parallel_env(**{**settings, "shaping": 0.5, "horizon": 400})
    seen = dict.fromkeys(env.possible_agents, 0.0)
    for _, rewards, _, _, infos in play(env, np.random.default_rng(3)):
        for agent in rewards:
            assert rewards[agent] == pytest.approx(sum(infos[agent]["step_rewards"]))
            seen[agent] += rewards[agent]
    metrics = infos["alice"]["episode_metrics"]
    assert sum(seen.values()) == pytest.approx(2 * metrics["score"] + 0.5 * metrics["shaped"])
    assert metrics["shaped"] > 0


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
@pytest.mark.parametrize("level", ["goal_cell", "goal"])
def test_the_planner_plays_well_through_the_environment(layout, level):
    """Goals name all that is needed: the scripted planner's tasks give soups through either action level."""
    env = parallel_env(layout=layout, action_level=level, observe=["vector"])
    _, infos = env.reset(seed=0)
    width = env.kitchen.layout.width
    while env.agents:
        tasks, actions = plan(env.kitchen), {}
        for agent in env.agents:
            task = tasks[env.players[agent]]
            if level == "goal_cell":
                actions[agent] = task.cell[1] * width + task.cell[0]
            else:
                actions[agent] = 0 if task.verb == "wait" else env.level.goals.index(task.cell) + 1
        _, _, _, _, infos = env.step({a: action for a, action in actions.items() if infos[a]["needs_action"]})
    # Cooks that commit cannot change their minds, so less than with a goal per step.
    assert infos["alice"]["episode_metrics"]["score"] >= (140 if level == "goal_cell" else 80)


def test_committed_cooks_are_busy_until_they_are_done():
    env = parallel_env(action_level="goal", observe=["text"])
    observations, _ = env.reset(seed=0)
    fetch = observations["alice"]["candidates"].index("fetch an onion from the left onion crate")
    _, _, _, _, infos = env.step({"alice": fetch, "bob": 0})
    assert infos["alice"]["events"][0] == "onion_pickup" and not infos["bob"]["needs_action"]
    observations, _, _, _, infos = env.step({"alice": 0})
    assert infos["bob"]["needs_action"] and infos["bob"]["game_step"] == 4  # bob's four steps of waiting are over
    assert observations["alice"]["text"].count("hold an onion") == 1
