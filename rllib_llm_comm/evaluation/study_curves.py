"""Curves of a study's trials: read from Tune's `result.json`, or from what a report kept of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.json_file import JsonValue, damaged
from rllib_llm_comm.evaluation.curve_rows import read_rows

METRICS = ("return", "success_rate", "length", "entropy", "score")
RUN_COSTS = {"seconds": "time_total_s", "decisions": "decisions", "tokens": "tokens", "gpu_memory_gb": "gpu_memory_gb"}
"""What a run takes -> its key in a training result."""
# Only games with soups have them, and reports of earlier versions have not.
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


def kept_curve(curve: JsonValue) -> Curve:
    """The curve of a trial that a report kept.

    Args:
        curve: Its entry in `results.json`.

    Raises:
        UserError: If it is damaged.
    """
    decisions = [value.number() for value in curve["decisions"].elements()]
    current = _current(decisions)
    values: dict[str, list[float]] = {}
    for metric in METRICS:
        if metric in _IF_ANY and metric not in curve["values"]:
            continue
        told = curve["values"][metric].elements()
        if len(told) != len(decisions):
            what = f"`{curve.place}.values.{metric}` has {len(told)} values but {len(decisions)} are in `decisions`"
            raise damaged(curve.file, what, curve.remedy)
        numbers = [math.nan if value.content is None else value.number() for value in told]
        values[metric] = [numbers[place] for place in current]
    cost = {name: curve["cost"][name].number() for name in RUN_COSTS if "cost" in curve and name in curve["cost"]}
    return Curve(curve["seed"].whole(), [decisions[place] for place in current], values, cost)


def _current(decisions: Sequence[float]) -> list[int]:
    """Places of the iterations that a resumed run did not do once more; earlier versions kept them all."""
    kept: list[int] = []
    for place, number in enumerate(decisions):
        while number and kept and decisions[kept[-1]] >= number:
            kept.pop()
        kept.append(place)
    return kept


def read_curves(stage: Path) -> list[Curve]:
    """The curves of all trials of a stage, in their order.

    Args:
        stage: Its folder.

    Raises:
        UserError: If a file is damaged.
    """
    files = sorted(stage.glob("trial_*/result.json"), key=lambda path: _number(path.parent.name))
    curves = []
    for path in files:
        try:
            curves.append(read_curve(path))
        except CURVE_ERRORS as error:
            remedy = f"remove {str(stage)!r} and type the command of the study again"
            raise damaged(path, f"no results of a trial ({type(error).__name__}: {error})", remedy) from error
    return curves


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


def _return_of(runners: Mapping[str, Any]) -> Any:
    """The agents' mean return; of a team that plays as one agent its own."""
    returns = list((runners.get("agent_episode_returns_mean") or {}).values())
    return float(np.mean(returns)) if returns else runners.get("episode_return_mean", math.nan)


def _entropy(learners: Mapping[str, Any]) -> Any:
    found = [module["entropy"] for module in learners.values() if isinstance(module, dict) and "entropy" in module]
    if len(found) > 1:  # each agent has a policy of its own
        return float(np.mean([math.nan if value in _NO_NUMBER else float(value) for value in found]))
    return found[0] if found else math.nan
