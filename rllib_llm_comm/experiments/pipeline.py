"""Runs the stages of a file one after the other, skipping those whose results are there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import filelock
from rich.panel import Panel
from rich.table import Table

from rllib_llm_comm.chat.cassettes import put_in_order
from rllib_llm_comm.core.errors import UserError, names_and_hint, one_line
from rllib_llm_comm.core.files import claim_file, disk_error, disk_fault, move_aside, remove_scratch
from rllib_llm_comm.core.trust import KEYS, evaluated_in, secrets_in, trusted_in
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.evaluation.study_results import COSTS
from rllib_llm_comm.experiments import tune_stage
from rllib_llm_comm.experiments.algorithm_settings import default_config
from rllib_llm_comm.experiments.console import StoppedError, out, plain, print_table, say, say_stand_ins, short_path
from rllib_llm_comm.experiments.experiment_file import DEFAULT_STORAGE, MODEL, ExperimentFile, TrainSettings
from rllib_llm_comm.experiments.language_stages import ANSWERS
from rllib_llm_comm.experiments.prerequisites import check_device, on_this_machine
from rllib_llm_comm.experiments.ray_session import RaySession, available_cpus, gpus_here, ray_runs
from rllib_llm_comm.experiments.remote_results import results_folder, sent
from rllib_llm_comm.experiments.run_time import left_of, measured, rehearse, trials_of
from rllib_llm_comm.experiments.search_space import check_searches, grid_points, seeds_of
from rllib_llm_comm.experiments.stage_links import (
    check_adapters,
    check_kinds,
    check_played_games,
    check_restored,
    check_rows,
)
from rllib_llm_comm.experiments.stages import Stage, make_stages, resolve
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS, config_identity
from rllib_llm_comm.experiments.tune_state import unusable_parts
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.policies.recorded_settings import reaches_outside, vouched_for_game
from rllib_llm_comm.policies.stage_record import MARKER, StageRecord, read_record, require_readable
from rllib_llm_comm.sama.planners import trusting
from rllib_llm_comm.verco.settings import BaseModelSettings, LanguageModelSettings

_MOST_NAMED = 3  # stages in one error


def with_model(file: ExperimentFile) -> ExperimentFile:
    """Gives the settings of `model:` to all stages that load a language model.

    A stage's own settings stand above them; a stage that names a `base_model` of its own takes none of them, as they
    are about another model. `evaluate` and `replay` play what the checkpoint was trained with.

    Raises:
        UserError: If a setting is unknown, or no stage loads a language model.
    """
    if not file.model:
        return file
    from rllib_llm_comm.verco.module import LanguageModelConfigMixin

    def known(run: str) -> Collection[str]:
        """The settings of a language model that a kind of stage, or an algorithm, takes."""
        if kind := STAGE_KINDS.get(run):
            return BaseModelSettings.model_fields if issubclass(kind.model(), BaseModelSettings) else ()
        return LanguageModelSettings.model_fields if isinstance(default_config(run), LanguageModelConfigMixin) else ()

    for name in file.model:
        if name not in LanguageModelSettings.model_fields:
            names = names_and_hint(name, LanguageModelSettings.model_fields)
            raise UserError(f"`{MODEL}.{name}` is no setting of a language model; known are {names}", "unknown")
    filled, taken, passed_by = {}, False, []
    for stage, experiment in file.experiments.items():
        own = {key: value for key, value in file.model.items() if key in known(experiment.run)}
        if own and "base_model" in experiment.config:
            passed_by.append(stage)
            own = {}
        taken = taken or bool(own)
        filled[stage] = experiment.model_copy(update={"config": {**own, **experiment.config}})
    if not taken and passed_by:
        named = ", ".join(f"`{stage}.config.base_model`" for stage in passed_by[:_MOST_NAMED])
        named += f" and {len(passed_by) - _MOST_NAMED} others" if len(passed_by) > _MOST_NAMED else ""
        raise UserError(
            f"`{MODEL}` reaches no stage, as those that take {', '.join(f'`{key}`' for key in file.model)} name a base "
            f"model of their own ({named}); give `{MODEL}.base_model` in place of these, or write the settings there."
        )
    if not taken:
        raise UserError(f"`{MODEL}` means nothing to any stage of this file; remove it.")
    return replace(file, experiments=filled, model={})


# Settings that may be a trained stage's folder instead of the checkpoint in it.
_CHECKPOINTS = ("checkpoint", "message_checkpoint", "action_checkpoint")
_NOT_YET = "(not there yet)"  # stands for the result of a stage before it has run


def run_file(
    file: ExperimentFile,
    settings: TrainSettings,
    before: Callable[[], None] = lambda: None,
    keep_going: bool = False,
    after: Callable[[], object] = lambda: None,
    rehearses: bool = False,
) -> list[str]:
    """Checks all stages, then runs them.

    Args:
        file: The experiments.
        settings: Settings of the run.
        before: Called after all checks, before anything runs.
        keep_going: True if a stage that fails is reported and skipped, together with those that use it.
        after: Called when everything has run; what it writes to the results' folder is sent with them.
        rehearses: True for the short runs that measure durations: a stage whose settings are refused is skipped, too.

    Returns:
        The stages that failed or were passed over.

    Raises:
        UserError: If anything in the file is wrong (before anything runs), or a stage fails and `keep_going` is off.
        StoppedError: After ctrl-C or SIGTERM.
    """

    def folder(name: str, experiment: Any) -> Path:
        """The folder of a stage's results."""
        storage = settings.storage_path or experiment.storage_path or DEFAULT_STORAGE
        setting = "--storage-path" if settings.storage_path else f"{name}.storage_path"
        return results_folder(storage, file.name, setting) / name

    file = with_model(file)
    track = tuple(settings.track or ())
    made = make_stages(file.experiments, folder, file.digest, config_identity)
    stages = [replace(_vouched_for(stage) if settings.trust else stage, track=track) for stage in made]
    with sent({stage.folder.parent for stage in stages}):
        records = _finished(stages, settings.resume)
        to_run = [stage.name for stage in stages if stage.name not in records]
        training = [stage for stage in stages if _needs_ray(stage)]
        if track:
            from rllib_llm_comm.experiments.trackers import check_trackers, open_trackers

            check_trackers(track, any_training=bool(training))
        refused: list[str] | None = [] if rehearses else None
        with out.status("checking all settings"):
            many_cpus = bool(settings.ray_address or settings.ray_num_cpus)
            cpus = check_stages(stages, records, file.checked_by_python, many_cpus, _known_resources(settings), refused)
            for stage in training if settings.resume else ():
                if stage.name in to_run and _is_unfinished(stage, stage.record()):
                    unusable_parts(stage)
        stages = [replace(stage, stand_ins=tuple(_stand_ins(stage))) for stage in stages]
        say_stand_ins(dict.fromkeys(phrase for stage in stages for phrase in stage.stand_ins))
        if settings.dry_run:
            from rllib_llm_comm.experiments.dry_run import tell

            tell([stage if _needs_ray(stage) else _fetched(stage) for stage in stages], settings.prices, records)
            if settings.prices is None:
                _show_plan(file, settings, stages, records)
            return []
        if keep_going and to_run:
            left = left_of(stages, records, resume=settings.resume)
            told = "how long they take is told as they run; `--dry-run` measures it in small before"
            told = f"{left.text()} at the speeds measured here" if left.seconds else told
            say(f"{len(to_run)} of {len(stages)} stages are left: {told}.")
        # Nothing is written if all is done, so that results on a read-only disk can be shown again.
        with _lock({stage.folder.parent for stage in stages if to_run}), _session(settings, cpus) as ray:
            before()
            if track:
                open_trackers(track, {stage.folder.parent for stage in training if stage.name in to_run})
            failed = _run_all(stages, records, to_run, ray, settings, keep_going, refused or ())
        _show_end([stage for stage in stages if stage.name in records], records, settings.modules or ())
        after()
    return failed


def _run_all(
    stages: list[Stage],
    records: dict[str, StageRecord],
    to_run: list[str],
    ray: RaySession,
    settings: TrainSettings,
    keep_going: bool,
    refused: Sequence[str],
) -> list[str]:
    """Runs the stages that have to run and adds their records; returns those that failed or were passed over."""
    failed = list(refused)
    for number, stage in enumerate(stages, 1):
        title = f"{stage.name} ({stage.experiment.run})"
        if stage.name not in to_run:
            say(
                f"[{number}/{len(stages)}] {title}: already there, skipped ({short_path(stage.folder)})",
                "dim",
            )
            continue
        if stage.name in refused:
            continue
        if lost := sorted(set(stage.uses) & set(failed)):
            say(f"[{number}/{len(stages)}] {title}: left out, as it needs {', '.join(lost)}", "dim")
            failed.append(stage.name)
            continue
        say(f"[{number}/{len(stages)}] {title}", "bold")
        if not any(_needs_ray(later) for later in stages[number - 1 :] if later.name in to_run):
            ray.stop()
        try:
            outputs = {one.name: _absolute(one, records[one.name].outputs) for one in stages if one.name in records}
            resolved = _resolved(stage, outputs, _seed_sweeps(stages))
            records[stage.name] = _run(stage, resolved, ray, settings)
            if keep_going and (more := [one for one in to_run if one not in (*records, *failed)]):
                left = left_of(stages, [*records, *failed], resume=settings.resume)
                count = "1 stage is" if len(more) == 1 else f"{len(more)} stages are"
                say(f"{count} left: {left.text()}.", "dim")
        except UserError as error:
            if not keep_going:
                raise
            say(f"{stage.name} failed: {error}", "red")
            failed.append(stage.name)
    return failed


def _run(stage: Stage, resolved: Stage, ray: RaySession, settings: TrainSettings) -> StageRecord:
    start = time.monotonic()
    try:
        _make_room(stage, settings.resume)
        remove_scratch(stage.folder)
        stage.write()
        result = tune_stage.run(resolved, ray) if _needs_ray(stage) else STAGE_KINDS[stage.experiment.run].run(resolved)
        put_in_order(stage.folder / ANSWERS)
        return stage.write(result, time.monotonic() - start)
    except KeyboardInterrupt:
        raise StoppedError from None
    except OSError as error:
        if disk_fault(error) is None:
            raise
        raise disk_error(error, f"`{stage.name}` stopped") from error


def _show_plan(
    file: ExperimentFile, settings: TrainSettings, stages: list[Stage], records: Mapping[str, StageRecord]
) -> None:
    """Prints what would run and about how long it takes; what no earlier run shows is measured in a short one."""

    def play(small: ExperimentFile, folder: Path) -> None:
        given = {name: getattr(settings, name) for name in ("ray_address", "ray_num_cpus", "ray_num_gpus", "modules")}
        how = TrainSettings(**given, storage_path=str(folder), trust=settings.trust)
        run_file(small, how, keep_going=True, rehearses=True)

    rows = [["stage", "runs", "trials", "model", "state"]]
    for stage in stages:
        experiment, found = stage.experiment, measured(stage)
        default = default_config(experiment.run) if _needs_ray(stage) else None
        model = experiment.config.get("base_model", getattr(default, "base_model", None))
        state = "done" if stage.name in records else f"{found[1]:.0%} done" if found else "to do"
        rows.append([stage.name, experiment.run, str(trials_of(experiment) or ""), str(model or ""), state])
    print_table(rows, optional=["trials", "runs"])
    if len(records) == len(stages):
        say("All stages are done; `--no-resume` does them again.")
        return
    rehearsed: dict[str, float] = {}
    try:
        rehearsed = rehearse(file, stages, play)
    except UserError as error:  # about settings that nobody wrote: the file itself was checked
        say(f"Nothing could be measured in small: {error}", "dim")
    left = left_of(stages, records, rehearsed, settings.resume)
    say(f"{len(stages) - len(records)} of {len(stages)} stages are left: about {left.text()} on this machine.")


def _stand_ins(stage: Stage) -> list[str]:
    config = stage.experiment.config
    if _needs_ray(stage):
        return stand_ins({"base_model": getattr(default_config(stage.experiment.run), "base_model", None), **config})
    kind = STAGE_KINDS[stage.experiment.run]
    return [*([kind.stands_in] if kind.stands_in else []), *stand_ins(kind.loads(config))]


def _needs_ray(stage: Stage) -> bool:
    return stage.experiment.run not in STAGE_KINDS


def _finished(stages: list[Stage], resume: bool) -> dict[str, StageRecord]:
    """The stages that need not run: those with a readable result, unless a stage that they use has to run."""
    finished: dict[str, StageRecord] = {}
    for stage in stages:
        if resume:
            require_readable(stage.folder)
        record = stage.finished()
        if resume and record is not None and set(stage.uses) <= set(finished):
            finished[stage.name] = record
    return finished


def check_stages(
    stages: list[Stage],
    finished: Mapping[str, StageRecord],
    checked_by_python: bool = False,
    many_cpus: bool = False,
    have: Mapping[str, float] | None = None,
    refused: list[str] | None = None,
) -> int:
    """Checks all stages that will run, with their references replaced by the paths that there will be.

    Args:
        stages: All stages of the file.
        finished: Records of those that need not run.
        checked_by_python: True if settings come from `AlgorithmConfig` objects, whose setters have seen them.
        many_cpus: True if Ray may have more CPUs than this machine has cores.
        have: "CPU" and "GPU" -> how many a local Ray will have, as far as that is known.
        refused: A list to which the names of stages with impossible settings are added, in place of an error.

    Returns:
        Logical CPUs that a local Ray should have.

    Raises:
        UserError: At the first unknown key or impossible value.
    """
    for stage in stages:
        check_searches(f"{stage.name}.config", stage.experiment.config)
        if stage.name not in finished and not stage.trust:
            _refuse_unsafe(stage)
    outputs: dict[str, list[str]] = {}
    configs: dict[str, Any] = {}
    seeds = _seed_sweeps(stages)
    to_come: tuple[str, ...] = ()
    cpus = available_cpus()
    check_rows(stages)
    check_kinds(stages)
    for stage in stages:
        resolved = replace(_resolved(stage, outputs, seeds), to_come=to_come)
        if stage.name not in finished:
            try:
                if _needs_ray(stage):
                    configs[stage.name] = tune_stage.check(resolved, tuple(STAGE_KINDS), checked_by_python, many_cpus)
                    check_restored(stage, stages, configs)
                    if "GPU" in (have or {}) and configs[stage.name] is not None:
                        check_device(stage, configs[stage.name])
                    cpus = max(cpus, tune_stage.cpus_needed(resolved, have))
                else:
                    STAGE_KINDS[stage.experiment.run].check(resolved)
            except OSError as error:
                path = one_line(str(error.filename), 80)
                raise UserError(f"`{stage.name}` names the path {path!r}, but {error.strerror or error}.") from error
            except UserError as error:
                if refused is None:
                    raise UserError(_as_written(str(error), outputs), error.code) from error
                refused.append(stage.name)
            future = str(stage.folder.absolute() / _NOT_YET)
            to_come = (*to_come, future)
            outputs[stage.name] = [future] * max(1, len(seeds.get(stage.name, ())))
        else:
            outputs[stage.name] = _absolute(stage, finished[stage.name].outputs)
    check_adapters(stages)  # of settings that are known to be allowed
    check_played_games(stages, finished)
    return cpus


def _as_written(sentence: str, outputs: Mapping[str, list[str]]) -> str:
    """An error with references as the file has them, in place of paths at which nothing is yet."""
    for name, paths in outputs.items():
        for path in paths:
            sentence = sentence.replace(path, f"${{{name}}}") if path.endswith(_NOT_YET) else sentence
    return sentence


def _refuse_unsafe(stage: Stage) -> None:
    """Refuses what a stranger's file must not contain: Python code, trust in itself, and keys for foreign servers."""
    for place in evaluated_in(vars(stage.experiment), stage.name):
        raise UserError(
            f"`{place}` is Python that Ray Tune would run; write the value itself or a search space, or say `--trust` "
            "if you know where the file comes from."
        )
    for place, key, address in secrets_in(vars(stage.experiment), stage.name):
        raise UserError(
            f"`{place}` would have the environment variable {key!r} sent to {address!r}, to which it does not belong; "
            f"name the provider's own in `api_key_env` (such as {', '.join(list(KEYS)[:3])}; for this machine and "
            "private networks any that ends in _API_KEY), or say `--trust` if you know where the file comes from."
        )
    for place in trusted_in(vars(stage.experiment), stage.name):
        raise UserError(
            f"`{place}` is true, but a file cannot vouch for what it names; remove it, and say `--trust` if you know "
            "where the checkpoints come from."
        )


def _vouched_for(stage: Stage) -> Stage:
    """A stage whose user trusts what the checkpoints that it names recorded, those of planner and executor, too."""
    config = dict(stage.experiment.config)
    if "planner" in config:
        config["planner"] = trusting(config["planner"])
    if isinstance(config.get("env_config"), Mapping):
        config["env_config"] = vouched_for_game(config["env_config"])
    return replace(stage, trust=True, experiment=stage.experiment.model_copy(update={"config": config}))


def _seed_sweeps(stages: list[Stage]) -> dict[str, list[Any]]:
    """Stage -> its seeds, of the stages that train one trial per seed and vary nothing else."""
    trained = {stage.name: stage.experiment for stage in stages if _needs_ray(stage)}
    seeds = {name: seeds_of(experiment.config) for name, experiment in trained.items()}
    points = {name: experiment.num_samples * grid_points(experiment.config) for name, experiment in trained.items()}
    return {name: found for name, found in seeds.items() if found and points[name] == len(found)}


def _resolved(stage: Stage, outputs: Mapping[str, list[str]], seeds: Mapping[str, list[Any]]) -> Stage:
    """A stage with paths for its references; of a sweep over the same seeds it takes the result of each seed."""
    many = stage.experiment.run in STAGE_KINDS
    own = seeds_of(stage.experiment.config)
    same_seeds = [name for name in stage.uses if own and seeds.get(name) == own]
    default = None if many else default_config(stage.experiment.run)
    rllibs_own = default is not None and type(default).__module__.startswith("ray.")
    given = {
        "config": resolve(stage.experiment.config, outputs, many, same_seeds),
        "restore": resolve(stage.experiment.restore, outputs),
        "scheduler_config": stage.experiment.scheduler_config,
    }
    here = on_this_machine(stage.name, given, rllibs_own)
    here["restore"] = _checkpoint_of(here["restore"])
    here["config"] |= {key: _checkpoint_of(here["config"][key]) for key in _CHECKPOINTS if key in here["config"]}
    return replace(stage, experiment=stage.experiment.model_copy(update=here))


def _fetched(stage: Stage) -> Stage:
    """A stage with copies of what its settings name in a store; references stay."""
    here = on_this_machine(stage.name, {"config": stage.experiment.config})
    return replace(stage, experiment=stage.experiment.model_copy(update=here))


def _checkpoint_of(value: Any) -> Any:
    """The checkpoint of a stage that is given by its folder; anything else as it is."""
    return str(find_checkpoint(value)) if isinstance(value, str) and read_record(Path(value)) else value


def _absolute(stage: Stage, paths: list[str]) -> list[str]:
    return [os.path.normpath(stage.folder.absolute() / path) for path in paths]


def _make_room(stage: Stage, resume: bool) -> None:
    """Moves results of other settings out of the way; those of these settings stay and are continued."""
    if not stage.folder.exists() or not any(stage.folder.iterdir()):
        return
    record = stage.record()
    if record is None and not (stage.folder / MARKER).exists():
        raise UserError(
            f"{short_path(stage.folder)} exists but was not written by this command (it has no {MARKER}); "
            "choose another `--experiment-name` or move it away."
        )
    if resume and _is_unfinished(stage, record):
        return
    if record is not None and record.status == "running" and _needs_ray(stage) and not _has_results(stage.folder):
        shutil.rmtree(stage.folder)  # it failed before there was anything to keep
        return
    aside = move_aside(stage.folder, f"{stage.folder.name}.old")
    say(f"Results of earlier settings were moved to {short_path(aside)}.", "dim")
    if record is not None and record.outputs and _only_stop_differs(stage, record):
        say(f"Only `stop` differs; to go on from them, set `restore: {short_path(aside / record.outputs[-1])}`.")


def _only_stop_differs(stage: Stage, record: StageRecord) -> bool:
    """True if a stage differs from its earlier results in nothing but the moment at which it ends."""
    settings = json.loads(json.dumps(stage.experiment.model_dump(), default=str))
    return settings["stop"] != record.settings.get("stop") and settings == {
        **record.settings,
        "stop": settings["stop"],
    }


def _is_unfinished(stage: Stage, record: StageRecord | None) -> bool:
    """True if a stage was begun with these settings and has not ended."""
    return record is not None and record.fingerprint == stage.fingerprint and record.status == "running"


def _has_results(folder: Path) -> bool:
    """True if a stage that trains has left anything: a checkpoint, whole or not, or the row of an iteration."""
    rows = (path for path in folder.glob("*trial_*/result.json") if path.stat().st_size)
    return any(True for _ in folder.glob("*trial_*/*checkpoint_*")) or any(True for _ in rows)


@contextlib.contextmanager
def _lock(folders: set[Path]) -> Iterator[None]:
    """Keeps two commands from writing into the same results; a killed one leaves no lock behind."""
    with contextlib.ExitStack() as stack:
        for folder in sorted(folders):
            try:
                stack.enter_context(claim_file(folder / ".lock", wait=False))
            except filelock.Timeout:
                raise UserError(
                    f"Another `rllib train` is writing to {short_path(folder)}; wait for it, or choose "
                    "another `--experiment-name`."
                ) from None
            except OSError as error:
                doing = f"`storage_path`: no results can be written to {short_path(folder)}"
                raise disk_error(error, doing, "give another place with `--storage-path`") from error
        yield


def _known_resources(settings: TrainSettings) -> dict[str, float]:
    """What a local Ray will have for certain; nothing of one that runs already, here or elsewhere."""
    if settings.ray_address or ray_runs():
        return {}
    cpus = {} if settings.ray_num_cpus is None else {"CPU": settings.ray_num_cpus}
    return {**cpus, "GPU": gpus_here() if settings.ray_num_gpus is None else settings.ray_num_gpus}


def _session(settings: TrainSettings, cpus: int) -> RaySession:
    if settings.ray_address and (settings.ray_num_cpus is not None or settings.ray_num_gpus is not None):
        raise UserError(
            "`--ray-num-cpus` and `--ray-num-gpus` are for a local Ray; leave them out with `--ray-address`."
        )
    return RaySession(
        cpus=settings.ray_num_cpus if settings.ray_num_cpus is not None else cpus,
        gpus=settings.ray_num_gpus,
        address=settings.ray_address,
        verbosity=settings.verbose,
        modules=tuple(settings.modules or ()),
    )


def _show_end(stages: list[Stage], records: Mapping[str, StageRecord], modules: Sequence[str]) -> None:
    """The panel with where everything lies and what to type next."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    trained: list[tuple[Stage, Path]] = []
    for stage in stages:
        record = records[stage.name]
        results = [Path(place) for place in _absolute(stage, record.outputs)]
        for place in results:
            table.add_row(plain(stage.name), plain(short_path(place)))
        if _needs_ray(stage):
            trained.append((stage, results[-1]))
            if (results[-1] / "policy" / "adapters").is_dir():
                table.add_row("  adapters", plain(short_path(results[-1] / "policy" / "adapters")))
        for name, file in record.files.items():
            table.add_row(f"  {plain(name)}", plain(short_path(stage.folder / file)))
        figures = _figures(record.summary)
        if figures:
            table.add_row("", f"[dim]{plain(figures)}[/]")
    for phrase in dict.fromkeys(phrase for stage in stages for phrase in stage.stand_ins):
        table.add_row("stands in", plain(phrase))
    out.print(Panel(table, title="Everything lies here", title_align="left", expand=False))
    if trained:
        _say_next(*trained[-1], alone=len(records[trained[-1][0].name].outputs) == 1, modules=modules)


def _say_next(stage: Stage, checkpoint: Path, alone: bool, modules: Sequence[str]) -> None:
    """Prints the commands that play what was trained, as a shell takes them."""
    words = [short_path(stage.folder if alone else checkpoint)]
    if (checkpoint / "policy").is_dir():
        words += [word for module in modules for word in ("--import", module)]
        words += ["--trust"] if reaches_outside(read_manifest(checkpoint / "policy")) else []
        say(f"Next: rllib evaluate {shlex.join(words)}\n      rllib replay {shlex.join(words)}")
    say_curves(stage.folder)


def say_curves(folder: Path) -> None:
    """Prints the command that shows the curves of a stage, where it is installed."""
    if find_spec("tensorboard") is not None:
        say(f"Curves: tensorboard --logdir {shlex.quote(short_path(folder))}")


_OF_WORDS = ("message_words_mean", "vocabulary")


def _figures(summary: Mapping[str, Any]) -> str:
    """A few figures of a stage on one line: costs of chat models that were asked, words of agents that spoke."""
    spoken = summary.get("vocabulary")
    asked = summary.get("requests") or summary.get("kept_answers")
    numbers = {
        key: value
        for key, value in summary.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and key != "seed"
        and (asked or key not in COSTS)
        and (spoken or key not in _OF_WORDS)
    }
    names = {name: name if ":" in name else name.replace("_", " ") for name in numbers}  # a planner's has its path
    return ", ".join(f"{names[name]} {round(value, 3) + 0:g}" for name, value in list(numbers.items())[:8])
