"""Studies in the JSON of marl-eval (Gorsane et al. 2022, arXiv 2209.10485), for its tables and plots."""

from __future__ import annotations

import math
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.study_curves import Curve
from rllib_llm_comm.evaluation.study_results import StudyResults, SystemResults

METRICS = {"return": "return_mean", "success_rate": "success_rate"}
"""Metric in the file -> figure of an evaluation; both are also columns of the curves."""


def to_marl_eval(results: StudyResults, suffix: str = "sampled") -> tuple[dict[str, Any], list[str]]:
    """The content of a marl-eval file: environment -> scenario -> system -> `seed_N` -> step -> metric -> values.

    marl-eval asks for the same systems in all scenarios, and for equally many runs and steps everywhere. So systems
    that were compared in some scenarios only are left out, and so are the iterations in which a run had no finished
    episode or had already stopped.

    Args:
        results: A study.
        suffix: The evaluation whose figures become the `absolute_metrics`.

    Returns:
        The document, and the names of the systems that were left out.

    Raises:
        UserError: If nothing is left to compare.
    """
    whole = [
        name
        for name in results.study["systems"]
        if all(_is_whole(systems.get(name), suffix) for systems in results.scenarios.values())
    ]
    if not whole:
        raise UserError(
            f"No system of this study has curves and {suffix!r} evaluations in all scenarios, which marl-eval asks "
            "for; let the study end first."
        )
    steps = min(
        len(_common_steps([curve for name in whole for curve in systems[name].curves]))
        for systems in results.scenarios.values()
    )
    tasks = {
        scenario: {name: _runs(systems, whole, name, steps, suffix) for name in whole}
        for scenario, systems in results.scenarios.items()
    }
    env = str(results.study["env"]).rpartition("/")[2]
    return {env: tasks}, [name for name in results.study["systems"] if name not in whole]


def _is_whole(system: SystemResults | None, suffix: str) -> bool:
    return system is not None and bool(system.curves) and len(system.evaluations.get(suffix, [])) == len(system.curves)


def _common_steps(curves: list[Curve]) -> list[int]:
    """Iterations in which every run has a value of every metric."""
    shortest = min(len(curve.decisions) for curve in curves)
    return [
        index
        for index in range(shortest)
        if all(math.isfinite(curve.values[metric][index]) for curve in curves for metric in METRICS)
    ]


def _runs(
    systems: dict[str, SystemResults], whole: list[str], name: str, steps: int, suffix: str
) -> dict[str, dict[str, Any]]:
    """The last `steps` common iterations of each run of a system, and its evaluation."""
    common = _common_steps([curve for other in whole for curve in systems[other].curves])
    taken = common[len(common) - steps :]
    found = {}
    for curve, told in zip(systems[name].curves, systems[name].evaluations[suffix], strict=True):
        run: dict[str, Any] = {
            f"step_{position}": {
                "step_count": int(curve.decisions[index]),
                **{metric: [curve.values[metric][index]] for metric in METRICS},
            }
            for position, index in enumerate(taken)
        }
        run["absolute_metrics"] = {metric: [float(told[figure])] for metric, figure in METRICS.items()}
        found[f"seed_{curve.seed}"] = run
    return found
