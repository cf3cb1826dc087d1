"""A stage that trains a registered algorithm through Tune, and continues where a killed one stopped."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError, did_you_mean, names_and_hint, one_line, within
from rllib_llm_comm.core.files import disk_fault, disk_fault_now, move_aside, read_text
from rllib_llm_comm.experiments.algorithm_settings import (
    annotations_of,
    check_config,
    check_mutations,
    check_type,
    find_algorithm,
    holds_plain_values,
)
from rllib_llm_comm.experiments.console import (
    StageFailedError,
    StoppedError,
    TrainingTable,
    cause_of,
    lookup,
    say,
    short_path,
    summary_of,
)
from rllib_llm_comm.experiments.env_settings import (
    check_environment,
    check_planned_environment,
    without_missing,
)
from rllib_llm_comm.experiments.experiment_file import Experiment
from rllib_llm_comm.experiments.prerequisites import (
    check_cores,
    check_prerequisites,
    require_checkpoint,
    require_path,
    tell_other_prompts,
)
from rllib_llm_comm.experiments.ray_session import (
    RaySession,
    available_cpus,
    cpus_alone,
    demand,
    ray_is_local,
    trials_at_once,
    works_alone,
)
from rllib_llm_comm.experiments.search_space import grid_points, has_draws, has_search, seeds_of, to_tune
from rllib_llm_comm.experiments.stages import Stage, StageResult
from rllib_llm_comm.experiments.tune_state import (
    check_restore,
    find_state,
    put_aside,
    repair_state,
    whole_checkpoints,
)
from rllib_llm_comm.policies.policy_manifest import MANIFEST, read_manifest, require_same_network
from rllib_llm_comm.policies.signatures import OwnStates, make_key
from rllib_llm_comm.rl.algorithms import register_all

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
    from ray.tune.experiment import Trial

# Settings that are paths of something that must be there.
_PATH_SETTINGS = ("input", "input_", "demonstrations")
_CHECKPOINT_SETTINGS = ("action_checkpoint", "message_checkpoint", "officer")
# Common name -> Tune's name.
_SCHEDULERS = {"asha": "asynchyperband"}
# Schedulers that change a trial's resources while it runs, for which Tune starts another process.
_NEW_PROCESSES = ("resource_changing",)


def check(
    stage: Stage,
    kinds: tuple[str, ...],
    checked_by_python: bool = False,
    many_cpus: bool = False,
) -> AlgorithmConfig | None:
    """Checks everything about the stage, its references replaced, that can be checked before Ray starts.

    Args:
        stage: The stage.
        kinds: Names of other things that can run, for the hint.
        checked_by_python: True if the config comes from an `AlgorithmConfig` object, whose setters have seen it.
        many_cpus: True if Ray may have more CPUs than this machine: those of a cluster, or as many as the user says.

    Returns:
        The algorithm's config; `None` if it was checked by Python.

    Raises:
        UserError: At the first unknown key or impossible value.
    """
    experiment = stage.experiment
    algorithm = find_algorithm(experiment.run, kinds)
    _check_scheduler(stage, algorithm)
    if experiment.restore and experiment.restore not in stage.to_come and not Path(experiment.restore).is_dir():
        raise UserError(f"`{stage.name}.restore` is {experiment.restore!r} but no checkpoint folder is there.")
    if experiment.restore not in stage.to_come:
        check_restore(stage, algorithm)
    _check_paths(stage)
    if not checked_by_python:
        plain = _plain_config(experiment)
        if isinstance(env_config := experiment.config.get("env_config") or {}, dict):
            check_environment(stage.name, experiment.env, without_missing(env_config, stage.to_come), stage.trust)
        if isinstance(plain.get("env_config"), dict):
            plain["env_config"] = without_missing(plain["env_config"], stage.to_come)
        config = check_config(stage.name, algorithm, plain, stage.to_come, stage.trust)
        check_planned_environment(stage.name, config)
        check_prerequisites(stage, config)
        _check_stop(stage, config)
        if experiment.restore and experiment.restore not in stage.to_come:
            tell_other_prompts(experiment.restore, config)
        if not many_cpus:
            check_cores(stage.name, config)
        if experiment.restore and (Path(experiment.restore) / "policy" / MANIFEST).is_file():
            manifest = read_manifest(Path(experiment.restore) / "policy")
            with within(f"{stage.name}.config"):
                origin = f"the checkpoint {experiment.restore!r}"
                require_same_network(manifest.model_config, network_settings(config), origin)
        return config
    return None


def network_settings(config: AlgorithmConfig | None) -> Mapping[str, Any]:
    """The `model_config` that a checked config gives its modules; empty of RLlib's own algorithms."""
    from rllib_llm_comm.rl.strict_config import StrictConfigMixin

    if not isinstance(config, StrictConfigMixin):
        return {}
    made = config.get_default_rl_module_spec().model_config
    return made if isinstance(made, Mapping) else {}


def _check_stop(stage: Stage, config: Any) -> None:
    """Refuses to stop supervised training by what it does not count: Tune would end it after the first pass."""
    from rllib_llm_comm.verco.sft import AdapterSFTConfig

    if isinstance(config, AdapterSFTConfig) and "decisions" in stage.experiment.stop:
        raise UserError(
            f"`{stage.name}.stop` has 'decisions' but {stage.experiment.run} makes none; use 'training_iteration', the "
            "passes over its rows."
        )


def cpus_needed(stage: Stage, have: Mapping[str, float] | None = None) -> int:
    """Logical CPUs that Ray should have for a checked stage: of one trial, of those that read data of all at once.

    `have` is "CPU" and "GPU" -> how many a local Ray will have, as far as that is known.

    Raises:
        UserError: If each trial needs more than Ray will have.
    """
    known = have or {}
    most = int(known["CPU"]) if "CPU" in known else None
    algorithm = find_algorithm(stage.experiment.run)
    try:
        config = tune_config(stage.experiment, algorithm, most)
        asked = demand(algorithm, config)
    except ValueError:  # an algorithm that cannot tell its resources from settings alone
        return available_cpus()
    if not has_draws(config):
        asked.require(stage.name, {"CPU": math.inf, "GPU": math.inf, **known})
    # Ray Data's work lasts moments; trials need not wait for each other's.
    trials = 1
    if asked.cpus_for_data:
        trials = min(grid_points(config) * stage.experiment.num_samples, trials_at_once(asked.cpus))
    return math.ceil((asked.cpus + asked.cpus_for_data) * trials)


def run(stage: Stage, ray: RaySession) -> StageResult:
    """Trains all trials of a stage with its references replaced, and gives their checkpoints and result files.

    Raises:
        StoppedError: After ctrl-C or SIGTERM; a checkpoint of each trial was written then.
        StageFailedError: If a trial failed.
        UserError: If a trial failed because of a setting, or Ray is too small for one.
    """
    from ray import cluster_resources

    algorithm = find_algorithm(stage.experiment.run)
    if stage.uses:  # what they left could not be checked before they had run
        plain = check_config(stage.name, algorithm, _plain_config(stage.experiment), trust=stage.trust)
        if isinstance(env_config := stage.experiment.config.get("env_config") or {}, dict):
            check_environment(stage.name, stage.experiment.env, env_config, stage.trust)
        check_prerequisites(stage, plain)
    check_restore(stage, algorithm)
    make_key()
    config = tune_config(stage.experiment, algorithm, None if ray.address else ray.cpus)
    ray.start()
    register_all()
    asked = demand(algorithm, config)
    asked.require(stage.name, cluster_resources(), ray.address)
    count = stage.experiment.num_samples * grid_points(config)
    resume, restore = _what_to_continue(stage, count)
    with TrainingTable(stage.experiment.stop, count) as table:
        trials = _run_trials(stage, config, table, resume, restore, asked.cpus)
    _raise_failures(stage, trials)
    _say_best(stage.experiment, trials)
    return _collect(stage, trials)


def _run_trials(
    stage: Stage, config: dict[str, Any], table: TrainingTable, resume: bool, restore: str | None, cpus: float
) -> list[Trial]:
    from ray import tune
    from ray.tune.error import TuneError
    from ray.tune.schedulers import create_scheduler
    from ray.tune.search import BasicVariantGenerator

    from rllib_llm_comm.experiments.trackers import tracker_callbacks
    from rllib_llm_comm.experiments.tune_callback import (
        CurveRows,
        CurveTable,
        EndedTrials,
        SafeKeeping,
        TableCallback,
        catch_stop,
        trial_folder,
        trial_name,
    )
    from rllib_llm_comm.rl.policy_checkpoints import with_policy_folder

    experiment, algorithm = stage.experiment, find_algorithm(stage.experiment.run)
    searcher = BasicVariantGenerator(max_concurrent=trials_at_once(cpus) if ray_is_local() else 0)
    with catch_stop() as interrupted:
        keeping = SafeKeeping(stage, interrupted, say)
        # The row of an iteration is in its file before its checkpoint is sealed and signed.
        curve = CurveTable()
        callbacks = [EndedTrials(searcher), curve, CurveRows(curve), TableCallback(table), keeping]
        try:
            analysis = tune.run(
                with_policy_folder(algorithm),
                name=stage.folder.name,
                storage_path=str(stage.folder.parent.absolute()),
                config=config,
                stop=experiment.stop or None,
                num_samples=experiment.num_samples,
                time_budget_s=experiment.time_budget_s,
                max_failures=experiment.max_failures,
                scheduler=create_scheduler(_scheduler(experiment), **experiment.scheduler_config),
                checkpoint_config=tune.CheckpointConfig(**experiment.checkpoint_config.model_dump()),
                restore=restore,
                resume="AUTO+ERRORED" if resume else None,
                search_alg=searcher,
                reuse_actors=works_alone(algorithm, config) and _scheduler(experiment) not in _NEW_PROCESSES,
                trial_name_creator=trial_name,
                trial_dirname_creator=trial_folder,
                callbacks=[*callbacks, *tracker_callbacks(stage)],
                raise_on_failed_trial=False,
                verbose=0,
            )
        except TuneError as error:  # of Tune itself, not of a trial
            if fault := disk_fault(cause_of(str(error))[1]):
                sentence = f"`{stage.name}` stopped because {fault} and type the same command again."
                raise StageFailedError(sentence, str(error)) from error
            raise
        except (AttributeError, ImportError) as error:  # of pickles, which name classes by their place
            if resume and (isinstance(error, ModuleNotFoundError) or "get attribute" in str(error)):
                raise UserError(
                    f"{short_path(stage.folder)} was begun by another version of this program or of your own code "
                    f"({error}), and cannot be gone on with; take that version, or move the folder away."
                ) from error
            raise
    trials = sorted(analysis.trials, key=lambda trial: int(str(trial.experiment_tag or 0).split("_")[0]))
    if keeping.stopped and all(trial.status != "ERROR" for trial in trials):
        raise StoppedError  # to Tune a trial that was stopped is done like any other
    return trials


def _plain_config(experiment: Experiment) -> dict[str, Any]:
    """The `config:` with `env` in it, and the CPUs and GPUs that `resources_per_trial` asks for."""
    config = dict(experiment.config)
    if experiment.env is not None:
        config["env"] = experiment.env
    asked = experiment.resources_per_trial
    if asked.cpu is not None:
        config["num_cpus_for_main_process"] = asked.cpu
    if asked.gpu is not None:
        config["num_gpus_per_learner"] = asked.gpu
    return config


def tune_config(experiment: Experiment, algorithm: type[Algorithm], most: int | None = None) -> dict[str, Any]:
    """The config for Tune: with Tune's search spaces, and all cores for a trial that works in one process.

    Ray gives a process as many threads (`OMP_NUM_THREADS`) as it reserves CPUs for it. `most` are the logical CPUs of a
    local Ray; `None` if they are not known.
    """
    config = _plain_config(experiment)
    one_trial = experiment.num_samples == 1 and not has_search(config)
    if (
        one_trial
        and works_alone(algorithm, config)
        and not {"num_cpus_for_main_process", "num_cpus_for_driver"} & set(config)
    ):
        config["num_cpus_for_main_process"] = cpus_alone(algorithm, config, available_cpus(), most)
    seeds = seeds_of(config)
    return {key: to_tune(value, seeds) for key, value in config.items()}


def _what_to_continue(stage: Stage, trials: int) -> tuple[bool, str | None]:
    """True if Tune can continue this stage, or else the checkpoint from which to start.

    Without a state that can be read, a single trial goes on from its newest whole checkpoint. Nothing is
    deleted: what cannot be used is renamed.
    """
    for sentence in put_aside(stage):
        say(sentence)
    states = OwnStates(stage.folder)
    if state := find_state(stage.folder, lambda *file: stage.trust or states.holds_content(*file)):
        repair_state(state, stage.folder)
        states.sign([state])
        say("Continuing where the last call stopped.")
        return True, None
    folders = [path for path in stage.folder.glob("trial_*") if path.is_dir()]
    kept = [move_aside(path, f"lost_{path.name}") for path in folders]
    whole = [checkpoint for path in kept for checkpoint in whole_checkpoints(path)]
    if not whole or trials != 1:
        if whole:
            say(
                f"The state of the trials cannot be read; they begin anew. Their checkpoints are kept, such as "
                f"{short_path(whole[-1])}."
            )
        return False, stage.experiment.restore
    say(f"Continuing from {short_path(whole[-1])}.")
    trial, curve = whole[-1].parent, "result.json"
    if (trial / curve).exists():
        (began := folders[kept.index(trial)]).mkdir()
        shutil.copyfile(trial / curve, began / curve)
    return False, str(whole[-1])


def _raise_failures(stage: Stage, trials: list[Trial]) -> None:
    failed = [trial for trial in trials if trial.status == "ERROR"]
    if failed:
        trial = failed[0]
        report = Path(trial.path) / "error.txt"
        text = read_text(report) if report.exists() else str(trial.get_error() or "")
        name, message = cause_of(text)
        if name == "UserError":
            raise UserError(f"In `{stage.name}`: {message}")
        # A full disk often has no room for the traceback either.
        if fault := disk_fault(message) or (None if message else disk_fault_now(stage.folder)):
            raise StageFailedError(
                f"`{stage.name}` stopped because {fault} and type the same command again: {_going_on(trials)}", text
            )
        where = f" (traceback: {short_path(report)}, or run again with -vv)" if report.exists() else ""
        raise StageFailedError(f"`{stage.name}` failed with {name}: {message}{where}", text)
    if not trials or any(trial.status != "TERMINATED" for trial in trials):
        raise StoppedError


def _going_on(trials: list[Trial]) -> str:
    """From where the trials that have failed will go on."""
    whole = [checkpoints[-1] for trial in trials if (checkpoints := whole_checkpoints(Path(trial.path)))]
    if not whole:
        return "there is no checkpoint yet, so it begins anew."
    if len(trials) == 1:
        return f"it goes on from {short_path(whole[0])}."
    return f"{len(whole)} of {len(trials)} trials have a checkpoint and go on from it."


def _say_best(experiment: Experiment, trials: list[Trial]) -> None:
    """The trial that the scheduler's metric likes best, or a warning if no result had this metric."""
    metric = experiment.scheduler_config.get("metric")
    if not metric or len(trials) < 2:
        return
    found = {trial: lookup(trial.last_result or {}, str(metric)) for trial in trials}
    known = {trial: value for trial, value in found.items() if value is not None and math.isfinite(value)}
    if not known:
        say(f"No last result has `scheduler_config.metric` {metric!r}, so the scheduler had nothing to compare.")
        return
    choose = min if experiment.scheduler_config.get("mode") == "min" else max
    best = choose(known, key=known.__getitem__)
    say(f"Best of {len(trials)} by {metric}: {best} ({known[best]:.4g}), in {short_path(Path(best.path))}")


def _collect(stage: Stage, trials: list[Trial]) -> StageResult:
    settings = stage.experiment.checkpoint_config
    outputs: list[Path] = []
    for trial in trials:
        best = trial.run_metadata.checkpoint_manager.best_checkpoint_result
        newest = trial.checkpoint
        chosen = best.checkpoint if settings.checkpoint_score_attribute and best else newest
        outputs.append(Path(chosen.path) if chosen else Path(trial.path))
    if len(trials) == 1:
        files = {"metrics": Path(trials[0].path) / "result.json"}
        return StageResult(outputs, files, summary_of(trials[0].last_result))
    return StageResult(outputs, {}, {"trials": {str(trial): summary_of(trial.last_result) for trial in trials}})


def _scheduler(experiment: Experiment) -> str:
    """Tune's name of the scheduler."""
    name = experiment.scheduler.lower()
    return _SCHEDULERS.get(name, name)


def _check_scheduler(stage: Stage, algorithm: type[Algorithm]) -> None:
    from ray._common.utils import get_function_args
    from ray.tune.schedulers import SCHEDULER_IMPORT, create_scheduler

    experiment, place = stage.experiment, f"{stage.name}.scheduler_config"
    names = [*SCHEDULER_IMPORT, *_SCHEDULERS]
    if experiment.scheduler.lower() not in names:
        allowed = names_and_hint(experiment.scheduler.lower(), names)
        raise UserError(f"`{stage.name}.scheduler` is {experiment.scheduler!r} but must be one of {allowed}")
    kind = SCHEDULER_IMPORT[_scheduler(experiment)]
    if isinstance(kind, type):
        arguments = [name for name in get_function_args(kind) if name != "self"]
        annotations = annotations_of(getattr(kind, "__init__"))  # noqa: B009  (mypy)
        for key, value in experiment.scheduler_config.items():
            if key not in arguments:
                listed = ", ".join(arguments) or "none"
                raise UserError(
                    f"`{place}.{key}` is no argument of {kind.__name__} ({listed}).{did_you_mean(key, arguments)}"
                )
            annotation = annotations.get(key, Any)
            check_type(f"{place}.{key}", value, annotation)
            if isinstance(value, str) and not holds_plain_values(annotation):
                raise UserError(f"`{place}.{key}` is {value!r} but must be an object, which a file cannot hold.")
    check_mutations(
        f"{place}.hyperparam_mutations",
        algorithm,
        experiment.scheduler_config.get("hyperparam_mutations"),
        stage.trust,
    )
    try:
        create_scheduler(_scheduler(experiment), **experiment.scheduler_config)
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(str(error))}" if str(error) else type(error).__name__
        raise UserError(f"`{place}` does not fit the scheduler {experiment.scheduler!r} ({reason}).") from error


def _check_paths(stage: Stage) -> None:
    for key in (*_PATH_SETTINGS, *_CHECKPOINT_SETTINGS):
        value = stage.experiment.config.get(key)
        if not isinstance(value, str) or value in (*stage.to_come, "sampler") or "://" in value or "*" in value:
            continue
        require = require_checkpoint if key in _CHECKPOINT_SETTINGS else require_path
        require(f"{stage.name}.config.{key}", value)
