"""Parts of a study that ran at different places, joined to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.study_cost import Costs
from rllib_llm_comm.evaluation.study_results import StudyResults, SystemResults

Scenarios = dict[str, dict[str, SystemResults]]


def join_results(parts: Sequence[StudyResults]) -> StudyResults:
    """One study of several, as if it had run at one place.

    Args:
        parts: Studies of the same environment with the same evaluation; the first gives title and baseline. Of a system
            in a scenario several parts may have results if they ran other seeds.

    Raises:
        UserError: If parts contradict each other, such as by a system with other settings.
    """
    first = parts[0]
    study: dict[str, Any] = {**first.study, "scenarios": {}, "systems": {}, "baseline": first.baseline}
    study["seeds"] = sorted({seed for part in parts for seed in part.study["seeds"]})
    scenarios: Scenarios = {}
    for part in parts:
        _require_the_same(first, part)
        for name, spec in part.study["systems"].items():
            taken = study["systems"].setdefault(name, spec)
            if differing := [key for key in ("run", "config", "stop") if taken.get(key) != spec.get(key)]:
                raise UserError(
                    f"`{differing[0]}` of system {name!r} differs between the studies; they cannot be joined."
                )
        for scenario, systems in part.scenarios.items():
            settings = part.study["scenarios"][scenario]
            if study["scenarios"].setdefault(scenario, settings) != settings:
                raise UserError(f"Scenario {scenario!r} has different settings in the studies; they cannot be joined.")
            known = scenarios.setdefault(scenario, {})
            for name, found in systems.items():
                known[name] = _joined(scenario, known[name], found) if name in known else found
    for scenario, systems in scenarios.items():
        if first.baseline not in systems:
            raise UserError(f"Scenario {scenario!r} lacks the baseline {first.baseline!r}; give the study that has it.")
    notes = dict.fromkeys(part.note for part in parts if part.note)
    notes.update(dict.fromkeys(_lacking_seeds(scenarios, study["seeds"]) if len(parts) > 1 else ()))
    there = {f"{place}.{name}.{suffix}" for place, name, suffix in _evaluated(scenarios)}
    missing = dict.fromkeys(stage for part in parts for stage in part.missing if stage not in there)
    return StudyResults(study, scenarios, list(missing), " ".join(notes), _costs(parts))


def _require_the_same(first: StudyResults, part: StudyResults) -> None:
    for key in ("env", "evaluation"):
        if part.study[key] != first.study[key]:
            raise UserError(
                f"`{key}` is {part.study[key]!r} in {part.study['title']!r} but {first.study[key]!r} in "
                f"{first.study['title']!r}; only studies that agree in it can be joined."
            )


def _joined(scenario: str, one: SystemResults, other: SystemResults) -> SystemResults:
    """A system's results of two parts: of the one that has them, or of both with their seeds in order."""
    if not (one.is_there and other.is_there):
        return other if other.is_there else one
    curves = one.curves + other.curves
    seeds = [curve.seed for curve in curves]
    if not (one.curves and other.curves) or len(set(seeds)) < len(seeds) or one.recorded or other.recorded:
        raise UserError(
            f"System {one.name!r} of scenario {scenario!r} is in two of the studies, not with different seeds; give "
            "one."
        )
    order = sorted(range(len(seeds)), key=lambda k: seeds[k])
    evaluations: dict[str, list[dict[str, Any]]] = {}
    for suffix in (name for name in one.evaluations if name in other.evaluations):
        runs = one.evaluations[suffix] + other.evaluations[suffix]
        if len(runs) != len(seeds):
            raise UserError(
                f"System {one.name!r} of scenario {scenario!r} has {len(seeds)} trials but {len(runs)} evaluations "
                f"({suffix}); finish the studies before they are joined."
            )
        evaluations[suffix] = [runs[k] for k in order]
    return replace(one, curves=[curves[k] for k in order], evaluations=evaluations)


def _lacking_seeds(scenarios: Scenarios, seeds: Sequence[int]) -> Iterator[str]:
    """A sentence on each system that was trained with some of the seeds only."""
    for scenario, systems in scenarios.items():
        for name, found in systems.items():
            there = [curve.seed for curve in found.curves]
            if there and len(there) < len(seeds):
                yield f"System {name!r} of scenario {scenario!r} has seeds {', '.join(map(str, there))} only."


def _costs(parts: Sequence[StudyResults]) -> Costs:
    cost: Costs = {}
    for part in parts:
        for scenario, stages in part.cost.items():
            known = cost.setdefault(scenario, {})
            if twice := sorted(known.keys() & stages.keys()):
                raise UserError(
                    f"Stage {twice[0]!r} of scenario {scenario!r} asked a chat model in two of the studies, so its "
                    "cost cannot be told; give one."
                )
            known.update(stages)
    return cost


def _evaluated(scenarios: Mapping[str, Mapping[str, SystemResults]]) -> Iterator[tuple[str, str, str]]:
    """Scenario, system and suffix of each evaluation that is there."""
    for scenario, systems in scenarios.items():
        for name, found in systems.items():
            yield from ((scenario, name, suffix) for suffix in found.evaluations)
