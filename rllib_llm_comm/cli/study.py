"""`rllib study`: a whole comparison from one file, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rllib_llm_comm.cli.options import Imports, Trust
from rllib_llm_comm.cli.train_options import Address, Cpus, Gpus, Name, Storage, Track
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.report_run import PAGE, REPORT, run_report
from rllib_llm_comm.experiments.run_experiments import run_study
from rllib_llm_comm.experiments.train_settings import TrainSettings

app = typer.Typer(no_args_is_help=True, help="Run a comparison: systems x scenarios x seeds, from one file.")


@app.callback()
def study() -> None:
    """Run a comparison: systems x scenarios x seeds, from one file."""


@app.command("file")
def study_file(
    file: Annotated[Path, Argument(help="YAML or JSON file.")],
    scenario: Annotated[
        list[str] | None, Option(metavar="NAME", help="Run this scenario only; may be given several times.")
    ] = None,
    system: Annotated[
        list[str] | None, Option(metavar="NAME", help="Run this system only; may be given several times.")
    ] = None,
    experiment_name: Name = None,
    storage_path: Storage = None,
    resume: Annotated[
        bool, Option("--resume/--no-resume", help="Skip what is done (default), or do all again.")
    ] = True,
    ray_address: Address = None,
    ray_num_cpus: Cpus = None,
    ray_num_gpus: Gpus = None,
    track: Track = None,
    modules: Imports = None,
    trust: Trust = False,
    verbose: Annotated[int, Option("--verbose", "-v", count=True, help="-v: workers' output too; -vv: all.")] = 0,
) -> None:
    """Train and judge every system in every scenario with every seed, then write the report.

    As many trials run side by side as there are cores (or as the cluster has room for). A killed study goes on when
    the same command is typed again; what is done is skipped. What fails is left out, so that a night is not lost to one
    system; the report names it. `rllib report FOLDER` makes the report anew, and one report of parts that ran at
    different places.

    Examples:

        rllib study file tuned_examples/study.yaml

        rllib study file tuned_examples/study.yaml --scenario B_all_three --storage-path here
    """
    settings = TrainSettings(
        experiment_name=experiment_name, storage_path=storage_path, resume=resume, ray_address=ray_address,
        ray_num_cpus=ray_num_cpus, ray_num_gpus=ray_num_gpus, track=track, modules=modules, trust=trust,
        verbose=verbose,
    )  # fmt: skip
    folder, failed = run_study(file, settings, scenario or (), system or (), after=lambda folder: run_report([folder]))
    say(f"Open {short_path(folder / REPORT / PAGE)} in a browser.")
    if failed:
        raise UserError(
            f"The report lacks {', '.join(failed)}, which failed or needed what failed (see above); correct the cause "
            "and type the same command again."
        )
