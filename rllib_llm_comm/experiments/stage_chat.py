"""Chat models of stages: checked before anything runs, recorded while they answer, and named with the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.chat.chat_model import cost_of
from rllib_llm_comm.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rllib_llm_comm.chat.chat_model import ChatModel

ANSWERS = "answers.jsonl"
"""Recording of the answers of a stage, in its folder."""
_WAYS = ("model", "local", "cassette")


def check_stage_chat(where: str, chat: Mapping[str, Any]) -> None:
    """Refuses settings of a chat model that cannot be used; nobody is asked and no recording is begun.

    Args:
        where: Full name of the setting, for messages.
        chat: As of `open_chat`; `cassette` may be the name of a recording that comes with the package.

    Raises:
        UserError: If a setting is not allowed or nobody can be asked.
    """
    from rllib_llm_comm.chat.cassettes import open_chat
    from rllib_llm_comm.chat.settings import ChatSettings

    if not any(chat.get(way) for way in _WAYS):
        raise UserError(f"`{where}.model` is missing; name the model at the server, or give `local` or `cassette`.")
    if "model" in chat:
        known = [*ChatSettings.names(), "cassette", "note"]
        for key in chat:
            if key not in known:
                hint = did_you_mean(key, known)
                raise UserError(f"`{where}.{key}` is no setting; known are {', '.join(known)}.{hint}")
    if asks(chat):
        open_chat({key: value for key, value in chat.items() if key != "cassette"})
    else:
        open_chat(_of_the_package(chat))


def asks(chat: Mapping[str, Any]) -> bool:
    """True if a chat model is asked, and not only a recording played.

    Args:
        chat: As of `open_chat`.
    """
    return bool(chat.get("model") or chat.get("local"))


def kept_chat(chat: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of a chat model whose answers are recorded in a stage's folder, unless they name another recording.

    A killed stage goes on with the answers that it has, and the recording can be played in place of the model.

    Args:
        chat: As of `open_chat`.
        folder: The stage's folder.
    """
    if not asks(chat):
        return _of_the_package(chat)
    return {"cassette": str(folder / ANSWERS), **chat}


def open_stage_chat(chat: Mapping[str, Any], folder: Path) -> ChatModel:
    """The chat model of a stage; what it answers is recorded.

    Args:
        chat: As of `open_chat`.
        folder: The stage's folder.
    """
    from rllib_llm_comm.chat.cassettes import open_chat

    folder.mkdir(parents=True, exist_ok=True)
    return open_chat(kept_chat(chat, folder))


def kept_planner(planner: Any, folder: Path) -> Any:
    """Settings of a planner; the answers of a chat model that it asks are recorded in a stage's folder.

    Args:
        planner: As of `make_planner`.
        folder: The stage's folder.
    """
    if not isinstance(planner, Mapping) or not isinstance(planner.get("chat"), Mapping):
        return planner
    chat = planner["chat"]
    kept = asks(chat) and not chat.get("cassette") and not chat.get("cache_dir") and not chat.get("temperature")
    return {**planner, "chat": kept_chat(chat, folder)} if kept else planner


def who_answered(model: ChatModel) -> dict[str, Any]:
    """Authors and cost of a stage's answers, for its summary and the report.

    Args:
        model: The chat model that the stage has asked.

    Returns:
        `answers_from` in words, `answers` (count by author, of recordings), `note` (how a recording was made), and the
        counts `requests`, `kept_answers`, `input_tokens`, `output_tokens` and `cost`.
    """
    from rllib_llm_comm.chat.cassettes import Cassette

    played = dict(model.played) if isinstance(model, Cassette) else {}
    recorded = isinstance(model, Cassette) and model.client is None
    name = str(getattr(model, "model", "") or getattr(getattr(model, "client", None), "model", ""))
    return {
        "answers_from": _recording_in_words(model) if recorded else name,
        "answers": played if recorded else {name: model.counters.requests + model.counters.cached},
        "note": str(getattr(model, "header", {}).get("note", "")) if recorded else "",
        **cost_of(model.counters),
    }


def _recording_in_words(tape: Any) -> str:
    authors = ", ".join(f"{count} by {who}" for who, count in sorted(tape.played.items()))
    return f"recording {tape.path.name} of {tape.header.get('made', 'an unknown day')} ({authors or 'none was needed'})"


def _of_the_package(chat: Mapping[str, Any]) -> dict[str, Any]:
    from rllib_llm_comm.sama.recordings import find_recording

    return {**chat, "cassette": str(find_recording(chat["cassette"]))}
