"""The door and the referential game: rules, what is hidden, what silence and talk can reach."""

from collections import Counter

import numpy as np
import pytest

from rllib_llm_comm.envs import door, referential
from rllib_llm_comm.envs.games import same_request
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher

GAMES = [door, referential]


def finish(env, choose):
    """Plays an episode; gives the sum of rewards per agent."""
    total = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        _, rewards, *_ = env.step({agent: choose(env, agent) for agent in env.agents})
        for agent, reward in rewards.items():
            total[agent] += reward
    return total


@pytest.mark.parametrize("game", GAMES)
def test_scripted_players_who_know_always_succeed(game):
    teacher = ScriptedTeacher()
    env = game.parallel_env()
    for seed in range(30):
        env.reset(seed=seed)
        assert finish(env, teacher.advise) == {"alice": 1.0, "bob": 1.0}
        assert env.success


@pytest.mark.parametrize("game, silent", [(door, 0.0), (referential, 1 / 3)])
def test_a_random_listener_gets_what_silence_can_get(game, silent):
    rng = np.random.default_rng(0)
    env = game.parallel_env()

    def at_random(env, agent):
        # Opens or takes always: waiting would pay 0 in either game.
        mask = env.seen_by(agent).mask
        return len(mask) - 1 if game is door and env.time else int(rng.choice(np.flatnonzero(mask)))

    returns = []
    for seed in range(600):
        env.reset(seed=seed)
        returns.append(finish(env, at_random)["bob"])
    assert np.mean(returns) == pytest.approx(silent, abs=0.06)


@pytest.mark.parametrize("game", GAMES)
def test_bob_sees_nothing_of_what_only_alice_is_told(game):
    """Over all episodes the fact is evenly spread over each observation of bob's that occurs often."""
    env = game.parallel_env(doors=3) if game is door else game.parallel_env(objects=2)
    facts = {}
    for seed in range(3000):
        observations, infos = env.reset(seed=seed)
        assert infos["bob"]["private"] is None and infos["alice"]["private"] == env.fact
        things = frozenset(observations["bob"]["candidates"])
        key = (observations["bob"]["text"], observations["bob"]["vector"].tobytes(), things)
        facts.setdefault(key, []).append(env.fact)
    assert len(facts) < 200
    for told in facts.values():
        if len(told) >= 40:
            shares = [told.count(fact) / len(told) for fact in set(told)]
            assert max(shares) < (0.45 if game is door else 0.85)


@pytest.mark.parametrize("game", GAMES)
def test_told_to_all_tells_everybody(game):
    env = game.parallel_env(told_to="all")
    observations, infos = env.reset(seed=1)
    assert infos["alice"]["private"] == infos["bob"]["private"] == env.fact
    assert env.fact in observations["bob"]["text"].split(".")[0]


@pytest.mark.parametrize("game", GAMES)
def test_only_the_listener_is_paid_where_asked_for(game):
    env = game.parallel_env(reward="listener")
    env.reset(seed=0)
    assert finish(env, ScriptedTeacher().advise) == {"alice": 0.0, "bob": 1.0}


def test_words_that_tell_facts_apart_are_single_tokens_of_the_embedded_model():
    """Spelt words were learnt by nobody: messages of one wrong letter, and scores of phrases that differ in length."""
    base = load_base_model("embedded")
    for word in {word for game in GAMES for fact in game.parallel_env().facts for word in fact.split()}:
        assert len(base.encode_after_blank(word)) == 1, word


def test_questions_of_two_games_are_not_the_same_request():
    assert not same_request(door.ASK[0], referential.ASK[0])


def test_each_thing_among_near_distractors_is_like_another_one():
    env = referential.parallel_env(objects=4)
    for seed in range(50):
        env.reset(seed=seed)
        things = [set(phrase.removeprefix("take the ").split()) for phrase in env.seen_by("bob").candidates[1:]]
        assert all(sum(bool(thing & other) for other in things) >= 2 for thing in things)


@pytest.mark.parametrize("distractors", ["near", "random"])
def test_the_things_alone_do_not_tell_which_is_meant(distractors):
    # The best that a silent Bob can do is to take, of each set of things, the one that is meant most often.
    env = referential.parallel_env(objects=3, distractors=distractors)
    meant: dict[frozenset[str], Counter[str]] = {}
    for seed in range(12_000):
        env.reset(seed=seed)
        things = frozenset(" ".join(thing) for thing in env._things)
        meant.setdefault(things, Counter())[env.fact] += 1
    best = sum(max(counts.values()) for counts in meant.values()) / 12_000
    assert best < 1 / 3 + 0.05  # 0.78 where the meant thing is the one that all others are like


def test_a_wrong_door_costs_what_makes_guessing_worth_nothing():
    env = door.parallel_env(doors=4)
    env.reset(seed=0)
    wrong = next(i for i, colour in enumerate(door.COLOURS[:4]) if colour != env.fact)
    env.step({"alice": 0, "bob": 1 + wrong})
    _, rewards, terminations, _, infos = env.step({"alice": 0, "bob": 5})
    assert rewards == {"alice": -1 / 3, "bob": -1 / 3} and all(terminations.values())
    assert infos["bob"]["events"] == ["opened a wrong door"] and not infos["bob"]["task_success"]
