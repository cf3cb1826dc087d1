"""The things that stand in for what the papers use: named by a run at its start, in its summary and in its files.

Whatever can stand in says so itself: a base model in `language.base_model.PACKAGED`, a teacher and a planner in their
`stands_in`, a recording in its first line. Here they are found in settings, such as `config:` of a stage or the
manifest of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rllib_llm_comm.chat.cassettes import asks, describe_recording
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.find_checkpoint import is_on_hub
from rllib_llm_comm.policies.partner_settings import PLAYERS
from rllib_llm_comm.policies.policy_manifest import PolicyManifest, read_manifest
from rllib_llm_comm.policies.recorded_settings import withhold
from rllib_llm_comm.sama.planners import TRAINED, planner_stands_in
from rllib_llm_comm.sama.recordings import find_recording
from rllib_llm_comm.verco.teachers.base import TEACHERS


def stand_ins(*settings: Any) -> list[str]:
    """What stands in, each thing once.

    Args:
        *settings: Settings as they stand in YAML files, or manifests of policies. Policies that settings name are read,
            as far as they are on this machine, without what is withheld of them. Policies that a manifest names are
            not read, since anybody may have written it.

    Returns:
        A phrase for each, such as "teacher scripted: rules that see the whole game".
    """
    return list(dict.fromkeys(phrase for one in settings for phrase in _found(one) if phrase))


def _found(value: Any) -> Iterator[str]:
    if isinstance(value, PolicyManifest):
        value = {
            "base_model": value.model_config.get("base_model"),
            "teacher": value.teacher,
            "taught_by": value.provenance.get("taught_by"),
            "cloned_from": value.provenance.get("cloned_from"),
            "planner": (value.planning or {}).get("planner"),
        }
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if reader := _READERS.get(key):
                for one in _alternatives(inner):
                    yield from _read(reader, one)
            else:
                yield from _found(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _found(inner)


def _alternatives(value: Any) -> list[Any]:
    """The values of a setting: of a list each, also if it is searched through (`{grid_search: [...]}`)."""
    if isinstance(value, Mapping) and len(value) == 1:
        (inner,) = value.values()
        value = inner if isinstance(inner, list | tuple) else value
    return list(value) if isinstance(value, list | tuple) else [value]


def _read(reader: Callable[[Any], Any], value: Any) -> Iterator[str]:
    try:
        found = reader(value)
    except UserError:  # told where it is used, with the name of the setting
        return
    yield from [found] if isinstance(found, str) else found


def _base_model(name: Any) -> str:
    if not isinstance(name, str):
        return ""
    from rllib_llm_comm.language.base_model import PACKAGED  # with torch, of which agents of numbers have no need

    return f"base model {name}: {PACKAGED[name]}" if name in PACKAGED else ""


def _teacher(teacher: Any) -> str:
    name = teacher.get("name") if isinstance(teacher, Mapping) else getattr(teacher, "name", teacher)
    kind = TEACHERS.get(name)
    return f"teacher {name}: {kind.stands_in}" if kind is not None and kind.stands_in else ""


def _cloned(player: Any) -> str:
    return f"actions cloned from {PLAYERS[player]}" if isinstance(player, str) and player in PLAYERS else ""


def _planner(planner: Any) -> list[str]:
    if isinstance(planner, str) and planner.startswith(TRAINED):
        return [f"planner's {phrase}" for phrase in _policy(planner.removeprefix(TRAINED))]
    inside = _found({k: v for k, v in planner.items() if k != "chat"}) if isinstance(planner, Mapping) else ()
    whose = "planner's " if isinstance(planner, Mapping) and planner.get("name") == "trained" else ""
    return [planner_stands_in(planner), *(f"{whose}{phrase}" for phrase in inside if phrase)]


def _chat(chat: Any) -> str:
    if not isinstance(chat, Mapping) or not chat.get("cassette") or asks(chat):
        return ""
    return f"chat model: {describe_recording(find_recording(chat['cassette']))}"


def _policy(path: Any) -> list[str]:
    if isinstance(path, Mapping):
        return list(_found(path))
    there = isinstance(path, str) and not is_on_hub(path)
    from rllib_llm_comm.policies.policy_folder import find_policy

    return stand_ins(withhold(read_manifest(find_policy(path)))) if there else []


def _executor(executor: Any) -> list[str]:
    trained = isinstance(executor, str) and executor.startswith(TRAINED)
    return [f"executor's {phrase}" for phrase in _policy(executor.removeprefix(TRAINED))] if trained else []


_POLICIES = (
    "action_checkpoint", "checkpoint", "message_checkpoint", "officer", "partners", "policy", "pool", "restore",
)  # fmt: skip
_READERS: Mapping[Any, Callable[[Any], Any]] = {
    "base_model": _base_model,
    "teacher": _teacher,
    "taught_by": _teacher,
    "cloned_from": _cloned,
    "planner": _planner,
    "executor": _executor,
    "chat": _chat,
    **dict.fromkeys(_POLICIES, _policy),
}
"""Setting -> the reader of its value."""
