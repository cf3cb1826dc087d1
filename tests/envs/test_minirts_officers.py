"""What officers are told and order: labels of collective commands, sentences in force, wordings, imperfect officers."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts import collective_command as red
from rllib_llm_comm.envs.minirts.collective_command import (
    HEADS,
    RULES,
    CollectiveLabels,
    disturbed,
    nothing_new,
    orders_of,
)
from rllib_llm_comm.envs.minirts.commanders import MoodyCommander, make_commander
from rllib_llm_comm.envs.minirts.engine import rts_game
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame
from rllib_llm_comm.envs.minirts.engine.units import BARRACK, PEASANT, RESOURCE, SPEARMAN, TOWN_HALL
from rllib_llm_comm.envs.minirts.executor import OLDEST, Executor, Instructions
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.words import (
    ATTACK,
    BUILD,
    DEFEND,
    MINE,
    MOST_WORDS,
    NUM_WORDS,
    TRAIN,
    Command,
    all_commands,
    parse_command,
    phrase,
    word_numbers,
    wordings,
)
from tests.refusal import refused

UNITS = [
    (0, TOWN_HALL, 8, 8), (0, PEASANT, 7, 8), (0, PEASANT, 6, 8), (0, PEASANT, 8, 6), (0, RESOURCE, 4, 8),
    (0, RESOURCE, 8, 4), (1, TOWN_HALL, 28, 28), (1, PEASANT, 28, 27),
]  # fmt: skip


def side():
    return Side(RTSGame.scenario(UNITS, (300, 300)), 0, 1)


def flags(action):
    return np.flatnonzero(action[len(HEADS) :]).tolist()


def mixed_orders(team):
    """Two peasants to one resource, one to another, and the hall trains a peasant."""
    hall, *peasants = team.own
    near, far = team.resources
    digs = [rts_game.gather(peasant, hall, near) for peasant in peasants[:2]]
    return [*digs, rts_game.gather(peasants[2], hall, far), rts_game.train(hall, PEASANT)]


def test_the_label_of_red_gives_all_units_of_a_kind_the_same_target():
    team = side()
    (action,) = CollectiveLabels(team, "majority").actions(mixed_orders(team))
    assert action[red.KIND_AT] == red.GATHER and action[red.RESOURCE_AT] == 0 and flags(action) == [1, 2, 3]


def test_taking_turns_nothing_waits_for_ever():
    team = side()
    labels = CollectiveLabels(team, "turns")
    first, second, third = (labels.actions(mixed_orders(team))[0] for _ in range(3))
    assert (first[red.KIND_AT], flags(first)) == (red.GATHER, [1, 2])
    assert (second[red.KIND_AT], second[red.TRAIN_AT], flags(second)) == (red.TRAIN, PEASANT, [0])
    assert third[red.KIND_AT] == red.GATHER
    same = CollectiveLabels(team, "same")
    assert [same.actions(mixed_orders(team))[0][red.KIND_AT] for _ in range(3)] == [red.GATHER] * 3


def test_a_label_means_the_orders_that_it_was_made_of():
    team = side()
    hall, *peasants = team.own
    for given in (
        [rts_game.gather(peasants[0], hall, team.resources[1])],
        [rts_game.build(peasants[1], BARRACK, 5, 11)],
        [rts_game.train(hall, PEASANT)],
        [rts_game.move(peasants[2], 3, 20)],
    ):
        assert orders_of(team, CollectiveLabels(team).actions(given)) == given
    assert np.array_equal(CollectiveLabels(team).actions([])[0], nothing_new())


def test_unknown_rules_are_refused():
    with refused("rule", "choice"):
        CollectiveLabels(side(), "most")


@pytest.mark.parametrize("rule", RULES)
def test_officers_that_act_through_labels_carry_commands_out(rule):
    env = minirts.parallel_env(num_agents=1, opponent="simple", action_level="red", observe=["vector"], max_tick=2000)
    env.reset(seed=3)
    commander, labels = make_commander("oracle", env.executor, all_commands()), CollectiveLabels(env.team, rule)
    while env.agents:
        env.executor.command(0, commander(0))
        env.step({"alice": labels.actions(env.executor.give_orders())[0]})
    made = env.team.made[0]
    assert made[PEASANT] and sum(made.values()) > made[PEASANT] + 1  # a producer and fighters, too


def test_every_wording_is_read_back():
    for command in all_commands():
        told = wordings(command)
        assert told[0] == phrase(command) and len(set(told)) == len(told)
        assert all(parse_command(sentence) == command for sentence in told)
        numbers = {tuple(word_numbers(sentence)) for sentence in told}
        assert len(numbers) == len(told) and all(max(row) < NUM_WORDS and len(row) == MOST_WORDS for row in numbers)


def test_unknown_words_are_read_by_their_hash():
    first, again, other = (word_numbers(text) for text in ("build a castle", "Build a castle!", "build a moat"))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first[2] > NUM_WORDS - 17 and word_numbers("a " * 40).all()


def test_sentences_hold_until_they_are_done_or_taken_back():
    executor = Executor(side())
    told = Instructions(executor.orders)
    for command in (Command(MINE), Command(TRAIN, PEASANT, 1)):
        executor.command(0, command)
        told.give(0, command, executor.orders[0])
    told.pass_time()
    assert [(one.sentence, one.age) for one in told.in_force(0, executor.orders[0])] == [
        ("mine with idle peasants", 1),
        ("train 1 peasant", 1),
    ]
    executor.orders[0].jobs.clear()  # done
    for _ in range(20):
        told.pass_time()
    (left,) = told.in_force(0, executor.orders[0])
    assert left.command == Command(MINE) and left.age == OLDEST


def test_a_stance_takes_the_place_of_another():
    executor = Executor(Side(RTSGame.scenario([*UNITS, (0, SPEARMAN, 9, 9)]), 0, 1))
    told = Instructions(executor.orders)
    for stance in (ATTACK, DEFEND):
        executor.command(0, Command(stance))
        told.give(0, Command(stance), executor.orders[0])
    assert [one.command.verb for one in told.in_force(0, executor.orders[0])] == [DEFEND]


def test_imperfect_officers_are_late_and_take_wrong_targets():
    team, rng = side(), np.random.default_rng(0)
    (action,) = CollectiveLabels(team).actions(mixed_orders(team))
    assert np.array_equal(disturbed(action, team, rng, 1.0, 0.0), nothing_new())
    assert np.array_equal(disturbed(action, team, rng, 0.0, 0.0), action)
    wrong = [disturbed(action, team, rng, 0.0, 1.0) for _ in range(20)]
    assert {int(one[red.RESOURCE_AT]) for one in wrong} == {0, 1}
    assert all(flags(one) == flags(action) and one[red.KIND_AT] == red.GATHER for one in wrong)


def test_moody_commanders_take_back_what_is_not_done_in_time():
    executor = Executor(side())
    moody = MoodyCommander(executor, [Command(BUILD, BARRACK, 1)], np.random.default_rng(0))
    held = []
    for _ in range(60):
        executor.command(0, moody(0))
        held.append(executor.orders[0].jobs[0].since if executor.orders[0].jobs else -1)
    lasted = [held.count(job) for job in sorted(set(held))[:-1]]
    assert len(lasted) > 3 and all(5 <= decisions <= 15 for decisions in lasted)
