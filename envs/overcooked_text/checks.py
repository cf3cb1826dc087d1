"""Checks of the environment's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.envs.overcooked_text.episodes import MAP
from rllib_llm_comm.envs.told_to import ALL
from rllib_llm_comm.errors import UserError, require_choice


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
    for name, never in (("max_game_steps", ""), ("wait_steps", ""), ("blocked_steps", ", or null for never")):
        value = settings[name]
        if never and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"`{name}` is {value!r} but must be a whole number from 1 up{never}.")
    if settings["legacy"] is True:
        for name, only in (("told_to", ALL), ("orders", 1), ("start", MAP)):
            if settings[name] != only:
                raise UserError(
                    f"`{name}` is {settings[name]!r}, but `legacy` plays the original game, which has only {only!r}; "
                    "leave one of the two out."
                )
