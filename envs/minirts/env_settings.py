"""Which values the settings of the environment may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_llm_comm.envs.minirts import observations, opponents
from rllib_llm_comm.envs.minirts.tasks import MOST
from rllib_llm_comm.errors import UserError, require_choice, require_number, require_whole

LEVELS = ("command", "red")
DECISION_TICKS = 50
"""Ticks between two decisions."""


def check_values(settings: Mapping[str, Any]) -> None:
    """Refuses values of the environment's settings that are not allowed; the page of `env` tells which are.

    Args:
        settings: All settings by name.

    Raises:
        UserError: For the first bad value.
    """
    require_choice("action_level", settings["action_level"], LEVELS)
    require_choice("num_agents", settings["num_agents"], (1, 2, 3))
    require_choice("side", settings["side"], (0, 1))
    require_choice("fair", settings["fair"], (False, True))
    opponents.parse(settings["opponent"])
    for name, low in (("max_buildings", 1), ("money", 0), ("unit_cap", 0), ("max_tick", 2 * DECISION_TICKS)):
        require_whole(name, settings[name], low)
    require_number("shaping", settings["shaping"], 0)
    numbers, observe = settings["numbers"], settings["observe"]
    if isinstance(numbers, str) or not numbers or len(set(numbers)) != len(numbers) or not _numbers_fit(numbers):
        raise UserError(f"`numbers` is {numbers!r} but must be a list of different whole numbers from 1 to {MOST}.")
    if isinstance(observe, str) or not observe or len(set(observe)) != len(observe):
        parts = ", ".join(observations.PARTS)
        raise UserError(f"`observe` is {observe!r} but must be a list of different parts: {parts}.")
    for part in observe:
        require_choice("observe", part, observations.PARTS)
    if "text" in observe and settings["action_level"] != "command":
        raise UserError(
            "`observe` has 'text' but `action_level` is 'red', whose actions have no phrases; leave 'text' out or use "
            "`action_level='command'`."
        )


def _numbers_fit(numbers: Sequence[Any]) -> bool:
    return all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= MOST for n in numbers)
