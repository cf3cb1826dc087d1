"""Sets of prompt templates: shipped by name, in a folder of one's own, or given as texts; checked when they are read.

Templates are data. `{slot}` is replaced by a value; there is no escape, no attribute, no index and no code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rllib_llm_comm.core.errors import UserError, did_you_mean, shown
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.places import local_path

DEFAULT = "default"
SHIPPED = (DEFAULT, "default_options", "twosome", "twosome_options", "verco", "verco_options")
_LISTED = "_options"
_SUFFIX = ".txt"
_MOST_CHARACTERS = 20_000  # of a template (ours); far beyond any prompt, near enough that a wrong file is told
_BRACES = re.compile(r"\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Slots:
    """Slots of a template.

    Attributes:
        needed: Those that it must have.
        possible: Those that it may have beside them.
    """

    needed: tuple[str, ...]
    possible: tuple[str, ...] = ()


SLOTS: Mapping[str, Slots] = {
    "message": Slots(("text", "subgoal")),
    "action": Slots(("text", "subgoal", "heard"), ("options",)),
    "critic": Slots(("text", "subgoal")),
    "heard": Slots(("message",), ("speaker",)),
    "subgoal": Slots(("subgoal",)),
    "teacher": Slots(("observations", "form"), ("count", "brief", "task")),
    "observation": Slots(("agent", "text")),
}
"""Template -> its slots."""
AGENT_TEMPLATES = ("message", "action", "critic", "heard", "subgoal")
TEACHER_TEMPLATES = ("teacher", "observation")
_BEHIND_A_BLANK = ("message", "action", "critic")  # what the model writes or is scored on follows behind a blank

PromptSet = str | Mapping[str, str]
"""Name of a shipped set, a folder with template files, or the texts themselves by template."""


def read_prompts(
    prompts: Any, templates: Collection[str] = AGENT_TEMPLATES, setting: str = "prompts"
) -> dict[str, str]:
    """The texts of a set's templates; those that it lacks are the default's.

    Args:
        prompts: As of `PromptSet`.
        templates: The templates that are wanted, names of `SLOTS`.
        setting: Name of the setting, for messages.

    Raises:
        UserError: If there is no such set, or one of its templates cannot be used.
    """
    if isinstance(prompts, Mapping):
        own, place = {name: _text_of(name, text) for name, text in prompts.items()}, f"`{setting}`"
        _require_templates(own, place)
    elif isinstance(prompts, str) and prompts in SHIPPED:
        return {name: _shipped(prompts, name) for name in templates}
    elif isinstance(prompts, str) and prompts:
        own, place = _read_folder(prompts, setting), f"`{setting}` {prompts!r}"
    else:
        raise UserError(
            f"`{setting}` is {shown(prompts)} but must be one of {', '.join(SHIPPED)}, a folder with template files, "
            "or a mapping of templates."
        )
    for name, text in own.items():
        _check_template(name, text, place)
    return {name: own[name] if name in own else _shipped(DEFAULT, name) for name in templates}


def _shipped(prompts: str, name: str) -> str:
    """A template of a shipped set, of the set that it extends by a list of options, or of the default."""
    folders = dict.fromkeys((prompts, prompts.removesuffix(_LISTED), DEFAULT))
    root = resources.files(__package__).joinpath("prompts")
    found = next(file for folder in folders if (file := root.joinpath(f"{folder}/{name}{_SUFFIX}")).is_file())
    text: str = _text_of(name, found.read_bytes().decode().replace("\r\n", "\n"))
    return text


def _text_of(name: str, content: Any) -> Any:
    # What an agent reads goes on behind its last word; a question to a teacher ends as its file does.
    return content.rstrip("\n") if isinstance(content, str) and name != "teacher" else content


def _read_folder(prompts: str, setting: str) -> dict[str, str]:
    folder = local_path(prompts, setting)
    if not folder.is_dir():
        raise UserError(
            f"`{setting}` is {shown(prompts)} but no folder is there, and no set of this name is shipped; give a "
            f"folder with template files, or one of {', '.join(SHIPPED)}.{did_you_mean(prompts, SHIPPED)}"
        )
    files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    place = f"`{setting}` {prompts!r}"
    _require_templates([file.stem if file.suffix == _SUFFIX else file.name for file in files], place)
    found = {}
    for file in files:
        try:
            content = read_text(file, 4 * _MOST_CHARACTERS + 4)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{place} holds {file.name!r}, which cannot be read ({error}); write it as a text in UTF-8 of at most "
                f"{_MOST_CHARACTERS} characters."
            ) from error
        found[file.stem] = _text_of(file.stem, content)
    return found


def _require_templates(names: Iterable[Any], place: str) -> None:
    names = list(names)
    for name in names:
        if name not in SLOTS:
            raise UserError(
                f"{place} holds {shown(name)}, which is no template; take it out, known are {', '.join(SLOTS)} (files "
                f"end with {_SUFFIX}).{did_you_mean(str(name), SLOTS)}"
            )
    if not names:
        raise UserError(f"{place} holds no template; give at least one of {', '.join(SLOTS)}, or 'default'.")


def _check_template(name: str, text: Any, place: str) -> None:
    slots, what = SLOTS[name], f"{place}: the template `{name}`"
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{what} is {shown(text)} but must be a text; write one, or leave it out for the default's.")
    if len(text) > _MOST_CHARACTERS:
        raise UserError(f"{what} has {len(text)} characters but may have at most {_MOST_CHARACTERS}; shorten it.")
    allowed = (*slots.needed, *slots.possible)
    for found in _BRACES.finditer(text):
        if found.group(1) not in allowed:
            listed = _slots(allowed)
            raise UserError(
                f"{what} has {found.group()!r}, but braces only stand for its slots {listed}; take it out."
                f"{did_you_mean(str(found.group(1)), allowed)}"
            )
    missing = [slot for slot in slots.needed if f"{{{slot}}}" not in text]
    if missing:
        raise UserError(f"{what} has no {_slots(missing[:1])}; put it where its value shall stand.")
    if name in _BEHIND_A_BLANK and text != text.rstrip():
        raise UserError(f"{what} ends with a blank, but one is put behind it anyway; take the blank out.")


def _slots(names: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)
