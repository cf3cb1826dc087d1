"""Seconds count once, to the innermost phase."""

import time

import pytest

from rllib_llm_comm.core.phases import PhaseClock

NAP = 0.02


def test_inner_phases_pause_outer_ones():
    clock = PhaseClock()
    with clock("outer"):
        time.sleep(NAP)
        with clock("inner"):
            time.sleep(2 * NAP)
        time.sleep(NAP)
        taken = clock.take()
        time.sleep(NAP)
    assert taken["outer"] == pytest.approx(2 * NAP, abs=NAP) and taken["inner"] == pytest.approx(2 * NAP, abs=NAP)
    rest = clock.take()
    assert set(rest) == {"outer"} and rest["outer"] >= NAP
    assert clock.take() == {}


def test_a_whole_phase_keeps_what_lies_in_it_also_after_an_error():
    clock = PhaseClock()
    with pytest.raises(ValueError), clock("whole", whole=True), clock("inner"):
        raise ValueError
    with clock("next"):
        pass
    assert set(clock.take()) == {"whole", "next"}
