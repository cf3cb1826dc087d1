"""The errors that a user's input can cause."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

Code = Literal["unknown", "missing", "type", "range", "choice", "invalid"]
"""What is wrong with a setting, for programs.

* unknown: there is no such key, or nothing of such a name
* missing: it has to be given
* type: the value is of another kind, such as a text where a number must be
* range: a number or a length is too small or too large
* choice: the value is none of the few that are allowed
* invalid: anything else
"""
LARGEST = 10**9
"""The largest number that a setting may have where no other is told: whole numbers of 32 bits are larger."""

# A user before a host, which may hold a stray slash behind its colon; not a port, nor a path with an @ in it.
_USER = re.compile(r"(://|\A)(?:[^\s/:@]+:(?!/|\d*/)\S*|(?<=/)[^\s/]*)@")
_SECRET_PARAMETER = re.compile(r"(?i)([?&;]\w*(?:password|passwd|pwd|token|secret|key|signature)=)[^\s&;#'\")]+")


# What a sentence begins with: the place of a setting, and the setting; no command or option with its value.
_NAMED = r"`((?!rllib |--[^`\s]+ )[^`\n]+)`"
_BEGINNING = re.compile(rf"(?:In {_NAMED}: )?(?:{_NAMED})?")
_LONGEST = 1500  # characters of an error, which may quote a value of any length
_MOST_NAMES = 12  # that are listed where one of them may be meant; of more
_NEAREST = 5


class UserError(ValueError):
    """Bad input by a user: one sentence with the setting, its value, what is allowed and the remedy.

    Args:
        sentence: The sentence; the middle of one that is far too long is left out.
        code: What is wrong.

    Attributes:
        setting: Full name of the setting that is wrong, such as `verco.config.lr`; empty if the sentence begins with
            none.
        code: See above.
    """

    # Of the object alone: Ray's errors look up what their class lacks in the error that they carry.
    setting: str
    code: Code

    def __init__(self, sentence: str, code: Code = "invalid") -> None:
        half = _LONGEST // 2
        super().__init__(sentence if len(sentence) <= _LONGEST else f"{sentence[:half]} ... {sentence[-half:]}")
        places = _BEGINNING.match(sentence)
        self.setting = ".".join(filter(None, places.groups())) if places else ""
        self.code = code


def one_line(text: str, most: int = 400) -> str:
    """A text without line breaks, cut to `most` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= most else f"{joined[:most].rstrip()} ..."


@contextmanager
def within(place: str, unless: Collection[str] = ()) -> Iterator[None]:
    """Lets users' errors inside it begin with the setting in which they arise.

    Args:
        place: Full name of the setting.
        unless: Texts, such as paths at which nothing is yet; an error that quotes one is dropped.
    """
    try:
        yield
    except UserError as error:
        if not any(text in str(error) for text in unless):
            raise UserError(placed(place, str(error)), error.code) from None


def placed(place: str, sentence: str) -> str:
    """An error's sentence with the setting in which it arose.

    Args:
        place: Full name of that setting. A sentence about it gets the full name; another one begins with it.
        sentence: The error.
    """
    root = place.partition(".")[0]
    if f"`{place}`" in sentence or sentence.startswith((f"In `{root}.", f"In `{root}`")):
        return sentence
    if sentence.startswith("In `"):
        return f"In `{place}.{sentence.removeprefix('In `')}"
    own = f"`{place.rpartition('.')[2]}"
    named = sentence.startswith((f"{own}` ", f"{own}."))
    return f"`{place}{sentence.removeprefix(own)}" if named else f"In `{place}`: {sentence}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name.

    Returns:
        `" Did you mean 'x'?"` with the closest known name, or the empty string when none is close.
    """
    names = list(known)
    equal = [one for one in names if one.lower() == name.lower()]
    close = equal or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def names_and_hint(name: object, known: Iterable[object], text: Callable[[object], str] = str) -> str:
    """What errors about an unknown name end with: the known ones and a hint; of many the nearest, if one is near.

    Args:
        name: The unknown name.
        known: The known ones.
        text: Writes a known one.
    """
    names = {str(one): text(one) for one in known}
    hint = did_you_mean(str(name), names)
    if hint and len(names) > _MOST_NAMES:
        near = difflib.get_close_matches(str(name), names, n=_NEAREST, cutoff=0)
        return f"{', '.join(names[one] for one in near)} and {len(names) - len(near)} others.{hint}"
    return f"{', '.join(names.values()) or 'none'}.{hint}"


def shown(value: object) -> str:
    """A value as errors quote it: its beginning, if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]} ..."


def as_in_files(value: object) -> str:
    """The value of a setting as errors quote it: null, true and false as YAML and JSON have them, others as Python."""
    return json.dumps(value) if value is None or isinstance(value, bool) else shown(value)


def space_text(space: object) -> str:
    """A space as errors quote it: the names of its parts, or its beginning."""
    parts = getattr(space, "spaces", None)
    return f"a Dict of {', '.join(f'`{name}`' for name in parts)}" if isinstance(parts, Mapping) else shown(space)


def without_passwords(text: str) -> str:
    """A text in which addresses have lost the user and the password before their host, so that it can be shown.

    Args:
        text: An address, or a message that quotes some; parameters in them that are named as secrets are hidden, too.
    """
    return _SECRET_PARAMETER.sub(r"\1[hidden]", _USER.sub(r"\1", text))


def require_choice(setting: str, value: object, allowed: Iterable[object]) -> None:
    """Raises a `UserError` unless `value` is one of `allowed`."""
    options = list(allowed)
    if value not in options:
        raise UserError(
            f"`{setting}` is {as_in_files(value)} but must be one of {names_and_hint(value, options, as_in_files)}",
            "choice",
        )


def require_whole(setting: str, value: object, low: int, high: int = LARGEST) -> None:
    """Raises a `UserError` unless `value` is a whole number in a range; True and False are none."""
    _require(setting, value, int, "a whole number", low, high)


def require_number(setting: str, value: object, low: float, high: float = LARGEST) -> None:
    """Raises a `UserError` unless `value` is a number in a range; True, False and nan are none."""
    _require(setting, value, (int, float), "a number", low, high)


def _require(setting: str, value: Any, kind: Any, words: str, low: float, high: float) -> None:
    number = isinstance(value, kind) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        allowed = f"{words} from {low} to {high}"
        raise UserError(f"`{setting}` is {as_in_files(value)} but must be {allowed}.", "range" if number else "type")
