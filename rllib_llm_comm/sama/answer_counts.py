"""Counts of plans, assignments, subgoals, reflections and judgements by their authors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rllib_llm_comm.sama.answer_authors import MENU, Answerer
from rllib_llm_comm.sama.attempts import Reflection
from rllib_llm_comm.sama.plans import Plan

_COUNT = re.compile(r"^(plans|assignments|subgoals|reflections|judgements|messages)_by_(\w+)$")


class AnswerCounts:
    """Plans, assignments, subgoals and reflections of an episode by their authors.

    All episodes of a planner have the same names of counts, so that means over episodes are those of all of them.

    Args:
        planners: All who may plan.
        reflectors: All who may reflect; empty without reflection.
    """

    def __init__(self, planners: Iterable[Answerer], reflectors: Iterable[Answerer] = ()) -> None:
        planners = list(planners)
        whole = [who for who in planners if who != MENU]  # only single subgoals are taken from the menu
        by: dict[str, Sequence[str]] = {
            "plans": whole,
            "assignments": whole,
            "subgoals": planners,
            "reflections": list(reflectors),
        }
        self._counts = {f"{what}_by_{who}": 0 for what, authors in by.items() for who in authors}

    def add_plan(self, plan: Plan) -> None:
        """Counts a plan by the author of its decomposition, its assignment, and each of its subgoals.

        Args:
            plan: The plan.
        """
        self._add("plans", plan.answered_by.decomposition)
        self._add("assignments", plan.answered_by.assignment)
        for one in plan.subgoals:
            self._add("subgoals", one.answered_by)

    def add_reflection(self, reflection: Reflection) -> None:
        """Counts a reflection.

        Args:
            reflection: The reflection.
        """
        self._add("reflections", reflection.answered_by)

    def figures(self) -> dict[str, float]:
        """The counts, such as `plans_by_model`, as metrics of an episode."""
        return {name: float(count) for name, count in self._counts.items()}

    def _add(self, what: str, who: str) -> None:
        name = f"{what}_by_{who}"
        self._counts[name] = self._counts.get(name, 0) + 1


def authors_in(metrics: Mapping[str, Any], what: str) -> dict[str, float]:
    """The authors of one kind of answer among metrics, with their counts; those with none are left out.

    Args:
        metrics: Of an episode, or means.
        what: "plans", "assignments", "subgoals", "reflections" or "judgements".
    """
    matches = ((_COUNT.match(name), value) for name, value in metrics.items())
    return {match[2]: float(value) for match, value in matches if match and match[1] == what and value}


def without_empty_counts(names: Iterable[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of metrics without the authors who answered nothing in any row.

    Args:
        names: Names of metrics.
        rows: The metrics.
    """
    return [name for name in names if not _COUNT.match(name) or any(row.get(name) for row in rows)]
