"""Options that several commands share, and settings as options of a command."""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo
from typer import Option, Typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings, options_of
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.policies.load_policy import Loading

IMPORT = Option(
    "--import", metavar="MODULE", help="Import this module first (it registers your own things); repeatable."
)
Imports = Annotated[list[str] | None, IMPORT]
TrustRecorded = Annotated[
    bool,
    Option("--trust", help=str(Loading.model_fields["trust"].description)),
]


def of_text(option: str, text: str) -> Any:
    """The value of an option that takes a name, or a mapping as JSON.

    Args:
        option: The option as users type it, for messages.
        text: What they typed.

    Raises:
        UserError: If it begins as JSON and is none.
    """
    return load_json_option(option, text) if text.lstrip().startswith("{") else text


def takes_settings(
    kind: type[Settings],
    without: Collection[str] = (),
    joined: Collection[str] = (),
    into: str = "settings",
    **options: Any,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one option per field of settings: with its type, default, bounds, and docstring as help.

    Mappings are typed as JSON, lists by repeating the option; what is not typed is not given. A model's own fields come
    before those that it shares with others.

    Args:
        kind: The settings.
        without: Fields that are no options.
        joined: Lists of texts without commas, which may also be typed as one text with commas.
        into: The command's parameter that gets the settings; a command may take several.
        **options: Field -> Typer's `Option` for it, which stands above what the field says.

    Returns:
        A decorator of a Typer command, which gets the options as one object.
    """
    declared = {name: place for place, one in enumerate(kind.__mro__) for name in vars(one).get("__annotations__", ())}
    names = [name for name in sorted(kind.model_fields, key=declared.__getitem__) if name not in without]
    fields = {name: kind.model_fields[name] for name in names}
    shared = [_parameter(name, field, options.get(name) or Option()) for name, field in fields.items()]

    def value(name: str, given: Any) -> Any:
        """The value of a field that an option was given: lists by element, mappings from JSON."""
        if isinstance(given, list):
            parts = [part.strip() for text in given for part in text.split(",")] if name in joined else given
            return [value(name, one) for one in parts]
        kinds = _parts(fields[name].annotation)
        if not isinstance(given, str) or not any(map(_is_mapping, kinds)):
            return given
        typed = f"--{name.replace('_', '-')}"
        return of_text(typed, given) if str in kinds or _listed(kinds) else load_json_option(typed, given)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        """The command with one option per field, in whose place it gets the settings."""
        hints = typing.get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            if name != into
        ]

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            given = {name: value(name, values.pop(name)) for name in fields}
            made = kind(**{name: one for name, one in given.items() if one is not None and one != []})
            command(**values, **{into: made})

        with_options.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *shared]}
        return with_options

    return decorate


def _parts(annotation: Any) -> list[Any]:
    """The types that an annotation allows, of lists those of their elements, beside `None`."""
    return [
        part
        for one in options_of(annotation)
        for part in (_parts(typing.get_args(one)[0]) if typing.get_origin(one) in (list, tuple) else [one])
    ]


def _is_mapping(kind: Any) -> bool:
    return typing.get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Settings))


def _listed(kinds: Collection[Any]) -> list[str]:
    """The values that types list."""
    return [str(value) for one in kinds if typing.get_origin(one) is Literal for value in typing.get_args(one)]


def _parameter(name: str, field: FieldInfo, option: OptionInfo) -> inspect.Parameter:
    kinds = _parts(field.annotation)
    default = None if field.default_factory or isinstance(field.default, tuple) else field.default
    flag = f"--{name.replace('_', '-')}"
    if option.default is ...:  # in `Annotated` the first name stands where a default would stand
        names = flag if bool not in kinds or default is False else f"{flag}/--no{flag[1:]}"
        option = Option(names, metavar=option.metavar, help=option.help)
    else:
        option = copy.copy(option)
    option.help = option.help or " ".join((field.description or "").replace("`", "").split())
    bounds: dict[type, Any] = {type(one): one for one in field.metadata}
    if Ge in bounds:  # the model itself checks them
        most = bounds[Le].le if Le in bounds else LARGEST
        option.help += f" ({bounds[Ge].ge} to {most})" if most < LARGEST else f" (at least {bounds[Ge].ge})"
    words = ["NAME"] if str in kinds else _listed(kinds)
    if any(map(_is_mapping, kinds)):
        option.metavar = option.metavar or "|".join([*words, "JSON"])
    elif listed := _listed(kinds):
        option.metavar = option.metavar or "|".join(listed)
    plain = [type(typing.get_args(one)[0]) if typing.get_origin(one) is Literal else one for one in kinds]
    kind: Any = next((one for one in (bool, int, float, Path) if one in plain), str)
    several = any(typing.get_origin(one) in (list, tuple) for one in options_of(field.annotation))
    kind = list[kind] if several else kind
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind | None, option]
    )


class _OnceCommand(TyperCommand):
    """A command that refuses an option of one value that is given again, of which the last alone would count."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the options."""
        *_, order = self.make_parser(ctx).parse_args(list(args))
        options: list[Any] = [one for one in order if one.param_type_name == "option"]
        valued = [one for one in options if not (one.multiple or one.is_flag or one.count)]
        for option in valued:
            if (times := valued.count(option)) > 1:
                raise UserError(f"`{max(option.opts, key=len)}` is given {times} times but takes one value; give one.")
        return super().parse_args(ctx, args)


def check_options(app: Typer) -> None:
    """Makes all commands of an application take paths of this machine and `file:///...` in their options of type
    `Path`, refuse other URIs, and refuse an option that is given again but takes one value.

    Args:
        app: The application, with all its commands.
    """
    for info in app.registered_commands:
        info.cls = _OnceCommand
        info.callback = _with_local_paths(info.callback) if info.callback else None
    for group in app.registered_groups:
        if group.typer_instance is not None:
            check_options(group.typer_instance)


def _with_local_paths(command: Callable[..., Any]) -> Callable[..., Any]:
    hints = typing.get_type_hints(command, include_extras=True)

    def local(name: str, value: Any) -> Any:
        """A value with the paths in it on this machine."""
        if isinstance(value, list):
            return [local(name, item) for item in value]
        return local_path(value, _typed_name(name, hints.get(name))) if isinstance(value, Path) else value

    @functools.wraps(command)
    def checked(**values: Any) -> Any:
        return command(**{name: local(name, value) for name, value in values.items()})

    return checked


def _typed_name(name: str, hint: Any) -> str:
    """The name of a parameter as users type it: `--json`, or `FOLDER` of an argument."""
    told = next((part for part in getattr(hint, "__metadata__", ()) if isinstance(part, OptionInfo)), None)
    if told is None:
        return name.upper()
    written = (told.default, *(told.param_decls or ()))
    return next((str(one) for one in written if str(one).startswith("--")), "--" + name.replace("_", "-"))
