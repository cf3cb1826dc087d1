"""Moments of the strategy game to look at, from play by scripted and by random commanders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.commanders import make_commander


def played(
    name: str = "oracle", seed: int = 0, decisions: int = 60, **settings: Any
) -> Iterator[tuple[minirts.MiniRTS, dict[str, Any]]]:
    """Plays with a scripted commander: the environment and the latest observations, at each decision."""
    env = minirts.parallel_env(**settings)
    observations, _ = env.reset(seed=seed)
    commander = make_commander(name, env.executor, env.commands, seed)
    for _ in range(decisions):
        yield env, observations
        actions = {agent: env.commands.index(commander(i)) for i, agent in enumerate(env.agents)}
        observations, *_ = env.step(actions)
        if not env.agents:
            yield env, observations
            return


@lru_cache(maxsize=8)
def moments(seed: int = 0, opponent: str = "medium_tower", num_agents: int = 2) -> tuple[Any, ...]:
    """Snapshots of one game, every fifth decision, by commanders of whom one is random."""
    found = []
    env = minirts.parallel_env(opponent=opponent, num_agents=num_agents)
    env.reset(seed=seed)
    oracle = make_commander("oracle", env.executor, env.commands)
    rng = np.random.default_rng(seed)
    for k in range(80):
        if k % 5 == 0:
            found.append(env.snapshot())
        allowed = [i for i, c in enumerate(env.commands) if not env.executor.refusal(0, c)]
        actions = {agent: env.commands.index(oracle(i)) for i, agent in enumerate(env.agents)}
        if k % 4 == 0:
            actions["alice"] = int(rng.choice(allowed))
        env.step(actions)
        if not env.agents:
            break
    return (env, *found)
