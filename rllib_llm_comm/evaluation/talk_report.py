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
# Also of agents in silence: a cue without words.
_CHOICE = "first_choice"
MEASURES = {
    "signalling": "Signalling (nats)",
    "listening": "Listening (nats)",
    _CHOICE: "First choice (nats)",
    "obeyed": "Obeyed",
    "obeyed_chance": "By chance",
    "vocabulary": "Vocabulary",
    "understood": "Understood",
    "unprintable": "Unprintable",
}


def measures_talk(results: StudyResults) -> bool:
    """Whether a study measures talk; others have none of this in their reports."""
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
    told = MEASURES if any(run["messages"] for run in runs) else [name for name in MEASURES if name == _CHOICE]
    found = {name: _interval([_value(run, name) for run in runs]) if name in told else None for name in MEASURES}
    return found if any(found.values()) else None


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
    found = run.get(name)  # earlier versions measured less
    value: float | None = found["corrected"] if isinstance(found, Mapping) else found
    return value


def _interval(values: list[float | None]) -> dict[str, float] | None:
    known = np.array([value for value in values if value is not None], np.float64)
    if not len(known):
        return None
    value, low, high = bootstrap(known, iqm if len(known) >= _FEW else mean)
    return {"value": round(value, 4), "low": round(low, 4), "high": round(high, 4)}
