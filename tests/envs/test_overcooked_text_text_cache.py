"""Remembered words are those that would be made anew."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner, PrimitiveRunner
from rllib_llm_comm.envs.overcooked_text.observation_text import wording
from rllib_llm_comm.envs.overcooked_text.rules import TextKitchen

STEPS = 200


def compare(runner):
    for index in range(runner.kitchen.num_agents):
        words = wording(runner, index)
        phrases, mask = observation_text.candidates(runner, index)
        assert (words.text, list(words.candidates), list(words.mask)) == (
            observation_text.describe(runner, index),
            phrases,
            mask,
        )
        assert np.array_equal(words.vector, np.array(runner.kitchen.seen_vector(index), np.float32))


@pytest.mark.parametrize("map_name", "ABC")
@pytest.mark.parametrize(("radius", "agents", "legacy"), [(2, 2, False), (1, 3, False), (0, 2, False), (2, 2, True)])
def test_wording_is_that_of_the_state(map_name, radius, agents, legacy):
    kitchen = TextKitchen(map_name, num_agents=agents, view_radius=radius, legacy=legacy)
    rng = random.Random(radius + agents)
    runners = [MacroRunner(kitchen, include_moves=True), PrimitiveRunner(kitchen)]
    for step in range(STEPS):
        # Primitive steps leave macro-actions nowhere in particular: stranger states than play alone would reach.
        runner = runners[step // 50 % 2]
        runner.step([rng.randrange(runner.num_actions) for _ in range(agents)])
        if kitchen.delivered or kitchen.game_step >= 400:
            kitchen.reset()
        for each in runners:
            compare(each)
