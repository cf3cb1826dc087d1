"""The chat models that a stage asks: those that its settings name, and those of the agents that it plays."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.trust import texts_in
from rllib_llm_comm.experiments.stages import STAGE_REFERENCE, Stage, as_list, source_of
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.policies.policy_manifest import read_manifest

_TEACHER = "teacher"
# Of these stages take the adapter alone, not who planned or spoke when it was trained.
_ADAPTERS = ("message_checkpoint", "action_checkpoint")


def chats_in(value: Any) -> list[Mapping[str, Any]]:
    """All settings of chat models and recordings in settings: of planners, judges, players, and teachers."""
    if isinstance(value, Mapping):
        own = value.get("chat")
        found = [own] if isinstance(own, Mapping) else []
        if not found and value.get("name") == "chat":  # a teacher, whose settings stand beside its name
            found = [value]
        elif value.get("name") == "cassette":
            found = [{"cassette": value.get("cassette")}]
        return found + [chat for key, one in value.items() if key != "chat" for chat in chats_in(one)]
    return [chat for one in value for chat in chats_in(one)] if isinstance(value, list | tuple) else []


def chats_of(stage: Stage, stages: Mapping[str, Stage]) -> list[Mapping[str, Any]]:
    """The settings of all chat models and recordings that a stage asks; nobody is asked."""
    config = stage.experiment.config
    given = {key: value for key, value in config.items() if value is not None}
    if stage.experiment.run in ("evaluate", "replay"):  # what they are given stands above what agents were trained with
        played = [chats_in(_heard({**played_with(one, stages), **given})) for one in as_list(config.get("checkpoint"))]
        return [chat for found in played for chat in found]
    named = {key: value for key, value in given.items() if key not in _ADAPTERS}
    texts = [text for text in dict.fromkeys(texts_in(named)) if STAGE_REFERENCE.fullmatch(text) or _is_folder(text)]
    return chats_in(_heard(given)) + [chat for text in texts for chat in chats_in(_heard(played_with(text, stages)))]


def _is_folder(text: str) -> bool:
    with suppress(OSError, ValueError):  # any text, which may be no path
        return Path(text).is_dir()
    return False


def played_with(checkpoint: Any, stages: Mapping[str, Stage]) -> dict[str, Any]:
    """Who plans and who speaks for trained agents, as they were trained; nothing of what are no such.

    `checkpoint` is a stage of the file (`${stage}`), or a path.
    """
    from rllib_llm_comm.policies.policy_folder import find_policy

    named: Mapping[str, Any] = {}
    if (source := source_of(checkpoint, stages)) is not None:
        named = {} if source.experiment.run in STAGE_KINDS else source.experiment.config
    else:
        with suppress(UserError, OSError, ValueError):  # any other text
            manifest = read_manifest(find_policy(str(checkpoint)))
            named = {**manifest.communication, "teacher": manifest.teacher, **(manifest.planning or {})}
    return {key: named[key] for key in ("planner", "messages", _TEACHER) if named.get(key) is not None}


def _heard(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without a teacher that does not speak."""
    messages = settings.get("messages")
    silent = isinstance(messages, str) and messages != _TEACHER
    return {key: value for key, value in settings.items() if not (silent and key == _TEACHER)}
