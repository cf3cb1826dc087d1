"""What a study has left on disk: curves of every trial and evaluations of every trained policy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.errors import UserError

STUDY_RECORD = "study.json"
# What a report keeps of the runs behind it, so that it can be made again where the runs are gone.
RESULTS = "results.json"
# A mean over fewer episodes says little, and the quickest end first.
_LEAST_EPISODES = 30
METRICS = ("return", "success_rate", "length", "entropy", "message_words")


@dataclass(frozen=True)
class Curve:
    """One trial while it learned.

    Attributes:
        seed: Its seed.
        decisions: Decisions of all agents so far, per iteration.
        values: Metric -> one value per iteration, NaN where there is none (yet).
    """

    seed: int
    decisions: list[float]
    values: dict[str, list[float]]


@dataclass
class SystemResults:
    """One system in one scenario.

    Attributes:
        name: Its key in the study.
        label: Its name in the report.
        curves: One per seed.
        evaluations: Suffix ("sampled", "greedy", "messages_none", ...) -> what `evaluate` wrote, one per seed.
    """

    name: str
    label: str
    curves: list[Curve] = field(default_factory=list)
    evaluations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def scores(self, suffix: str, figure: str) -> np.ndarray:
        """A figure of an evaluation, one per seed; empty where there is none."""
        return np.array([float(run[figure]) for run in self.evaluations.get(suffix, [])])


@dataclass
class StudyResults:
    """A study with what is there of its results.

    Attributes:
        study: The study as its file says.
        scenarios: Scenario -> system -> results.
        missing: Stages without a result.
    """

    study: dict[str, Any]
    scenarios: dict[str, dict[str, SystemResults]]
    missing: list[str]

    @property
    def baseline(self) -> str:
        """The system with which the others are compared."""
        return str(self.study.get("baseline") or next(iter(self.study["systems"])))


def read_results(folder: Path) -> StudyResults:
    """Reads a study's folder, or what a report kept of one.

    Args:
        folder: Where `rllib study` wrote, or where a report lies.

    Raises:
        UserError: If it is no such folder.
    """
    if not (folder / STUDY_RECORD).exists() and (folder / RESULTS).is_file():
        return _kept_results(folder / RESULTS)
    try:
        study = json.loads((folder / STUDY_RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(folder)!r} holds no study that can be read ({STUDY_RECORD}: {type(error).__name__}); give the "
            f"folder that `rllib study file` wrote, such as results/study, or one with the {RESULTS} of a report."
        ) from error
    scenarios: dict[str, dict[str, SystemResults]] = {}
    missing: list[str] = []
    for scenario in study["scenarios"]:
        scenarios[scenario] = {}
        for name, system in study["systems"].items():
            stage = f"{scenario}.{name}"
            found = SystemResults(name, system.get("label") or name, _curves(folder / stage))
            wanted = [*study["evaluation"]["modes"], *(f"messages_{mode}" for mode in system["interventions"])]
            for suffix in wanted:
                runs = _evaluations(folder / f"{stage}.{suffix}")
                if runs:
                    found.evaluations[suffix] = runs
                else:
                    missing.append(f"{stage}.{suffix}")
            scenarios[scenario][name] = found
    return StudyResults(study, scenarios, missing)


def join_results(parts: Sequence[StudyResults]) -> StudyResults:
    """One study of several, as if it had run at one place.

    Args:
        parts: Studies of the same environment with the same seeds and evaluation; the first gives title and baseline.
            A system may be in several parts only with different scenarios.

    Raises:
        UserError: If parts contradict each other.
    """
    first = parts[0]
    for part in parts[1:]:
        for key in ("env", "seeds", "evaluation"):
            if part.study[key] != first.study[key]:
                raise UserError(
                    f"`{key}` is {part.study[key]!r} in {part.study['title']!r} but {first.study[key]!r} in "
                    f"{first.study['title']!r}; only studies that agree in it can be joined."
                )
    study: dict[str, Any] = {**first.study, "scenarios": {}, "systems": {}, "baseline": first.baseline}
    scenarios: dict[str, dict[str, SystemResults]] = {}
    for part in parts:
        study["systems"] |= {name: spec for name, spec in part.study["systems"].items() if name not in study["systems"]}
        for scenario, systems in part.scenarios.items():
            settings = part.study["scenarios"][scenario]
            if study["scenarios"].setdefault(scenario, settings) != settings:
                raise UserError(f"Scenario {scenario!r} has different settings in the studies; they cannot be joined.")
            known = scenarios.setdefault(scenario, {})
            if twice := set(known) & set(systems):
                raise UserError(f"System {min(twice)!r} of scenario {scenario!r} is in two of the studies; give one.")
            known |= systems
    for scenario, systems in scenarios.items():
        if first.baseline not in systems:
            raise UserError(f"Scenario {scenario!r} lacks the baseline {first.baseline!r}; give the study that has it.")
    return StudyResults(study, scenarios, [stage for part in parts for stage in part.missing])


def to_plain(results: StudyResults) -> dict[str, Any]:
    """Everything that a report is made of as values for JSON (a missing figure is null)."""
    plain: dict[str, Any] = _without_nan(asdict(results))
    return plain


def _kept_results(path: Path) -> StudyResults:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        scenarios = {
            scenario: {name: _kept_system(system) for name, system in systems.items()}
            for scenario, systems in kept["scenarios"].items()
        }
        return StudyResults(kept["study"], scenarios, kept["missing"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{str(path)!r} is no file that `rllib report` wrote ({type(error).__name__}: {error}); make it again from "
            "the folder of the study."
        ) from error


def _kept_system(kept: Mapping[str, Any]) -> SystemResults:
    curves = [
        Curve(
            int(curve["seed"]),
            [float(decisions) for decisions in curve["decisions"]],
            {
                name: [math.nan if value is None else float(value) for value in values]
                for name, values in curve["values"].items()
            },
        )
        for curve in kept["curves"]
    ]
    return SystemResults(kept["name"], kept["label"], curves, dict(kept["evaluations"]))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _evaluations(stage: Path) -> list[dict[str, Any]]:
    try:
        figures = json.loads((stage / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    runs: list[dict[str, Any]] = figures.get("checkpoints", [figures])
    return runs


def _curves(stage: Path) -> list[Curve]:
    files = sorted(stage.glob("trial_*/result.json"), key=lambda path: _number(path.parent.name))
    return [_curve(path) for path in files]


def _number(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 0


def _curve(path: Path) -> Curve:
    decisions: list[float] = []
    values: dict[str, list[float]] = {name: [] for name in METRICS}
    seed = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            result = json.loads(line)
        except ValueError:  # the last line of a run that was killed
            continue
        seed = int(result.get("config", {}).get("seed") or 0)
        runners = result.get("env_runners", {})
        decisions.append(float(sum(runners.get("num_agent_steps_sampled_lifetime", {}).values())))
        told = runners.get("num_episodes_lifetime", 0) >= _LEAST_EPISODES
        returns = list((runners.get("agent_episode_returns_mean") or {}).values())
        row = {
            "return": float(np.mean(returns)) if told and returns else math.nan,
            "success_rate": runners.get("success_rate", math.nan) if told else math.nan,
            "length": runners.get("episode_game_steps", math.nan) if told else math.nan,
            "entropy": _entropy(result.get("learners", {})),
            "message_words": runners.get("message_words", math.nan),
        }
        for name, value in row.items():
            values[name].append(float(value))
    return Curve(seed, decisions, values)


def _entropy(learners: Mapping[str, Any]) -> float:
    found = [
        float(module["entropy"]) for module in learners.values() if isinstance(module, dict) and "entropy" in module
    ]
    return found[0] if found else math.nan
