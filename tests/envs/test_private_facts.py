"""Private facts across games: their spelling, the words that tell them apart, and what measures read of them."""

import numpy as np
import pytest
from pettingzoo import make

from rllib_llm_comm.envs.interface import PRIVATE, secret_of, telling_words
from rllib_llm_comm.evaluation.statistics import miller_madow

RECIPES = ["tomato salad", "lettuce salad", "onion salad"]
TOLD = {"recipe": RECIPES, "told_to": ["alice"]}
SEVERAL = {"recipe": ["tomato salad", "lettuce-onion salad", "onion-tomato salad"], "told_to": ["alice"]}
WANTED = {"layout": "forced_coordination", "wanted": "pot", "told_to": ["alice"]}
GAMES = [
    ("overcooked_text", TOLD),
    ("overcooked_text", SEVERAL),
    ("overcooked_ai", WANTED),
    ("door", {}),
    ("referential", {}),
]


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
    assert telling_words(SEVERAL["recipe"]) == ("lettuce", "onion", "tomato")
    assert telling_words(["tomato salad"]) == telling_words([]) == ()


def test_nothing_is_secret_where_nothing_is_told():
    assert secret_of({"alice": {}, "bob": {PRIVATE: None}}) == ""
    assert secret_of({"alice": {PRIVATE: "b"}, "bob": {PRIVATE: "a"}, "carol": {PRIVATE: "b"}}) == "a b"


ARMY = {"told_to": ["alice"], "producers": "bob"}
HIDDEN = [*GAMES, ("minirts", ARMY)]
STREAMS = [lambda seed: seed, lambda seed: [seed, 0], lambda seed: [seed, 1]]


@pytest.mark.parametrize(("name", "settings"), HIDDEN)
def test_who_draws_by_the_seed_of_the_episode_does_not_draw_the_fact(name, settings):
    """Policies, scripted players and walkers draw from generators of the episode's seed."""
    game = make("parallel", f"rllib_llm_comm/{name}-v0", **settings).unwrapped
    told = [game.reset(seed=seed)[1]["alice"][PRIVATE] for seed in range(60 if name == "minirts" else 300)]
    count = len(set(told))
    for stream in STREAMS:
        rngs = [np.random.default_rng(stream(seed)) for seed in range(len(told))]
        assert miller_madow(told, [int(rng.integers(count)) for rng in rngs]) < 0.1
        assert miller_madow(told, [int(count * rng.random()) for rng in rngs]) < 0.1


def test_later_orders_are_not_drawn_from_the_numbers_of_a_player_either():
    game = make("parallel", "rllib_llm_comm/overcooked_text-v0", **TOLD, orders=4).unwrapped
    orders = [(game.reset(seed=seed), game.kitchen.setup.orders)[1] for seed in range(300)]
    draws = [np.random.default_rng(seed).random(4) for seed in range(300)]
    for place in range(4):
        for number in range(4):
            assert miller_madow([own[place] for own in orders], [int(3 * u[number]) for u in draws]) < 0.1


@pytest.mark.parametrize("told_to", [["alice"], ["bob"]])
def test_roles_do_not_tell_the_wanted_pot(told_to):
    settings = {**WANTED, "told_to": told_to, "swap_roles": True, "observe": ["vector"]}
    game = make("parallel", "rllib_llm_comm/overcooked_ai-v0", **settings).unwrapped
    told = [game.reset(seed=seed)[1][told_to[0]][PRIVATE] for seed in range(300)]
    roles = [(game.reset(seed=seed), game.players["alice"])[1] for seed in range(300)]
    assert miller_madow(told, roles) < 0.05  # ln 2 = 0.69 where one generator draws both
