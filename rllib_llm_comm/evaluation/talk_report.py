"""What a report tells of talk: its measures per system, and comparisons corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rllib_llm_comm.evaluation.information import holm
from rllib_llm_comm.evaluation.statistics import bootstrap, iqm, mean, permutation_test
from rllib_llm_comm.evaluation.study_results import StudyResults, SystemResults

TALK = "communication"
_SAMPLED = "sampled"
_FEW = 4
MEASURES = {
    "signalling": "Signalling (nats)",
    "listening": "Listening (nats)",
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
"""What `evaluation.drift` adds for systems whose messages were trained; shown where one was."""


def measures_talk(results: StudyResults) -> bool:
    """Whether a study measures talk; others have none of this in their reports."""
    return bool(results.study["evaluation"].get(TALK))


def talk_of(system: SystemResults) -> dict[str, Any] | None:
    """The measures of talk of a system, with intervals over seeds.

    Args:
        system: The system; its sampled evaluations hold an entry `communication` where its agents speak.

    Returns:
        Measure -> value with its interval, `None` where there is none; `None` for a system without any.
    """
    runs = [run[TALK] for run in system.evaluations.get(_SAMPLED, []) if run.get(TALK)]
    if not runs or not any(run["messages"] for run in runs):
        return None
    shown = {**MEASURES, **DRIFT} if any(run.get("drift") for run in runs) else MEASURES
    return {name: _interval([_value(run, name) for run in runs]) for name in shown}


def columns_of(told: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Measures and their titles in the table of a scenario.

    Args:
        told: System -> its part of a report, with what `talk_of` gave as `talk`.
    """
    drifts = any(name in (part.get("talk") or {}) for part in told.values() for name in DRIFT)
    return {**MEASURES, **DRIFT} if drifts else dict(MEASURES)


def add_corrected(told: Mapping[str, dict[str, Any]], systems: Mapping[str, SystemResults], baseline: str) -> None:
    """Adds to the comparisons with the baseline a permutation test's p-value, and the same after Holm's correction.

    Args:
        told: System -> its part of a report; `against_baseline` gets `p_value` and `p_corrected`.
        systems: The same systems' results.
        baseline: The system compared with.
    """
    compared = [name for name in told if "against_baseline" in told[name]]
    other = systems[baseline].scores(_SAMPLED, "return_mean")
    raw = [permutation_test(systems[name].scores(_SAMPLED, "return_mean"), other) for name in compared]
    for name, plain, adjusted in zip(compared, raw, holm(raw), strict=True):
        told[name]["against_baseline"] |= {"p_value": round(plain, 5), "p_corrected": round(adjusted, 5)}


def corrected(told: Mapping[str, dict[str, Any]]) -> list[tuple[str, float]]:
    """Label and corrected p-value of every system that was compared; see `add_corrected`.

    Args:
        told: System -> its part of a report.
    """
    return [
        (part["label"], part["against_baseline"]["p_corrected"]) for part in told.values() if "against_baseline" in part
    ]


def _value(run: Mapping[str, Any], name: str) -> float | None:
    found: Any = run
    for key in name.split("."):
        found = None if found is None else found.get(key)
    value: float | None = found["corrected"] if isinstance(found, Mapping) else found
    return value


def _interval(values: list[float | None]) -> dict[str, float] | None:
    known = np.array([value for value in values if value is not None], np.float64)
    if not len(known):
        return None
    value, low, high = bootstrap(known, iqm if len(known) >= _FEW else mean)
    return {"value": round(value, 4), "low": round(low, 4), "high": round(high, 4)}
