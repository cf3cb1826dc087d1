"""Options that several commands share, and the settings dataclasses of `experiments` as options of a command."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option, Typer
from typer.models import OptionInfo

from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.experiments.experiment_file import load_json_option

Imports = Annotated[
    list[str] | None,
    Option("--import", metavar="MODULE", help="Import this module first (it registers your own things)."),
]
Trust = Annotated[
    bool,
    Option(
        "--trust",
        help="Go on from checkpoints and unfinished runs that were not written here, which runs what is pickled in "
        "them, take the addresses, names of keys and paths that played checkpoints recorded, and let the file name "
        "code, readers that unpickle, and keys of any server.",
    ),
]
TrustRecorded = Annotated[
    bool,
    Option(
        "--trust", help="Take the addresses, names of keys, paths and hub ids that the checkpoint recorded as they are."
    ),
]


Read = Callable[[str], Any]
"""The value of an option's text; raises a `UserError` if it has none."""


def json_of(option: str) -> Read:
    """A reader of JSON objects.

    Args:
        option: The option as users type it, for messages.
    """
    return functools.partial(load_json_option, option)


def name_or_json(option: str) -> Read:
    """A reader of names, and of JSON objects as mappings.

    Args:
        option: The option as users type it, for messages.
    """
    return lambda text: load_json_option(option, text) if text.lstrip().startswith("{") else text


def takes_settings(
    kind: type[Any], options: Mapping[str, Any], read: Mapping[str, Read]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one option per field of a settings dataclass.

    Args:
        kind: The dataclass, whose defaults are those of the options.
        options: Field -> the option's annotation for Typer, of every field.
        read: Field -> reader of the option's text; other options are taken as Typer gives them.

    Returns:
        A decorator of a Typer command, which gets the options as one object, `settings`.

    Raises:
        TypeError: If a field has no option, or an option no field.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if set(fields) != set(options):
        raise TypeError(f"{kind.__name__} and its options differ in {sorted(set(fields) ^ set(options))}.")
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=options[name])
        for name, field in fields.items()
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "settings"
        ]

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            given = {name: _value(values.pop(name), read.get(name)) for name in fields}
            command(**values, settings=kind(**given))

        with_options.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *shared]}
        return with_options

    return decorate


def _value(given: Any, read: Read | None) -> Any:
    """The value of an option that may be missing or given several times."""
    if given is None or read is None:
        return given
    return [read(text) for text in given] if isinstance(given, list) else read(given)


def take_paths(app: Typer) -> None:
    """Makes all commands of an application take paths of this machine and `file:///...` in their options of type
    `Path`, and refuse other URIs.

    Args:
        app: The application, with all its commands.
    """
    for info in app.registered_commands:
        info.callback = _with_local_paths(info.callback) if info.callback else None
    for group in app.registered_groups:
        if group.typer_instance is not None:
            take_paths(group.typer_instance)


def _with_local_paths(command: Callable[..., Any]) -> Callable[..., Any]:
    hints = typing.get_type_hints(command, include_extras=True)

    def local(name: str, value: Any) -> Any:
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
