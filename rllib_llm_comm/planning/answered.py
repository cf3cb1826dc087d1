"""The authors of plans, assignments, subgoals, reflections and judgements: named with each of them, and counted.

A language model's answer that cannot be used twice has to be replaced or given up. Neither happens silently: `fallback`
chooses, and `answered_by` names whoever answered in the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.accounts import ChatCounters
from rllib_llm_comm.language.cassettes import Cassette
from rllib_llm_comm.language.chat_answers import AnswerError
from rllib_llm_comm.language.chat_model import ChatModel
from rllib_llm_comm.planning.rules_chat import RULES_MODEL

if TYPE_CHECKING:
    from rllib_llm_comm.planning.attempts import Reflection
    from rllib_llm_comm.planning.plans import Plan

Answerer = Literal["model", "cassette", "rules", "menu", "random", "own"]
MODEL: Final = "model"
CASSETTE: Final = "cassette"
RULES: Final = "rules"
MENU: Final = "menu"
RANDOM: Final = "random"
OWN: Final = "own"
ANSWERERS: tuple[Answerer, ...] = (MODEL, CASSETTE, RULES, MENU, RANDOM, OWN)
"""A language model; a recording of one; rules; the nearest entry on the list of possible subgoals; a random draw; a
planner or reflector of the user's own that names nobody."""
NOBODY = "nobody"
"""Judged a step in place of a judge that gave no answer: the subgoal counts as not done."""

FALLBACKS = BY_RULES, NONE, ERROR = (RULES, "none", "error")
"""The meaning of `fallback` where a language model's answer cannot be used twice: rules take over; nothing does, and
there is no such plan or reflection; or the run ends."""

_COUNT = re.compile(r"^(plans|assignments|subgoals|reflections|judgements|messages)_by_(\w+)$")


class PhaseAnswers(BaseModel):
    """The author of each phase of a plan."""

    goal: Answerer = OWN
    decomposition: Answerer = OWN
    assignment: Answerer = OWN

    @classmethod
    def all_by(cls, who: Answerer) -> PhaseAnswers:
        """One author of all phases.

        Args:
            who: The author.
        """
        return cls(goal=who, decomposition=who, assignment=who)


def answerer_of(model: ChatModel, asked: ChatCounters) -> Answerer:
    """The author of an answer that a chat model has just given.

    Args:
        model: The chat model.
        asked: What was counted while it answered; tells whether a recording that is still growing knew the answer.
    """
    if not isinstance(model, Cassette):
        return getattr(model, "answered_by", MODEL)
    if model.client is not None and (asked.requests or not asked.cached):
        return answerer_of(model.client, asked)
    return _recorded(model)


def answerers_of(model: ChatModel) -> tuple[Answerer, ...]:
    """All whom `answerer_of` may name.

    Args:
        model: The chat model.
    """
    if not isinstance(model, Cassette):
        return (getattr(model, "answered_by", MODEL),)
    played = (_recorded(model),)
    return played if model.client is None else tuple(dict.fromkeys((*played, *answerers_of(model.client))))


def _recorded(tape: Cassette) -> Answerer:
    """A recording of rules is played back as what it is."""
    return RULES if tape.header.get("model") == RULES_MODEL else CASSETTE


def gave_up(error: AnswerError) -> UserError:
    """The end of a run whose `fallback` is "error".

    Args:
        error: Why the answer cannot be used.
    """
    return UserError(
        f"{str(error).rstrip('.')}, and `fallback` is {ERROR!r}; set `fallback` to {BY_RULES!r} or {NONE!r}, or give "
        "another model."
    )


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
