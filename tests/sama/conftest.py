"""What tests of planners share."""

from __future__ import annotations

import pytest

from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.sama.planning_game import PlanningGame, planning_game


@pytest.fixture
def game() -> PlanningGame:
    """The smallest kitchen as planners see it, at its start."""
    env = overcooked_ai.parallel_env(layout="cramped_room", observe=["entities"], action_level="goal_cell")
    env.reset(seed=0)
    return planning_game(env)
