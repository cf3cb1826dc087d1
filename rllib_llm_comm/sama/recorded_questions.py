"""Recordings of plans hold the answers to one way of asking; another one is refused before anything is played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.chat_planner import ChatPlanSettings

ANSWERS_TO = "answers_to"
"""Key of a recording's first line: the planner's settings that its questions were asked with."""
_FILES = ("manual", "translation")


def asked_with(settings: ChatPlanSettings | Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide how questions are worded, for a recording's first line; of files whether there is one.

    Args:
        settings: Settings of the planner.
    """
    given = dict(settings) if isinstance(settings, Mapping) else asdict(settings)
    wording = {name: value for name, value in given.items() if name not in ("fallback", "nearest", "text_encoder")}
    return {name: bool(value) if name in _FILES else value for name, value in wording.items()}


def require_recorded(model: ChatModel, settings: ChatPlanSettings) -> None:
    """Refuses settings whose questions a recording cannot hold: a comparison of prompts demands a model.

    Args:
        model: The chat model; only recordings that tell what they answer to, and that nobody continues, are looked at.
        settings: Settings of the planner.

    Raises:
        UserError: If a setting is another one than that of the recording.
    """
    if not isinstance(model, Cassette) or model.client is not None or ANSWERS_TO not in model.header:
        return
    # A setting that a recording does not tell came later: its questions are those of the default.
    recorded, wanted = asked_with(type(settings)()) | model.header[ANSWERS_TO], asked_with(settings)
    for name, value in recorded.items():
        if wanted.get(name, value) != value:
            raise UserError(
                f"`{name}` is {getattr(settings, name)!r} but the recording {model.path.name!r} answers questions with "
                f"{_told(name, value)} alone, so this comparison of prompts demands a model: give `chat` a `model` or "
                "a `local` one."
            )


def _told(name: str, value: Any) -> str:
    if name in _FILES:
        return f"a {name}" if value else f"no {name}"
    return f"`{name}` {value!r}"
