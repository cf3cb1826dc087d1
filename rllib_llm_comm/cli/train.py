"""`rllib train`: experiments from a file, or one from options."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from rllib_llm_comm.cli.check import import_modules
from rllib_llm_comm.cli.options import TrainOptions, takes_options
from rllib_llm_comm.errors import UserError, did_you_mean
from rllib_llm_comm.experiments.console import state
from rllib_llm_comm.experiments.experiment_file import (
    NAME_PATTERN,
    Experiment,
    ExperimentFile,
    load_json_option,
    make_experiment,
    read_experiment_file,
)
from rllib_llm_comm.experiments.study_file import is_study

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    help="Train what a file says (`rllib train file FILE`), or one algorithm given by options.",
)


@app.callback()
@takes_options(TrainOptions)
def train(
    context: typer.Context,
    options: TrainOptions,
    algo: Annotated[str | None, Option("--run", "--algo", "-a", help="Algorithm, such as Verco or PPO.")] = None,
    env: Annotated[str | None, Option("--env", "-e", help="Environment id.")] = None,
    config: Annotated[str | None, Option("--config", "-c", metavar="JSON", help="Algorithm settings.")] = None,
) -> None:
    """Train what a file says (`rllib train file FILE`), or one algorithm given by options.

    Examples:

        rllib train file verco.yaml

        rllib train --run PPO --env CartPole-v1 --stop '{"training_iteration": 10}' --config '{"lr": 0.001}'
    """
    if context.invoked_subcommand is not None:
        return
    if algo is None:
        raise UserError("`--run` is missing; name an algorithm, or train a file with `rllib train file FILE`.")
    spec: dict[str, Any] = {"run": algo, "env": env}
    if config is not None:
        spec["config"] = load_json_option("--config", config)
    name = "-".join(part.split("/")[-1] for part in (algo, env) if part).lower()
    start(ExperimentFile(name, {"train": make_experiment("train", spec)}), options)


@app.command("file")
@takes_options(TrainOptions)
def train_file(
    options: TrainOptions,
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
    start(file, options, stage)


def start(source: ExperimentFile | Path, options: TrainOptions, stage: str | None = None) -> None:
    """Reads, checks and runs experiments; heavy imports come after the libraries were told to be quiet.

    Args:
        source: A file to read, or experiments.
        options: The command line's.
        stage: The experiment that some options are about.

    Raises:
        UserError: If anything is wrong with them.
        StoppedError: After ctrl-C.
    """
    from rllib_llm_comm.experiments.ray_session import quiet_libraries

    state.verbosity = options.verbose
    quiet_libraries(options.verbose)
    import_modules(options.modules)
    if isinstance(source, Path) and source.is_file() and is_study(source):
        raise UserError(f"{str(source)!r} holds a study; run it with `rllib study file {source}`.")
    file = read_experiment_file(source) if isinstance(source, Path) else source
    if options.experiment_name is not None:
        file = dataclasses.replace(file, name=options.experiment_name)
    if not NAME_PATTERN.fullmatch(file.name):
        raise UserError(
            f"`--experiment-name` is {file.name!r} but must name a folder (letters, digits, '_', '-', '.')."
        )
    file = apply_options(file, options, stage)

    from rllib_llm_comm.experiments.pipeline import run_file

    run_file(file, options)


def apply_options(file: ExperimentFile, options: TrainOptions, stage: str | None) -> ExperimentFile:
    """Puts command-line options above what a file says.

    Args:
        file: The experiments.
        options: The options. Those about checkpoints and the seed hold for all experiments.
        stage: The experiment that the others are about; may be `None` where only one trains an algorithm.

    Raises:
        UserError: If it is unclear or unknown which experiment is meant, or a value is impossible.
    """
    from rllib_llm_comm.experiments.plain_stages import KINDS

    training = [name for name, experiment in file.experiments.items() if experiment.run not in KINDS]
    listed = ", ".join(training) or "none"
    if stage is not None and stage not in training:
        hint = did_you_mean(stage, training)
        raise UserError(f"`--stage` is {stage!r} but must be a stage that trains ({listed}).{hint}")
    spec = options.experiment_keys()
    if spec and stage is None and len(training) != 1:
        option = "--" + next(iter(spec)).replace("_", "-")
        raise UserError(f"`{option}` could be about several stages ({listed}); say which with `--stage NAME`.")
    target = stage or (training[0] if training else None)
    changed: dict[str, Experiment] = {}
    for name, experiment in file.experiments.items():
        data = experiment.model_dump(exclude_unset=True)
        if name == target:
            data |= spec
        if name in training and options.checkpoint_keys():
            data["checkpoint_config"] = {**data.get("checkpoint_config", {}), **options.checkpoint_keys()}
        if options.seed is not None:
            data["config"] = {**data.get("config", {}), "seed": options.seed}
        changed[name] = make_experiment(name, data)
    return dataclasses.replace(file, experiments=changed)
