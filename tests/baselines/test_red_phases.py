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


@pytest.mark.parametrize(
    ("phase", "games", "over"),
    [
        (RLPhase(3, 2, None), [(4, 4)] * 7, [3, 6]),  # without a share all have the same length
        # The share is that of the last updates of the phase.
        (RLPhase(10, 2, 0.5), [(1, 4), (1, 4), (2, 4), (3, 4), (4, 4), (0, 4), (4, 4)], [4, 6]),
        # Games before the actor has learned never count.
        (RLPhase(10, 2, 0.5, uncounted=3), [(4, 4)] * 3 + [(0, 4), (1, 4)] + [(4, 4)] * 3, [6, 8]),
    ],
)
def test_phases_end_with_the_share_of_the_last_updates_that_count(phase, games, over):
    assert play(phase, games) == over


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


def test_a_restored_phase_counts_no_games_of_before_the_actor_learned():
    phase, again = (RLPhase(10, 2, 0.5, uncounted=3) for _ in range(2))
    play(phase, [(4, 4)] * 8)
    again.set_state(phase.get_state())
    again.add(4, 4)
    again.add(4, 4)
    assert again.is_over
