"""Random play of any environment of ours, and what it looked like when the golden text of it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[1] / "data" / "random_play.txt"


def story(env, seed=0):
    """Lines about random play: what all agents see first and last, and what they were paid in between."""
    lines, paid, last = [], {}, {}

    def look(moment, observations):
        for agent in sorted(observations):
            for key, value in sorted(observations[agent].items()):
                if key == "candidates":
                    value = " | ".join(value)
                elif not isinstance(value, str):  # numbers: how many are not 0, and a sum in which each place counts
                    value = np.asarray(value, np.float64).ravel()
                    value = (
                        f"{np.count_nonzero(value)} of {value.size}, {value @ np.sin(np.arange(1, value.size + 1)):.3f}"
                    )
                lines.append(f"{moment}, {agent}, {key}: {value}")

    look("first", env.reset(seed=seed)[0])
    for observations, rewards, *_ in play(env, np.random.default_rng(seed), seed):
        for agent, reward in rewards.items():
            paid[agent] = paid.get(agent, 0.0) + reward
        last = observations or last
    look("last", last)
    return [*lines, *(f"paid, {agent}: {reward:.3f}" for agent, reward in sorted(paid.items()))]


def golden(title):
    """The lines of a golden text: those below its title in the file."""
    return GOLDEN.read_text().partition(f"== {title}\n")[2].partition("\n==")[0].strip().splitlines()


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
