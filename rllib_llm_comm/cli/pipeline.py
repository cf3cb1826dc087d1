"""Runs the stages of a file one after the other, skipping those whose results are there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from rllib_llm_comm.cli import plain_stages, tune_stage
from rllib_llm_comm.cli.console import StoppedError, out, say, short_path
from rllib_llm_comm.cli.experiment_file import ExperimentFile
from rllib_llm_comm.cli.options import TrainOptions
from rllib_llm_comm.cli.ray_session import RaySession, available_cpus
from rllib_llm_comm.cli.stages import MARKER, Stage, StageRecord, make_stages, resolve
from rllib_llm_comm.errors import UserError

DEFAULT_STORAGE = "results"


def run_file(file: ExperimentFile, options: TrainOptions) -> None:
    """Checks all stages, then runs them.

    Args:
        file: The experiments.
        options: The command line's.

    Raises:
        UserError: If anything in the file is wrong (before anything runs), or a stage fails.
        StoppedError: After ctrl-C.
    """

    def folder(name: str, experiment: Any) -> Path:
        storage = options.storage_path or experiment.storage_path or DEFAULT_STORAGE
        return Path(storage).expanduser() / file.name / name

    stages = make_stages(file.experiments, folder, file.digest)
    to_run = _unfinished(stages, options.resume)
    cpus = check_stages(stages, to_run, file.checked_by_python)
    records: dict[str, StageRecord] = {}
    with _lock({stage.folder.parent for stage in stages}), _session(options, cpus) as ray:
        for number, stage in enumerate(stages, 1):
            title = f"{stage.name} ({stage.experiment.run})"
            if stage.name not in to_run:
                records[stage.name] = stage.finished() or stage.write()
                say(
                    f"[{number}/{len(stages)}] {title}: already there, skipped ({short_path(stage.folder)})",
                    "dim",
                )
                continue
            say(f"[{number}/{len(stages)}] {title}", "bold")
            if not any(_needs_ray(later) for later in stages[number - 1 :] if later.name in to_run):
                ray.stop()
            records[stage.name] = _run(stage, _outputs(stages, records), ray, options)
    _show_end(stages, records)


def _run(
    stage: Stage, outputs: Mapping[str, list[str]], ray: RaySession, options: TrainOptions
) -> StageRecord:
    start = time.monotonic()
    _make_room(stage, options.resume)
    stage.write()
    resolved = _resolved(stage, outputs)
    try:
        if _needs_ray(stage):
            result = tune_stage.run(resolved, ray)
        else:
            result = plain_stages.KINDS[stage.experiment.run].run(resolved)
    except KeyboardInterrupt:
        raise StoppedError from None
    return stage.write(result, time.monotonic() - start)


def _needs_ray(stage: Stage) -> bool:
    return stage.experiment.run not in plain_stages.KINDS


def _unfinished(stages: list[Stage], resume: bool) -> set[str]:
    """Names of the stages that have to run: those without a result, and those behind them."""
    names: set[str] = set()
    for stage in stages:
        if not resume or stage.finished() is None or names & set(stage.uses):
            names.add(stage.name)
    return names


def check_stages(stages: list[Stage], to_run: set[str], trusted: bool = False) -> int:
    """Checks all stages that will run, with their references replaced by the paths that there will be.

    Args:
        stages: All stages of the file.
        to_run: Names of those without a result.
        trusted: Whether settings come from `AlgorithmConfig` objects, whose setters have seen them.

    Returns:
        Logical CPUs that a local Ray should have.

    Raises:
        UserError: At the first unknown key or impossible value.
    """
    outputs: dict[str, list[str]] = {}
    missing: tuple[str, ...] = ()
    cpus = available_cpus()
    for stage in stages:
        resolved = _resolved(stage, outputs)
        if stage.name in to_run:
            if stage.experiment.run in plain_stages.KINDS:
                plain_stages.KINDS[stage.experiment.run].check(resolved, missing)
            else:
                tune_stage.check(resolved, tuple(plain_stages.KINDS), missing, trusted)
                cpus = max(cpus, tune_stage.cpus_needed(resolved))
            future = str(stage.folder.absolute() / "(not there yet)")
            missing = (*missing, future)
            outputs[stage.name] = [future]
        else:
            record = stage.finished()
            outputs[stage.name] = _absolute(stage, record.outputs if record else [])
    return cpus


def _resolved(stage: Stage, outputs: Mapping[str, list[str]]) -> Stage:
    many = stage.experiment.run in plain_stages.KINDS
    changes = {
        "config": resolve(stage.experiment.config, outputs, many),
        "restore": resolve(stage.experiment.restore, outputs),
    }
    return replace(stage, experiment=stage.experiment.model_copy(update=changes))


def _outputs(stages: list[Stage], records: Mapping[str, StageRecord]) -> dict[str, list[str]]:
    return {
        stage.name: _absolute(stage, records[stage.name].outputs) for stage in stages if stage.name in records
    }


def _absolute(stage: Stage, paths: list[str]) -> list[str]:
    return [os.path.normpath(stage.folder.absolute() / path) for path in paths]


def _make_room(stage: Stage, resume: bool) -> None:
    """Moves results of other settings out of the way; those of these settings stay and are continued."""
    if not stage.folder.exists() or not any(stage.folder.iterdir()):
        return
    record = stage.record()
    if record is None:
        raise UserError(
            f"{short_path(stage.folder)} exists but was not written by this command (it has no {MARKER}); "
            "choose another `--experiment-name` or move it away."
        )
    if resume and record.fingerprint == stage.fingerprint and record.status == "running":
        return
    number = 1
    while (aside := stage.folder.with_name(f"{stage.folder.name}.old-{number}")).exists():
        number += 1
    stage.folder.rename(aside)
    say(f"Results of earlier settings were moved to {short_path(aside)}.", "dim")


@contextlib.contextmanager
def _lock(folders: set[Path]) -> Iterator[None]:
    """Keeps two commands from writing into the same results; a killed one leaves no lock behind."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    with contextlib.ExitStack() as stack:
        for folder in sorted(folders):
            folder.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context((folder / ".lock").open("a"))
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"Another `rllib train` is writing to {short_path(folder)}; wait for it, or choose "
                    "another `--experiment-name`."
                ) from None
        yield


def _session(options: TrainOptions, cpus: int) -> RaySession:
    if options.ray_address and (options.ray_num_cpus is not None or options.ray_num_gpus is not None):
        raise UserError(
            "`--ray-num-cpus` and `--ray-num-gpus` are for a local Ray; leave them out with `--ray-address`."
        )
    return RaySession(
        cpus=options.ray_num_cpus if options.ray_num_cpus is not None else cpus,
        gpus=options.ray_num_gpus,
        address=options.ray_address,
        verbosity=options.verbose,
    )


def _show_end(stages: list[Stage], records: Mapping[str, StageRecord]) -> None:
    """The panel with where everything lies and what to type next."""
    table = Table.grid(padding=(0, 2))
    checkpoint = ""
    for stage in stages:
        record = records[stage.name]
        results = _absolute(stage, record.outputs)
        for place in results:
            table.add_row(escape(stage.name), escape(short_path(place)))
        if (Path(results[-1]) / "policy").is_dir() or any(Path(results[-1]).glob("*algorithm_state*")):
            checkpoint = short_path(results[-1])
            if (Path(results[-1]) / "policy" / "adapters").is_dir():
                table.add_row("  adapters", escape(short_path(Path(results[-1]) / "policy" / "adapters")))
        for name, place in record.files.items():
            table.add_row(f"  {escape(name)}", escape(short_path(stage.folder / place)))
        figures = _figures(record.summary)
        if figures:
            table.add_row("", f"[dim]{escape(figures)}[/]")
    out.print(Panel(table, title="Everything lies here", title_align="left", expand=False), soft_wrap=True)
    if checkpoint and _has_policy(checkpoint):
        say(f"Next: rllib evaluate {checkpoint}\n      rllib replay {checkpoint}")
    elif checkpoint:
        say(f"Next: rllib train file ... --restore {checkpoint}")


def _has_policy(checkpoint: str) -> bool:
    return (Path(checkpoint) / "policy").is_dir()


def _figures(summary: Mapping[str, Any]) -> str:
    """A few figures of a stage on one line."""
    numbers = {key: value for key, value in summary.items() if isinstance(value, int | float | str)}
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in list(numbers.items())[:8]
    )
