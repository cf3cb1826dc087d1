"""Results of a study on disk: curves of every trial and evaluations of every trained policy."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.json_file import JsonValue, damaged, read_json
from rllib_llm_comm.evaluation.study_cost import Costs, kept_costs, read_costs
from rllib_llm_comm.evaluation.study_curves import Curve, kept_curve, read_curves

STUDY_RECORD = "study.json"
# The results behind a report, kept so that it can be made again without the runs.
RESULTS = "results.json"
# Figures of an evaluation in a report.
FIGURES = ("return_mean", "success_rate", "length_mean", "collisions_mean", "message_words_mean", "vocabulary")
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
"""Figures of `evaluation.message_drift`, for systems whose messages were trained."""
_BY_EPISODE, _SUCCESSES = ("returns", "lengths"), "successes"
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
    """

    name: str
    label: str
    curves: list[Curve] = field(default_factory=list)
    evaluations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict)

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
    """

    study: dict[str, Any]
    scenarios: dict[str, dict[str, SystemResults]]
    missing: list[str]
    note: str = ""
    cost: Costs = field(default_factory=dict)

    @property
    def stand_ins(self) -> list[str]:
        """What stands in for what the papers use, as the evaluations tell; those of earlier versions tell nothing."""
        systems = (system for there in self.scenarios.values() for system in there.values())
        runs = (run for system in systems for found in system.evaluations.values() for run in found)
        return list(dict.fromkeys(phrase for run in runs for phrase in run.get("stand_ins", ())))

    @property
    def baseline(self) -> str:
        """The system with which the others are compared."""
        return str(self.study.get("baseline") or next(iter(self.study["systems"])))


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
            found = SystemResults(name, system.get("label") or name, read_curves(folder / stage))
            wanted = [*study["evaluation"]["modes"], *(f"messages_{mode}" for mode in system["interventions"])]
            for suffix in wanted:
                runs = _evaluations(folder / f"{stage}.{suffix}")
                if runs:
                    found.evaluations[suffix] = runs
                else:
                    missing.append(f"{stage}.{suffix}")
            scenarios[scenario][name] = found
    return StudyResults(study, scenarios, missing, cost=read_costs(folder, study))


def to_plain(results: StudyResults) -> dict[str, Any]:
    """Everything that a report is made of as values for JSON (a missing figure is null).

    Figures have six digits. Of evaluated episodes only success is kept: returns and lengths of each stay in the study's
    own folder.
    """
    plain: dict[str, Any] = _kept_values(asdict(results))
    plain["study"] = _kept_values(results.study, short=False)  # 0.0 not as 0, as its file says
    for systems in plain["scenarios"].values():
        for system in systems.values():
            for curve in system["curves"]:
                if not curve["cost"]:  # of runs that did not count
                    del curve["cost"]
            for run in (run for runs in system["evaluations"].values() for run in runs):
                for name in _BY_EPISODE:
                    run.pop(name, None)
                if _SUCCESSES in run:
                    run[_SUCCESSES] = [int(one) for one in run[_SUCCESSES]]
    return plain if results.cost else {name: value for name, value in plain.items() if name != "cost"}


def _checked_study(study: JsonValue) -> dict[str, Any]:
    """A study that has all that is read of it."""
    study["title"].text()
    study["env"].text()
    for name, settings in study["scenarios"].items(least=1).items():
        _require_name(settings, name)
        settings.items()
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
    if "baseline" in study and study["baseline"].content is not None and study["baseline"].text() not in systems:
        raise study["baseline"].wrong(f"one of {', '.join(systems)}")
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
    results = StudyResults(_checked_study(kept["study"]), {}, missing, note, cost)
    for scenario, systems in kept["scenarios"].items(least=1).items():
        _ = kept["study"]["scenarios"][scenario], systems[results.baseline]  # both must be there
        results.scenarios[scenario] = {}
        for name, system in systems.items().items():
            _ = kept["study"]["systems"][name]
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
    return SystemResults(name, kept["label"].text(), curves, evaluations, recorded)


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
        if figure in run or figure not in recorded:
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
