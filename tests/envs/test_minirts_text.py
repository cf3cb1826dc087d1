"""What commanders read is true, short and complete; the checker tells true from false, and both from nonsense."""

from __future__ import annotations

import random
import re

import pytest
from minirts_play import moments

from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.checker import check_sentence, duel_ticks
from rllib_llm_comm.envs.minirts.engine.units import ARCHER, CATAPULT, CAVALRY, DRAGON, SPEARMAN, SWORDMAN
from rllib_llm_comm.envs.minirts.text import manual, observation_text
from rllib_llm_comm.envs.minirts.words import KIND_OF, KINDS, PLURAL, SINGULAR


@pytest.fixture
def start():
    """The first moment of a game."""
    env, first, *_ = moments()
    env.restore(first)
    return env


def every_moment():
    for seed, agents in ((0, 2), (1, 3)):
        env, *snapshots = moments(seed, num_agents=agents)
        for snapshot in snapshots:
            env.restore(snapshot)
            yield env


def sentences(env, commander):
    text = observation_text(env.executor, commander, env.settings["max_tick"])
    return [part if part.endswith(".") else f"{part}." for part in re.split(r"(?<=\.) ", text)]


def check(env, sentence, speaker=0):
    return check_sentence(env.executor, sentence, env.settings["max_tick"], speaker)


def test_every_sentence_is_true():
    count = 0
    for env in every_moment():
        for commander in range(env.team.size):
            for sentence in sentences(env, commander):
                assert check(env, sentence, commander) is True, sentence
                count += 1
    assert count > 200


def test_whole_texts_are_true_and_of_another_moment_false():
    env, *snapshots = moments()
    env.restore(snapshots[0])
    text = observation_text(env.executor, 0, env.settings["max_tick"])
    assert check(env, text) is True
    for snapshot in snapshots[1:]:
        env.restore(snapshot)
        assert check(env, text) is False


def test_changed_numbers_kinds_and_names_are_found():
    rng = random.Random(0)
    changed = {"number": 0, "kind": 0, "name": 0}
    for env in every_moment():
        for sentence in sentences(env, 0):
            for how in changed:
                other = change(env, sentence, how, rng)
                if other is not None:
                    assert check(env, other) is False, other
                    changed[how] += 1
    assert min(changed.values()) > 20


def change(env, sentence, how, rng):
    """A sentence that is false, as one word of it is another one; `None` if it has no such word."""
    if how == "number":
        numbers = list(re.finditer(r"\b\d+\b", sentence))
        # Of what a command asks for 0 or 7 are no numbers.
        if not numbers or "open commands" in sentence:
            return None
        found = rng.choice(numbers)
        return sentence[: found.start()] + str(int(found[0]) + rng.choice((1, 2, 5))) + sentence[found.end() :]
    if how == "kind":
        words = [w for w in (*SINGULAR, *PLURAL) if re.search(rf"\d {w}\b", sentence)]
        if not words or "open commands" in sentence:
            return None
        word = rng.choice(words)
        counts = env.team.counts() + env.team.enemy_counts()
        absent = [kind for kind in KINDS if not counts[kind] and not any(u.making == kind for u in env.team.own)]
        if not absent or KIND_OF[word] in absent:
            return None
        return re.sub(rf"(\d) {word}\b", rf"\1 {PLURAL[rng.choice(absent)]}", sentence, count=1)
    if sentence.startswith("You are alice"):
        return "You are bob."
    if sentence.startswith("Bob commands") and env.team.counts(0) != env.team.counts(1):
        mine, his = env.team.counts(0), env.team.counts(1)
        # What is said of bob is false of alice only if it is no part of what she has.
        return sentence.replace("Bob", "Alice") if any(mine[kind] != his[kind] for kind in his) else None
    return None


@pytest.mark.parametrize(
    "sentence",
    [
        "", "The weather is fine.", "Dave commands 3 peasants.", "Alice commands 3 elephants.",
        "Carol commands 3 peasants.", "Is alice a commander?", "You know of " * 60,
    ],
)  # fmt: skip
def test_what_is_not_understood_is_unclear(start, sentence):
    assert check(start, sentence) is None


def test_you_needs_a_speaker(start):
    verdicts = [check(start, "You command 2 peasants.", speaker) for speaker in (None, 0, 1)]
    assert verdicts == [None, True, False]


@pytest.mark.parametrize(
    ("sentence", "truth"),
    [
        ("Our side has 3 peasants and 1 town hall building.", True), ("We have at least two peasants.", True),
        ("We have more than 3 peasants.", False), ("Alice has no barracks.", True),
        ("Alice does not have any barrack.", True), ("Bob owns a town hall.", False),
        ("The enemy has a town hall.", True), ("The opponent has 2 dragons.", False),
        ("The team has 500 gold, and bob has 1 peasant.", True),
        ("The team has 500 gold, and bob has 2 peasants.", False),
        ("The enemy town hall is found.", False), ("The enemy base is not found.", True),
        ("Enemies are not near our buildings.", True), ("Alice's peasants mine.", False),
        ("Bob's army attacks.", False), ("A swordman beats a spearman.", True), ("Spearmen beat swordmen.", False),
        ("An archer does not beat a dragon.", False), ("A dragon costs 200 gold.", True),
        ("A barrack trains swordmen.", False), ("A workshop trains archers, dragons and catapults.", True),
    ],
)  # fmt: skip
def test_other_wordings(start, sentence, truth):
    assert check(start, sentence) is truth


def test_the_manual_is_true_where_it_can_be_checked(start):
    assert False not in [check(start, re.sub(r", spearmen beat", ". Spearmen beat", s)) for s in manual()]


def test_who_beats_whom():
    circle = ((SWORDMAN, SPEARMAN), (SPEARMAN, CAVALRY), (CAVALRY, SWORDMAN), (ARCHER, DRAGON), (DRAGON, SPEARMAN))
    for strong, weak in (*circle, (CAVALRY, ARCHER)):
        assert duel_ticks(strong, weak) < duel_ticks(weak, strong)
    assert duel_ticks(CATAPULT, SPEARMAN) == float("inf")


def test_the_text_changes_with_what_is_in_force():
    env = minirts.parallel_env()
    before, _ = env.reset(seed=0)
    mine = before["alice"]["candidates"].index("mine with idle peasants")
    build = before["alice"]["candidates"].index("build one stable")
    after, *_ = env.step({"alice": mine, "bob": build})
    assert "Your peasants shall mine" not in before["alice"]["text"]
    assert "Your peasants shall mine" in after["alice"]["text"]
    assert "build one stable" in after["bob"]["text"] and "build one stable" not in after["alice"]["text"]
