"""Actions in words: the model's words are checked against what the game would do."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from chat_server import ChatServer
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.text import primitive_phrases
from rllib_llm_comm.sama.games.overcooked_ai import (
    effect_check,
    goal_cell_actions,
    kitchen_code,
    primitive_actions,
    surroundings,
)
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.translation import translate_actions

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def kitchen(layout="cramped_room", seed=0):
    env = overcooked_ai.parallel_env(layout=layout)
    env.reset(seed=0)
    env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
    return planning_game(env)


def test_right_words_are_kept_and_wrong_ones_thrown_away():
    game = kitchen()
    state = game.state()
    true = primitive_phrases(game.kitchen(state), 0)
    said = [f"Alice would {true[0]}.", "go nowhere", *true[2:5], "deliver the soup at the serving counter"]
    with ChatServer(json.dumps({"effects": said})) as server:
        model = ChatClient("tiny", server.url, requests_per_minute=1e6)
        actions = primitive_actions(game, state, "alice")
        found = translate_actions(model, kitchen_code(), game.plain(state), "alice", actions, manual=game.manual())
        prompt = server.requests[0]["messages"][-1]["content"]
    numbers = {name: [int(action.split()[1].rstrip(":")) for action in getattr(found, name)] for name in vars(found)}
    assert numbers == {"true": [0, 2, 3, 4], "unclear": [1], "false": [5]}
    assert found.precision == 4 / 5 and found.judged == 5 / 6
    assert game.manual() in prompt and json.dumps(game.plain(state)) in prompt and "1. action 0: north" in prompt
    assert re.search(r"^# \w+\.py: ", prompt, re.MULTILINE)  # pieces of the game's code


def test_the_model_is_told_what_is_around_the_cook():
    game = kitchen()
    state = game.state()
    told = surroundings(game, state, "alice")
    cook = game.plain(state)["cooks"]["alice"]
    assert list(told) == ["north", "south", "east", "west"]
    assert cook["faces"] in told.values() and cook["cell"] not in told.values()
    with ChatServer(json.dumps({"effects": ["stay"] * 6})) as server:
        model = ChatClient("tiny", server.url, requests_per_minute=1e6)
        actions = primitive_actions(game, state, "alice")
        translate_actions(model, kitchen_code(), game.plain(state), "alice", actions, beside=told, pieces=1)
        assert (
            f"Beside alice: north {told['north']}, south {told['south']}, "
            in server.requests[0]["messages"][-1]["content"]
        )


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.sampled_from(["alice", "bob"]))
def test_the_place_in_a_direction_may_be_named(layout, seed, agent):
    game = kitchen(layout, seed)
    state = game.state()
    beside = surroundings(game, state, agent)
    phrases = primitive_phrases(game.kitchen(state), game.agents.index(agent))
    actions = list(primitive_actions(game, state, agent).values())
    for (way, place), phrase, check in zip(beside.items(), phrases, actions, strict=False):
        other = next(name for name in beside.values() if name != place)
        if phrase.startswith("go"):
            said = f"go {way} to {place}", f"walks {way} to the {other}"
        elif phrase.startswith("turn"):
            said = f"turns {way} to face the {place}", f"turn {way} to {other}"
        else:
            continue
        assert check(said[0]) is True and check(said[1]) is False


def test_too_few_words_are_asked_for_again():
    game = kitchen()
    state = game.state()
    with ChatServer(json.dumps({"effects": ["stay"]})) as server:
        model = ChatClient("tiny", server.url, requests_per_minute=1e6)
        with pytest.raises(AnswerError, match="at least 6 items"):
            translate_actions(
                model, kitchen_code(), game.plain(state), "bob", primitive_actions(game, state, "bob"), pieces=1
            )
        assert len(server.requests) == 2


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.sampled_from(["alice", "bob"]))
def test_the_games_own_words_are_true_and_those_of_other_actions_are_not(layout, seed, agent):
    game = kitchen(layout, seed)
    state = game.state()
    kitchen_, player = game.kitchen(state), game.agents.index(agent)
    actions = primitive_actions(game, state, agent)
    phrases = primitive_phrases(kitchen_, player)
    for number, check in enumerate(actions.values()):
        told = [check(phrase) for phrase in phrases]
        assert told[number] is True
        # To turn where one looks already, to stay, and to use what is of no use all change nothing.
        idle = [at for at, phrase in enumerate(phrases) if re.match("stay|do nothing|keep", phrase)]
        assert [at for at, same in enumerate(told) if same] == (idle if number in idle else [number])


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.sampled_from(["alice", "bob"]))
def test_goal_cells_do_what_can_be_done_there(layout, seed, agent):
    game = kitchen(layout, seed)
    state = game.state()
    actions = goal_cell_actions(game, state, agent)
    possible = [one for one in game.possible(state, agent) if not one.startswith("go ")]
    named = {subgoal: [name for name, check in actions.items() if check(subgoal)] for subgoal in possible}
    # A soup that still cooks may be waited for, but to use its pot does nothing now.
    assert all(len(names) == 1 for one, names in named.items() if not one.startswith("fill"))
    assert all(check("do nothing") is not None for check in actions.values())


@pytest.mark.parametrize(
    ("truth", "words", "verdict"),
    [
        ("put the onion into the pot", "Alice puts an onion in the pot.", True),
        ("put the onion into the pot", "it would take an onion from the pot", None),
        ("put the onion into the pot", "do nothing", False),
        ("put the onion into the pot", "go north", False),
        ("wait by the pot", "nothing would happen", True),
        ("turn north", "faces up", True),
        ("turn north", "move north", False),
        ("keep facing north", "stay", True),
        ("go west", "walk left", True),
        ("go west", "bake a cake", None),
        ("go west", "x" * 10_000, None),
    ],
)
def test_other_wordings(truth, words, verdict):
    layout = kitchen().env.unwrapped.kitchen.layout
    assert effect_check(layout, truth)(words) is verdict
