"""`rllib train`, `rllib study`, `rllib report`, `rllib runs`: experiments trained, and what came of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from rllib_llm_comm.cli.options import IMPORT, takes_settings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import fetched, is_remote
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.experiment_file import (
    DEFAULT_STORAGE,
    OF_ONE_STAGE,
    OLD_CHECKPOINT_KEYS,
    ExperimentFile,
    TrainSettings,
    load_json_option,
    make_experiment,
)
from rllib_llm_comm.experiments.run_experiments import run_experiments, run_study

_SPELLED = {
    "experiment_name": Option("--experiment-name", "-n"),
    "stop": Option("--stop", "-s"),
    "checkpoint_score_attr": Option(help='Result key by which the kept ones are chosen; "min-KEY" keeps small ones.'),
    "track": Option(metavar="NAME"),
    "modules": IMPORT,
    "verbose": Option("--verbose", "-v", count=True, help="-v: workers' output too; -vv: all, with tracebacks."),
}
_OF_FILES = (*OF_ONE_STAGE, *OLD_CHECKPOINT_KEYS, "seed")
"""Options of `rllib train` that `rllib study` lacks, since the study's file has them."""

takes_train_settings = takes_settings(TrainSettings, **_SPELLED)
takes_study_settings = takes_settings(TrainSettings, _OF_FILES, **_SPELLED)


train_app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    help="Train what a file says (`rllib train file FILE`), or one algorithm given by options.",
)


@train_app.callback()
@takes_train_settings
def train_one(
    context: typer.Context,
    settings: TrainSettings,
    algo: Annotated[str | None, Option("--run", "--algo", "-a", help="Algorithm, such as Verco or PPO.")] = None,
    env: Annotated[str | None, Option("--env", "-e", help="Environment id.")] = None,
    config: Annotated[
        str | None,
        Option("--config", "-c", metavar="JSON", help="Algorithm settings."),
    ] = None,
) -> None:
    """Train what a file says (`rllib train file FILE`), or one algorithm given by options.

    Examples:

        rllib train file verco.yaml

        rllib train --run PPO --env CartPole-v1 --stop '{"training_iteration": 10}' --config '{"lr": 0.001}'
    """
    if context.invoked_subcommand is not None:
        return
    if algo is None:
        raise UserError(
            "`--run` is missing; name an algorithm, or train a file with `rllib train file FILE`.", "missing"
        )
    spec: dict[str, Any] = {"run": algo, "env": env}
    if config is not None:
        spec["config"] = load_json_option("--config", config)
    joined = "-".join(part.split("/")[-1] for part in (algo, env) if part).lower()
    name = re.sub(r"[^\w.+-]", "-", joined, flags=re.ASCII)  # it names a folder
    run_experiments(ExperimentFile(name, {"train": make_experiment("train", spec)}), settings)


@train_app.command("file")
@takes_train_settings
def train_file(
    settings: TrainSettings,
    file: Annotated[Path, Argument(help="YAML, JSON or Python file.")],
    stage: Annotated[
        str | None, Option("--stage", help="Stage that --stop, --num-samples, --restore, ... are about.")
    ] = None,
) -> None:
    """Run all experiments of a file in its order; finished ones are skipped, killed ones continue.

    The file holds `name: {run: ..., env: ..., stop: ..., config: ...}`; a value `${name}` in a later
    experiment is the result of an earlier one. A Python file defines `config`, an AlgorithmConfig, and
    optionally `stop`.

    Examples:

        rllib train file verco.yaml

        rllib train file verco.yaml --seed 1 --experiment-name verco-seed1

        rllib train file verco.yaml --stage verco --stop '{"training_iteration": 2}'
    """
    run_experiments(file, settings, stage)


study_app = typer.Typer(no_args_is_help=True, help="Run a comparison: systems x scenarios x seeds, from one file.")


@study_app.callback()
def study_group() -> None:
    """Run a comparison: systems x scenarios x seeds, from one file."""


@study_app.command("file")
@takes_study_settings
def study_file(
    settings: TrainSettings,
    file: Annotated[Path, Argument(help="YAML or JSON file.")],
    scenario: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Run this scenario (or pattern) only; may be given several times."),
    ] = None,
    system: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Run this system (or pattern) only; may be given several times."),
    ] = None,
) -> None:
    """Train and judge every system in every scenario with every seed, then write the report.

    As many trials run side by side as there are cores (or as the cluster has room for). A killed study goes on when
    the same command is typed again; what is done is skipped. What fails is left out, so that a night is not lost to one
    system; the report names it. `rllib report FOLDER` makes the report anew, and one report of parts that ran at
    different places.

    Examples:

        rllib study file tuned_examples/study.yaml

        rllib study file tuned_examples/study.yaml --scenario B_all_three --storage-path here

        rllib study file tuned_examples/study_salads.yaml --system '*_embedded' --dry-run
    """
    from rllib_llm_comm.experiments.runs import PAGE, REPORT, run_report

    folder, failed = run_study(file, settings, scenario or (), system or (), after=lambda folder: run_report([folder]))
    if settings.dry_run:
        return
    say(f"Open {short_path(folder / REPORT / PAGE)} in a browser.")
    if failed:
        raise UserError(
            f"The report lacks {', '.join(failed)}, which failed or needed what failed (see above); correct the cause "
            "and type the same command again."
        )


def report_command(
    folders: Annotated[
        list[str], typer.Argument(help="Folder that `rllib study` wrote, or that of a report; s3://..., too.")
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; by default report/ in the first folder.")
    ] = None,
    marl_eval: Annotated[
        Path | None, typer.Option("--marl-eval", metavar="FILE", help="Write the study as a file of marl-eval, too.")
    ] = None,
    sentences: Annotated[
        bool,
        typer.Option("--sentences", help="Ask agents of finished studies what they do with sentences of strangers."),
    ] = False,
) -> None:
    """Make the report of a study: HTML that needs nothing else, Markdown, JSON and pictures.

    Parts of a study that ran at different places become one report. A report keeps what it is made of (results.json),
    so it can be made again, or joined with more, where the runs themselves are gone.

    Examples:

        rllib report results/study
        rllib report results/study_here results/study_there --out results/both

        rllib report results/study --marl-eval study.json
    """
    from rllib_llm_comm.experiments.runs import is_figure, run_report

    if out_folder is None and is_remote(folders[0]):
        raise UserError(
            f"`--out` is missing, since the report of {folders[0]!r} is written to this machine; give it.", "missing"
        )
    page = run_report([fetched(folder, "FOLDERS", is_figure) for folder in folders], out_folder, marl_eval, sentences)
    say(f"Open {short_path(page)} in a browser.")


def runs_command(
    folders: Annotated[
        list[str] | None,
        Argument(help="A folder of results (./results by default) to list, or two runs to compare; s3://..., too."),
    ] = None,
    every: Annotated[bool, Option("--all", help="List stages that train nothing, too.")] = False,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Write a page with curves that needs nothing else.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List what was trained, or compare two runs; needs no tracker and no Ray.

    Examples:

        rllib runs

        rllib runs results/verco --html curves.html

        rllib runs results/verco/verco.old-1 results/verco/verco
    """
    from rllib_llm_comm.experiments.runs import is_figure, show_runs

    places = [fetched(folder, "FOLDERS", is_figure) for folder in folders or [DEFAULT_STORAGE]]
    show_runs(places, every=every, html=html, as_json=as_json)
