"""Experiments and studies from a file or as objects: read, checked and run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.experiments.console import import_modules, state
from rllib_llm_comm.experiments.experiment_file import (
    DEFAULT_STORAGE,
    NAME_PATTERN,
    Experiment,
    ExperimentFile,
    TrainSettings,
    make_experiment,
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


def apply_settings(file: ExperimentFile, settings: TrainSettings, stage: str | None = None) -> ExperimentFile:
    """The experiments of a file with settings put above them.

    Args:
        file: The experiments.
        settings: The settings. Those of checkpoints and the seed hold for all experiments.
        stage: The experiment that the others belong to; may be `None` if only one trains an algorithm.

    Raises:
        UserError: If that experiment is unclear or unknown, or a value is impossible.
    """
    from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS

    training = [name for name, experiment in file.experiments.items() if experiment.run not in STAGE_KINDS]
    listed = ", ".join(training) or "none"
    if stage is not None and stage not in training:
        hint = did_you_mean(stage, training)
        raise UserError(f"`--stage` is {stage!r} but must be a stage that trains ({listed}).{hint}")
    spec = settings.experiment_keys()
    if spec and stage is None and len(training) != 1:
        option = "--" + next(iter(spec)).replace("_", "-")
        raise UserError(f"`{option}` could be about several stages ({listed}); say which with `--stage NAME`.")
    target = stage or (training[0] if training else None)
    changed: dict[str, Experiment] = {}
    for name, experiment in file.experiments.items():
        # Pydantic would turn objects of a Python file's config, such as an RLModuleSpec, into plain values.
        data = {**experiment.model_dump(exclude_unset=True, exclude={"config"}), "config": dict(experiment.config)}
        if name == target:
            data |= spec
        if name in training and settings.checkpoint_keys():
            data["checkpoint_config"] = {**data.get("checkpoint_config", {}), **settings.checkpoint_keys()}
        kind = STAGE_KINDS.get(experiment.run)
        if settings.seed is not None and (kind is None or "seed" in kind.model().model_fields):
            data["config"] = {**data["config"], "seed": settings.seed}
        changed[name] = make_experiment(name, data)
    return dataclasses.replace(file, experiments=changed)


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
        settings: Settings of the run: names, places, Ray, `resume`, `track`, `modules`, `trust`, `verbose`, `dry_run`
            and `prices`; `None` for none.
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
    """Silences Ray and its dependencies before they are imported, then imports the user's modules.

    Raises:
        UserError: If settings exclude each other.
    """
    if settings.prices is not None and not settings.dry_run:
        raise UserError(f"`--prices` is {settings.prices!r} without `--dry-run`, which alone reads it; give both.")
    from rllib_llm_comm.experiments.ray_session import quiet_libraries

    state.verbosity = settings.verbose
    quiet_libraries(settings.verbose)
    import_modules(settings.modules)
    if settings.prices is not None:  # before all stages are checked, which takes longer
        from rllib_llm_comm.experiments.dry_run import read_prices

        read_prices(settings.prices)


def _write_record(study: Study, folder: Path) -> None:
    """Keeps the study beside its results, so that a report needs nothing else."""
    from rllib_llm_comm.evaluation.study_results import STUDY_RECORD

    # Without strangers the settings about them are no settings that could be given again.
    unused = set() if study.evaluation.strangers else {"strangers", "stranger_episodes"}
    text, path = study.model_dump_json(indent=1, exclude={"evaluation": unused}) + "\n", folder / STUDY_RECORD
    if not path.is_file() or read_text(path) != text:
        write_atomically(path, text)
