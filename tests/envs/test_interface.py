"""What the games have in common."""

from __future__ import annotations

import pytest

from rllib_llm_comm.envs import frozen_lake
from rllib_llm_comm.envs.interface import solved

DOWN = 2


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


def test_who_falls_has_not_solved_the_lake():
    env = frozen_lake.parallel_env(layout=["1.2", "H.H", "b.a"])
    env.reset(seed=0)
    _, _, terminations, _, infos = env.step(dict.fromkeys(env.agents, DOWN))
    assert all(terminations.values()) and not solved(True, infos)
