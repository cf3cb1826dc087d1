"""Checks of the environment's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice, require_whole
from rllib_llm_comm.envs.interface import check_parts
from rllib_llm_comm.envs.overcooked_text.episodes import MAP
from rllib_llm_comm.envs.overcooked_text.observation_space import PARTS
from rllib_llm_comm.envs.told_to import ALL


def check_values(settings: Mapping[str, Any]) -> None:
    """Checks the settings of the environment that are neither the kitchen's nor drawn.

    Args:
        settings: All settings.

    Raises:
        UserError: For a value that is not allowed.
    """
    require_choice("action_level", settings["action_level"], ("macro", "primitive"))
    require_choice("advance", settings["advance"], ("decision", "game_step"))
    for name in ("mask_useless", "include_moves", "central_critic"):
        require_choice(name, settings[name], (False, True))
    check_parts(settings["observe"], PARTS)
    if settings["central_critic"] and "text" not in settings["observe"]:
        raise UserError("`central_critic` is True but `observe` has no 'text'; add it, or leave `central_critic` away.")
    for name in ("max_game_steps", "wait_steps"):
        require_whole(name, settings[name], 1)
    if settings["blocked_steps"] is not None:  # never
        require_whole("blocked_steps", settings["blocked_steps"], 1)
    if settings["legacy"] is True:
        for name, only in (("told_to", ALL), ("orders", 1), ("start", MAP)):
            if settings[name] != only:
                raise UserError(
                    f"`{name}` is {settings[name]!r}, but `legacy` plays the original game, which has only {only!r}; "
                    "leave one of the two out."
                )
