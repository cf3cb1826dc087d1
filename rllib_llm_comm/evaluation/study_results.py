"""Results of a study: curves of trials, evaluations of policies, costs of chat models; read from disk, and joined."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rllib_llm_comm.chat.chat_model import ChatCounters, cost_of
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import foreign_lines
from rllib_llm_comm.core.json_file import JsonValue, damaged, read_json
from rllib_llm_comm.policies.stage_record import read_record

_MOST_BYTES, _MOST_LINE = 2**32, 2**24  # of a file, and of a line of it

ITERATION = "training_iteration"


def current_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that belong to the run as it went on.

    A run that goes on from a checkpoint does the iterations behind it once more. What it had written of them before
    was lost with it, so a row takes back all earlier rows of the same or a later iteration.

    Args:
        rows: In the order in which they were written.

    Returns:
        One row per iteration, ascending; a row without a number counts as the one after its neighbour.
    """
    kept: list[dict[str, Any]] = []
    numbers: list[int] = []
    for row in rows:
        number = row.get(ITERATION)
        if isinstance(number, bool) or not isinstance(number, int):
            number = numbers[-1] + 1 if numbers else 1
        while numbers and numbers[-1] >= number:
            numbers.pop()
            kept.pop()
        numbers.append(number)
        kept.append(row)
    return kept


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The current rows of a `result.json`, without lines cut by a kill.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no text.
        TypeError: If a line is JSON, but no mapping.
    """
    rows: list[dict[str, Any]] = []
    for line in foreign_lines(path, _MOST_BYTES, _MOST_LINE):
        text = line.decode("utf-8-sig")
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):  # the last line of a run that was killed
            continue
        if not isinstance(row, dict):
            raise TypeError(f"a line is {type(row).__name__}, not a mapping")
        rows.append(row)
    return current_rows(rows)


METRICS = ("return", "success_rate", "length", "entropy", "score")
OVER_TIME = {
    "message_entropy": "Entropy (nats)",
    "message_kl": "Drift (nats)",
    "message_words": "Words",
    "message_vocabulary": "Vocabulary",
    "message_distinct_share": "Distinct",
    "message_understood_share": "Understood",
}
"""Figures of messages in training, of those whose messages are trained and of members of populations."""
RUN_COSTS = {"seconds": "time_total_s", "decisions": "decisions", "tokens": "tokens", "gpu_memory_gb": "gpu_memory_gb"}
"""What a run takes -> its key in a training result."""
# Only games with soups have them.
_IF_ANY = ("score",)
# A mean over fewer episodes says little, and the quickest end first.
_LEAST_EPISODES = 30
CURVE_ERRORS = (OSError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors of `read_curve`: of files, and of rows that RLlib did not write."""
# Tune's entries for some figures that are not a number.
_NO_NUMBER = (None, "null")


@dataclass(frozen=True)
class Curve:
    """One trial while it learned.

    Attributes:
        seed: Its seed.
        decisions: Decisions of all agents so far, per iteration; ascending, one per iteration.
        values: Metric -> one value per iteration, NaN where there is none (yet); `score` only where the game has one.
        cost: What the whole run took, as far as it was counted: `COSTS` -> amount.
    """

    seed: int
    decisions: list[float]
    values: dict[str, list[float]]
    cost: dict[str, float] = field(default_factory=dict)


def kept_curve(curve: JsonValue, metrics: Collection[str] = METRICS, optional: Collection[str] = _IF_ANY) -> Curve:
    """The curve of a trial that a report kept in `results.json`.

    Args:
        curve: Its entry.
        metrics: Names of what it tells.
        optional: Those of them that may be missing.

    Raises:
        UserError: If it is damaged.
    """
    decisions = [value.number() for value in curve["decisions"].elements()]
    values: dict[str, list[float]] = {}
    for metric in metrics:
        if metric in optional and metric not in curve["values"]:
            continue
        if curve["values"][metric].content is None:
            values[metric] = [math.nan] * len(decisions)
            continue
        told = curve["values"][metric].elements()
        if len(told) != len(decisions):
            what = f"`{curve.place}.values.{metric}` has {len(told)} values but {len(decisions)} are in `decisions`"
            raise damaged(curve.file, what, curve.remedy)
        values[metric] = [math.nan if value.content is None else value.number() for value in told]
    cost = {name: curve["cost"][name].number() for name in RUN_COSTS if "cost" in curve and name in curve["cost"]}
    return Curve(curve["seed"].whole(), decisions, values, cost)


_Read = TypeVar("_Read")


def _of_trials(stage: Path, read: Callable[[Path], _Read]) -> Iterator[_Read]:
    for path in sorted(stage.glob("trial_*/result.json"), key=lambda path: _number(path.parent.name)):
        try:
            yield read(path)
        except CURVE_ERRORS as error:
            remedy = f"remove {str(stage)!r} and type the command of the study again"
            raise damaged(path, f"no results of a trial ({type(error).__name__}: {error})", remedy) from error


def _number(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 0


def read_curve(path: Path) -> Curve:
    """The curve of a trial, from its `result.json`; errors are those of files and of rows that RLlib did not write."""
    decisions: list[float] = []
    values: dict[str, list[float]] = {name: [] for name in METRICS}
    seed = 0
    result: dict[str, Any] = {}
    for result in read_rows(path):
        seed = int(result.get("config", {}).get("seed") or 0)
        runners = result.get("env_runners", {})
        decisions.append(float(sum(runners.get("num_agent_steps_sampled_lifetime", {}).values())))
        told = runners.get("num_episodes_lifetime", 0) >= _LEAST_EPISODES
        row = {
            "return": _return_of(runners) if told else math.nan,
            "success_rate": runners.get("success_rate", math.nan) if told else math.nan,
            "score": runners.get("score", math.nan) if told else math.nan,
            "length": runners.get("episode_game_steps", math.nan) if told else math.nan,
            "entropy": _entropy(result.get("learners", {})),
        }
        for name, value in row.items():
            values[name].append(math.nan if value in _NO_NUMBER else float(value))
    for name in _IF_ANY:
        if not np.isfinite(values[name]).any():
            del values[name]
    cost = {name: float(result[key]) for name, key in RUN_COSTS.items() if isinstance(result.get(key), int | float)}
    return Curve(seed, decisions, values, cost)


def read_messages(folder: Path, scenario: str) -> dict[str, list[Curve]]:
    """What is said in training, over its iterations, where it changes: of trained messages, and of populations.

    Args:
        folder: The study's folder.
        scenario: The scenario, whose shared stages count, too.

    Returns:
        System or stage, and of a member ": " and its name -> a curve of each seed, with iterations as `decisions` and
        `OVER_TIME` as values. An iteration of a member counts where its figures are others than before.

    Raises:
        UserError: If a file is damaged.
    """
    found: dict[str, list[Curve]] = {}
    for stage in sorted(folder.glob(f"{scenario}.*")):
        name = stage.name.removeprefix(f"{scenario}.")
        for curves in _of_trials(stage, _message_curves):
            for member, curve in curves.items():
                found.setdefault(f"{name}: {member}" if member else name, []).append(curve)
    return found


def _message_curves(path: Path) -> dict[str, Curve]:
    """Curves of a trial's messages by member; of its own ones by an empty name."""
    seed, trained = 0, 0.0
    points: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in read_rows(path):
        seed = int(row.get("config", {}).get("seed") or 0)
        modules = [one for one in row.get("learners", {}).values() if isinstance(one, dict)]
        own = next((one for one in modules if "message_entropy" in one), None)
        if own is not None:
            points.setdefault("", []).append((float(row[ITERATION]), {**row.get("env_runners", {}), **own}))
        population = row.get("population") or {}
        said = {name: one for name, one in population.items() if isinstance(one, dict)}
        changed = [name for name, one in said.items() if name not in points or points[name][-1][1] != one]
        # Members in turn have the iterations of their part; those that learn side by side one in each of the run's.
        in_turn = population.get("member_iterations")
        done = float(row.get(ITERATION, 0) if in_turn is None else in_turn)
        for name in changed:
            before = points[name][-1][0] if name in points else 0.0
            points.setdefault(name, []).append(
                (before + (done - trained) / (1 if in_turn is None else len(changed)), said[name])
            )
        trained = done if changed else trained
    return {name: _message_curve(seed, told) for name, told in points.items()}


def _message_curve(seed: int, told: Sequence[tuple[float, Mapping[str, Any]]]) -> Curve:
    metrics = [metric for metric in OVER_TIME if any(metric in one for _, one in told)]
    values = {
        metric: [math.nan if one.get(metric) in _NO_NUMBER else float(one[metric]) for _, one in told]
        for metric in metrics
    }
    return Curve(seed, [age for age, _ in told], values)


def _return_of(runners: Mapping[str, Any]) -> Any:
    """The agents' mean return; of a team that plays as one agent its own."""
    returns = list((runners.get("agent_episode_returns_mean") or {}).values())
    return float(np.mean(returns)) if returns else runners.get("episode_return_mean", math.nan)


def _entropy(learners: Mapping[str, Any]) -> Any:
    found = [module["entropy"] for module in learners.values() if isinstance(module, dict) and "entropy" in module]
    if len(found) > 1:  # each agent has a policy of its own
        return float(np.mean([math.nan if value in _NO_NUMBER else float(value) for value in found]))
    return found[0] if found else math.nan


COSTS = tuple(cost_of(ChatCounters()))
"""Names of the counts in summaries of stages and in results of training."""
RUN, GAME, STAGE = "run", "game", "stage"
_IN_TRAINING = (("env_runners", "chat"), ("evaluation", "env_runners", "chat"), ("new_subgoals",))
"""Places of the counts in a training result: of games, of games of the periodic evaluation, of a growing data set."""
_NUMBER, _PER, _SECONDS = "number", "per", "seconds_per_game"

Costs = dict[str, dict[str, dict[str, Any]]]
"""Scenario -> stage in it -> counts of all its questions, the `number` of runs or games behind them, and `per`."""


def asked_in_training(result: Mapping[str, Any]) -> dict[str, float]:
    """The counts of all questions to chat models in a trial's last result; empty if nobody was asked."""
    total: dict[str, float] = {}
    for place in _IN_TRAINING:
        found: Any = result
        for key in place:
            found = found.get(key) or {}
        for name in COSTS:
            if name in found:
                total[name] = total.get(name, 0.0) + float(found[name])
    return total


def read_costs(folder: Path, study: Mapping[str, Any]) -> Costs:
    """The counts of all stages in a study's folder that have asked a chat model or a recording of one."""
    costs: Costs = {}
    for scenario in study["scenarios"]:
        found = {path.name.removeprefix(f"{scenario}."): _of_stage(path) for path in folder.glob(f"{scenario}.*")}
        asked = {name: cost for name, cost in sorted(found.items()) if cost.get("requests") or cost.get("kept_answers")}
        if asked:
            costs[scenario] = asked
    return costs


def kept_costs(kept: JsonValue) -> Costs:
    """The costs that a report kept, checked.

    Raises:
        UserError: If they are damaged.
    """
    for stages in kept.items().values():
        for cost in stages.items().values():
            cost[_PER].text()
            for name in (*COSTS, _NUMBER):
                cost[name].number()
    return dict(kept.content)


def cost_rows(costs: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of a scenario's table of cost: means per run or game; shared stages first, then systems in their order.

    Args:
        costs: Stage -> its counts.
        labels: System -> its name in the report.

    Returns:
        Per row `label`, `part`, `per`, the means of the counts, and `seconds_per_game` of games.
    """
    order = list(labels)

    def place(stage: str) -> tuple[int, str]:
        system = stage.partition(".")[0]
        return (order.index(system) if system in order else -1, stage)

    rows = []
    for stage in sorted(costs, key=place):
        cost, (system, _, suffix) = costs[stage], stage.partition(".")
        means = {name: cost[name] / max(1, cost[_NUMBER]) for name in COSTS}
        label, part = labels.get(system, stage), suffix.replace("messages_", "with ") or "while learning"
        part = part if system in labels else "shared stage"
        rows.append({"label": label, "part": part, "per": cost[_PER], **means, _SECONDS: cost.get(_SECONDS)})
    return rows


def _of_stage(stage: Path) -> dict[str, Any]:
    """The counts of a stage; empty if it asks nobody or has not ended."""
    trials = list(_of_trials(stage, lambda path: next(reversed(read_rows(path)), dict[str, Any]())))
    if trials:
        return {**_sum([asked_in_training(result) for result in trials]), _NUMBER: len(trials), _PER: RUN}
    record = read_record(stage)
    if record is None or "requests" not in record.summary:
        return {}
    played = record.summary.get("checkpoints", [record.summary])
    games = sum(int(one.get("episodes", 0)) for one in played) if record.run == "evaluate" else 0
    seconds = [float(one[_SECONDS]) for one in played if _SECONDS in one]
    told = {_SECONDS: sum(seconds) / len(seconds)} if seconds else {}
    return {**_sum([record.summary]), _NUMBER: games or 1, _PER: GAME if games else STAGE, **told}


def _sum(counts: list[Any]) -> dict[str, float]:
    return {name: sum(float(one.get(name) or 0.0) for one in counts) for name in COSTS}


STUDY_RECORD = "study.json"
# The results behind a report, kept so that it can be made again without the runs.
RESULTS = "results.json"
COLLISIONS = "collisions_mean"  # null in evaluations of games that do not count them
# Figures of an evaluation in a report.
FIGURES = ("return_mean", "success_rate", "length_mean", COLLISIONS, "message_words_mean", "vocabulary")
# Told of shuffled messages only, and not by evaluations that were made before it was counted.
SHUFFLED_SAME = "shuffled_same_share"
# Measures of communication in an evaluation, if the study measures it.
TALK = "communication"
# Also of agents in silence: a cue without words.
FIRST_CHOICE = "first_choice"
MEASURES = {
    "signalling": "Signalling (nats)",
    "listening": "Listening (nats)",
    FIRST_CHOICE: "First choice (nats)",
    "obeyed": "Obeyed",
    "obeyed_chance": "By chance",
    "vocabulary": "Vocabulary",
    "understood": "Understood",
    "unprintable": "Unprintable",
}
DRIFT = {
    "drift.kl": "Drift (nats per message)",
    "drift.new_words": "New words",
    "drift.new_words_reference": "New words, taught",
    "drift.unreadable": "Unreadable",
    "drift.unreadable_reference": "Unreadable, taught",
}
"""Figures of `evaluation.communication`, for systems whose messages were trained."""
SAMPLED = "sampled"
"""The evaluation with drawn actions."""
_SUCCESSES = "successes"
# Not kept of a run: where its policy was, what the study itself says, and what no report tells.
_NOT_KEPT = (
    "returns", "lengths", "return_std", "shuffled_silent_share", "seconds_per_game", "took", "checkpoint", "episodes",
    "sampled", "seed", "stand_ins",
)  # fmt: skip
_DIGITS = 6
# Scenarios and systems name folders and pictures, so that a foreign file must not say "../../elsewhere".
_NAME = re.compile(r"[A-Za-z0-9][\w+-]*")
_STUDY_AGAIN = "type the command of the study again, which writes it anew"
_STAGE_AGAIN = "remove it and type the command of the study again"
_REPORT_AGAIN = "make it again with `rllib report` from the folder of the study"


@dataclass
class SystemResults:
    """One system in one scenario.

    Attributes:
        name: Its key in the study.
        label: Its name in the report.
        curves: One per seed.
        evaluations: Suffix ("sampled", "greedy", "messages_none", ...) -> what `evaluate` wrote, one per seed.
        recorded: Figures of an earlier report about runs that are gone, as far as no single run kept them: `seeds`,
            `messages` (the most frequent ones of the first seed with their shares) and `figures` (suffix -> figure ->
            `value`, `low`, `high`). Empty where the runs themselves were read.
        strangers: Stranger -> seat that the system's policies had -> mean return or score beside the stranger, one per
            seed.
    """

    name: str
    label: str
    curves: list[Curve] = field(default_factory=list)
    evaluations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict)
    strangers: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """True if a curve or an evaluation of it was found."""
        return bool(self.curves or self.evaluations)

    def scores(self, suffix: str, figure: str) -> np.ndarray:
        """A figure of an evaluation, one per seed; empty where there is none or it was not kept."""
        told = [run.get(figure) for run in self.evaluations.get(suffix, [])]
        values = [float(value) for value in told if value is not None]
        return np.array(values if len(values) == len(told) else [])


@dataclass
class StudyResults:
    """A study with what is there of its results.

    Attributes:
        study: The study as its file says.
        scenarios: Scenario -> system -> results.
        missing: Stages without a result.
        note: A remark for readers of these results, such as that their runs are gone.
        cost: Cost of questions to chat models, where there were any.
        said: Scenario -> what is said in training, as of `read_messages`.
        stand_ins: What stands in for what the papers use, as the evaluations tell.
    """

    study: dict[str, Any]
    scenarios: dict[str, dict[str, SystemResults]]
    missing: list[str]
    note: str = ""
    cost: Costs = field(default_factory=dict)
    said: dict[str, dict[str, list[Curve]]] = field(default_factory=dict)
    stand_ins: list[str] = field(default_factory=list)

    def runs(self) -> Iterator[dict[str, Any]]:
        """What `evaluate` wrote, of all systems."""
        for system in (system for systems in self.scenarios.values() for system in systems.values()):
            for found in system.evaluations.values():
                yield from found

    @property
    def baseline(self) -> str:
        """The system with which those are compared that name no baseline themselves."""
        return str(self.study.get("baseline") or next(iter(self.study["systems"])))

    def baseline_of(self, system: str) -> str | None:
        """The system with which another is compared; `None` for one that is a baseline and names none itself."""
        named = {name: spec.get("baseline") for name, spec in self.study["systems"].items()}
        if named[system]:
            return str(named[system])
        return None if system in (self.baseline, *named.values()) else self.baseline


def read_results(folder: Path) -> StudyResults:
    """Reads a study's folder, or what a report kept of one.

    Args:
        folder: Folder that `rllib study` wrote, or that of a report.

    Raises:
        UserError: If it is no such folder, or a file in it is damaged.
    """
    if not (folder / STUDY_RECORD).is_file():
        if (folder / RESULTS).is_file():
            return _kept_results(folder / RESULTS)
        raise UserError(
            f"{str(folder)!r} holds no study (there is no {STUDY_RECORD} in it); give the folder that `rllib study "
            f"file` wrote, such as results/study, or one with the {RESULTS} of a report."
        )
    study = _checked_study(read_json(folder / STUDY_RECORD, _STUDY_AGAIN))
    scenarios: dict[str, dict[str, SystemResults]] = {}
    missing: list[str] = []
    for scenario in study["scenarios"]:
        scenarios[scenario] = {}
        for name, system in study["systems"].items():
            if system.get("scenarios") and scenario not in system["scenarios"]:
                continue
            stage = f"{scenario}.{name}"
            found = SystemResults(name, system.get("label") or name, list(_of_trials(folder / stage, read_curve)))
            wanted = [*study["evaluation"]["modes"], *(f"messages_{mode}" for mode in system["interventions"])]
            for suffix in wanted:
                runs = _evaluations(folder / f"{stage}.{suffix}")
                if runs:
                    found.evaluations[suffix] = runs
                else:
                    missing.append(f"{stage}.{suffix}")
            if study["evaluation"].get("strangers"):
                found.strangers = _beside_strangers(folder / f"{stage}.strangers" / "crossplay.json")
                if not found.strangers:
                    missing.append(f"{stage}.strangers")
            scenarios[scenario][name] = found
    said = {scenario: told for scenario in study["scenarios"] if (told := read_messages(folder, scenario))}
    results = StudyResults(study, scenarios, missing, cost=read_costs(folder, study), said=said)
    results.stand_ins = list(dict.fromkeys(phrase for run in results.runs() for phrase in run.get("stand_ins", ())))
    return results


def to_plain(results: StudyResults) -> dict[str, Any]:
    """Everything that a report is made of as values for JSON (a missing figure is null, as is a curve without any).

    Figures have six digits. What a report does not tell stays in the study's own folder: returns and lengths of each
    episode, and all messages but those of the first run and those whose shares stand in for a count.
    """
    plain: dict[str, Any] = _kept_values(asdict(results))
    plain["study"] = _kept_values(results.study, short=False)  # 0.0 not as 0, as its file says
    for systems in plain["scenarios"].values():
        for system in systems.values():
            for curve in system["curves"]:
                for metric, told in curve["values"].items():
                    if set(told) <= {None}:
                        curve["values"][metric] = None
                if not curve["cost"]:  # of runs that did not count
                    del curve["cost"]
            if not system["strangers"]:
                del system["strangers"]
            for suffix, place, run in (
                (suffix, place, run) for suffix, runs in system["evaluations"].items() for place, run in enumerate(runs)
            ):
                for name in _NOT_KEPT:
                    run.pop(name, None)
                if SHUFFLED_SAME in run and (suffix, place) != (SAMPLED, 0):
                    run.pop("common_messages", None)
                if _SUCCESSES in run:
                    run[_SUCCESSES] = [int(one) for one in run[_SUCCESSES]]
    for curve in (curve for told in plain["said"].values() for curves in told.values() for curve in curves):
        del curve["cost"]
    return {name: value for name, value in plain.items() if value or name not in ("cost", "said", "stand_ins")}


def _checked_study(study: JsonValue) -> dict[str, Any]:
    """A study that has all that is read of it."""
    study["title"].text()
    study["env"].text()
    for name, settings in study["scenarios"].items(least=1).items():
        _require_name(settings, name)
        settings.items()
    for stage in (study["shared"].items() if "shared" in study else {}).values():
        stage.items()
    systems = study["systems"].items(least=1)
    for name, system in systems.items():
        _require_name(system, name)
        if "label" in system:
            system["label"].text()
        if "config" in system:
            system["config"].items()
        if "scenarios" in system and system["scenarios"].content is not None:
            for scenario in system["scenarios"].elements():
                scenario.text()
        for mode in system["interventions"].elements():
            mode.text()
    for holder in (study, *systems.values()):
        if "baseline" in holder and holder["baseline"].content is not None and holder["baseline"].text() not in systems:
            raise holder["baseline"].wrong(f"one of {', '.join(systems)}")
    for seed in study["seeds"].elements(least=1):
        seed.whole()
    study["evaluation"]["episodes"].whole()
    for mode in study["evaluation"]["modes"].elements(least=1):
        mode.text()
    return dict(study.content)


def _require_name(value: JsonValue, name: str) -> None:
    if not _NAME.fullmatch(name):
        what = f"{name!r} in `{value.place.removesuffix(f'.{name}')}` must be made of letters, digits, '_', '+' and '-'"
        raise damaged(value.file, what, value.remedy)


def _kept_results(path: Path) -> StudyResults:
    kept = read_json(path, _REPORT_AGAIN)
    note = kept["note"].text() if "note" in kept else ""
    missing = [stage.text() for stage in kept["missing"].elements()]
    cost = kept_costs(kept["cost"]) if "cost" in kept else {}
    said = {
        scenario: {
            who: [kept_curve(one, OVER_TIME, OVER_TIME) for one in curves.elements(least=1)]
            for who, curves in told.items().items()
        }
        for scenario, told in (kept["said"].items() if "said" in kept else {}).items()
    }
    stand_ins = [phrase.text() for phrase in kept["stand_ins"].elements()] if "stand_ins" in kept else []
    results = StudyResults(_checked_study(kept["study"]), {}, missing, note, cost, said, stand_ins)
    for scenario, systems in kept["scenarios"].items(least=1).items():
        _ = kept["study"]["scenarios"][scenario], systems[results.baseline]  # both must be there
        results.scenarios[scenario] = {}
        for name, system in systems.items().items():
            _ = kept["study"]["systems"][name], systems[results.baseline_of(name) or name]
            results.scenarios[scenario][name] = _kept_system(name, system)
    return results


def _kept_system(name: str, kept: JsonValue) -> SystemResults:
    curves = [kept_curve(curve) for curve in kept["curves"].elements()]
    recorded = _recorded(kept["recorded"]) if "recorded" in kept and kept["recorded"].items() else {}
    figures = recorded.get("figures", {})
    evaluations = {
        suffix: [_checked_run(run, figures.get(suffix, ())) for run in runs.elements(least=1)]
        for suffix, runs in kept["evaluations"].items().items()
    }
    strangers = {
        stranger: {seat: [one.number() for one in found.elements(least=1)] for seat, found in seats.items().items()}
        for stranger, seats in (kept["strangers"].items() if "strangers" in kept else {}).items()
    }
    return SystemResults(name, kept["label"].text(), curves, evaluations, recorded, strangers)


def _beside_strangers(path: Path) -> dict[str, dict[str, list[float]]]:
    """What `run: crossplay` found of a system's policies beside strangers; nothing where it did not run yet."""
    if not path.is_file():
        return {}
    groups = read_json(path, _STAGE_AGAIN)["groups"].items()
    return {
        stranger: {
            seat: [sum(one.number() for one in row.elements(least=1)) / len(row.elements()) for row in rows.elements()]
            for seat, rows in group["matrix"].items().items()
        }
        for stranger, group in groups.items()
    }


def _recorded(kept: JsonValue) -> dict[str, Any]:
    for seed in kept["seeds"].elements():
        seed.whole()
    _check_messages(kept["messages"])
    for figures in kept["figures"].items().values():
        for interval in figures.items().values():
            for end in ("value", "low", "high"):
                interval[end].number()
    return dict(kept.content)


def _checked_run(run: JsonValue, recorded: Collection[str] = ()) -> dict[str, Any]:
    """An evaluation of one policy that has all that is told of it, but for figures that are recorded elsewhere."""
    for figure in FIGURES:
        uncounted = figure == COLLISIONS and figure in run and run[figure].content is None
        if not uncounted and (figure in run or figure not in recorded):
            run[figure].number()
    if "stand_ins" in run:
        for phrase in run["stand_ins"].elements():
            phrase.text()
    if SHUFFLED_SAME in run and run[SHUFFLED_SAME].content is not None:
        run[SHUFFLED_SAME].number()
    if "metrics" in run:
        for value in run["metrics"].items().values():
            value.number()
    if "common_messages" in run:
        _check_messages(run["common_messages"])
    if TALK in run and run[TALK].content:
        _check_talk(run[TALK])
    return dict(run.content)


def _check_talk(talk: JsonValue) -> None:
    talk["messages"].whole()
    for name in (*MEASURES, *DRIFT):
        found = talk
        for key in name.split("."):
            if found.content is None or key not in found:  # earlier versions measured less
                break
            found = found[key]
        else:
            if isinstance(found.content, Mapping):
                found = found["corrected"]
            if found.content is not None:
                found.number()


def _check_messages(messages: JsonValue) -> None:
    for pair in messages.elements():
        message, share = pair.elements(least=2)[:2]
        message.text()
        share.number()


def _kept_values(value: Any, short: bool = True) -> Any:
    if isinstance(value, Mapping):
        return {key: _kept_values(item, short) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept_values(item, short) for item in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    if not short:
        return value
    rounded = value if value.is_integer() else float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _evaluations(stage: Path) -> list[dict[str, Any]]:
    """The results of an evaluation: one per seed, none if it has not been made."""
    path = stage / "evaluation.json"
    if not path.exists():
        return []
    figures = read_json(path, _STAGE_AGAIN)
    runs = figures["checkpoints"].elements(least=1) if "checkpoints" in figures else [figures]
    return [_checked_run(run) for run in runs]


Scenarios = dict[str, dict[str, SystemResults]]


def join_results(parts: Sequence[StudyResults]) -> StudyResults:
    """One study of several, as if it had run at one place.

    Args:
        parts: Studies of the same environment with the same evaluation; the first gives title and baseline. Of a system
            in a scenario several parts may have results if they ran other seeds.

    Raises:
        UserError: If parts contradict each other, such as by a system with other settings.
    """
    first = parts[0]
    study: dict[str, Any] = {**first.study, "scenarios": {}, "systems": {}, "baseline": first.baseline}
    if "shared" in study:
        study["shared"] = dict(study["shared"])
    study["seeds"] = sorted({seed for part in parts for seed in part.study["seeds"]})
    scenarios: Scenarios = {}
    for part in parts:
        _require_the_same(first, part)
        for kind, noun in (("systems", "system"), ("shared", "the shared stage")):
            for name, spec in part.study.get(kind, {}).items():
                taken = study.setdefault(kind, {}).setdefault(name, spec)
                if differing := [key for key in ("run", "config", "stop") if taken.get(key) != spec.get(key)]:
                    raise UserError(
                        f"`{differing[0]}` of {noun} {name!r} differs between the studies; they cannot be joined."
                    )
        for scenario, systems in part.scenarios.items():
            settings = part.study["scenarios"][scenario]
            if study["scenarios"].setdefault(scenario, settings) != settings:
                raise UserError(f"Scenario {scenario!r} has different settings in the studies; they cannot be joined.")
            known = scenarios.setdefault(scenario, {})
            for name, found in systems.items():
                known[name] = _joined(scenario, known[name], found) if name in known else found
    joined = StudyResults(study, scenarios, [])
    for scenario, systems in scenarios.items():
        for baseline in (first.baseline, *(joined.baseline_of(name) for name in systems)):
            if baseline is not None and baseline not in systems:
                raise UserError(f"Scenario {scenario!r} lacks the baseline {baseline!r}; give the study that has it.")
    notes = dict.fromkeys(part.note for part in parts if part.note)
    notes.update(dict.fromkeys(_lacking_seeds(scenarios, study["seeds"]) if len(parts) > 1 else ()))
    there = {
        f"{scenario}.{name}.{suffix}"
        for scenario, systems in scenarios.items()
        for name, found in systems.items()
        for suffix in (*found.evaluations, *(["strangers"] if found.strangers else []))
    }
    missing = dict.fromkeys(stage for part in parts for stage in part.missing if stage not in there)
    stand_ins = list(dict.fromkeys(phrase for part in parts for phrase in part.stand_ins))
    return StudyResults(study, scenarios, list(missing), " ".join(notes), _costs(parts), _said(parts), stand_ins)


def _said(parts: Sequence[StudyResults]) -> dict[str, dict[str, list[Curve]]]:
    """Curves of all parts; a seed that several have, such as of a shared stage, counts once."""
    said: dict[str, dict[str, list[Curve]]] = {}
    for scenario, told in ((scenario, told) for part in parts for scenario, told in part.said.items()):
        for who, curves in told.items():
            known = said.setdefault(scenario, {}).setdefault(who, [])
            known += [curve for curve in curves if curve.seed not in {one.seed for one in known}]
    return said


def _require_the_same(first: StudyResults, part: StudyResults) -> None:
    for key in ("env", "evaluation"):
        if part.study[key] != first.study[key]:
            raise UserError(
                f"`{key}` is {part.study[key]!r} in {part.study['title']!r} but {first.study[key]!r} in "
                f"{first.study['title']!r}; only studies that agree in it can be joined."
            )


def _joined(scenario: str, one: SystemResults, other: SystemResults) -> SystemResults:
    """A system's results of two parts: of the one that has them, or of both with their seeds in order."""
    if not (one.is_there and other.is_there):
        return other if other.is_there else one
    curves = one.curves + other.curves
    seeds = [curve.seed for curve in curves]
    if not (one.curves and other.curves) or len(set(seeds)) < len(seeds) or one.recorded or other.recorded:
        raise UserError(
            f"System {one.name!r} of scenario {scenario!r} is in two of the studies, not with different seeds; give "
            "one."
        )
    order = sorted(range(len(seeds)), key=lambda k: seeds[k])
    evaluations: dict[str, list[dict[str, Any]]] = {}
    for suffix in (name for name in one.evaluations if name in other.evaluations):
        runs = one.evaluations[suffix] + other.evaluations[suffix]
        if len(runs) != len(seeds):
            raise UserError(
                f"System {one.name!r} of scenario {scenario!r} has {len(seeds)} trials but {len(runs)} evaluations "
                f"({suffix}); finish the studies before they are joined."
            )
        evaluations[suffix] = [runs[k] for k in order]
    strangers = {
        stranger: {seat: [(found + other.strangers[stranger][seat])[k] for k in order] for seat, found in seats.items()}
        for stranger, seats in one.strangers.items()
        if stranger in other.strangers
    }
    return replace(one, curves=[curves[k] for k in order], evaluations=evaluations, strangers=strangers)


def _lacking_seeds(scenarios: Scenarios, seeds: Sequence[int]) -> Iterator[str]:
    """A sentence on each system, or on a whole scenario, that was trained with some of the seeds only."""
    for scenario, systems in scenarios.items():
        lacking: dict[tuple[int, ...], list[str]] = {}
        for name, found in systems.items():
            there = tuple(curve.seed for curve in found.curves)
            if there and len(there) < len(seeds):
                lacking.setdefault(there, []).append(name)
        for there, names in lacking.items():
            all_of_them = len(names) == len(systems) > 1
            for who in ["Every system"] if all_of_them else [f"System {name!r}" for name in names]:
                yield f"{who} of scenario {scenario!r} has seeds {', '.join(map(str, there))} only."


def _costs(parts: Sequence[StudyResults]) -> Costs:
    cost: Costs = {}
    for part in parts:
        for scenario, stages in part.cost.items():
            known = cost.setdefault(scenario, {})
            if twice := sorted(known.keys() & stages.keys()):
                raise UserError(
                    f"Stage {twice[0]!r} of scenario {scenario!r} asked a chat model in two of the studies, so its "
                    "cost cannot be told; give one."
                )
            known.update(stages)
    return cost
