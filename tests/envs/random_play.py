"""Random play of any environment of ours."""

from __future__ import annotations

import numpy as np


def same(one, two, besides=()):
    """Whether two observations are equal."""
    return all(np.array_equal(one[key], two[key]) for key in set(one) | set(two) if key not in besides)


def play(env, rng, seed=0):
    """Random allowed play to the end; yields what each step gives."""
    observations, infos = env.reset(seed=seed)
    while env.agents:
        chosen = {
            agent: int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
            for agent in env.agents
            if infos[agent]["needs_action"]
        }
        result = env.step(chosen)
        observations, infos = result[0], result[4]
        yield result
