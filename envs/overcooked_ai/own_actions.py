"""Cooks that keep the actions they were trained with in a kitchen that is played in single steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.actions import LEVELS, make_level

_SINGLE_STEPS = LEVELS[0]


class OwnActions:
    """The goals of one cook for one episode, carried out in single steps.

    Args:
        env: The (unwrapped) environment, whose actions are single steps, after its reset.
        agent: The cook.
        level: The cook's own action level, one of `LEVELS`.
        rng: Draws the random steps of a cook that is blocked.
    """

    def __init__(self, env: Any, agent: str, level: str, rng: np.random.Generator) -> None:
        self._player = env.players[agent]
        self._level = make_level(env.kitchen, level, env.settings["commit"], env.settings["mask_useless"])
        self._level.reset(rng)
        self._moved = False

    def free(self) -> bool:
        """True if the cook has to choose a goal now; call it once in every step, before `action`."""
        if self._moved:
            self._level.after_step(self._player)
        return self._level.needs_action(self._player)

    def mask(self) -> np.ndarray:
        """int8 (K,): the goals that are worth to choose now."""
        return self._level.mask(self._player)

    def choose(self, goal: int) -> None:
        """Takes a new goal.

        Args:
            goal: Its number, below K.
        """
        self._level.choose(self._player, goal)

    def action(self) -> int:
        """The single step towards the goal."""
        self._moved = True
        return self._level.primitive(self._player)


def own_actions(env: Any, agent: str, settings: Mapping[str, Any], rng: np.random.Generator) -> OwnActions | None:
    """The own actions of a cook that was trained with other settings; `None` if the environment has them.

    Whether it keeps to a goal until that is done, and which goals are masked, is as the environment's `commit` and
    `mask_useless` say, which mean nothing else in single steps.

    Args:
        env: The (unwrapped) environment, after its reset.
        agent: The cook.
        settings: Those of the cook's training.
        rng: As of `OwnActions`.

    Raises:
        UserError: If the environment asks for goals, and not for those of the cook.
    """
    own, played = settings.get("action_level", _SINGLE_STEPS), env.settings["action_level"]
    if own == played:
        return None
    if played != _SINGLE_STEPS:
        raise UserError(
            f"`action_level` is {played!r} but {agent!r} is held by a policy that was trained with {own!r}; set "
            f"`action_level` to {_SINGLE_STEPS!r} in `env_config`, in which both can play."
        )
    return OwnActions(env, agent, own, rng)
