"""Prompts: their texts in files, sets of templates, templates that are filled, and limits on messages. No torch."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rllib_llm_comm.core.errors import UserError, did_you_mean, shown
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.places import local_path

# ---- texts in files ---------------------------------------------------------------------------------------------


_SLOT = re.compile(r"\{(\w+)\}")


@functools.cache
def template(package: str, name: str) -> str:
    """The text of a template, without the line end at its end.

    Args:
        package: The package whose folder `prompts` has it.
        name: File name without `.txt`.
    """
    text = resources.files(package).joinpath(f"prompts/{name}.txt").read_text(encoding="utf-8")
    return text.rstrip("\n")


def fill(package: str, name: str, **values: object) -> str:
    """A template with its slots filled, in one pass: braces inside the values are data and stay as they are.

    Args:
        package: See `rllib_llm_comm.language.prompts.template`.
        name: See `rllib_llm_comm.language.prompts.template`.
        **values: A value for each `{slot}`.

    Raises:
        KeyError: If a slot has no value.
    """
    return fill_pieces(_pieces(package, name), **values)


def pieces_of(text: str) -> list[str]:
    """A template's words and, between them, the names of its slots."""
    return _SLOT.split(text)


def fill_pieces(pieces: Sequence[str], **values: object) -> str:
    """As `fill`, of a template that was cut by `pieces_of`."""
    return "".join([str(values[piece]) if place % 2 else piece for place, piece in enumerate(pieces)])


@functools.cache
def _pieces(package: str, name: str) -> list[str]:
    return pieces_of(template(package, name))


# ---- sets -------------------------------------------------------------------------------------------------------


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
_ROLES = ("message", "action", "critic")  # what the model writes or is scored on follows behind a blank

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
        raise UserError(f"{what} is {shown(text)} but must be a text; write one, or omit it for the default's.")
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
    if name in _ROLES and text != text.rstrip():
        raise UserError(f"{what} ends with a blank, but one is put behind it anyway; take the blank out.")


def _slots(names: Sequence[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


# ---- templates --------------------------------------------------------------------------------------------------


class Prompt(str):
    """A prompt that knows its last words, with which the agent's own words begin.

    Attributes:
        body: The text without the cue.
        cue: The last words, such as " i say:". In the form of a chat they begin the model's answer.
    """

    body: str
    cue: str

    def __new__(cls, body: str, cue: str) -> Prompt:
        """Joins both parts."""
        made = super().__new__(cls, body + cue)
        made.body, made.cue = body, cue
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.body, self.cue


class PromptTemplates:
    """The templates of one set, ready to be filled.

    Args:
        texts: Text by template, as of `read_prompts`.

    Attributes:
        lists_options: True if the action prompt shows the allowed candidates.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._pieces = {name: pieces_of(text) for name, text in texts.items()}
        self._cues = {name: _cue(self._pieces[name][-1]) for name in _ROLES}
        self._bodies = {
            name: [*self._pieces[name][:-1], self._pieces[name][-1].removesuffix(cue)]
            for name, cue in self._cues.items()
        }
        self.lists_options = "options" in self._pieces["action"][1::2]

    def message(self, text: str, subgoal: str = "") -> Prompt:
        """The prompt behind which an agent's message is generated (rho_m of Verco Eq. 1).

        Args:
            text: The agent's observation in words.
            subgoal: A subgoal given to this agent, or the empty string.
        """
        return self._prompt("message", text=text, subgoal=self._subgoal(subgoal))

    def action(
        self, text: str, heard: Mapping[str, str] | None = None, subgoal: str = "", options: Sequence[str] = ()
    ) -> Prompt:
        """The prompt behind which candidate actions are scored (rho_u of Verco Eq. 2).

        Args:
            text: The agent's observation in words.
            heard: Speaker to message, in the order in which they shall appear; empty messages are left out.
            subgoal: A subgoal given to this agent, or the empty string.
            options: The allowed candidates, each shown once, for templates that list them.
        """
        sentences = [
            fill_pieces(self._pieces["heard"], speaker=speaker, message=message.rstrip(" ."))
            for speaker, message in (heard or {}).items()
            if message.strip(" .")
        ]
        listed = ", ".join(dict.fromkeys(options)) if self.lists_options else ""
        return self._prompt(
            "action", text=text, subgoal=self._subgoal(subgoal), heard="".join(sentences), options=listed
        )

    def critic(self, text: str, subgoal: str = "") -> Prompt:
        """The prompt whose frozen features the critic reads (Verco Eq. 5: no messages).

        Args:
            text: The agent's observation in words.
            subgoal: A subgoal given to this agent, or the empty string.
        """
        return self._prompt("critic", text=text, subgoal=self._subgoal(subgoal))

    def _subgoal(self, subgoal: str) -> str:
        words = " ".join(subgoal.split())
        return fill_pieces(self._pieces["subgoal"], subgoal=words) if words else ""

    def _prompt(self, name: str, **values: str) -> Prompt:
        return Prompt(fill_pieces(self._bodies[name], **values), self._cues[name])


def _cue(behind: str) -> str:
    """The cue in the words behind a template's last slot: its last line, or all from the first blank on."""
    lines = behind.rpartition("\n")
    if lines[1]:
        return "\n" + lines[2]
    return "".join(behind.partition(" ")[1:])


DEFAULT_TEMPLATES = PromptTemplates(read_prompts(DEFAULT))
message_prompt = DEFAULT_TEMPLATES.message
action_prompt = DEFAULT_TEMPLATES.action
critic_prompt = DEFAULT_TEMPLATES.critic


# ---- messages ---------------------------------------------------------------------------------------------------


_TOKENS_PER_WORD = 4  # on average


def most_tokens(max_words: int) -> int:
    """Tokens that a message of so many words may take (ours); what is longer is not written."""
    return _TOKENS_PER_WORD * max_words


_BROKEN = "\ufffd"  # bytes of a character whose other bytes were not written


def limit_words(text: str, max_words: int) -> str:
    """One line of at most `max_words` words; a message is data, so control characters and broken ones go."""
    line = text.replace("\r", "\n").split("\n", 1)[0].replace(_BROKEN, "")
    words = "".join(c if c.isprintable() else " " for c in line).split()
    return " ".join(words[:max_words]).rstrip(" .,;:")
