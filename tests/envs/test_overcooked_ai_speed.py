"""What is compiled or remembered in the onion-soup kitchen is what the plain computation gives."""

from __future__ import annotations

import numpy as np
import pytest
from plain_features import features

from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.overcooked_ai import text
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.original import original_kitchens
from rllib_llm_comm.envs.overcooked_ai.places import routes_of
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, SoupKitchen

LAYOUTS = [*LAYOUT_NAMES, *(f"original:{name}" for name in sorted(original_kitchens())[::6])]


def played(kitchen, steps, seed=0):
    """Cooks that bring soups out half of the time, so that hands, pots and counters hold everything."""
    rng = np.random.default_rng(seed)
    cooks = ScriptedCooks(kitchen) if kitchen.layout.classic else None
    for _ in range(steps):
        chosen = cooks.actions() if cooks and rng.random() < 0.5 else rng.integers(NUM_ACTIONS, size=2)
        yield kitchen.step([int(action) for action in chosen])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_compiled_features_are_the_plain_ones(layout):
    kitchen = SoupKitchen(layout, "new" if layout.startswith("original") else "old")
    states = set()
    for _ in played(kitchen, 400):
        states.add(kitchen.state.tobytes())
        assert np.array_equal(kitchen.features(), features(kitchen.state, kitchen.layout, routes_of(kitchen.layout)))
        assert kitchen.features() is not kitchen.features() and kitchen.features().dtype == np.int16
    assert len(states) == 400


@pytest.mark.parametrize(("layout", "dynamics"), [("cramped_room", "old"), ("counter_circuit", "new")])
def test_remembered_words_are_those_made_anew(layout, dynamics):
    """Twice the same episode: the second time everything is remembered."""

    def told(anew=False):
        kitchen, words = SoupKitchen(layout, dynamics), []
        for _ in played(kitchen, 300):
            for i in range(2):
                if anew:
                    text._scene.cache_clear()
                words.append((text.observation_text(kitchen, i), text.primitive_phrases(kitchen, i)))
        return words

    assert told() == told() == told(anew=True)


def test_remembered_phrases_cannot_be_spoilt():
    env = overcooked_ai.parallel_env()
    env.reset(seed=0)
    phrases = env.action_phrases("alice")
    phrases[0] = "spoilt"
    assert env.action_phrases("alice")[0] != "spoilt"
