"""How long the stages of a file take here, by what was measured: in runs that are there, or in a rehearsal in small."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.study_results import CURVE_ERRORS, read_rows
from rllib_llm_comm.experiments.algorithm_settings import default_config, find_algorithm
from rllib_llm_comm.experiments.asked_models import chats_of
from rllib_llm_comm.experiments.console import fraction_done, lookup, out, say, span
from rllib_llm_comm.experiments.experiment_file import Experiment, ExperimentFile
from rllib_llm_comm.experiments.ray_session import demand, trials_at_once
from rllib_llm_comm.experiments.search_space import GRID, grid_points, search_kind
from rllib_llm_comm.experiments.stages import Stage, as_list, source_of
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.experiments.tune_stage import tune_config
from rllib_llm_comm.policies.stage_record import read_record

# Setting of a stage that does not train, in proportion to which it takes its time -> its value in a rehearsal.
_AMOUNTS = {"target_labels": 64, "target_demonstrations": 64, "episodes": 8}
# Settings of an algorithm that acts -> the most in a rehearsal; an iteration takes time in proportion to the first.
_BATCH = "train_batch_size_per_learner"
_ACTING = {_BATCH: 128, "minibatch_size": 128, "num_envs_per_env_runner": 16}
_ITERATIONS = 2  # the first one also loads and compiles
_BEGUN = ".begun"  # behind the name of a stage that does not train: one row or episode of it, which loads what it needs


@dataclass(frozen=True)
class Left:
    """What is left of a file: seconds of the stages whose speed is known, and those whose speed is not."""

    seconds: float
    unknown: tuple[str, ...]

    def text(self) -> str:
        """Both in words."""
        more = f"{span(self.seconds)} more" if self.seconds else "an unknown time more"
        if not self.unknown or not self.seconds:
            return more
        first = ", ".join(self.unknown[:3]) + (", ..." if len(self.unknown) > 3 else "")
        return f"{more}, and {len(self.unknown)} stages that were not measured yet ({first})"


def trials_of(experiment: Experiment) -> int:
    """The number of trials of a stage; 0 of one that does not train."""
    return 0 if experiment.run in STAGE_KINDS else experiment.num_samples * grid_points(experiment.config)


def measured(stage: Stage) -> tuple[float, float] | None:
    """What the runs of a stage tell.

    Returns:
        The seconds that the whole stage takes, and the share of it that is done; `None` if nothing is known yet.
    """
    record, finished = stage.record(), stage.finished() is not None
    if stage.experiment.run in STAGE_KINDS:
        return (record.seconds, 1.0) if finished and record is not None else None
    if record is None or record.fingerprint != stage.fingerprint:
        return None
    shares, seconds = 0.0, 0.0
    for path in stage.folder.glob("trial_*/result.json"):
        try:
            rows = read_rows(path)
        except CURVE_ERRORS:  # told when the stage goes on
            continue
        if rows:
            shares += 1.0 if finished else fraction_done(rows[-1], stage.experiment.stop)
            seconds += lookup(rows[-1], "time_total_s") or 0.0
    if not shares:
        return None
    trials = trials_of(stage.experiment)
    return seconds / shares * _turns(stage.experiment, trials), min(1.0, shares / trials)


def left_of(
    stages: Sequence[Stage],
    finished: Iterable[str],
    rehearsed: Mapping[str, float] | None = None,
    resume: bool = True,
) -> Left:
    """What is left of a file, a stage that was not measured taken for as long as its like.

    Alike are the stages of one system in several scenarios, and all its evaluations in one.

    Args:
        stages: All stages.
        finished: Names of those that need not run.
        rehearsed: Stage -> seconds of the whole stage, as a rehearsal found; what really ran stands above them.
        resume: False if everything is done again.
    """
    done = set(finished)
    whole: dict[str, float] = dict(rehearsed or {})
    shares: dict[str, float] = {}
    for stage in stages:
        if found := measured(stage):
            whole[stage.name], shares[stage.name] = found
    seconds, unknown = 0.0, []
    for stage in stages:
        if stage.name in done:
            continue
        if (known := _like(stage, whole)) is None:
            unknown.append(stage.name)
        else:
            again = not resume or stage.finished() is not None  # it has to run, whatever is there
            seconds += known * (1.0 - (0.0 if again else shares.get(stage.name, 0.0)))
    return Left(seconds, tuple(unknown))


def rehearse(
    file: ExperimentFile, stages: Sequence[Stage], play: Callable[[ExperimentFile, Path], object]
) -> dict[str, float]:
    """Runs those stages of a file in small whose speed nothing tells, each kind once.

    What would ask a chat model or cannot be made small is left out, together with what uses it. So is what refuses the
    small settings, which nobody wrote.

    Args:
        file: The experiments, with the settings of their language model.
        stages: Its stages.
        play: Runs experiments with results below a folder; passes over those that are refused or fail.

    Returns:
        Stage -> seconds of the whole stage, of those that could be measured.
    """
    known = {stage.name: found[0] for stage in stages if (found := measured(stage))}
    wanted: dict[str, Stage] = {}
    for stage in stages:
        if _like(stage, {**known, **dict.fromkeys(wanted, 0.0)}) is None:
            wanted[stage.name] = stage
    by_name = {stage.name: stage for stage in stages}
    needed = set(wanted)
    for stage in reversed(stages):  # what a stage uses comes before it
        needed |= set(stage.uses) if stage.name in needed else set()
    small: dict[str, Experiment] = {}
    played: dict[str, Experiment] = {}
    for name in by_name:
        experiment, stage = file.experiments[name], by_name[name]
        free = name in needed and set(stage.uses) <= set(small) and not chats_of(stage, by_name)
        if free and (experiment.run not in STAGE_KINDS or _amounts(experiment)):
            small[name] = in_small(experiment)
            if experiment.run in STAGE_KINDS:
                played[f"{name}{_BEGUN}"] = in_small(experiment, most=1)
            played[name] = small[name]
    if not small:
        return {}
    count = "1 stage" if len(small) == 1 else f"{len(small)} stages"
    say(f"Measuring {count} in small, which takes minutes; ctrl-C ends it.", "dim")
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        quiet, out.quiet = out.quiet, True
        try:
            play(replace(file, name="rehearsal", experiments=played, model={}), Path(folder))
        finally:
            out.quiet = quiet
        return {
            name: seconds
            for name, experiment in small.items()
            if (seconds := _scaled(file, small, name, Path(folder) / "rehearsal" / name)) is not None
        }


def in_small(experiment: Experiment, most: int | None = None) -> Experiment:
    """An experiment of the same kind that ends soon: one seed, two iterations, few rows and episodes.

    `most` are the most rows or episodes of a stage that does not train; `None` for as many as a rehearsal has.
    """
    config = dict(experiment.config)
    if experiment.run in STAGE_KINDS:
        config |= {name: min(amount, most or _AMOUNTS[name]) for name, amount in _amounts(experiment).items()}
        return experiment.model_copy(update={"config": config})
    if search_kind(config.get("seed")) == GRID:
        config["seed"] = {GRID: config["seed"][GRID][:1]}
    if _acts(experiment):
        for name, most in _ACTING.items():
            if isinstance(value := _value(experiment, name), int):
                config[name] = min(value, most)
        warmup = _value(experiment, "critic_warmup")
        if isinstance(warmup, int) and warmup < _budget(experiment):  # in a whole run most updates move the actions
            config["critic_warmup"] = 0
    update = {"config": config, "stop": {"training_iteration": _ITERATIONS}, "num_samples": 1}
    return experiment.model_copy(update=update)


def _scaled(file: ExperimentFile, small: Mapping[str, Experiment], name: str, folder: Path) -> float | None:
    """The seconds of a whole stage, by those of its rehearsal; `None` if that failed."""
    experiment, record = file.experiments[name], read_record(folder)
    if record is None or record.status != "finished":
        return None
    if experiment.run in STAGE_KINDS:
        games = _seatings(experiment, file.experiments) / _seatings(small[name], small)
        begun = read_record(folder.with_name(f"{name}{_BEGUN}"))
        loads = begun.seconds if begun is not None else 0.0
        if 4 * (record.seconds - loads) > record.seconds:  # both load a policy, as each policy's games do
            return games * (loads + (record.seconds - loads) * _larger(experiment))
        return loads + record.seconds * _larger(experiment) * games  # the first one alone loaded the base model
    rows = [row for path in folder.glob("trial_*/result.json") for row in read_rows(path)]
    if len(rows) < _ITERATIONS:
        return None
    larger = 1.0  # than an iteration of the rehearsal is a whole one
    if _acts(experiment):
        batch, smaller = _value(experiment, _BATCH), _value(small[name], _BATCH)
        if not isinstance(batch, int):  # a sweep over it
            return None
        larger = batch / smaller
    elif source := source_of(experiment.config.get("input_"), file.experiments):
        larger = _larger(source)
    first, last = ({**row, "training_iteration": row["training_iteration"] / larger} for row in rows[-2:])
    share = fraction_done(last, experiment.stop) - fraction_done(first, experiment.stop)
    if share <= 0.0:
        return None
    begin = max(0.0, record.seconds - sum(lookup(row, "time_this_iter_s") or 0.0 for row in rows))
    return begin + (lookup(last, "time_this_iter_s") or 0.0) / share * _turns(experiment, trials_of(experiment))


def _like(stage: Stage, whole: Mapping[str, float]) -> float | None:
    """The seconds of a whole stage, of itself or in the mean of those that are like it."""
    if stage.name in whole:
        return whole[stage.name]
    scenario, dot, rest = stage.name.partition(".")
    if not dot:
        return None
    system, evaluates, _ = rest.partition(".")
    kinds = [lambda name: name.partition(".")[2] == rest]
    if evaluates:
        kinds += [lambda name: name.startswith(f"{scenario}.{system}."), lambda name: f".{system}." in name]
    for kind in kinds:
        if alike := [seconds for name, seconds in whole.items() if kind(name)]:
            return sum(alike) / len(alike)
    return None


def _budget(experiment: Experiment) -> float:
    """Decisions after which a run of an algorithm that acts stops; infinite where something else stops it."""
    batch = _value(experiment, _BATCH)
    iterations = experiment.stop.get("training_iteration", math.inf) * (batch if isinstance(batch, int) else math.inf)
    return min(experiment.stop.get("decisions", math.inf), iterations)


def _turns(experiment: Experiment, trials: int) -> float:
    """The number of trials that are run one after the other on this machine."""
    algorithm = find_algorithm(experiment.run)
    try:
        cpus = demand(algorithm, tune_config(experiment, algorithm)).cpus
    except (UserError, ValueError):  # told by the stage's check, or asked by an algorithm that wants more than settings
        cpus = 1.0
    return math.ceil(trials / trials_at_once(cpus))


def _acts(experiment: Experiment) -> bool:
    """True if a training plays with a policy whose batches may be smaller, as all on-policy algorithms of ours do."""
    from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig

    return isinstance(default_config(experiment.run), MultiAgentPPOConfig)


def _value(experiment: Experiment, name: str) -> Any:
    """A setting of a stage, or its default."""
    if experiment.config.get(name) is not None:
        return experiment.config[name]
    if kind := STAGE_KINDS.get(experiment.run):
        return kind.model().model_fields[name].default
    return getattr(default_config(experiment.run), name, None)


def _amounts(experiment: Experiment) -> dict[str, float]:
    """The settings of a stage that does not train, in proportion to which it takes its time; of others none."""
    kind = STAGE_KINDS.get(experiment.run)
    known = () if kind is None else kind.model().model_fields
    return {name: _value(experiment, name) for name in _AMOUNTS if name in known}


def _larger(experiment: Experiment) -> float:
    """The number of times that a stage which does not train has more rows or episodes than its rehearsal."""
    return max([1.0, *(amount / _AMOUNTS[name] for name, amount in _amounts(experiment).items())])


def _seatings(experiment: Experiment, experiments: Mapping[str, Experiment]) -> int:
    """The number of groups of agents whose episodes a stage plays: checkpoints, planners, or pairs of players."""

    def results(value: Any) -> int:
        sources = [source_of(one, experiments) for one in as_list(value)]
        return sum(1 if one is None else max(1, trials_of(one)) for one in sources)

    if experiment.run == "play_planners":
        planners = [one.get("policy") for one in experiment.config.get("planner") or () if isinstance(one, Mapping)]
        return max(1, len(experiment.config.get("planner") or ()) - len(planners) + sum(map(results, planners)))
    if experiment.run != "crossplay":
        return results(experiment.config.get("checkpoint"))
    players = results(experiment.config.get("players"))
    strangers = sum(map(results, (experiment.config.get("partners") or {}).values()))
    return players * (players + 2 * strangers)  # in either seat beside a stranger
