"""Settings: each is declared once, as a field of a strict model, and what is wrong with one is told in one sentence.

The field is the declaration: its type, its range (`Field(ge=1)`), its default, and below it a docstring with the
meaning, the unit, and the paper's value or `(ours)`. Constructors, files, RLlib configs, tables of the docs and JSON
schemas are made of it.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, cast

import annotated_types
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import Self

from rllib_llm_comm.core.errors import Code, UserError, as_in_files, did_you_mean, names_and_hint, placed

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _ModelMetaclass
else:
    _ModelMetaclass = type(BaseModel)

_T = TypeVar("_T")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", bytes: "bytes"}
_CODES: dict[str, Code] = {
    **dict.fromkeys(("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of"), "range"),
    **dict.fromkeys(("too_short", "too_long", "string_too_short", "string_too_long", "finite_number"), "range"),
    **dict.fromkeys(("value_error", "assertion_error", "string_pattern_mismatch"), "invalid"),
    **dict.fromkeys(("literal_error", "enum"), "choice"),
}
_BY_FIT: tuple[Code, ...] = ("range", "invalid", "type", "choice")
_PLURALS = {int: "whole numbers", float: "numbers", bool: "truth values", str: "texts"}

Several = Annotated[tuple[_T, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
"""A setting with several values: a list in files, a tuple in Python."""


class _ToldInOneSentence(_ModelMetaclass):
    """Constructors raise a `UserError`; of settings within settings pydantic keeps the whole path."""

    def __call__(self, *args: Any, **values: Any) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise in_one_sentence("", error, cast("type[BaseModel]", self)) from None


class Settings(BaseModel, metaclass=_ToldInOneSentence):
    """Base of all settings. Unknown names, other types (true for 1, "1" for 1), infinity and nan are refused.

    Raises:
        UserError: From the constructor, in one sentence that names the setting, its value, and what is allowed.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_true_for_one(cls, value: Any, info: ValidationInfo) -> Any:
        """Python holds that `True == 1 == 1.0`, so that a listed value would let the others pass."""
        listed, types_allowed = _listed(cls).get(str(info.field_name), ((), ()))
        if value in listed and type(value) not in types_allowed:
            raise PydanticCustomError("literal_type", "another type than that of the listed value")
        return value

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The values of all settings that have one."""
        fields = cls.model_fields.items()
        return {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}

    @classmethod
    def checked(cls, name: str, values: Any) -> Self:
        """The settings that a mapping of a file holds.

        Args:
            name: Full name of the mapping, such as `verco.config`; errors begin with it.

        Raises:
            UserError: In one sentence that names the setting. Fields with `exclude` are for Python and options alone.
        """
        known = [field for field, about in cls.model_fields.items() if not about.exclude]
        for key in set(cls.model_fields).difference(known).intersection(values if isinstance(values, Mapping) else ()):
            raise UserError(f"`{name}.{key}` is no known key; known are {', '.join(known)}.", "unknown")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise in_one_sentence(name, error, cls) from None

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """The settings that a mapping such as a `model_config` holds.

        Raises:
            UserError: As of the constructor.
        """
        return cls.checked("", values)

    @classmethod
    def from_attributes(cls, holder: object, **others: Any) -> Self:
        """The settings that an object such as wider settings or an algorithm's config holds as attributes.

        Args:
            holder: What it lacks has its default.
            others: Values by name that count in place of the holder's.

        Raises:
            UserError: As of the constructor.
        """
        held = {name: getattr(holder, name) for name in cls.model_fields if hasattr(holder, name)}
        return cls(**{**held, **others})

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values, as JSON and YAML hold them."""
        plain: dict[str, Any] = _plain(self.model_dump())
        return plain

    def as_given(self) -> dict[str, Any]:
        """The settings that were given, as they stand in a file; of a field whose value stays such a mapping."""
        return self.model_dump(exclude_unset=True)

    def replace(self, **changes: Any) -> Self:
        """These settings with others in place of some; all are checked."""
        return type(self)(**{**{name: getattr(self, name) for name in self.model_fields_set}, **changes})


class FreshWeights(Settings):
    """Settings of a network, whose weights are drawn when it is made."""

    init_seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    """Seed of the fresh weights; `None` takes torch's global generator."""


class Seeded(Settings):
    """Settings of something that draws."""

    seed: int = Field(0, ge=0, le=2**31 - 1)
    """Seed of all that is drawn. Of several episodes it is the first one's; the others count up."""


class InGames(Seeded):
    """Settings of something that plays games."""

    env_config: dict[str, Any] = Field(default_factory=dict)
    """Settings of the game; of a policy those that differ from its training."""


class SideBySide(InGames):
    """Settings of something that plays games at once."""

    num_envs: int = Field(16, ge=1)
    """Games played at once (ours); with reflection one after the other."""


class AnySettings(Settings):
    """Settings of something that takes any."""

    model_config = ConfigDict(extra="allow")


def left_out(fields: Mapping[str, FieldInfo]) -> type[Any]:
    """A model of fields of others that may all be left out: `None` stands for what holds then."""
    optional: dict[str, Any] = {}
    for name, one in fields.items():
        parts = (one.annotation | None, *one.metadata, Field(description=one.description))  # type: ignore[operator]
        optional[name] = (Annotated[parts], None)
    return create_model("LeftOut", __base__=Settings, __cls_kwargs__={"use_attribute_docstrings": False}, **optional)


def settings_of(maker: Callable[..., Any], apart: Collection[str] = ()) -> type[Settings]:
    """The model of what a class or function takes as settings: of its arguments, with their annotations as the types.

    Args:
        maker: Its `**settings` are those of the model that it declares as its `settings_model`; without one any. A
            model is its own.
        apart: Arguments that are no settings.
    """
    if isinstance(maker, type) and issubclass(maker, Settings):
        return maker
    try:
        arguments = list(inspect.signature(maker, eval_str=True).parameters.values())
    except Exception:  # an annotation that only type checkers can read
        arguments = [one.replace(annotation=Any) for one in inspect.signature(maker).parameters.values()]
    free = any(one.kind is one.VAR_KEYWORD for one in arguments)
    base: type[Settings] = getattr(maker, "settings_model", AnySettings) if free else Settings
    fields: dict[str, Any] = {}
    for one in arguments:
        if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) or one.name in apart or one.name.startswith("_"):
            continue
        kind: Any = Any if one.annotation is one.empty else _as_in_files(one.annotation)
        # Only what is given is checked: a default of None is often annotated without it.
        fields[one.name] = (kind, ... if one.default is one.empty else Field(one.default, validate_default=False))
    name = f"{getattr(maker, '__name__', type(maker).__name__)}Settings"
    return create_model(name, __base__=base, __module__=maker.__module__, **fields) if fields else base


def _as_in_files(annotation: Any) -> Any:
    """An annotation that takes lists for tuples and sets, and texts for paths, as files have them."""
    kind = typing.get_origin(annotation) or annotation
    if kind in (Union, types.UnionType):
        return Union[tuple(_as_in_files(one) for one in typing.get_args(annotation))]  # noqa: UP007
    if kind is list and typing.get_args(annotation):
        return list[_as_in_files(typing.get_args(annotation)[0])]  # type: ignore[misc]
    return Annotated[annotation, Strict(False)] if kind in (tuple, set, frozenset, Path) else annotation


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def in_one_sentence(name: str, error: ValidationError, model: type[BaseModel]) -> UserError:
    """The first problem of a validation as an error of one sentence that names the setting.

    Args:
        name: Full name of what was validated, such as `verco.config`; empty for settings without one.
    """
    # An unknown key explains a missing one, so it comes first; of a union the option that fits best goes deepest.
    problems = error.errors()
    first = min(problems, key=lambda problem: (problem["type"] != "extra_forbidden", -len(problem["loc"])))
    path, holder, annotation, metadata = _follow(model, first["loc"])
    names = [*([name] if name else []), *path]
    setting = ".".join(names)
    if first["type"] == "invalid_key" or path[-1:] == ["[key]"]:
        where = ".".join(names[: -2 if path[-1] == "[key]" else -1])
        told = f"`{where or 'value'}` has the key {first['input']!r}, which must be a text; write it in quotes."
        return UserError(told, "type")
    if first["type"] == "extra_forbidden":
        known = [field for field, about in holder.model_fields.items() if not about.exclude]
        return UserError(f"`{setting}` is no known key; known are {names_and_hint(path[-1], known)}", "unknown")
    if first["type"] == "missing":
        examples = holder.model_fields[path[-1]].examples or []
        told = f"`{setting}` is missing{f'; write for example `{examples[0]}`' if examples else ''}."
        return UserError(told, "missing")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return UserError(placed(setting, str(cause)) if setting else str(cause), cause.code)
    value = first["input"]
    hint = did_you_mean(value, _choices(annotation)) if isinstance(value, str) else ""
    if isinstance(value, str) and _is_number(value) and not takes(annotation, str):
        hint = " (in YAML write 2.0e-3 or 0.002, not 2e-3)" if "e" in value.lower() else " (write it without quotes)"
    if isinstance(value, bool) and takes(annotation, str) and not takes(annotation, bool):
        hint = " (put it in quotes: YAML reads yes and no as true and false)"
    given = " ".join(as_in_files(value).split())
    told = f"`{setting or 'value'}` is {given} but must be {_demand(first, annotation, metadata)}"
    # Each option of a union has a problem; that of the option which fits best counts.
    beside = [one for one in problems if one["loc"][:-1] == first["loc"][:-1]] if _is_union(annotation) else [first]
    code = min((_CODES.get(one["type"], "type") for one in beside), key=_BY_FIT.index)
    return UserError(f"{told}{hint}." if hint.startswith(" (") else f"{told}.{hint}", code)


def _follow(model: type[BaseModel], location: Sequence[str | int]) -> tuple[list[str], type[BaseModel], Any, list[Any]]:
    """The place of a problem: its keys, the innermost model around it, the value's annotation and its constraints.

    Among the keys pydantic names which option of a union it tried; that is left out.
    """
    path: list[str] = []
    holder: type[BaseModel] = model
    annotation: Any = model
    metadata: list[Any] = []
    tried = ""
    for part in location:
        options = options_of(annotation)
        if _is_union(annotation) and not tried:
            tried = str(part)
            continue
        options = [one for one in options if getattr(one, "__name__", None) == tried] or options
        tried = ""
        path.append(str(part))
        annotation, metadata = Any, []
        for option in options:
            if isinstance(option, type) and issubclass(option, BaseModel):
                holder = option
                if field := option.model_fields.get(str(part)):
                    annotation, metadata = field.annotation, _parts(field.metadata)
            elif arguments := [one for one in typing.get_args(option) if one is not Ellipsis]:
                annotation = arguments[-1]  # of a mapping its values, of a list its elements
                metadata = _parts(getattr(annotation, "__metadata__", ()))
    return path, holder, annotation, metadata


def _is_union(annotation: Any) -> bool:
    """True if an annotation has several types beside `None`, those that no file can hold among them."""
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    several = [one for one in typing.get_args(annotation) if one is not type(None)]
    return typing.get_origin(annotation) in (Union, types.UnionType) and (len(several) > 1 or _is_union(several[0]))


def _parts(metadata: Iterable[Any]) -> list[Any]:
    """Constraints, those that stand in a `Field` of an annotation one by one."""
    return [part for one in metadata for part in (one.metadata if isinstance(one, FieldInfo) else [one])]


def _alternatives(annotation: Any, metadata: Sequence[Any] = ()) -> list[tuple[Any, list[Any]]]:
    """The types that an annotation allows beside `None`, each with its own constraints; none that no file can hold."""
    if typing.get_origin(annotation) is Annotated:
        bare, *own = typing.get_args(annotation)
        return [] if SkipJsonSchema() in own else _alternatives(bare, [*metadata, *_parts(own)])
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [one for part in typing.get_args(annotation) for one in _alternatives(part, metadata)]
    return [] if annotation is type(None) else [(annotation, list(metadata))]


def options_of(annotation: Any) -> list[Any]:
    """The types that an annotation allows beside `None`; none that no file can hold."""
    return [option for option, _ in _alternatives(annotation)]


@functools.cache
def _listed(model: type[BaseModel]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Of each field that lists values these and the types allowed; kept, as every value of every setting asks."""
    found = {}
    for name, field in model.model_fields.items():
        options = options_of(field.annotation)
        listed = [one for option in options if typing.get_origin(option) is Literal for one in typing.get_args(option)]
        if listed:
            found[name] = (listed, [*map(type, listed), *options])
    return found


def takes(annotation: Any, kind: type) -> bool:
    """True if an annotation allows values of a kind, such as any text; listed ones are not any."""
    return any(option in (kind, Any, object) for option in options_of(annotation))


def _choices(annotation: Any) -> list[str]:
    """The texts among the values that an annotation lists."""
    listed = (typing.get_args(one) for one in options_of(annotation) if typing.get_origin(one) is Literal)
    return [value for values in listed for value in values if isinstance(value, str)]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _demand(problem: ErrorDetails, annotation: Any, metadata: Sequence[Any]) -> str:
    """What an annotation and its constraints allow, in words."""
    if problem["type"] == "model_type":
        model = next(one for one in options_of(annotation) if isinstance(one, type) and issubclass(one, BaseModel))
        return f"a mapping with keys such as {', '.join(f'`{key}`' for key in list(model.model_fields)[:3])}"
    if problem["type"] == "finite_number":
        return f"a finite number{''.join(_ranges(metadata))}"
    return problem["msg"] if problem["type"] == "value_error" else describe(annotation, metadata)


def _ranges(metadata: Sequence[Any]) -> Iterator[str]:
    """Bounds of numbers and lengths, in words."""
    low = next((one for one in metadata if isinstance(one, annotated_types.Ge | annotated_types.Gt)), None)
    high = next((one for one in metadata if isinstance(one, annotated_types.Le | annotated_types.Lt)), None)
    if isinstance(low, annotated_types.Ge) and isinstance(high, annotated_types.Le):
        yield f" from {low.ge} to {high.le}"
        low = high = None
    if low is not None:
        yield f" of at least {low.ge}" if isinstance(low, annotated_types.Ge) else f" larger than {low.gt}"
    if high is not None:
        bound = f"at most {high.le}" if isinstance(high, annotated_types.Le) else f"less than {high.lt}"
        yield (
            f" and {bound}"
            if low is not None
            else f" of {bound}"
            if isinstance(high, annotated_types.Le)
            else f" {bound}"
        )
    for one in metadata:
        if isinstance(one, annotated_types.MultipleOf):
            yield f", a multiple of {one.multiple_of}"
        if isinstance(one, annotated_types.MinLen | annotated_types.Len) and one.min_length:
            yield " that is not empty" if one.min_length == 1 else f" with at least {one.min_length} entries"
        if isinstance(one, annotated_types.MaxLen | annotated_types.Len) and one.max_length is not None:
            yield f" with at most {one.max_length} entries"


def describe(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """What an annotation allows, in words."""
    words: dict[str, None] = {}
    parts = _alternatives(annotation)
    for option, own in parts:
        bounds = "".join(_ranges(own or (metadata if len(parts) == 1 else ())))
        words[_word(option) + bounds] = None
    return " or ".join(words)


def _word(option: Any) -> str:
    origin = typing.get_origin(option)
    kind = origin or option
    if origin is Literal:
        values = [as_in_files(value) for value in typing.get_args(option)]
        return values[0] if len(values) == 1 else f"one of {', '.join(values)}"
    if option in _WORDS:
        return _WORDS[option]
    if option is type:
        return "a class"
    if Callable in (origin, option):
        return "a function (in a Python file)"
    if isinstance(kind, type) and issubclass(kind, dict | Mapping | BaseModel):
        return "a mapping"
    if isinstance(kind, type) and issubclass(kind, Sequence):
        of = [_PLURALS[part] for part in map(_bare, typing.get_args(option)[:1]) if part in _PLURALS]
        return " of ".join(["a list", *of])
    return getattr(option, "__name__", str(option))


def _bare(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
