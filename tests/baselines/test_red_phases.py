"""Length of RED's RL phases."""

from __future__ import annotations

import math

import pytest

from rllib_llm_comm.baselines.red.red import RLPhase


def play(phase, games):
    """The updates, counted from 1, at which the phase was over."""
    over = []
    for number, (won, count) in enumerate(games, start=1):
        phase.add(won, count)
        if phase.is_over:
            over.append(number)
            phase.begin()
    return over


def test_without_a_share_phases_have_the_same_length():
    assert play(RLPhase(3, 2, None), [(4, 4)] * 7) == [3, 6]


def test_a_share_is_of_the_last_updates_of_the_phase():
    phase = RLPhase(10, 2, 0.5)
    assert play(phase, [(1, 4), (1, 4), (2, 4), (3, 4), (4, 4), (0, 4), (4, 4)]) == [4, 6]
    assert math.isnan(phase.won_share)


def test_the_share_is_unknown_before_there_are_enough_updates():
    phase = RLPhase(10, 3, 0.1)
    phase.add(4, 4)
    phase.add(4, 4)
    assert math.isnan(phase.won_share) and not phase.is_over
    phase.add(0, 0)
    assert phase.won_share == pytest.approx(1.0) and phase.is_over


def test_a_restored_phase_goes_on():
    phase, again = RLPhase(4, 2, 0.9), RLPhase(4, 2, 0.9)
    for count in (1, 2, 3):
        phase.add(count, 8)
    again.set_state(phase.get_state())
    assert again.won_share == phase.won_share and not again.is_over
    again.add(0, 8)
    assert again.is_over


def test_games_before_the_actor_learned_never_count():
    phase = RLPhase(10, 2, 0.5, uncounted=3)
    assert play(phase, [(4, 4), (4, 4), (4, 4), (0, 4), (1, 4), (4, 4), (4, 4), (4, 4)]) == [6, 8]
    again = RLPhase(10, 2, 0.5, uncounted=3)
    again.set_state(phase.get_state())
    again.add(4, 4)
    again.add(4, 4)
    assert again.is_over
