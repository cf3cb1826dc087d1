"""Communication in reports: its measures per system, and comparisons corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.evaluation.information import holm
from rllib_llm_comm.evaluation.statistics import bootstrap, iqm, mean, permutation_test
from rllib_llm_comm.evaluation.study_results import DRIFT, FIRST_CHOICE, MEASURES, TALK, StudyResults, SystemResults

_SAMPLED = "sampled"
_FEW = 4
_LEVEL = 0.95
# The ends of a corrected interval lie far out.
_DRAWS = 20_000


def measures_talk(results: StudyResults) -> bool:
    """True if a study measures talk; others have none of this in their reports."""
    return bool(results.study["evaluation"].get(TALK))


def talk_of(system: SystemResults) -> dict[str, Any] | None:
    """The measures of talk of a system, with intervals over seeds.

    Args:
        system: The system; its sampled evaluations hold an entry `communication` where its agents speak.

    Returns:
        Measure -> value with its interval, `None` where there is none; `None` for a system without any. Of agents in
        silence only what the choice of those who are not told tells about the secret.
    """
    runs = [run[TALK] for run in system.evaluations.get(_SAMPLED, []) if run.get(TALK)]
    shown = {**MEASURES, **DRIFT} if any(run.get("drift") for run in runs) else MEASURES
    told = shown if any(run["messages"] for run in runs) else [FIRST_CHOICE]
    found = {name: _interval([_value(run, name) for run in runs]) if name in told else None for name in shown}
    return found if any(found.values()) else None


def columns_of(told: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Measures and their titles in the table of a scenario.

    Args:
        told: System -> its part of a report, with what `talk_of` gave as `talk`.
    """
    drifts = any(name in (part.get("talk") or {}) for part in told.values() for name in DRIFT)
    return {**MEASURES, **DRIFT} if drifts else dict(MEASURES)


def add_corrected(told: Mapping[str, Mapping[str, dict[str, Any]]], results: StudyResults) -> None:
    """Adds what holds after a correction for all comparisons of the study.

    Args:
        told: Scenario -> system -> its part of a report. `against_baseline` gets the `p_value` of a permutation test,
            and `p_corrected`, the same after Holm's correction. `corrected` gets the return with an interval after
            Bonferroni, and whether it overlaps that of the baseline (`None` if that was not judged in
            the scenario).
        results: The study.
    """
    compared = [(scenario, name) for scenario in told for name in told[scenario] if _is_compared(told[scenario][name])]
    if not compared:
        return
    scores = {
        (scenario, name): results.scenarios[scenario][name].scores(_SAMPLED, "return_mean")
        for scenario in told
        for name in told[scenario]
    }
    raw = [permutation_test(scores[pair], scores[pair[0], results.baseline]) for pair in compared]
    for (scenario, name), plain, adjusted in zip(compared, raw, holm(raw), strict=True):
        told[scenario][name]["against_baseline"] |= {"p_value": round(plain, 5), "p_corrected": round(adjusted, 5)}
    level = 1 - (1 - _LEVEL) / len(compared)
    intervals = {
        pair: bootstrap(values, iqm if len(values) >= _FEW else mean, level=level, draws=_DRAWS)
        for pair, values in scores.items()
        if len(values)
    }
    for (scenario, name), found in intervals.items():
        told[scenario][name]["corrected"] = {
            **found.rounded(),
            "overlaps_baseline": None
            if (base := intervals.get((scenario, results.baseline))) is None
            else found.overlaps(base),
            "comparisons": len(compared),
        }


def _is_compared(part: Mapping[str, Any]) -> bool:
    return "against_baseline" in part


def _value(run: Mapping[str, Any], name: str) -> float | None:
    found: Any = run
    for key in name.split("."):
        found = None if found is None else found.get(key)  # earlier versions measured less
    value: float | None = found["corrected"] if isinstance(found, Mapping) else found
    return value


def _interval(values: list[float | None]) -> dict[str, float] | None:
    known = np.array([value for value in values if value is not None], np.float64)
    if not len(known):
        return None
    return bootstrap(known, iqm if len(known) >= _FEW else mean).rounded()
