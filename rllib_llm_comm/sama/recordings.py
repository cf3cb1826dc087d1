"""Recorded sessions with chat models that come with the package, and the questions that they answer."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.chat.cassettes import Cassette, asks
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.core.errors import UserError, as_in_files, did_you_mean, shown
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.sama.preparation import CodeIndex, split_code

if TYPE_CHECKING:
    from rllib_llm_comm.sama.planners.chat import QuestionSettings

_ENDINGS = (".jsonl", ".jsonl.xz")
_PLACE = "docs/results/planning/recordings"
_IN_CLONES = (
    "claude_forced_coordination.jsonl.xz", "claude_minirts.jsonl.xz", "claude_officer_0.jsonl.xz",
    "claude_officer_1.jsonl.xz", "claude_officer_2.jsonl.xz", "claude_plans.jsonl.xz", "claude_rewards.jsonl",
    "claude_states.jsonl.xz", "manual_overcooked_text.jsonl.xz", "smollm2_actions.jsonl.xz", "smollm2_plans.jsonl.xz",
    "smollm2_rewards.jsonl.xz", "smollm2_states.jsonl.xz",
)  # fmt: skip


def recording(name: str) -> Path:
    """The path of a cassette that comes with the package, or that it would have."""
    folder = Path(str(resources.files(__package__).joinpath("cassettes")))
    paths = [folder / f"{name}{ending}" for ending in _ENDINGS]
    return next((path for path in paths if path.is_file()), paths[0])


def recorded_code(name: str) -> CodeIndex:
    """The code of a game that recordings are asked about, to search in.

    It is a copy beside the cassettes and not the code of today, as a prompt quotes it: with another code a recording
    would answer questions that nobody asks any more. So models that are recorded later are asked the same, too.

    Args:
        name: Name of the copy, such as "kitchen_source".
    """
    with lzma.open(recording("any").parent / f"{name}.json.xz", "rt", encoding="utf-8") as file:
        sources: dict[str, str] = json.load(file)["files"]
    return CodeIndex(piece for path, source in sources.items() for piece in split_code(source, path))


def recordings() -> list[str]:
    """The names of all cassettes that come with the package."""
    files = recording("any").parent.iterdir()
    return sorted(path.name.split(".")[0] for path in files if path.name.endswith(_ENDINGS))


def find_recording(named: str | os.PathLike[str]) -> Path:
    """A cassette's path from a setting: a file, or the name of one that comes with the package.

    Raises:
        UserError: If it is neither.
    """
    if not isinstance(named, str | os.PathLike):
        raise UserError(f"`cassette` is {shown(named)} but must be a file or one of {', '.join(recordings())}.")
    path = local_path(named, "cassette")
    if path.is_file():
        return path
    moved = next((file for file in _IN_CLONES if file.partition(".")[0] == str(named)), None)
    if moved is not None:
        raise UserError(
            f"`cassette` is {str(named)!r}, which lies in the repository alone: in a clone "
            f"give its path, {_PLACE}/{moved}."
        )
    shipped = recording(str(named))
    if path.name != str(named) or not shipped.is_file():
        raise UserError(
            f"`cassette` is {str(named)!r} but must be a file or one of {', '.join(recordings())}, which come with the "
            f"package; correct it or give a chat `model` to record it.{did_you_mean(str(named), recordings())}"
        )
    return shipped


def with_recording(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a chat model; those that only play a recording have its path, where they name one of the package.

    Raises:
        UserError: If there is no such recording.
    """
    played = not asks(chat) and chat.get("cassette")
    return {**chat, "cassette": str(find_recording(chat["cassette"]))} if played else dict(chat)


ANSWERS_TO = "answers_to"
"""Key of a recording's first line: the planner's settings that its questions were asked with; or a list of several, the
first of them being those."""
_FILES = ("manual", "translation")


def asked_with(settings: QuestionSettings | Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide how questions are worded, for a recording's first line; of files whether they are."""
    given = dict(settings) if isinstance(settings, Mapping) else settings.to_dict()
    wording = {name: value for name, value in given.items() if name not in ("fallback", "nearest", "text_encoder")}
    return {name: bool(value) if name in _FILES else value for name, value in wording.items()}


def require_recorded(model: ChatModel, settings: QuestionSettings) -> None:
    """Refuses settings whose questions a recording cannot hold: a comparison of prompts demands a model.

    Args:
        model: The chat model; only recordings that tell what they answer to, and that nobody continues, are looked at.

    Raises:
        UserError: If a setting is another one than that of the recording, or the recording tells no settings.
    """
    if not isinstance(model, Cassette) or model.client is not None or ANSWERS_TO not in model.header:
        return
    told, wanted = model.header[ANSWERS_TO], asked_with(settings)
    told = told if isinstance(told, list) else [told]
    if not told or not all(isinstance(one, dict) for one in told):
        raise UserError(
            f"`{ANSWERS_TO}` in the first line of the recording {str(model.path)!r} is "
            f"{shown(model.header[ANSWERS_TO])} but must be a mapping of a planner's settings, or a list of such; "
            "correct or record it anew."
        )
    # A setting that a recording does not tell came later: its questions are those of the default.
    every = [asked_with(type(settings)()) | one for one in told]

    def differing(one: Mapping[str, Any]) -> list[str]:
        return [name for name, value in one.items() if wanted.get(name, value) != value]

    names = differing(min(every, key=lambda one: len(differing(one))))
    if not names:
        return
    name = next((name for name in names if all(one.get(name) != wanted[name] for one in every)), names[0])
    # Where other answers have this setting, it is one of others that they have not, which is then told, too.
    having = [one for one in every if one.get(name) == wanted[name]]
    others = differing(min(having, key=lambda one: len(differing(one)))) if having else []
    where = " and ".join(f"`{one}` is {as_in_files(wanted[one])}" for one in others)
    fitting = [one for one in every if all(one.get(other) == wanted[other] for other in others)] or every
    known = list(dict.fromkeys(_told(name, one[name]) for one in fitting if name in one))
    values = " or ".join(known if name in _FILES else [f"`{name}` {known[0]}", *known[1:]])
    raise UserError(
        f"`{name}` is {as_in_files(getattr(settings, name))} but the recording {model.path.name!r} answers questions "
        f"with {values} alone{f' where {where}' if where else ''}, others demand a model: give `chat` a "
        "`model` or a `local` one, or correct the setting."
    )


def _told(name: str, value: Any) -> str:
    if name in _FILES:
        return f"a {name}" if value else f"no {name}"
    return as_in_files(value)
