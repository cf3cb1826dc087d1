"""What tests of planners share."""

from __future__ import annotations

import pytest
from kitchens import kitchen

from rllib_llm_comm.sama.planning_game import PlanningGame


@pytest.fixture
def game() -> PlanningGame:
    """The smallest kitchen as planners see it, at its start."""
    return kitchen()
