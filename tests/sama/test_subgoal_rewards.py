"""Reward code, judges, and how far they agree with the hand-written tests."""

from __future__ import annotations

import json
import logging
import pickle
import re

import numpy as np
import pytest
from chat_server import ChatServer, client
from kitchens import kitchen_env

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
from rllib_llm_comm.envs.overcooked_ai.places import places_of
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen, plain_state
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.envs.overcooked_ai.subgoals import (
    Subgoal,
    all_subgoals,
    completed,
    library,
    parse_subgoal,
    subgoal_text,
)
from rllib_llm_comm.sama.planned_env import JudgedSubgoals, PlannedSubgoals
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.recordings import recording
from rllib_llm_comm.sama.rewards.subgoal_rewards import (
    Agreement,
    CodeReward,
    CodeRewards,
    JudgeReward,
    file_name,
    make_rewards,
    measure_agreement,
    write_reward,
)
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


ADD = "put the onion into the pot"
RIGHT_CODE = '''
def reward(state):
    """An own onion went into the pot that the cook faced."""
    before = state["before"]["cooks"][state["agent"]]
    after = state["after"]["cooks"][state["agent"]]
    if before["holds"] != "onion" or after["holds"] != "nothing":
        return 0
    return 1 if before["faces"] == "pot" else 0
'''
# As SAMA's appendix recommends: looks for one more onion in the pot, and so pays both cooks, whoever did it.
WRONG_CODE = """
def reward(state):
    more = state["after"]["pots"]["pot"]["onions"] > state["before"]["pots"]["pot"]["onions"]
    return 1 if more else 0
"""
FAILING_CODE = """
def reward(state):
    return 1 if state["after"]["pots"]["pot"]["steps_left"] / state["before"]["pots"]["pot"]["onions"] > 5 else 0
"""
EXAMPLE = plain_state(SoupKitchen("cramped_room"))


# ---- code --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [f"```python\n{RIGHT_CODE}```", f"Here it is:\n```\n{RIGHT_CODE}\n```\nGood luck!", RIGHT_CODE]
)
def test_a_model_writes_code(answer):
    with ChatServer(answer) as server:
        reward = write_reward(client(server, max_tokens=1000), ADD, EXAMPLE, agent="bob", manual="Cooks cook.")
        prompt = server.requests[0]["messages"][-1]["content"]
    assert reward.source.strip() == RIGHT_CODE.strip()
    assert ADD in prompt and "Cooks cook." in prompt and json.dumps(EXAMPLE) in prompt


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("import os\n" + RIGHT_CODE, "- it imports something in line 1"),
        ("I cannot write code.", "- it is no Python"),
        ("def reward(state):\n    return state['nothing']\n", "- it failed with KeyError: nothing"),
        ("def reward(state):\n    return 1\n", "- it returns 1 for a step in which nothing has happened"),
    ],
)
def test_refused_code_is_asked_for_again_with_the_reason(first, why):
    with ChatServer(f"```\n{first}```", f"```\n{RIGHT_CODE}```") as server:
        reward = write_reward(client(server, max_tokens=1000), ADD, EXAMPLE, agent="bob")
        assert reward.source == RIGHT_CODE and why in server.requests[1]["messages"][-1]["content"]
    with ChatServer(f"```\n{first}```") as server, pytest.raises(AnswerError, match="no usable reward code"):
        write_reward(client(server, max_tokens=1000), ADD, EXAMPLE, agent="bob")


# ---- judges ------------------------------------------------------------------------------------------------


def test_a_judge_says_yes_or_no_and_costs_once(tmp_path):
    with ChatServer(lambda prompt: "Yes." if '"t": 2' in prompt else "no" if '"t": 3' in prompt else "hm") as server:
        judge = JudgeReward(client(server, cache_dir=tmp_path), ADD, manual="Cooks cook.")
        assert [judge({"t": 1}, {"t": t}, "bob") for t in (2, 3, 4, 2)] == [1, 0, 0, 1]
        assert len(server.requests) == 3 and judge.model.counters.cached == 1
        assert judge.answer({"t": 1}, {"t": 4}, "bob") is None
        prompt = server.requests[0]["messages"][-1]["content"]
    assert prompt.index("Cooks cook.") < prompt.index('{"t": 1}') < prompt.index('{"t": 2}')
    assert f"Has bob reached this subgoal in this step: {ADD}?" in prompt


# ---- agreement ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps():
    return steps_of("cramped_room", 600, 1)


def steps_of(layout, number, seed):
    return list(preparation_of(open_game(ENV_ID, {"layout": layout})).steps(number, seed))


def measured(code, text, steps, layout="cramped_room"):
    return measure_agreement(CodeReward(code), open_game(ENV_ID, {"layout": layout}), text, steps)


def test_wrong_code_is_found_out(steps):
    found = measured(WRONG_CODE, ADD, steps)
    assert found.recall == 1.0 and found.false_alarms == found.both > 20 and found.precision == 0.5
    assert found.share < 1.0
    # Right words, wrong subgoal.
    other = measured(RIGHT_CODE, "fetch an onion from the left onion crate", steps)
    assert other.missed > 0 and other.precision == 0.0


def test_code_that_fails_is_counted(steps):
    found = measured(FAILING_CODE, ADD, steps[:100])
    assert found.refused > 0 and found.steps == 200


def test_plain_states_tell_enough_for_every_subgoal():
    """Code for each subgoal of a kitchen that reads plain states only agrees with the exact test in every step."""
    layout = "forced_coordination"
    kitchen, steps, total = get_layout(layout), steps_of(layout, 60, 2), Agreement()
    for goal in all_subgoals(kitchen):
        code = code_for(goal, places_of(kitchen).names[goal.cell])
        total += measured(code, subgoal_text(kitchen, goal), steps, layout)
    assert total.both > 50 and total.share == 1.0 and total.steps == 120 * len(all_subgoals(kitchen))


def code_for(goal: Subgoal, place: str) -> str:
    needed = {"take": "nothing", "plate": "dish"}.get(goal.verb, goal.kind)
    left = goal.kind if goal.verb in ("take", "plate") else "nothing"
    test = f"before['cell'] != {place!r} and after['cell'] == {place!r}"
    if goal.verb != "go":
        test = f"(before['holds'], after['holds'], before['faces']) == ({needed!r}, {left!r}, {place!r})"
    return (
        "def reward(state):\n"
        "    before, after = (state[when]['cooks'][state['agent']] for when in ('before', 'after'))\n"
        f"    return 1 if {test} else 0\n"
    )


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_the_steps_reach_subgoals_of_every_kind(layout):
    steps = steps_of(layout, 500, 0)
    reached = set()
    for step in steps:
        before, after = step.before.state, step.after.state
        for player in range(2):
            reached |= {s.verb for s in library(get_layout(layout), player) if completed(before, after, player, s)}
    assert reached == {"take", "put", "add", "plate", "deliver", "go"}
    assert all(one.plain_after == two.plain_before for one, two in zip(steps[:59], steps[1:60], strict=True))


def test_agreements_add_up():
    total = Agreement(both=1, neither=2) + Agreement(missed=1, false_alarms=3, refused=1)
    assert total.steps == 8 and total.share == 3 / 8 and total.precision == 1 / 4 and total.recall == 1 / 2
    assert Agreement().share == Agreement().precision == Agreement().recall == 1.0


# ---- rewards of planned and sampled subgoals by code: right code pays what the exact tests pay, refused c ----


LAYOUT = get_layout("cramped_room")
BY_CODE = {"rewards_differing": 0.0, "rewards_refused": 0.0, "judgements_by_rules": 0.0}


def right_code(subgoal: str) -> str:
    meant = parse_subgoal(LAYOUT, subgoal)
    return code_for(meant, places_of(LAYOUT).names[meant.cell])


@pytest.fixture(scope="module")
def codes() -> dict[str, str]:
    """Code for each subgoal of the kitchen, which reads plain states only."""
    return {text: right_code(text) for text in (subgoal_text(LAYOUT, subgoal) for subgoal in all_subgoals(LAYOUT))}


def written(tmp_path, codes):
    (tmp_path / "rewards.json").write_text(json.dumps(codes))
    return {"name": "code", "path": str(tmp_path / "rewards.json")}


def planned(**settings):
    return PlannedSubgoals(kitchen_env(horizon=60), "scripted", patience=9, **settings)


def played(env) -> tuple[list, list, dict]:
    """Rewards, subgoals and metrics of an episode of cooks who obey, but not always."""
    observations, _ = env.reset(seed=0)
    rng, earned, told = np.random.default_rng(0), [], []
    while env.agents:
        actions = {}
        for agent in env.agents:
            meant = parse_subgoal(LAYOUT, observations[agent]["subgoal"])
            x, y = meant.cell
            number = env.action_space(agent).n
            actions[agent] = y * LAYOUT.width + x if rng.random() < 0.8 else int(rng.integers(number))
        observations, rewards, _, _, infos = env.step(actions)
        earned.append(rewards)
        told.append({agent: seen["subgoal"] for agent, seen in observations.items()})
    return earned, told, infos["alice"]["episode_metrics"]


@pytest.fixture(scope="module")
def exact():
    """An episode in which the exact tests judge."""
    return played(planned())


def test_right_code_pays_what_the_exact_tests_pay(tmp_path, codes, exact):
    by_code = played(planned(subgoal_rewards=written(tmp_path, codes)))
    assert exact[:2] == by_code[:2] and exact[2]["subgoals_completed"] >= 5
    assert by_code[2] == {**exact[2], **BY_CODE, "judgements_by_code": 120.0}


def test_wrong_code_is_obeyed_and_counted(tmp_path, codes):
    never = dict.fromkeys(codes, "def reward(state):\n    return 0\n")
    earned, _, metrics = played(planned(subgoal_rewards=written(tmp_path, never)))
    assert metrics["subgoals_completed"] == 0 < metrics["rewards_differing"] and metrics["rewards_refused"] == 0
    assert sum(sum(rewards.values()) for rewards in earned) == 2 * metrics["score"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import os\ndef reward(state):\n    return 1\n", "imports"),
        ("def reward(state):\n    return state['nothing']\n", "KeyError"),
        (None, "has no code for it"),
    ],
)
def test_refused_code_is_told_once_and_the_exact_test_takes_its_place(tmp_path, codes, exact, caplog, source, why):
    bad = {subgoal: code for subgoal, code in codes.items() if subgoal != ADD}
    if source is not None:
        bad[ADD] = source
    with caplog.at_level(logging.WARNING):
        earned, told, metrics = played(planned(subgoal_rewards=written(tmp_path, bad)))
    assert (earned, told) == exact[:2]
    assert metrics["rewards_refused"] == 1 and metrics["rewards_differing"] == 0
    assert 0 < metrics["judgements_by_rules"] < metrics["judgements_by_code"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert ADD in said and why in said and "exact test takes its place" in said and "\n" not in said


def test_a_model_writes_code_when_a_subgoal_first_occurs(tmp_path, exact):
    def model(prompt: str) -> str:
        subgoal = re.search(r"The subgoal:\n(.*)\n", prompt).group(1)
        return f"```python\n{right_code(subgoal)}```"

    with ChatServer(model) as server:
        asked = server.settings(max_tokens=1000)
        kept = {"name": "chat", "chat": asked, "path": str(tmp_path / "code")}
        env = planned(subgoal_rewards=kept, wait=True)
        earned, told, metrics = played(env)
        occurred = {subgoal for attempt in env.attempts for subgoal in attempt.plan.by_agent().values()}
        assert earned == exact[0]
        assert metrics["rewards_differing"] == 0 and len(server.requests) == len(occurred) == metrics["plan_requests"]
        assert played(planned(subgoal_rewards=kept, wait=True))[0] == earned and len(server.requests) == len(occurred)
    assert {path.stem for path in (tmp_path / "code").glob("*.py")} == set(map(file_name, occurred))
    again = planned(subgoal_rewards={"name": "code", "path": str(tmp_path / "code")})
    assert played(again)[0] == earned


def test_a_model_that_writes_no_usable_code_is_told_once(exact, caplog):
    with ChatServer("no") as server, caplog.at_level(logging.WARNING):
        asked = server.settings(max_tokens=1000)
        env = planned(subgoal_rewards={"name": "chat", "chat": asked}, wait=True)
        earned, _, metrics = played(env)
        occurred = {subgoal for attempt in env.attempts for subgoal in attempt.plan.by_agent().values()}
        assert len(server.requests) == 2 * len(occurred)
    assert earned == exact[0] and metrics["rewards_refused"] == len(occurred) == len(caplog.records)
    assert metrics["judgements_by_code"] == 0 < metrics["judgements_by_rules"]


def test_without_a_fallback_refused_code_rewards_nothing_or_ends_the_run(tmp_path, codes):
    bad = {subgoal: code for subgoal, code in codes.items() if subgoal != ADD}
    metrics = played(planned(subgoal_rewards={**written(tmp_path, bad), "fallback": "none"}))[2]
    assert metrics["judgements_by_nobody"] > 0 < metrics["judgements_by_code"] and metrics["subgoals_stuck"] > 0
    assert "judgements_by_rules" not in metrics
    with pytest.raises(UserError, match=f"'{ADD}' .* `subgoal_rewards.fallback` is 'error'"):
        played(planned(subgoal_rewards={**written(tmp_path, bad), "fallback": "error"}))


@pytest.mark.parametrize("reply", ["Perhaps.", 500])
def test_a_judge_without_an_answer_is_counted(reply):
    """Neither yes nor no, and a server that fails."""
    with ChatServer(reply) as server:
        asked = server.settings(max_retries=0)

        def judged(**how) -> dict:
            env = planned(subgoal_rewards={"name": "judge", "chat": asked, **how})
            env.reset(seed=0)
            for _ in range(4):
                *_, infos = env.step(dict.fromkeys(env.agents, 6))
            env.close()
            return infos["alice"]["episode_metrics"]

        nobody, rules = judged(), judged(fallback="rules")
        assert nobody["judgements_by_nobody"] == rules["judgements_by_rules"] == 8
        assert nobody["judgements_by_model"] == rules["judgements_by_model"] == 0
        with pytest.raises(UserError, match="`subgoal_rewards.fallback` is 'error'"):
            judged(fallback="error")


def sampled():
    return subgoal_env(observe=["entities"], action_level="goal_cell", horizon=120, patience=9)


def test_sampled_subgoals_are_rewarded_by_code(tmp_path, codes):
    exact = played(sampled())
    rewards = pickle.loads(pickle.dumps(make_rewards(written(tmp_path, codes))))  # as to another process
    by_code = played(JudgedSubgoals(sampled(), rewards))
    assert by_code[:2] == exact[:2] and exact[2]["subgoals_completed"] >= 5 and rewards.refused == 0
    assert by_code[2] == {**exact[2], **BY_CODE, "judgements_by_code": 240.0}
    never = CodeRewards(written(tmp_path, dict.fromkeys(codes, "def reward(state):\n    return 0\n"))["path"])
    assert played(JudgedSubgoals(sampled(), never))[2]["subgoals_completed"] < exact[2]["subgoals_completed"]


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ("nobody", ("subgoal_rewards", "unknown")), (3, ("subgoal_rewards", "type")),
        ({"name": "code"}, ("subgoal_rewards.path", "missing")),
        ({"name": "code", "path": "nowhere"}, ("subgoal_rewards.path",)),
        ({"name": "code", "paths": "x"}, ("subgoal_rewards.paths", "unknown")),
        ({"name": "judge", "chat": {}}, ("subgoal_rewards.chat.model", "missing")),
        ({"name": "chat", "chat": {"model": "m", "forms": 1}}, ("subgoal_rewards.chat.forms", "type")),
        ({"name": "judge", "chat": {"model": "m"}, "fallback": "luck"}, ("subgoal_rewards.fallback", "choice")),
        ({"name": "exact", "fallback": "none"}, ("subgoal_rewards.fallback", "unknown")),
    ],
)  # fmt: skip
def test_bad_settings_are_told(settings, wrong, tmp_path):
    with refused(*wrong):
        make_rewards(settings)
    (tmp_path / "wait.py").write_bytes(b"\x80\x81")  # no text
    with refused("subgoal_rewards.path"):
        make_rewards({"name": "code", "path": str(tmp_path)})


@pytest.mark.parametrize("name", ["chat", "judge"])
def test_a_recording_of_the_package_is_taken_by_its_name(name):
    assert make_rewards({"name": name, "chat": {"cassette": "sama"}}).model.path == recording("sama")


def test_games_without_subgoals_of_their_own_are_told(tmp_path, codes):
    with pytest.raises(UserError, match="gives no subgoals itself"):
        JudgedSubgoals(kitchen_env(), make_rewards(written(tmp_path, codes)))
    assert planning_game(sampled()).parse(ADD) == ADD
