"""Experiments and studies from a file or as objects: read, checked and run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.experiments.console import import_modules, state
from rllib_llm_comm.experiments.experiment_file import (
    DEFAULT_STORAGE,
    NAME_PATTERN,
    ExperimentFile,
    TrainSettings,
    apply_settings,
    read_experiment_file,
)
from rllib_llm_comm.experiments.study_file import Study, expand, is_study, part_of, read_study


def run_experiments(
    source: ExperimentFile | Path, settings: TrainSettings | None = None, stage: str | None = None
) -> None:
    """Reads, checks and runs experiments, as `rllib train` does.

    Args:
        source: A YAML, JSON or Python file, or the experiments themselves.
        settings: Settings above the file; `None` for none.
        stage: The experiment that `stop`, `num_samples` and the like belong to; may be `None` if only one trains.

    Raises:
        UserError: If anything is wrong with them.
        StoppedError: After ctrl-C.
    """
    settings = settings or TrainSettings()
    _begin(settings)
    if isinstance(source, Path) and source.is_file() and is_study(source):
        raise UserError(f"{str(source)!r} holds a study; run it with `rllib study file {shlex.quote(str(source))}`.")
    file = read_experiment_file(source) if isinstance(source, Path) else source
    if settings.experiment_name is not None:
        file = dataclasses.replace(file, name=settings.experiment_name)
    if not NAME_PATTERN.fullmatch(file.name):
        raise UserError(
            f"`--experiment-name` is {file.name!r} but must name a folder (at most 100 letters, digits, '_', '-', '.')."
        )
    file = apply_settings(file, settings, stage)

    from rllib_llm_comm.experiments.pipeline import run_file

    run_file(file, settings)


def run_study(
    source: Path,
    settings: TrainSettings | None = None,
    scenarios: Sequence[str] = (),
    systems: Sequence[str] = (),
    after: Callable[[Path], object] = lambda folder: None,
) -> tuple[Path, list[str]]:
    """Reads, checks and runs a study, as `rllib study file` does; the report is not written yet.

    Args:
        source: A YAML or JSON file.
        settings: Settings of the run: names, places, Ray, `resume`, `track`, `modules`, `trust` and `verbose`;
            `None` for none.
        scenarios: Names of those that run; empty for all.
        systems: Names of those that run; empty for all.
        after: Called with the study's folder when everything has run; what it writes there lies with the results.

    Returns:
        The study's folder, and the stages that failed or needed a failed one.

    Raises:
        UserError: If anything in the file is wrong.
        StoppedError: After ctrl-C.
    """
    settings = settings or TrainSettings()
    _begin(settings)
    study = read_study(source)

    from rllib_llm_comm.experiments.pipeline import run_file, with_model
    from rllib_llm_comm.experiments.remote_results import results_folder

    experiments = with_model(expand(study, settings.experiment_name or source.stem))
    experiments = part_of(study, experiments, scenarios, systems)
    folder = results_folder(settings.storage_path or DEFAULT_STORAGE, experiments.name, "--storage-path")
    failed = run_file(
        experiments, settings, before=lambda: _write_record(study, folder), keep_going=True, after=lambda: after(folder)
    )
    return folder, failed


def _begin(settings: TrainSettings) -> None:
    """Silences Ray and its dependencies before they are imported, then imports the user's modules."""
    from rllib_llm_comm.experiments.ray_session import quiet_libraries

    state.verbosity = settings.verbose
    quiet_libraries(settings.verbose)
    import_modules(settings.modules)


def _write_record(study: Study, folder: Path) -> None:
    """Keeps the study beside its results, so that a report needs nothing else."""
    from rllib_llm_comm.core.files import write_atomically
    from rllib_llm_comm.evaluation.study_results import STUDY_RECORD

    text, path = study.model_dump_json(indent=1) + "\n", folder / STUDY_RECORD
    if not path.is_file() or read_text(path) != text:
        write_atomically(path, text)
