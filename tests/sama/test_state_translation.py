"""Translation of states: code is cut and found, and nothing false gets through."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.preparation import CodeIndex, Piece, split_code, words
from rllib_llm_comm.sama.translation import Translation, checked, translate

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

SOURCE = '''"""A shop."""
import os

PRICE = 3

@cached
def price_of(bread):
    return PRICE

class Shop:
    """Sells."""

    open = True

    def sell(self, loaf):
        return price_of(loaf)

    class Till:
        money = 0
'''


def test_code_is_cut_by_functions_and_classes():
    pieces = {piece.name: piece for piece in split_code(SOURCE, "shop.py")}
    assert list(pieces) == ["shop.py", "price_of", "Shop", "Shop.sell", "Shop.Till"]
    assert pieces["price_of"].code.startswith("@cached") and pieces["price_of"].line == 6
    assert "open = True" in pieces["Shop"].code and "def sell" not in pieces["Shop"].code
    assert "PRICE = 3" in pieces["shop.py"].code and "import os" not in pieces["shop.py"].code
    with pytest.raises(UserError, match="no Python"):
        split_code("def :", "bad.py")


def test_the_piece_with_the_rare_words_is_found_first():
    index = CodeIndex(split_code(SOURCE, "shop.py"))
    assert index.search("who may sell a loaf")[0].name == "Shop.sell"
    assert index.search("money in the till", 1)[0].name == "Shop.Till"
    assert index.search("zebra") == [] and words("COOK_TIME isReady HTTPServer2") == [
        "cook", "time", "is", "ready", "http", "server", "2",
    ]  # fmt: skip
    for pieces in ([], [Piece("", "_", 1, "()")]):
        with pytest.raises(UserError, match="no code"):
            CodeIndex(pieces)


def test_the_kitchens_own_code_is_found():
    index = CodeIndex.of_files(sorted(Path(overcooked_ai.__file__).parent.glob("*.py")))
    assert "plain_state" in [piece.name for piece in index.search("pots onions cooking steps_left counters", 5)]
    with pytest.raises(UserError, match="cannot be read"):
        CodeIndex.of_files([Path("nowhere.py")])


def kitchen(layout="cramped_room", seed=0):
    env = overcooked_ai.parallel_env(layout=layout)
    env.reset(seed=0)
    env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
    return planning_game(env)


def test_false_sentences_are_thrown_away():
    game = kitchen()
    state = game.state()
    held = game.plain(state)["cooks"]["alice"]["holds"]
    other = "an onion" if held != "onion" else "a dish"
    said = [f"Alice holds {other}. Bob is happy.", game.situation_of(state, "bob"), game.situation(state)]
    index = CodeIndex(split_code(SOURCE, "shop.py"))
    with ChatServer(json.dumps({"sentences": said})) as server:
        model = ChatClient("tiny", server.url, requests_per_minute=1e6)
        found = translate(model, index, game.plain(state), partial(game.holds, state), manual=game.manual())
        prompt = server.requests[0]["messages"][-1]["content"]
    assert found.false == [f"Alice holds {other}."] and found.unclear == ["Bob is happy."]
    assert len(found.true) >= 4 and found.precision == len(found.true) / (len(found.true) + 1)
    assert other not in found.text() and "happy" in found.text(unclear=True)
    assert json.dumps(game.plain(state)) in prompt and game.manual() in prompt
    assert (found + Translation(["A."], [], [])).true == [*found.true, "A."]


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.integers(0, 10_000))
def test_sentences_of_one_state_are_true_of_it_and_others_are_found_out(layout, seed, other):
    game = kitchen(layout, seed)
    state = game.state()
    sentences = [game.situation(state), *(game.situation_of(state, agent) for agent in game.agents)]
    own = checked(sentences, partial(game.holds, state))
    assert own.precision == 1 and own.judged == 1 and " ".join(own.true) == " ".join(sentences)
    elsewhere = kitchen(layout, other)
    found = checked(sentences, partial(elsewhere.holds, elsewhere.state()))
    mine, theirs = (shown.plain(shown.state())["cooks"]["alice"]["holds"] for shown in (game, elsewhere))
    # Whoever holds a soup holds a dish as well, in a way: that alone is unclear.
    wrong = found.unclear if (mine, theirs) == ("dish", "soup") else found.false
    assert mine == theirs or any("Alice holds" in sentence for sentence in wrong)
