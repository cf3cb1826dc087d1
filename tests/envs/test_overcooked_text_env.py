"""The kitchen as a PettingZoo environment."""

from __future__ import annotations

import numpy as np
import pytest
from random_play import play
from test_every_game import VARIANTS

from rllib_llm_comm.envs.overcooked_text import env as env_module
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.envs.overcooked_text.layouts import DEFAULT_REWARDS


def test_page_tells_the_right_numbers():
    env = parallel_env()
    page = env_module.__doc__
    assert env.observation_space("bob")["vector"].shape == (30,) and "vector (30,)" in page
    sizes = {m: parallel_env(map_name=m).action_space("alice").n for m in "ABC"}
    assert sizes == {"A": 10, "B": 11, "C": 11}
    assert "Discrete(11) on maps B and C, Discrete(10) on A" in page


# ---- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("advance", ["decision", "game_step"])
@pytest.mark.parametrize("limit", [1, 37])
def test_the_time_limit_truncates_exactly(advance, limit):
    env = parallel_env(max_game_steps=limit, advance=advance)
    results = list(play(env, np.random.default_rng(1)))
    for _, _, terminations, truncations, infos in results[:-1]:
        assert not any(terminations.values()) and not any(truncations.values())
        assert infos["bob"]["game_step"] < limit
    _, _, terminations, truncations, infos = results[-1]
    assert terminations == {"alice": False, "bob": False}
    assert truncations == {"alice": True, "bob": True}
    assert infos["alice"]["game_step"] == limit and not infos["alice"]["task_success"]
    assert env.agents == [] and env.step({}) == ({}, {}, {}, {}, {})


def cook_tomato_salad(env):
    """The actions of a cook alone on map A."""
    names = ["get tomato", "go to knife 1", "chop", "get plate 1", "get tomato", "deliver"]
    env.reset()
    for name in names:
        result = env.step({"alice": env.runner.names.index(name)})
    return result


def test_the_right_dish_terminates_even_at_the_limit():
    settings = {"map_name": "A", "num_agents": 1, "recipe": "tomato salad"}
    env = parallel_env(**settings)
    _, rewards, terminations, truncations, infos = cook_tomato_salad(env)
    assert terminations == {"alice": True} and truncations == {"alice": False}
    info = infos["alice"]
    assert info["task_success"] and info["events"][-1] == "correct_delivery"
    assert rewards["alice"] == pytest.approx(1 - 0.001 * len(info["step_rewards"]))
    steps = info["game_step"]
    _, _, terminations, truncations, _ = cook_tomato_salad(parallel_env(**settings, max_game_steps=steps))
    assert terminations == {"alice": True} and truncations == {"alice": False}


def test_a_decision_runs_until_somebody_needs_an_action():
    env = parallel_env(map_name="B")
    env.reset()
    names = env.runner.names
    _, rewards, _, _, infos = env.step({"alice": names.index("go to knife 2"), "bob": names.index("get tomato")})
    assert infos["alice"]["game_step"] == 2  # (1, 2) -> (2, 1) or (1, 1), and bob (1, 4) -> (1, 5), bump
    assert len(infos["bob"]["step_rewards"]) == 2
    assert infos["bob"]["needs_action"] and infos["bob"]["events"] == ["pick_up tomato"]
    assert rewards["bob"] == pytest.approx(-0.002)


def test_game_step_mode_runs_one_and_ignores_busy_agents():
    env = parallel_env(map_name="B", advance="game_step")
    env.reset()
    names = env.runner.names
    go = {"alice": names.index("chop"), "bob": names.index("get plate 2")}
    for step in range(1, 4):
        _, _, _, _, infos = env.step(go)
        assert infos["bob"]["game_step"] == step and len(infos["bob"]["step_rewards"]) == 1
        assert not infos["bob"]["needs_action"]
        go = {"alice": 0, "bob": names.index("deliver")}
    assert env.runner.current[1] == names.index("get plate 2")
    env.step({"alice": 0} if env.runner.finished[0] else {})


@pytest.mark.parametrize("blocked_steps", [3, 5, None])
def test_a_cook_in_the_way_is_given_up(blocked_steps):
    """On map A alice wants to the second board, and bob, who went there first, does not move."""
    env = parallel_env(map_name="A", advance="game_step", blocked_steps=blocked_steps, max_game_steps=60)
    _, infos = env.reset()
    names, asked, stood = env.runner.names, 0, 0
    for step in range(40):
        waits = step < 12
        asked += infos["alice"]["needs_action"] and not waits
        alice, bob = ("stay", "go to knife 2") if waits else ("go to knife 2", "stay")
        _, _, _, _, infos = env.step({"alice": names.index(alice), "bob": names.index(bob)})
        stood = max(stood, env.runner.blocked[0])
    if blocked_steps is None:
        assert stood > 10 and asked <= 2
    else:
        assert stood == blocked_steps and asked > 2


def test_both_ways_to_advance_play_the_same_game():
    def returns(advance):
        env = parallel_env(advance=advance, max_game_steps=120)
        rng, total = np.random.default_rng(4), {"alice": 0.0, "bob": 0.0}
        for _, rewards, *_ in play(env, rng):
            for agent, reward in rewards.items():
                total[agent] += reward
        return total, env.kitchen.snapshot()

    one, two = returns("decision"), returns("game_step")
    assert one[0] == pytest.approx(two[0]) and one[1] == two[1]


# ---- observations and masks --------------------------------------------------------------------------


def test_masks_forbid_only_what_is_useless():
    env = parallel_env()
    seen_useless = False
    for observations, *_ in play(env, np.random.default_rng(2)):
        for i, agent in enumerate(env.possible_agents):
            mask, phrases = observations[agent]["action_mask"], observations[agent]["candidates"]
            assert mask[0] == 1 and phrases[0] == "wait"
            kinds = [env.runner.preview(i, k).kind for k in range(len(mask))]
            for k, kind in enumerate(kinds):
                if mask[k]:
                    assert kind != "none"
                else:
                    assert kind == "none" or phrases[k] in phrases[:k]
            seen_useless = seen_useless or "none" in kinds
    assert seen_useless


def test_masks_can_be_switched_off_and_rewards_that_are_not_given_are_the_usual_ones():
    env = parallel_env(mask_useless=False, rewards={"chop": 0.5})
    observations, _ = env.reset()
    assert all(seen["action_mask"].all() for seen in observations.values())
    assert env.settings["rewards"] == {**DEFAULT_REWARDS, "chop": 0.5}


@pytest.mark.parametrize(("legacy", "tomato"), [(False, [0, 0]), (True, [0, 5 / 7])])
def test_the_vector_has_no_memory_unless_legacy(legacy, tomato):
    observations, _ = parallel_env(map_name="A", action_level="primitive", legacy=legacy).reset()
    assert observations["alice"]["vector"][:2] == pytest.approx(tomato)  # it is out of alice's sight


@pytest.mark.parametrize("legacy", [True, False])
def test_legacy_vectors_of_busy_agents_are_stale(legacy):
    env = parallel_env(map_name="A", legacy=legacy, advance="game_step")
    before, _ = env.reset()
    after, *_ = env.step({"alice": env.runner.names.index("deliver"), "bob": 0})
    assert np.array_equal(before["alice"]["vector"], after["alice"]["vector"]) is legacy


# ---- pictures ----------------------------------------------------------------------------------------


def test_pictures_show_the_state():
    env = parallel_env(render_mode="rgb_array")
    env.reset()
    start = env.render()
    assert start.shape == (496, 448, 3) and start.dtype == np.uint8
    assert len(np.unique(start.reshape(-1, 3), axis=0)) > 500
    while "Bt" not in env.render("ansi"):
        env.step({"alice": 0, "bob": 1})
    assert not np.array_equal(start, env.render())
    drawing = env.render("ansi")
    assert "bob holds raw tomato" in drawing
    assert len({len(line) for line in drawing.splitlines()[1:8]}) == 1


def test_every_state_can_be_drawn():
    rng = np.random.default_rng(3)
    for settings in VARIANTS["overcooked_text"][:4]:
        env = parallel_env(**settings)
        for k, _ in enumerate(play(env, rng)):
            if k % 10 == 0:
                assert env.render("rgb_array").shape == (496, 448, 3)
                assert env.render("ansi").count("\n") >= 9
    env = parallel_env(map_name="A", num_agents=1, recipe="tomato salad")
    cook_tomato_salad(env)
    assert "delivered" in env.render("ansi") and env.render("rgb_array").any()
