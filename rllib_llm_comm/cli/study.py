"""`rllib study`: a whole comparison from one file, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rllib_llm_comm.cli.check import import_modules
from rllib_llm_comm.cli.options import Imports, TrainOptions, Trust
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import say, short_path, state
from rllib_llm_comm.experiments.study_file import Study, expand, read_study

app = typer.Typer(no_args_is_help=True, help="Run a comparison: systems x scenarios x seeds, from one file.")


@app.callback()
def study() -> None:
    """Run a comparison: systems x scenarios x seeds, from one file."""


@app.command("file")
def study_file(
    file: Annotated[Path, Argument(help="YAML or JSON file.")],
    experiment_name: Annotated[
        str | None, Option("--experiment-name", "-n", help="Folder of the results, below the storage path.")
    ] = None,
    storage_path: Annotated[str | None, Option(help="Folder above the results; ./results by default.")] = None,
    resume: Annotated[
        bool, Option("--resume/--no-resume", help="Skip what is done (default), or do all again.")
    ] = True,
    ray_address: Annotated[str | None, Option(help="Join a running Ray cluster.")] = None,
    ray_num_cpus: Annotated[int | None, Option(min=1, help="Logical CPUs of a local Ray.")] = None,
    ray_num_gpus: Annotated[int | None, Option(min=0, help="GPUs of a local Ray.")] = None,
    modules: Imports = None,
    trust: Trust = False,
    verbose: Annotated[int, Option("--verbose", "-v", count=True, help="-v: workers' output too; -vv: all.")] = 0,
) -> None:
    """Train and judge every system in every scenario with every seed, then write the report.

    As many trials run side by side as there are cores (or as the cluster has room for). A killed study goes on when
    the same command is typed again; what is done is skipped. What fails is left out, so that a night is not lost to one
    system; the report names it. `rllib report FOLDER` makes the report anew.

    Examples:

        rllib study file tuned_examples/study.yaml
    """
    from rllib_llm_comm.experiments.ray_session import quiet_libraries

    state.verbosity = verbose
    quiet_libraries(verbose)
    import_modules(modules)
    spec = read_study(file)
    experiments = expand(spec, experiment_name or file.stem)
    options = TrainOptions(
        experiment_name=experiment_name, storage_path=storage_path, resume=resume, ray_address=ray_address,
        ray_num_cpus=ray_num_cpus, ray_num_gpus=ray_num_gpus, trust=trust, verbose=verbose,
    )  # fmt: skip

    from rllib_llm_comm.experiments.pipeline import DEFAULT_STORAGE, run_file

    folder = Path(storage_path or DEFAULT_STORAGE).expanduser() / experiments.name
    failed = run_file(experiments, options, before=lambda: _write_record(spec, folder), keep_going=True)

    from rllib_llm_comm.cli.report import write_report

    page = write_report([folder])
    say(f"Open {short_path(page)} in a browser.")
    if failed:
        raise UserError(
            f"The report lacks {', '.join(failed)}, which failed or needed what failed (see above); correct the cause "
            "and type the same command again."
        )


def _write_record(spec: Study, folder: Path) -> None:
    """Keeps the study beside its results, so that a report needs nothing else."""
    from rllib_llm_comm.evaluation.study_results import STUDY_RECORD
    from rllib_llm_comm.files import write_atomically

    text, path = spec.model_dump_json(indent=1) + "\n", folder / STUDY_RECORD
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)
