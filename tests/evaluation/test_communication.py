"""Measures of talk against hand-made policies of known value."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rllib_llm_comm.envs import overcooked_ai, overcooked_text, referential
from rllib_llm_comm.evaluation.communication import RequestReader, Turn, communication_figures
from rllib_llm_comm.evaluation.statistics import (
    causal_influence,
    entropy,
    holm,
    miller_madow,
    mutual_information,
    zipf_slope,
)
from rllib_llm_comm.policies.decision import Decision

DISHES = ("tomato", "lettuce", "onion")
CANDIDATES = ["wait", *(f"get the {dish}" for dish in DISHES)]


def play(speak, listen, episodes=90, turns=2, seed=0):
    """Alice is told one of three dishes and speaks; Bob hears her and chooses."""
    rng = np.random.default_rng(seed)
    played = []
    for episode in range(episodes):
        dish = DISHES[rng.integers(3)]
        for _ in range(turns):
            said = speak(dish, rng)
            alice = Decision(0, said, {}, CANDIDATES, np.array([1.0, 0, 0, 0]), 0.0, "")
            played.append(Turn(episode, "alice", dish, dish, {}, alice))
            heard = {"alice": said} if said else {}
            chances = listen(heard)
            bob = Decision(int(rng.choice(4, p=chances)), "", heard, CANDIDATES, chances, 0.0, "")
            played.append(Turn(episode, "bob", "", dish, {}, bob))
    return played, lambda pairs: np.stack([listen(heard) for *_, heard in pairs])


def names_it(dish, rng):
    return f"please bring the {dish}"


def weather(dish, rng):
    return ("nice day today", "it rains again")[rng.integers(2)]


def obeys(heard):
    """Does what it hears, to the letter."""
    for index, dish in enumerate(DISHES, 1):
        if any(dish in message for message in heard.values()):
            return np.eye(4)[index]
    return np.array([0.0, 1, 1, 1]) / 3


def deaf(heard):
    return np.array([0.1, 0.3, 0.3, 0.3])


def meaning(message):
    found = [dish for dish in DISHES if dish in message]
    return found[0] if found else None


MEANING = RequestReader(meaning, meaning)


def test_a_speaker_that_names_one_of_three_orders_and_a_listener_that_obeys():
    turns, judge = play(names_it, obeys, episodes=300)
    found = communication_figures(turns, judge, MEANING, reads=lambda message: message.startswith("please bring the"))
    assert found.signalling.nats == pytest.approx(math.log(3), abs=0.02)
    assert found.signalling.p_value == 0.001
    assert found.listening == pytest.approx(math.log(3), abs=0.06)  # 32 draws are not exactly a third each
    assert found.obeyed == 1.0
    assert found.obeyed_chance == pytest.approx(1 / 3, abs=0.08)
    assert (found.understood, found.distinct, found.vocabulary) == (1.0, 3, 6)
    assert found.coordination == pytest.approx(math.log(3), abs=0.02)


@pytest.mark.parametrize(
    ("listen", "seen", "nats", "is_cue"),
    [(obeys, None, 1.10, True), (deaf, None, 0.0, False), (deaf, "counter", 1.10, True)],
)
def test_the_first_choice_of_who_is_not_told(listen, seen, nats, is_cue):
    """Words that are obeyed, nothing, and something on the counter that tells the dish without words."""
    turns, judge = play(names_it, listen, episodes=300)
    if seen:
        turns = [
            replace(turn, decision=replace(turn.decision, action=1 + DISHES.index(turn.secret), heard={}, said=""))
            for turn in turns
        ]
    found = communication_figures(turns, judge, MEANING).first_choice
    assert found.corrected == pytest.approx(nats, abs=0.04)
    assert (found.p_value < 0.01) == is_cue
    untold = [replace(turn, private="") for turn in turns if turn.agent == "bob"]  # only a planner knows the dish
    assert communication_figures(untold, judge, MEANING).first_choice.corrected == pytest.approx(nats, abs=0.04)
    informed = [replace(turn, private=turn.secret) for turn in turns]
    assert communication_figures(informed, judge, MEANING).first_choice is None


def test_a_deaf_listener_is_not_moved_although_the_speaker_signals():
    found = communication_figures(*play(names_it, deaf), MEANING)
    assert found.listening == pytest.approx(0.0, abs=1e-12)
    assert found.signalling.corrected > 1.0
    assert found.obeyed == pytest.approx(found.obeyed_chance, abs=0.12)
    assert abs(found.coordination) < 0.05


def test_talk_of_the_weather_tells_nothing_although_the_words_vary():
    found = communication_figures(*play(weather, obeys), MEANING, reads=lambda message: "rains" not in message)
    assert found.signalling.nats == 0.0 and found.signalling.p_value == 1.0  # no message has a meaning
    assert abs(found.signalling_raw.corrected) < 0.02
    assert found.signalling_raw.p_value > 0.05
    assert found.listening == pytest.approx(0.0, abs=1e-12)
    assert found.obeyed is None and 0.4 < found.understood < 0.6  # what names nothing can be a sentence of the game


def test_silence_has_no_figures():
    found = communication_figures(*play(lambda dish, rng: "", obeys), MEANING)
    assert found.signalling is None and found.listening is None and found.obeyed is None
    assert found.messages == found.vocabulary == 0 and found.unprintable is None
    assert found.to_json()["signalling"] is None


POTS = overcooked_ai.parallel_env(layout="forced_coordination", wanted="pot", told_to=["alice"])
SALADS = overcooked_text.parallel_env(recipe=["lettuce-tomato salad", "onion salad"], told_to=["alice"])
LETTUCE, ONION = (f"get the raw {food} from the shelf" for food in ("lettuce", "onion"))


def heard_and_chosen(game, pairs, candidates):
    """Figures of turns in which Alice is told a fact, says it, and Bob takes the candidate of a number."""
    turns = []
    for episode, (fact, choice) in enumerate(pairs):
        said = f"it is the {fact}"
        alice = Decision(0, said, {}, candidates, np.eye(len(candidates))[0], 0.0, "")
        bob = Decision(choice, "", {"alice": said}, candidates, np.eye(len(candidates))[choice], 0.0, "")
        turns += [Turn(episode, "alice", fact, fact, {}, alice), Turn(episode, "bob", "", fact, {}, bob)]
    return communication_figures(turns, None, RequestReader(game.meaning, game.request, frozenset(game.facts)))


@pytest.mark.parametrize(
    ("game", "fact", "right", "wrong"),
    [
        (referential.parallel_env(), "lime bowl", "take the lime bowl", "take the plum bowl"),
        (POTS, "upper pot", "put the onion into the upper pot", "put the onion into the right pot"),
        (SALADS, "lettuce-tomato salad", LETTUCE, ONION),
    ],
)
def test_who_takes_another_thing_with_a_word_in_common_does_not_obey(game, fact, right, wrong):
    game, candidates = game.unwrapped, ["wait", right, wrong]
    assert fact in game.facts
    assert heard_and_chosen(game, [(fact, 1)] * 5, candidates).obeyed == 1.0
    assert heard_and_chosen(game, [(fact, 2)] * 5, candidates).obeyed == 0.0


def test_the_first_choice_is_a_cue_of_dishes_of_several_foods_too():
    pairs = [(fact, 1 + number) for number, fact in enumerate(SALADS.unwrapped.facts)] * 40
    found = heard_and_chosen(SALADS.unwrapped, pairs, ["wait", LETTUCE, ONION]).first_choice
    assert found.corrected == pytest.approx(math.log(2), abs=0.02) and found.p_value < 0.01


def test_messages_of_the_own_episode_are_never_drawn():
    turns, _ = play(names_it, obeys, episodes=2)
    asked = []

    def judge(pairs):
        asked.extend(pairs)
        return np.stack([deaf(heard) for *_, heard in pairs])

    marked = [
        replace(t, observation={"episode": t.episode}, decision=replace(t.decision, heard={"alice": str(t.episode)}))
        for t in turns
        if t.agent == "bob"
    ]
    communication_figures(marked, judge)
    assert asked and all(heard["alice"] == str(1 - view["episode"]) for _, view, heard in asked)


def test_broken_letters_are_counted():
    found = communication_figures(*play(lambda dish, rng: "caf\ufffd" if dish == "onion" else "hi", deaf))
    assert 0 < found.unprintable < 1
    assert found.understood is None  # no parser


def test_the_correction_takes_away_the_bias_of_few_samples():
    rng = np.random.default_rng(0)
    plain, corrected = [], []
    for _ in range(200):
        spoken, known = rng.integers(4, size=60).tolist(), rng.integers(3, size=60).tolist()
        estimate = mutual_information(spoken, known, range(60), permutations=1)
        plain.append(estimate.nats)
        corrected.append(estimate.corrected)
    assert np.mean(plain) > 3 * 2 / 120 - 0.01
    assert abs(np.mean(corrected)) < 0.015
    assert miller_madow(spoken, known) == corrected[-1]


def test_the_permutation_test_is_fair_where_samples_of_an_episode_repeat():
    rng = np.random.default_rng(1)
    small = 0
    for trial in range(100):
        groups = np.repeat(np.arange(12), 10)
        spoken = rng.integers(3, size=12)[groups]  # a habit per episode that has nothing to do with the order
        known = rng.integers(3, size=12)[groups]
        told = mutual_information(list(spoken), list(known), list(groups), permutations=99, seed=trial)
        small += told.p_value <= 0.05
    assert small / 100 < 0.1
    with pytest.raises(ValueError, match="group"):  # within which what is known must not change
        mutual_information(["a", "b"], ["x", "y"], [0, 0])


def test_simple_values():
    assert entropy(["a", "b", "b", "a"]) == pytest.approx(math.log(2))
    assert causal_influence(np.eye(3)[0], np.eye(3)) == pytest.approx(math.log(3))
    assert causal_influence(np.eye(3)[0], np.eye(3)[1:]) == math.inf
    assert zipf_slope(["a"] * 12 + ["b"] * 6 + ["c"] * 4 + ["d"] * 3) == pytest.approx(-1.0)
    assert zipf_slope(["a", "b"]) is None
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []
