"""Checks of values by their annotations, and what pydantic found wrong in one sentence."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union

from pydantic import BaseModel, ValidationError

from rllib_llm_comm.cli.console import one_line
from rllib_llm_comm.errors import UserError, did_you_mean


def one_sentence(name: str, error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a validation as one sentence that names the setting.

    Args:
        name: Full name of what was validated, such as `verco` or `verco.config`.
        error: What pydantic raised.
        model: The model that was validated.
    """
    # An unknown key explains a missing one, so it comes first.
    first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    location = [str(part) for part in first["loc"]]
    setting = ".".join([name, *location])
    if first["type"] == "extra_forbidden":
        for part in location[:-1]:
            nested = model.model_fields[part].annotation
            if isinstance(nested, type) and issubclass(nested, BaseModel):
                model = nested
        known = list(model.model_fields)
        return f"`{setting}` is no known key; known are {', '.join(known)}.{did_you_mean(location[-1], known)}"
    if first["type"] == "missing":
        examples = model.model_fields[location[-1]].examples or []
        return f"`{setting}` is missing{f'; write for example `{examples[0]}`' if examples else ''}."
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return f"In `{name}`: {cause}"
    demand = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    return f"`{setting}` is {one_line(repr(first['input']), 80)} but must be {demand}."


def check_type(setting: str, value: Any, annotation: Any) -> None:
    """Raises a `UserError` unless a plain value may be meant by an annotation; see `fits`.

    Args:
        setting: Full name of the setting.
        value: What the user wrote.
        annotation: The annotation of the parameter or field.
    """
    if not fits(value, annotation):
        raise UserError(f"`{setting}` is {one_line(repr(value), 80)} but must be {_describe(annotation)}.")


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value may be meant by an annotation; `True` for those that are not about plain values."""
    if value is None or not isinstance(value, bool | int | float | str | list | dict):
        return True
    origin = typing.get_origin(annotation)
    if origin is Union or origin is types.UnionType:
        return any(fits(value, option) for option in typing.get_args(annotation))
    if origin is Literal:
        return value in typing.get_args(annotation)
    if annotation is type(None):
        return False
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is str:
        return isinstance(value, str)
    if annotation is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return isinstance(value, dict)
    if annotation in (list, tuple) or origin in (list, tuple):
        return isinstance(value, list)
    return True


def _describe(annotation: Any) -> str:
    options = typing.get_args(annotation) if typing.get_origin(annotation) in (Union, types.UnionType) else [annotation]
    words: list[str] = []
    for option in options:
        origin = typing.get_origin(option)
        if option is type(None):
            continue
        if origin is Literal:
            word = f"one of {', '.join(repr(a) for a in typing.get_args(option))}"
        elif option in (int, float, bool, str):
            word = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[option]
        elif option is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
            word = "a mapping"
        else:
            word = "a list"
        if word not in words:
            words.append(word)
    return " or ".join(words)
