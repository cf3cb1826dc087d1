"""What the games have in common."""

from __future__ import annotations

import pytest

from rllib_llm_comm.envs.interface import solved, text_spaces


@pytest.mark.parametrize(
    ("terminated", "infos", "expected"),
    [
        (True, {"alice": {}, "bob": {}}, True),
        (False, {"alice": {}}, False),
        (True, {"alice": {"task_success": False}, "bob": {"task_success": False}}, False),
        (True, {"alice": {"task_success": False}, "bob": {"task_success": True}}, True),
        (False, {"alice": {"task_success": True}}, True),
        (True, {}, True),
    ],
)
def test_the_game_says_whether_it_was_solved(terminated, infos, expected):
    assert solved(terminated, infos) is expected


def test_spaces_of_texts_draw_from_random_numbers_of_their_own():
    """Their characters are numbered once for all."""
    one, other = (text_spaces(2)["text"] for _ in range(2))
    assert one == other
    one.seed(3)
    drawn = one.sample()
    other.seed(4)
    other.sample()
    one.seed(3)
    assert one.sample() == drawn
    assert one.np_random is not other.np_random
