"""Private facts across games: how they are drawn, spelt, told and understood, and what measures read of them."""

from collections import Counter

import numpy as np
import pytest

from rllib_llm_comm.envs import make_env
from rllib_llm_comm.envs.games import same_request
from rllib_llm_comm.envs.interface import PRIVATE, secret_of, teacher_state, telling_words
from rllib_llm_comm.evaluation.statistics import miller_madow
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher, TeacherRequest

RECIPES = ["tomato salad", "lettuce salad", "onion salad"]
SALADS = ("overcooked_text", {"recipe": RECIPES, "told_to": ["alice"]})
SEVERAL = ["tomato salad", "lettuce-onion salad", "onion-tomato salad"]
POTS = ("overcooked_ai", {"layout": "forced_coordination", "wanted": "pot", "told_to": ["alice"]})
THREE_POTS = ("overcooked_ai", {**POTS[1], "layout": ["XPXPX", "O1 2P", "XDXSX"]})
ARMY = ("minirts", {"told_to": ["alice"], "producers": "bob", "observe": ["vector"]})
GAMES = [
    SALADS,
    ("overcooked_text", {**SALADS[1], "recipe": SEVERAL}),
    POTS,
    THREE_POTS,
    ("door", {}),
    ("referential", {}),
    ARMY,
    ("minirts", {**ARMY[1], "opponent": "medium2"}),
    ("minirts", {**ARMY[1], "opponent": "medium2:CATAPULT"}),
]
STREAMS = [lambda seed: seed, lambda seed: [seed, 0], lambda seed: [seed, 1]]

every_game = pytest.mark.parametrize(("name", "settings"), GAMES)


def made(name, settings, **more):
    return make_env(f"rllib_llm_comm/{name}-v0", **{**settings, **more})


# ---- drawn -------------------------------------------------------------------------------------------


@every_game
def test_each_fact_is_drawn_and_spelt_as_in_the_infos(name, settings):
    game, met = made(name, settings), Counter()
    episodes = max(60, 10 * len(game.facts))
    for seed in range(episodes):
        _, infos = game.reset(seed=seed)
        assert infos["bob"][PRIVATE] is None
        assert secret_of(infos) == infos["alice"][PRIVATE]
        met[infos["alice"][PRIVATE]] += 1
    assert set(met) == set(game.facts) and min(met.values()) > 0.4 * episodes / len(game.facts)
    assert all(game.meaning(f"i say it is the {fact}") == fact for fact in game.facts)


@pytest.mark.parametrize(("name", "settings"), [SALADS, POTS, ARMY])
def test_the_seed_decides_the_fact_and_who_is_told_and_the_setting_who_but_not_the_fact(name, settings):
    def drawn(told_to):
        env = made(name, settings, told_to=told_to)
        infos = [env.reset(seed=seed)[1] for seed in range(30)]
        return [(secret_of(one), tuple(agent for agent in env.agents if one[agent][PRIVATE])) for one in infos]

    found = drawn("one")
    assert found == drawn("one")
    told = Counter(who for _, who in found)
    assert set(told) == {("alice",), ("bob",)} and min(told.values()) > 8
    for told_to, who in (("all", ("alice", "bob")), (["alice"], ("alice",)), (["bob"], ("bob",))):
        assert drawn(told_to) == [(fact, who) for fact, _ in found]


@pytest.mark.parametrize(("name", "settings"), [SALADS, ARMY])
def test_each_of_three_may_be_the_one_who_is_told(name, settings):
    env = made(name, settings, told_to="one", num_agents=3)
    infos = [env.reset(seed=seed)[1] for seed in range(20)]
    assert {agent for one in infos for agent in one if one[agent][PRIVATE]} == {"alice", "bob", "carol"}


@every_game
def test_later_episodes_without_a_seed_differ_and_come_again_with_the_first_seed(name, settings):
    def facts(seed):
        env = made(name, settings)
        env.reset(seed=seed)
        return [secret_of(env.reset()[1]) for _ in range(8)]

    assert facts(3) == facts(3) != facts(4)
    assert len(set(facts(3))) > 1


@pytest.mark.parametrize(("name", "settings"), GAMES[:7])
def test_who_draws_by_the_seed_of_the_episode_does_not_draw_the_fact(name, settings):
    """Policies, scripted players and walkers draw from generators of the episode's seed."""
    game = made(name, settings)
    told = [game.reset(seed=seed)[1]["alice"][PRIVATE] for seed in range(60 if name == "minirts" else 300)]
    count = len(set(told))
    for stream in STREAMS:
        rngs = [np.random.default_rng(stream(seed)) for seed in range(len(told))]
        assert miller_madow(told, [int(rng.integers(count)) for rng in rngs]) < 0.1
        assert miller_madow(told, [int(count * rng.random()) for rng in rngs]) < 0.1


def test_later_orders_are_not_drawn_from_the_numbers_of_a_player_either():
    game = made(*SALADS, orders=4)
    orders = [(game.reset(seed=seed), game.kitchen.setup.orders)[1] for seed in range(300)]
    draws = [np.random.default_rng(seed).random(4) for seed in range(300)]
    for place in range(4):
        for number in range(4):
            assert miller_madow([own[place] for own in orders], [int(3 * u[number]) for u in draws]) < 0.1


@pytest.mark.parametrize("told_to", [["alice"], ["bob"]])
def test_roles_do_not_tell_the_wanted_pot(told_to):
    game = made(*POTS, told_to=told_to, swap_roles=True, observe=["vector"])
    told = [game.reset(seed=seed)[1][told_to[0]][PRIVATE] for seed in range(300)]
    roles = [(game.reset(seed=seed), game.players["alice"])[1] for seed in range(300)]
    assert miller_madow(told, roles) < 0.05  # ln 2 = 0.69 where one generator draws both


# ---- told --------------------------------------------------------------------------------------------


@every_game
def test_who_is_told_tells_in_every_wording_and_who_is_not_asks(name, settings):
    game, teacher, by_fact = made(name, settings), ScriptedTeacher(), {}
    for seed in range(10):
        _, infos = game.reset(seed=seed)
        request = TeacherRequest(("alice", "bob"), {}, state=teacher_state(game))
        said = [teacher.messages(request, rng=np.random.default_rng(k)) for k in range(30)]
        telling, asking = ({one[agent] for one in said} for agent in ("alice", "bob"))
        assert len(telling) == 3 and len(asking) == 2
        for message in (*telling, *asking):
            assert len(message.split()) <= 10 and game.understands(message) and game.understands(message.upper() + ".")
        assert {game.meaning(message) for message in telling} == {infos["alice"][PRIVATE]}
        assert not any(game.meaning(message) for message in asking)
        assert all(same_request(one, other) for own in (telling, asking) for one in own for other in own)
        assert not any(same_request(one, other) for one in telling for other in asking)
        by_fact[infos["alice"][PRIVATE]] = telling
    first, second, *_ = by_fact.values()
    assert not any(same_request(one, other) for one in first for other in second)


@every_game
def test_what_chat_models_read_of_the_game_is_the_same_in_every_episode_and_says_who_is_told(name, settings):
    game, read = made(name, settings), set()
    for seed in range(20):
        game.reset(seed=seed)
        read.add((game.task, game.brief))
    assert len(read) == 1
    assert ("only alice is told" in game.brief.lower()) == (name not in ("door", "referential"))


@pytest.mark.parametrize(
    ("game", "every", "one"),
    [
        (SALADS, "", "one cook, drawn for each episode, is told"),
        (POTS, "both cooks are told", "one of the cooks, drawn for each game, is told"),
        (ARMY, "everybody is told", "one commander, drawn for each game, is told"),
    ],
)
def test_what_chat_models_read_says_if_all_or_one_are_told(game, every, one):
    briefs = {told: made(*game, told_to=told).brief.lower() for told in ("all", "one")}
    assert every in briefs["all"] and one in briefs["one"] and one not in briefs["all"]


def test_what_chat_models_read_says_what_else_there_is_to_know_of_a_told_game():
    assert "only bob puts up and owns buildings" in made(*ARMY).brief.lower()
    assert "told" not in make_env("rllib_llm_comm/minirts-v0").brief
    assert "drawn anew" in made(*POTS, wanted_anew=True).brief


def test_telling_words():
    assert telling_words(RECIPES) == telling_words(SEVERAL) == ("lettuce", "onion", "tomato")
    assert telling_words(["lime bowl", "lime pot", "plum pot"]) == ("bowl", "lime", "plum", "pot")
    assert telling_words(["tomato salad"]) == telling_words([]) == ()
    # Catapults are told always where they are told at all.
    assert telling_words(made(*GAMES[-1]).facts) == ("archers", "cavalry", "dragons", "spearmen", "swordmen")


def test_nothing_is_secret_where_nothing_is_told():
    assert secret_of({"alice": {}, "bob": {PRIVATE: None}}) == ""
    assert secret_of({"alice": {PRIVATE: "b"}, "bob": {PRIVATE: "a"}, "carol": {PRIVATE: "b"}}) == "a b"
