"""Names of what a game counts itself, found before anybody plays it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.envs.interface import EPISODE_METRICS, asked
from rllib_llm_comm.policies.partners import allowed_actions
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.verco.teachers.taught_env import TeacherMessages

RETURN = "return"


def require_metric(metric: str, env: Any, seed: int) -> None:
    """Refuses a metric that a game does not count.

    Our games tell all names at their reset. Of a game that does not tell this one, an episode of random actions is
    played. No planner and no teacher is asked: their answers may cost something.

    Args:
        metric: The name.
        env: The game, which is begun anew.
        seed: Of the episode.

    Raises:
        UserError: If the metric is neither `RETURN` nor among them.
    """
    if metric == RETURN:
        return
    names: dict[str, None] = {}
    while isinstance(env, PlannedSubgoals | TeacherMessages):
        names.update(dict.fromkeys(env.figures()))
        env = env.env
    observations, infos = env.reset(seed=seed)
    names.update(_told(infos))
    rng = np.random.default_rng(seed)
    while metric not in names and env.agents:
        free = {agent: allowed_actions(env, agent, observations[agent]) for agent in asked(env.agents, infos)}
        actions = {agent: int(rng.choice(np.flatnonzero(allowed))) for agent, allowed in free.items()}
        observations, _, _, _, infos = env.step(actions)
        names.update(_told(infos))
    if metric not in names:
        raise UserError(
            f"`metric` is {metric!r} but must be {RETURN!r} or what the game counts: {', '.join(names) or 'nothing'}."
            f"{did_you_mean(metric, names)}"
        )


def _told(infos: Mapping[Any, Mapping[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(str(name) for info in infos.values() for name in info.get(EPISODE_METRICS, {}))
