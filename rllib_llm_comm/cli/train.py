"""`rllib train`: experiments from a file, or one from options."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from rllib_llm_comm.cli.train_options import takes_train_settings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, load_json_option, make_experiment
from rllib_llm_comm.experiments.run_experiments import run_experiments
from rllib_llm_comm.experiments.train_settings import TrainSettings

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=True,
    help="Train what a file says (`rllib train file FILE`), or one algorithm given by options.",
)


@app.callback()
@takes_train_settings
def train(
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
        raise UserError("`--run` is missing; name an algorithm, or train a file with `rllib train file FILE`.")
    spec: dict[str, Any] = {"run": algo, "env": env}
    if config is not None:
        spec["config"] = load_json_option("--config", config)
    told = "-".join(part.split("/")[-1] for part in (algo, env) if part).lower()
    name = re.sub(r"[^\w.+-]", "-", told, flags=re.ASCII)  # a folder's, whatever the environment is called
    run_experiments(ExperimentFile(name, {"train": make_experiment("train", spec)}), settings)


@app.command("file")
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
