"""Reward code, judges, and how far they agree with the hand-written tests."""

from __future__ import annotations

import json
import pickle

import pytest
from chat_server import ChatServer, client

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.envs.overcooked_ai.game import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
from rllib_llm_comm.envs.overcooked_ai.names import place_name
from rllib_llm_comm.envs.overcooked_ai.plain_state import plain_state
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.subgoals import Subgoal, all_subgoals, completed, library, subgoal_text
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.rewards.subgoal_rewards import (
    Agreement,
    CodeReward,
    JudgeReward,
    measure_agreement,
    write_reward,
)

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
EXAMPLE = plain_state(Kitchen("cramped_room"))


# ---- code --------------------------------------------------------------------------------------------------


def test_code_gets_both_states_and_the_agent():
    reward = CodeReward("def reward(state):\n    return int(state['before'] == 1 and state['agent'] == 'bob')\n")
    assert reward(1, 2, "bob") == 1 and reward(1, 2, "alice") == 0 and reward(2, 1, "bob") == 0
    assert pickle.loads(pickle.dumps(reward))(1, 2, "bob") == 1


def test_code_that_may_not_run_is_refused_at_once():
    with pytest.raises(RefusedCodeError, match="imports"):
        CodeReward("import os\ndef reward(state):\n    return 1\n")


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
        ("def reward(state):\n    while True:\n        pass\n", "- it ran for more than"),
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
        assert judge.unclear == 1 and len(server.requests) == 3 and judge.model.counters.cached == 1
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


def test_right_code_agrees_in_every_step(steps):
    found = measured(RIGHT_CODE, ADD, steps)
    assert found.steps == 1200 and found.both > 20
    assert (found.share, found.precision, found.recall) == (1.0, 1.0, 1.0)


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


@pytest.mark.parametrize("layout", ["cramped_room", "forced_coordination"])
def test_plain_states_tell_enough_for_every_subgoal(layout):
    """Code for each subgoal of a kitchen that reads plain states only agrees with the exact test in every step."""
    kitchen, steps, total = get_layout(layout), steps_of(layout, 120, 2), Agreement()
    for goal in all_subgoals(kitchen):
        code = code_for(goal, place_name(kitchen, goal.cell))
        total += measured(code, subgoal_text(kitchen, goal), steps, layout)
    assert total.both > 100 and total.share == 1.0 and total.steps == 240 * len(all_subgoals(kitchen))


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
