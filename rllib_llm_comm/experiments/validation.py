"""Checks of values by their annotations, and what pydantic found wrong in one sentence."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.experiments.console import one_line

_PLURALS = {int: "whole numbers", float: "numbers", bool: "truth values", str: "texts"}


class StrictSettings(BaseModel):
    """Settings as they stand in a file: unknown keys, other types (true for 1) and nan are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def checked(cls, name: str, values: Any) -> Self:
        """The settings that a mapping holds.

        Args:
            name: Full name of the mapping, such as `verco.config`.
            values: The mapping.

        Raises:
            UserError: In one sentence that names the setting.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise UserError(one_sentence(name, error, cls)) from None


def one_sentence(name: str, error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a validation as one sentence that names the setting.

    Args:
        name: Full name of what was validated, such as `verco` or `verco.config`.
        error: Pydantic's error.
        model: The model that was validated.
    """
    # An unknown key explains a missing one, so it comes first; of a union the option that fits best goes deepest.
    first = min(error.errors(), key=lambda problem: (problem["type"] != "extra_forbidden", -len(problem["loc"])))
    path, holder, annotation = _follow(model, first["loc"])
    setting = ".".join([name, *path])
    if path[-1:] == ["[key]"]:
        where = ".".join([name, *path[:-2]])
        return f"`{where}` has the key {first['input']!r}, which must be a text; write it in quotes."
    if first["type"] == "extra_forbidden":
        known = list(holder.model_fields)
        return f"`{setting}` is no known key; known are {', '.join(known)}.{did_you_mean(path[-1], known)}"
    if first["type"] == "missing":
        examples = holder.model_fields[path[-1]].examples or []
        return f"`{setting}` is missing{f'; write for example `{examples[0]}`' if examples else ''}."
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return f"In `{setting}`: {cause}"
    return f"`{setting}` is {one_line(repr(first['input']), 80)} but must be {_demand(first, annotation)}."


def _follow(model: type[BaseModel], location: Sequence[str | int]) -> tuple[list[str], type[BaseModel], Any]:
    """The place of a problem: its keys, the innermost model around it and the annotation of the value.

    Among the keys pydantic names which option of a union it tried; that is left out.
    """
    path: list[str] = []
    holder: type[BaseModel] = model
    annotation: Any = model
    tried = False
    for part in location:
        options = _options(annotation)
        if len(options) > 1 and not tried:
            tried = True
            continue
        tried = False
        path.append(str(part))
        annotation = Any
        for option in options:
            if isinstance(option, type) and issubclass(option, BaseModel):
                holder = option
                field = option.model_fields.get(str(part))
                annotation = field.annotation if field else Any
            elif arguments := typing.get_args(option):
                annotation = arguments[-1]  # of a mapping its values, of a list its elements
    return path, holder, annotation


def _demand(problem: ErrorDetails, annotation: Any) -> str:
    """The allowed values of an annotation, in words."""
    if problem.get("ctx", {}).get("min_length") == 1:
        return f"{_describe(annotation)} that is not empty"
    if problem["type"] == "model_type":
        return f"a mapping with keys such as {', '.join(f'`{key}`' for key in list(annotation.model_fields)[:3])}"
    if problem["type"].endswith("_type"):
        return _describe(annotation)
    return problem["msg"].removeprefix("Input should be ")


def _options(annotation: Any) -> list[Any]:
    """The types that an annotation allows beside `None`."""
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [option for option in typing.get_args(annotation) if option is not type(None)]
    return [annotation]


def check_type(setting: str, value: Any, annotation: Any) -> None:
    """Raises a `UserError` unless a plain value may be meant by an annotation (`fits`).

    Args:
        setting: Full name of the setting.
        value: The user's value.
        annotation: The annotation of the parameter or field.
    """
    if not fits(value, annotation):
        raise UserError(f"`{setting}` is {one_line(repr(value), 80)} but must be {_describe(annotation)}.")


def fits(value: Any, annotation: Any) -> bool:
    """True if a plain value may be meant by an annotation; `None`, for a setting that is not given, always may.

    It is `True`, too, for annotations that are not about plain values.
    """
    return value is None or _is_a(value, annotation)


def _is_a(value: Any, annotation: Any) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Union or origin is types.UnionType:
        return any(_is_a(value, option) for option in arguments)
    if annotation is type(None):
        return value is None
    if value is None:
        return annotation not in (bool, int, float, str) and origin is not Literal
    if not isinstance(value, bool | int | float | str | list | dict):
        return True
    if origin is Literal:
        return value in arguments
    if Callable in (origin, annotation):
        return not isinstance(value, str)
    if annotation is bool:
        return isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is str:
        return isinstance(value, str)
    kind = origin or annotation
    if not isinstance(kind, type) or not issubclass(kind, Collection):
        return True
    if issubclass(kind, Mapping):
        return isinstance(value, dict) and all(_is_a(item, arguments[-1]) for item in value.values() if arguments)
    if not isinstance(value, list):
        return False
    if kind is tuple and arguments and Ellipsis not in arguments:
        return len(value) == len(arguments) and all(map(_is_a, value, arguments))
    return all(_is_a(item, arguments[0]) for item in value if arguments)


def holds_plain_values(annotation: Any) -> bool:
    """True for annotations of numbers, texts, and lists and mappings of such: nothing is looked up by their texts.

    Args:
        annotation: The annotation of a parameter.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return True
    if origin in (Union, types.UnionType) or (isinstance(origin, type) and issubclass(origin, Collection)):
        return bool(arguments) and all(one is Ellipsis or holds_plain_values(one) for one in arguments)
    return annotation in (bool, int, float, str, type(None))


def _describe(annotation: Any) -> str:
    words: list[str] = []
    for option in _options(annotation):
        origin = typing.get_origin(option)
        if origin is Literal:
            word = f"one of {', '.join(repr(a) for a in typing.get_args(option))}"
        elif option in (int, float, bool, str):
            word = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[option]
        elif option is dict or (isinstance(origin, type) and issubclass(origin, Mapping)):
            word = "a mapping"
        elif option is type:
            word = "a class"
        elif Callable in (origin, option):
            word = "a function (in a Python file)"
        else:
            of = [_PLURALS[part] for part in typing.get_args(option)[:1] if part in tuple(_PLURALS)]
            word = " of ".join(["a list", *of])
        if word not in words:
            words.append(word)
    return " or ".join(words)
