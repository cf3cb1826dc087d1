"""Two runs side by side: the settings in which they differ, and their last figures with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.evaluation.statistics import Interval, Statistic, bootstrap, bootstrap_difference, iqm, mean
from rllib_llm_comm.experiments.run_records import Run

_FEW = 4
"""With fewer seeds in a run means are compared, not interquartile means, as in the report of a study."""


def compare(ours: Run, other: Run) -> dict[str, Any]:
    """Differences between two runs.

    Args:
        ours: A run.
        other: Another one.

    Returns:
        `runs` (both), `settings` (path -> the two values, `None` where one has no such setting), `earlier` (true if
        they agree in all settings, but not in those of stages that they use), and `figures` (title -> `values`, two
        intervals, and `difference`, the second minus the first; intervals of one seed are `None` at their ends).
    """
    keys = [key for key in {**ours.settings, **other.settings} if ours.settings.get(key) != other.settings.get(key)]
    settings = {key: [ours.settings.get(key), other.settings.get(key)] for key in keys}
    figures = {}
    for title in (title for title in ours.figures if title in other.figures):
        pair = [np.array(run.figures[title], np.float64) for run in (ours, other)]
        figures[title] = _figure(pair)
    return {
        "runs": [ours.to_json(), other.to_json()],
        "settings": settings,
        "earlier": not settings and bool(ours.identity) and ours.identity != other.identity,
        "figures": figures,
    }


def _figure(pair: Sequence[np.ndarray]) -> dict[str, Any]:
    least = min(len(values) for values in pair)
    statistic: Statistic = iqm if least >= _FEW else mean
    several = least > 1
    return {
        "statistic": "iqm" if statistic is iqm else "mean",
        "values": [_told(bootstrap(values, statistic), len(values) > 1) for values in pair],
        "difference": _told(bootstrap_difference(pair[1], pair[0], statistic), several),
    }


def _told(interval: Interval, several: bool) -> dict[str, float | None]:
    told: dict[str, float | None] = {**interval.rounded()}
    return told if several else {**told, "low": None, "high": None}
