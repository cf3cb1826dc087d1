"""Options that several commands share, written down once; here those of `rllib train` and `rllib train file`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from typer import Option

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
        "them, and take the addresses, names of keys and paths that played checkpoints recorded.",
    ),
]
TrustRecorded = Annotated[
    bool,
    Option(
        "--trust", help="Take the addresses, names of keys, paths and hub ids that the checkpoint recorded as they are."
    ),
]


@dataclass(frozen=True)
class TrainOptions:
    """Options of the old `rllib train`, and a few of ours; `None` leaves to the file what it says.

    Each field is one command-line option; its help text is the field's documentation.
    """

    stop: Annotated[
        str | None,
        Option("--stop", "-s", metavar="JSON", help="Stop criteria, such as '{\"training_iteration\": 10}'."),
    ] = None
    experiment_name: Annotated[
        str | None, Option("--experiment-name", "-n", help="Folder of the results, below the storage path.")
    ] = None
    num_samples: Annotated[int | None, Option(min=1, help="Trials per point of the search space.")] = None
    storage_path: Annotated[str | None, Option(help="Folder above the results; ./results by default.")] = None
    restore: Annotated[str | None, Option(help="Checkpoint folder from which every trial starts.")] = None
    resume: Annotated[
        bool,
        Option(
            "--resume/--no-resume",
            help="Skip finished stages and continue unfinished ones (default), or do all again; old "
            "results are kept aside.",
        ),
    ] = True
    resources_per_trial: Annotated[
        str | None,
        Option(metavar="JSON", help='Of the learner\'s process, such as \'{"cpu": 2, "gpu": 1}\'.'),
    ] = None
    checkpoint_freq: Annotated[
        int | None, Option(min=0, help="Training iterations between checkpoints; 0 for none.")
    ] = None
    checkpoint_at_end: Annotated[
        bool | None,
        Option("--checkpoint-at-end/--no-checkpoint-at-end", help="Save when a trial ends (default)."),
    ] = None
    keep_checkpoints_num: Annotated[int | None, Option(min=1, help="Checkpoints that stay on disk.")] = None
    checkpoint_score_attr: Annotated[
        str | None, Option(help="Result key by which checkpoints are kept; 'min-KEY' keeps small ones.")
    ] = None
    scheduler: Annotated[str | None, Option(help="Tune's trial scheduler, such as asynchyperband.")] = None
    scheduler_config: Annotated[str | None, Option(metavar="JSON", help="Arguments of the scheduler.")] = None
    ray_address: Annotated[str | None, Option(help="Join a running Ray cluster.")] = None
    ray_num_cpus: Annotated[int | None, Option(min=1, help="Logical CPUs of a local Ray.")] = None
    ray_num_gpus: Annotated[int | None, Option(min=0, help="GPUs of a local Ray.")] = None
    seed: Annotated[int | None, Option(min=0, help="Seed of everything that runs.")] = None
    modules: Imports = None
    trust: Trust = False
    verbose: Annotated[
        int,
        Option("--verbose", "-v", count=True, help="-v: workers' output too; -vv: all, with tracebacks."),
    ] = 0

    def experiment_keys(self) -> dict[str, Any]:
        """The given options that are about one experiment, as its keys."""
        spec: dict[str, Any] = {key: getattr(self, key) for key in ("num_samples", "restore", "scheduler")}
        for key in ("stop", "resources_per_trial", "scheduler_config"):
            text = getattr(self, key)
            spec[key] = None if text is None else load_json_option(f"--{key.replace('_', '-')}", text)
        return {key: value for key, value in spec.items() if value is not None}

    def checkpoint_keys(self) -> dict[str, Any]:
        """The given options about checkpoints, as keys of `checkpoint_config`."""
        given: dict[str, Any] = {
            "checkpoint_frequency": self.checkpoint_freq,
            "checkpoint_at_end": self.checkpoint_at_end,
            "num_to_keep": self.keep_checkpoints_num,
        }
        if self.checkpoint_score_attr is not None:
            least = self.checkpoint_score_attr.startswith("min-")
            given["checkpoint_score_attribute"] = self.checkpoint_score_attr.removeprefix("min-")
            given["checkpoint_score_order"] = "min" if least else "max"
        return {key: value for key, value in given.items() if value is not None}


def takes_options(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command options that are written down once; it gets them as one object, `options`.

    Args:
        kind: A dataclass; each field is an option, annotated for Typer.

    Returns:
        A decorator of a Typer command with a parameter `options`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(kind, include_extras=True)
        shared = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            for field in dataclasses.fields(kind)
        ]
        own_hints = typing.get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=own_hints[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "options"
        ]

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            given = {parameter.name: values.pop(parameter.name) for parameter in shared}
            command(**values, options=kind(**given))

        with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
        )
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *shared]}
        return with_options

    return decorate


takes_train_options = takes_options(TrainOptions)
