"""Translators of states: code in the sandbox, whose sentences the game checks."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.chat_model import ChatCounters
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.sama.data_set import distinct, diverse_states, propose_states, words_of
from rllib_llm_comm.sama.games.overcooked_ai import kitchen_code
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError, Sandbox
from rllib_llm_comm.sama.translation import Translator, read_translator, to_json, write_translator

GOOD = '```python\ndef translate(state):\n    return ["Alice holds " + state["cooks"]["alice"]["holds"] + "."]\n```'
FALSE = GOOD.replace('["Alice', '["There are 3 soups in the pot.", "Alice')


class Answers:
    def __init__(self, *answers):
        self.answers, self.prompts, self.counters = list(answers), [], ChatCounters()

    def complete(self, prompt, system=""):
        self.prompts.append(prompt)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, str) else json.dumps(answer)

    def recall(self, prompt, system=""):
        return None

    def remember(self, prompt, answer, system=""):
        pass


@pytest.fixture
def game():
    env = overcooked_ai.parallel_env(layout="cramped_room", observe=["entities"], action_level="goal_cell")
    env.reset(seed=0)
    return planning_game(env)


def written(game, *answers):
    model = Answers(*answers)
    return model, write_translator(model, game, list(diverse_states(game, 5).values()), kitchen_code(), manual="Cook.")


def test_a_translator_that_says_something_false_is_asked_for_again(game):
    model, made = written(game, FALSE, GOOD)
    assert "it says 'There are 3 soups in the pot.' of the state {" in model.prompts[1]
    told = made.told(game, game.state())
    assert told.true == ("Alice holds " + game.plain(game.state())["cooks"]["alice"]["holds"] + ".",) and not told.false
    with pytest.raises(AnswerError, match="3 soups"):
        written(game, FALSE)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os\ndef translate(state):\n    return [os.getcwd()]", "imports something"),
        ("def translate(state):\n    return 'all is well'", "not a list of 1 to 80 sentences"),
        ("def translate(state):\n    return []", "not a list of 1 to 80 sentences"),
        ("def translate(state):\n    return [1]", "not a text of 1 to 200 characters"),
        ("def translate(state):\n    return ['x' * 201]", "not a text of 1 to 200 characters"),
        ("def translate(state):\n    return ['a'] * 81", "not a list of 1 to 80 sentences"),
        ("def reward(state):\n    return 1", "it has no function `translate"),
        ("def translate(state):\n    while True:\n        pass", "ran for more than"),
    ],
)
def test_code_that_tells_no_sentences_is_refused(code, why):
    with pytest.raises(RefusedCodeError, match=why) as caught:
        Sandbox().translate(code, {})
    assert "translate(state)" in str(caught.value)


def test_one_sandbox_holds_rewards_and_translators_apart():
    sandbox = Sandbox()
    both = "def reward(state):\n    return 1\ndef translate(state):\n    return ['fine']"
    assert (sandbox.run(both, {}), sandbox.translate(both, {}), sandbox.run(both, {})) == (1, ["fine"], 1)
    with pytest.raises(RefusedCodeError, match="not the number 0 or 1"):
        sandbox.run("def reward(state):\n    return ['fine']", {})


def test_files_of_translators(tmp_path):
    path = tmp_path / "translation.json"
    path.write_text(to_json(Translator("def translate(state):\n    return ['x']"), figures={"states": 1}))
    assert read_translator(path).source.startswith("def translate")
    for text in ("{}", "[", '{"translator": "other", "format": 1, "source": ""}'):
        path.write_text(text)
        with pytest.raises(UserError, match="holds no translator"):
            read_translator(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_translator(tmp_path / "none.json")


# ---- states that a model proposes ---------------------------------------------------------------------------


def state(alice="nothing", bob="nothing", onions=0, cooks="no", **more):
    players = [{"player": "alice", "holds": alice}, {"player": "bob", "holds": bob}]
    return {"players": players, "pots": [{"pot": "pot", "onions": onions, "cooks": cooks}], **more}


def test_proposed_states_are_those_that_were_described(game):
    asked = Answers({"states": [state("onion", "soup", 2), state("dish", onions=3, cooks="ready")]})
    first, second = propose_states(asked, game, 2, manual="Cook.")
    assert "Bob holds a soup." in words_of(game, first) and "The pot holds 2 of 3 onions" in words_of(game, first)
    assert "Alice holds a dish." in words_of(game, second) and "ready" in words_of(game, second)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (state(alice="knife"), "alice can never hold 'knife'"),
        (state(onions=3), "a pot with 3 onions cannot have cooks: 'no'"),
        (state(onions=1, cooks="yes"), "a pot with 1 onions cannot have cooks: 'yes'"),
        ({**state(), "pots": [{"pot": "kettle", "onions": 0}]}, "there is no pot 'kettle'"),
        ({**state(), "players": [{"player": "alice", "holds": "dish"}]}, "must be named once"),
    ],
)
def test_impossible_states_are_refused_and_asked_for_again(game, wrong, why):
    model = Answers({"states": [wrong]}, {"states": [state()]})
    assert len(propose_states(model, game, 1, manual="Cook.")) == 1
    assert why in model.prompts[1]
    with pytest.raises(AnswerError, match=why.split("'")[0]):
        propose_states(Answers({"states": [wrong]}), game, 1, manual="Cook.")


def test_states_that_say_the_same_are_kept_once_and_near_ones_if_allowed(game):
    states = propose_states(
        Answers({"states": [state("onion"), state("onion"), state("dish"), state(onions=3, cooks="ready")]}),
        game, 4, manual="Cook.",
    )  # fmt: skip

    def said(moment):
        return " ".join(game.situation_of(moment, agent).split(". ")[1] for agent in game.agents)

    assert len(distinct(states, said, 0.0)) == 3
    assert len(distinct(states, said, 2.0)) == 1
