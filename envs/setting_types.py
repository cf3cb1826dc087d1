"""Checks that the settings of an environment have the types of its constructor's arguments."""

from __future__ import annotations

import inspect
import numbers
import os
from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rllib_llm_comm.core.errors import UserError

_WORDS: dict[Any, tuple[str, str]] = {
    str: ("text", "texts"),
    bool: ("true or false", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    NoneType: ("null", "nulls"),
    Any: ("any value", "values"),
}
_UNIONS = (Union, UnionType)


def check_types(env_class: type, settings: Mapping[str, Any]) -> None:
    """Refuses settings of a wrong type; ranges and names are the environment's own matter.

    Args:
        env_class: An environment whose constructors have typed arguments. `**settings` are those of the class above.
        settings: Settings that it has.

    Raises:
        UserError: For the first setting of a wrong type.
    """
    known = arguments_of(env_class)
    for name, value in settings.items():
        hint, default = known[name]
        if not _fits(value, hint):
            kind = _word(hint)
            such_as = "" if default is None or isinstance(default, bool) else f", such as {_shown(default)!r}"
            raise UserError(f"`{name}` is {value!r} but must be {kind}{such_as}.")


@cache
def arguments_of(env_class: type) -> dict[str, tuple[Any, Any]]:
    """Type and default of each argument by name.

    Args:
        env_class: As of `check_types`.
    """
    known: dict[str, tuple[Any, Any]] = {}
    for kind in env_class.__mro__:
        if "__init__" not in vars(kind):
            continue
        constructor = vars(kind)["__init__"]
        hints, arguments = get_type_hints(constructor), inspect.signature(constructor).parameters.values()
        for argument in arguments:
            if argument.name in hints:
                known.setdefault(argument.name, (hints[argument.name], argument.default))
        if all(argument.kind is not inspect.Parameter.VAR_KEYWORD for argument in arguments):
            break
    return known


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in _UNIONS:
        return any(_fits(value, part) for part in get_args(hint))
    if origin is os.PathLike:
        return isinstance(value, os.PathLike)
    if origin is Sequence:
        (part,) = get_args(hint)
        return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(_fits(v, part) for v in value)
    if origin is Mapping:
        key, part = get_args(hint)
        return isinstance(value, Mapping) and all(_fits(k, key) and _fits(v, part) for k, v in value.items())
    if hint in (int, float):
        number = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    return hint is Any or isinstance(value, hint)


def _word(hint: Any, plural: bool = False) -> str:
    """A type in words."""
    origin = get_origin(hint)
    if origin in _UNIONS:
        words = [_word(part) for part in get_args(hint)]
        if any(get_origin(part) is os.PathLike for part in get_args(hint)):
            words.remove(_WORDS[str][0])
        return f"{', '.join(words[:-1])} or {words[-1]}"
    if origin is os.PathLike:
        return "a path"
    if origin is Sequence:
        return f"a list of {_word(get_args(hint)[0], plural=True)}"
    if origin is Mapping:
        return f"a dictionary from names to {_word(get_args(hint)[1], plural=True)}"
    return _WORDS[hint][plural]


def _shown(default: Any) -> Any:
    """A default as it is written in a file."""
    return list(default) if isinstance(default, tuple) else default
