"""Settings of the environment: allowed values, defaults that depend on others, and the rules that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice, require_number, require_whole
from rllib_llm_comm.envs.interface import check_parts
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED, check_executor
from rllib_llm_comm.envs.minirts.commanders.tasks import MOST
from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.mapgen import MapSettings
from rllib_llm_comm.envs.minirts.engine.rts_game import Settings
from rllib_llm_comm.envs.minirts.view import observations
from rllib_llm_comm.envs.minirts.view.names import COMMANDERS
from rllib_llm_comm.envs.told_to import check_told_to

LEVELS = ("command", "red")
DECISION_TICKS = 50
"""Ticks between two orders of an officer; commanders decide as often, or less often (`decision_ticks`)."""
_DEFAULT_PARTS = {"command": ("text", "vector")}


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings as JSON-able values, with the default of `observe`.

    Args:
        settings: All settings by name.

    Raises:
        UserError: For the first bad value.
    """
    found = dict(settings)
    if found["observe"] is None:
        found["observe"] = _DEFAULT_PARTS.get(found["action_level"], ("planes", "lists"))
    check_values(found)
    told_to = found["told_to"]
    found["numbers"], found["observe"] = list(found["numbers"]), list(found["observe"])
    found["told_to"] = told_to if told_to is None or isinstance(told_to, str) else list(told_to)
    return found


def rules_of(settings: Mapping[str, Any]) -> Settings:
    """The game's rules under checked settings.

    Args:
        settings: All settings by name.
    """
    names: list[str | None] = [None, None]
    names[1 - settings["side"]] = settings["opponent"]
    money, unit_cap, max_tick = settings["money"], settings["unit_cap"], settings["max_tick"]
    map_settings = MapSettings(fair=settings["fair"])
    return Settings(map_settings, (names[0], names[1]), money, unit_cap, max_tick, frame_skip=DECISION_TICKS)


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
    for name in ("fair", "truncate_draws"):
        require_choice(name, settings[name], (False, True))
    opponents.parse(settings["opponent"])
    for name, low in (("max_buildings", 1), ("money", 0), ("unit_cap", 0), ("max_tick", 2 * DECISION_TICKS)):
        require_whole(name, settings[name], low)
    _check_decision_ticks(settings)
    require_number("shaping", settings["shaping"], 0)
    numbers, observe = settings["numbers"], settings["observe"]
    if isinstance(numbers, str) or not numbers or len(set(numbers)) != len(numbers) or not _numbers_fit(numbers):
        raise UserError(f"`numbers` is {numbers!r} but must be a list of different whole numbers from 1 to {MOST}.")
    check_parts(observe, observations.PARTS)
    _check_secret(settings)
    check_executor(settings["executor"])
    if settings["executor"] != SCRIPTED and settings["action_level"] != "command":
        raise UserError(
            f"`executor` is {settings['executor']!r} but `action_level` is 'red', whose actions are orders already; "
            "use `action_level='command'`, or leave `executor` away."
        )
    if "text" in observe and settings["action_level"] != "command":
        raise UserError(
            "`observe` has 'text' but `action_level` is 'red', whose actions have no phrases; leave 'text' out or use "
            "`action_level='command'`."
        )


def _check_decision_ticks(settings: Mapping[str, Any]) -> None:
    ticks = settings["decision_ticks"]
    require_whole("decision_ticks", ticks, DECISION_TICKS)
    if ticks % DECISION_TICKS:
        raise UserError(f"`decision_ticks` is {ticks!r} but must be a multiple of {DECISION_TICKS}.")
    if ticks != DECISION_TICKS and settings["action_level"] != "command":
        raise UserError(
            f"`decision_ticks` is {ticks!r} but `action_level` is 'red', whose officers order every {DECISION_TICKS} "
            "ticks; use `action_level='command'`, or leave `decision_ticks` away."
        )


def _check_secret(settings: Mapping[str, Any]) -> None:
    """Checks `told_to` and `producers`, which are about commands in words."""
    names, told_to, producers = COMMANDERS[: settings["num_agents"]], settings["told_to"], settings["producers"]
    if producers is not None:
        require_choice("producers", producers, (None, *names))
    if told_to is not None:
        check_told_to(told_to, names, "enemy's army types")
        if opponents.parse(settings["opponent"]).level == "strong":
            raise UserError(
                "`told_to` is set but `opponent` is 'strong', which answers what it sees and has no army types to "
                "tell; use another one, such as 'medium', or leave `told_to` away."
            )
        if not {"text", "vector"} & set(settings["observe"]):
            raise UserError(
                "`told_to` is set but `observe` has neither 'text' nor 'vector', which alone show what is told; add "
                "one, or leave `told_to` away."
            )
    for name in ("told_to", "producers"):
        if settings[name] is not None and settings["action_level"] != "command":
            raise UserError(
                f"`{name}` is {settings[name]!r} but `action_level` is 'red', which it does not change; use "
                f"`action_level='command'`, or leave `{name}` away."
            )


def _numbers_fit(numbers: Sequence[Any]) -> bool:
    return all(isinstance(n, int) and not isinstance(n, bool) and 1 <= n <= MOST for n in numbers)
