"""Private facts across games: their spelling, the words that tell them apart, and what measures read of them."""

import pytest
from pettingzoo import make

from rllib_llm_comm.envs.interface import PRIVATE, secret_of, telling_words

RECIPES = ["tomato salad", "lettuce salad", "onion salad"]
TOLD = {"recipe": RECIPES, "told_to": ["alice"]}
GAMES = [("overcooked_text", TOLD), ("door", {}), ("referential", {})]


@pytest.mark.parametrize(("name", "settings"), GAMES)
def test_facts_are_spelt_as_in_the_infos_and_understood(name, settings):
    game = make("parallel", f"rllib_llm_comm/{name}-v0", **settings).unwrapped
    seen = set()
    for seed in range(200):
        _, infos = game.reset(seed=seed)
        assert infos["bob"][PRIVATE] is None
        seen.add(infos["alice"][PRIVATE])
        assert secret_of(infos) == infos["alice"][PRIVATE]
    assert seen == set(game.facts)
    assert all(game.meaning(f"it is the {fact}") for fact in game.facts)


def test_telling_words():
    assert telling_words(RECIPES) == ("lettuce", "onion", "tomato")
    assert telling_words(["lime bowl", "lime pot", "plum pot"]) == ("bowl", "lime", "plum", "pot")
    assert telling_words(["tomato salad"]) == telling_words([]) == ()


def test_nothing_is_secret_where_nothing_is_told():
    assert secret_of({"alice": {}, "bob": {PRIVATE: None}}) == ""
    assert secret_of({"alice": {PRIVATE: "b"}, "bob": {PRIVATE: "a"}, "carol": {PRIVATE: "b"}}) == "a b"
