"""What a study has left on disk: curves of every trial and evaluations of every trained policy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.errors import UserError

STUDY_RECORD = "study.json"
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
    """Reads a study's folder.

    Args:
        folder: Where `rllib study` wrote.

    Raises:
        UserError: If it is no such folder.
    """
    try:
        study = json.loads((folder / STUDY_RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(folder)!r} holds no study that can be read ({STUDY_RECORD}: {type(error).__name__}); give the "
            "folder that `rllib study file` wrote, such as results/study."
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
