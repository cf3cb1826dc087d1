"""Makes `length_and_entropy.json` from the committed studies: python docs/results/length_and_entropy.py"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.evaluation.report import summarise
from rllib_llm_comm.evaluation.statistics import bootstrap, bootstrap_difference
from rllib_llm_comm.evaluation.study_results import read_results

RESULTS = Path(__file__).parent
STUDIES = ("study", "study_all_three", "study_map_a", "study_map_a_all_three", "study_numeric")
CURVES = ("study_map_a_all_three", "study_numeric")
OTHERS = {"study_map_a_all_three": ("none", "twosome")}
FEW = 4
"""Iterations over which the end of a curve is averaged."""


def plain(found: Any) -> dict[str, float]:
    """An interval as plain values."""
    return {name: round(float(value), 4) for name, value in found._asdict().items()}


def lengths() -> dict[str, dict[str, dict[str, float]]]:
    """Mean game steps of sampled evaluation episodes, as the reports have them."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for study in STUDIES:
        report = summarise(read_results(RESULTS / study))
        for scenario, told in report["scenarios"].items():
            systems = {name: s["evaluations"]["sampled"]["length_mean"] for name, s in told["systems"].items()}
            found[f"{study}/{scenario}"] = systems
    return found


def parts(curves: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Entropy per seed in nats: of the first iteration, the mean of all, and of the last few."""
    kept = [np.array(curve["values"]["entropy"], np.float64) for curve in curves]
    return {
        "first": np.array([values[0] for values in kept]),
        "mean": np.array([values.mean() for values in kept]),
        "last": np.array([values[-FEW:].mean() for values in kept]),
    }


def entropies() -> dict[str, Any]:
    """Entropy of the action policy while learning, and Verco's difference from silent language agents."""
    found: dict[str, Any] = {}
    for study in CURVES:
        results = json.loads((RESULTS / study / "results.json").read_text(encoding="utf-8"))
        for scenario, systems in results["scenarios"].items():
            runs = {name: parts(system["curves"]) for name, system in systems.items()}
            told: dict[str, Any] = {
                "systems": {name: {k: plain(bootstrap(v)) for k, v in own.items()} for name, own in runs.items()}
            }
            for other in OTHERS.get(study, ()):
                told[f"verco_minus_{other}"] = {
                    part: plain(bootstrap_difference(runs["verco"][part], runs[other][part])) for part in runs[other]
                }
            found[f"{study}/{scenario}"] = told
    return found


def main() -> None:
    """Writes the figures beside this file."""
    figures = {
        "made_by": "python docs/results/length_and_entropy.py",
        "from": [f"docs/results/{study}/results.json" for study in STUDIES],
        "game_steps": lengths(),
        "entropy": entropies(),
    }
    target = RESULTS / "length_and_entropy.json"
    target.write_text(json.dumps(figures, separators=(",", ":")) + "\n", encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main()
