"""The environment with subgoals: sampled ones for training, and those of the scripted planner."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from pettingzoo.env_registry import registration
from random_kitchens import MARKS
from random_play import play

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.overcooked_ai import SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai import subgoal_env as env_module
from rllib_llm_comm.envs.overcooked_ai.kernel import STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
from rllib_llm_comm.envs.overcooked_ai.planner import plan
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env, without_subgoals
from rllib_llm_comm.envs.overcooked_ai.subgoals import (
    Subgoal,
    all_subgoals,
    completed,
    kitchen_record,
    parse_subgoal,
    possible,
    possible_subgoals,
    subgoal_number,
    subgoal_text,
    task_subgoal,
    waited,
)
from tests.refusal import refused


def walk(env, seed):
    """Each agent walks to the cell of the subgoal that it reads; yields what each step gives."""
    layout = env.kitchen.layout
    observations, _ = env.reset(seed=seed)
    while env.agents:
        actions = {}
        for agent in env.agents:
            subgoal = parse_subgoal(layout, observations[agent]["subgoal"])
            assert subgoal_number(layout, subgoal) == observations[agent]["subgoal_id"]
            actions[agent] = subgoal.cell[1] * layout.width + subgoal.cell[0]
        result = env.step(actions)
        observations = result[0]
        yield result


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_two_walkers_do_nearly_all_sampled_subgoals(layout):
    given_up = done = 0
    for seed in range(2):
        env = subgoal_env(layout=layout, action_level="goal_cell", observe=["text"])
        metrics = [infos["bob"]["episode_metrics"] for *_, infos in walk(env, seed)][-1]
        done += metrics["subgoals_completed"]
        given_up += metrics["subgoals_given"] - metrics["subgoals_completed"] - 2  # two are under way at the end
    assert given_up <= 0.04 * done and done > 150


@pytest.mark.parametrize(("layout", "mark"), MARKS.items())
def test_walkers_under_the_planner_reach_the_mark_of_the_scripted_cooks(layout, mark):
    scores = []
    for seed in range(2):
        env = subgoal_env(layout=layout, subgoals="planner", action_level="goal_cell", observe=["text"])
        rewards, metrics = 0.0, {}
        for _, earned, _, _, infos in walk(env, seed):
            rewards, metrics = rewards + earned["alice"], infos["alice"]["episode_metrics"]
            if env.kitchen.time % 20 == 0:
                assert env.subgoals == [task_subgoal(task) for task in plan(env.kitchen)]
        assert rewards == metrics["score"] and metrics["subgoals_share"] > 0.75
        scores.append(rewards)
    # How cooks that block each other get past is drawn: one soup less in some episodes, as with the scripted cooks.
    assert max(scores) >= mark and min(scores) >= mark - 20


# ---- the environment ---------------------------------------------------------------------------------


def test_is_in_pettingzoos_registry_and_its_page_tells_the_right_numbers():
    env = registration.make("parallel", SUBGOAL_ENV_ID, layout="random0", subgoals="planner")
    assert (env.env_id, env.kitchen.layout.name) == (SUBGOAL_ENV_ID, "forced_coordination")
    sizes = [len(all_subgoals(get_layout(name))) for name in LAYOUT_NAMES]
    assert f"S is {min(sizes)} to {max(sizes)}" in env_module.__doc__


@pytest.mark.parametrize(("level", "commit"), [("primitive", False), ("goal_cell", False), ("goal_cell", True)])
def test_rewards_are_subgoals_done_soups_and_the_own_shaping(level, commit):
    given = {"soup_reward": 0.5, "shaping": 0.25, "swap_roles": True, "observe": ["vector"]}
    env = subgoal_env(layout="forced_coordination", action_level=level, commit=commit, **given)
    earned, flags = 0.0, 0
    for _, rewards, _, _, infos in play(env, np.random.default_rng(3)):
        earned += sum(rewards.values())
        flags += sum(info["subgoal_completed"] for info in infos.values())
    metrics = infos["alice"]["episode_metrics"]
    assert earned == pytest.approx(metrics["subgoals_completed"] + metrics["score"] + 0.25 * metrics["shaped"])
    assert metrics["subgoals_share"] == metrics["subgoals_completed"] / metrics["subgoals_given"]
    assert metrics["subgoals_completed"] > 0 and metrics["shaped"] > 0
    # While one cook is busy the other may be asked once for several game steps.
    assert flags == metrics["subgoals_completed"] or (commit and 0 < flags < metrics["subgoals_completed"])


def test_the_reward_comes_with_the_step_and_then_there_is_a_new_subgoal():
    env = subgoal_env(action_level="goal_cell", observe=["text"], patience=30)
    age, held = dict.fromkeys(env.possible_agents, 0), dict.fromkeys(env.possible_agents, "")
    for observations, rewards, _, _, infos in walk(env, 7):
        for agent in rewards:
            assert rewards[agent] == float(infos[agent]["subgoal_completed"])
            player = env.players[agent]
            waits = env.subgoals[player] == Subgoal("go", "", env.kitchen.cook(player).cell)
            assert possible(env.kitchen, player, env.subgoals[player]) or waits or not rewards[agent]
            age[agent] = 0 if rewards[agent] or observations[agent]["subgoal"] != held[agent] else age[agent] + 1
            held[agent] = observations[agent]["subgoal"]
            assert age[agent] <= 30


def test_an_agent_that_does_nothing_gets_another_subgoal_in_time():
    env = subgoal_env(patience=10, horizon=101)
    env.reset(seed=0)
    age, waited = 0, 0
    while env.agents:
        before = env.subgoals[1]
        *_, infos = env.step({"alice": STAY, "bob": STAY})
        # It does nothing but to wait, which is done at once where it is asked to.
        asked_to_wait = before == Subgoal("go", "", env.kitchen.cook(1).cell)
        assert infos["bob"]["subgoal_completed"] == asked_to_wait
        waited += asked_to_wait
        age = 0 if asked_to_wait or age == 9 else age + 1
        assert (env._age[1] == 0) == (age == 0)
    assert waited > 0


def test_only_idle_steps_count_as_waiting():
    start = SoupKitchen("cramped_room")
    here = Subgoal("go", "", start.cook(0).cell)
    idle = []
    for action in range(6):
        kitchen = SoupKitchen("cramped_room")
        kitchen.step([action, STAY])
        idle.append(kitchen.cook(0) == start.cook(0))
        assert waited(start.state, kitchen.state, 0, here) == idle[-1]
        assert not waited(start.state, kitchen.state, 0, Subgoal("go", "", (2, 1)))
    assert idle[STAY] and not all(idle)


def test_starts_are_random_only_where_asked_for():
    start = SoupKitchen("counter_circuit").snapshot()
    for settings, seed in product(({}, {"random_starts": False}, {"subgoals": "planner"}), range(6)):
        env = subgoal_env(layout="counter_circuit", **settings)
        env.reset(seed=seed)
        assert (env.kitchen.snapshot() == start) == bool(settings)


def test_a_cook_that_can_do_nothing_is_told_to_stay():
    env = subgoal_env(layout=["XXPXX", "P1X2O", "XDXSX"], random_starts=False, patience=1)
    env.reset(seed=0)
    stuck = {"t": 0, "players": [[1, 1, 0, ["dish"]], [3, 1, 0, None]], "objects": [[2, 1, "dish"], [1, 0, "dish"]]}
    env.kitchen.restore(stuck)
    assert possible_subgoals(env.kitchen, 0) == []
    observations, *_ = env.step({"alice": STAY, "bob": STAY})
    assert observations["alice"]["subgoal"] == "go to floor 1,1"


# ---- a data set of subgoals -------------------------------------------------------------------------------

WANTED = ["fetch an onion from the left onion crate", "put the onion into the pot", "go to floor 1,1"]


def data_set(path, texts, layout="cramped_room"):
    record = {"kitchen": kitchen_record(get_layout(layout)), "subgoals": [{"subgoal": text} for text in texts]}
    path.write_text(json.dumps(record))
    return path


def test_only_subgoals_of_a_data_set_are_drawn_and_judged(tmp_path):
    """Reward code is written for the subgoals of a data set, not for the places where cooks wait for want of one."""
    path = data_set(tmp_path / "d.json", WANTED)
    env = subgoal_env(action_level="goal_cell", observe=["text"], subgoal_file=path)
    assert env.settings["subgoal_file"] == str(path) and subgoal_env(**env.settings).settings == env.settings
    given, judged, idle = set(), set(), 0

    def judge(before, after, player, subgoal):
        judged.add(subgoal_text(env.kitchen.layout, subgoal))
        return completed(before, after, player, subgoal)

    env.subgoal_test = judge
    for seed in range(4):
        for observations, *_ in walk(env, seed):
            for agent, seen in observations.items():
                if seen["subgoal"] not in WANTED:  # none of them was possible: it is told to stay where it was then
                    assert seen["subgoal"].startswith("go to floor") and env.kitchen.cook(env.players[agent]).held
                    idle += 1
                given.add(seen["subgoal"])
    assert given > set(WANTED) and idle > 0 and judged == set(WANTED)


def test_with_the_whole_library_a_data_set_changes_nothing(tmp_path):
    layout = get_layout("cramped_room")
    texts = [subgoal_text(layout, subgoal) for subgoal in all_subgoals(layout)]
    with_file, without = (
        subgoal_env(action_level="goal_cell", observe=["text"], horizon=100, **settings)
        for settings in ({"subgoal_file": data_set(tmp_path / "d.json", texts)}, {})
    )
    for one, two in zip(walk(with_file, 3), walk(without, 3), strict=True):
        assert one[0]["alice"]["subgoal"] == two[0]["alice"]["subgoal"] and one[1] == two[1]


def test_a_planners_game_needs_no_data_set():
    env = subgoal_env(subgoals="planner", subgoal_file="nowhere.json")
    env_id, settings = without_subgoals({**env.settings, "horizn": 5})
    assert "subgoal_file" not in settings
    with refused("horizn", "unknown"):
        make_env(env_id, **settings)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "no data set"),
        ("[]", "no data set"),
        ('{"subgoals": []}', "no data set"),
        ((["go to floor 1,1"], "coordination_ring"), "'coordination_ring'"),
        (([], "cramped_room"), "no subgoals"),
        ((["go to floor 1,1", "wash the dishes"], "cramped_room"), "'wash the dishes'"),
    ],
)
def test_data_sets_that_do_not_fit_get_one_sentence(tmp_path, content, why):
    path = tmp_path / "d.json"
    if isinstance(content, tuple):
        data_set(path, *content)
    else:
        path.write_text(content)
    with pytest.raises(UserError, match=f"^`subgoal_file` .*{why}.*$"):
        subgoal_env(subgoal_file=path)
