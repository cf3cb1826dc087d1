"""Checks of the settings of Overcooked-AI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice, require_number, require_whole
from rllib_llm_comm.envs.interface import check_parts
from rllib_llm_comm.envs.overcooked_ai.actions import LEVELS
from rllib_llm_comm.envs.overcooked_ai.observations import PARTS, VECTORS
from rllib_llm_comm.envs.overcooked_ai.wanted import WANTED
from rllib_llm_comm.envs.told_to import ALL


def check_values(settings: Mapping[str, Any], render_mode: str | None, render_modes: Sequence[str]) -> None:
    """Refuses values that are not allowed, or that do not fit together.

    Args:
        settings: All settings but `render_mode`.
        render_mode: Default mode of `render`.
        render_modes: Modes to choose from.

    Raises:
        UserError: For the first one.
    """
    require_choice("action_level", settings["action_level"], LEVELS)
    require_choice("vector", settings["vector"], VECTORS)
    require_choice("render_mode", render_mode, (None, *render_modes))
    require_choice("wanted", settings["wanted"], WANTED)
    for name in ("commit", "mask_useless", "swap_roles", "wanted_anew"):
        require_choice(name, settings[name], (False, True))
    require_whole("horizon", settings["horizon"], 1, 2**15 - 1)
    require_number("shaping", settings["shaping"], 0)
    observe = settings["observe"]
    check_parts(observe, PARTS)
    for name, only in (("wanted_anew", False), ("told_to", ALL)):
        if settings["wanted"] is None and settings[name] != only:
            raise UserError(
                f"`{name}` is {settings[name]!r} but `wanted` is None, so that there is nothing to tell; "
                "set `wanted='pot'`."
            )
    if settings["swap_roles"] and "text" in observe:
        raise UserError(
            "`swap_roles` is True but `observe` has 'text', in which player 0 is called alice and player 1 bob; leave "
            "one of them away."
        )
    if settings["action_level"] != "primitive" and settings["dynamics"] == "new":
        raise UserError(
            "`action_level` is not 'primitive' but `dynamics` is 'new': there a cook that goes to a pot with empty "
            "hands starts it too early; use `dynamics='old'`."
        )
