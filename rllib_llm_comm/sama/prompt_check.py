"""A check of comparisons of prompts: settings of a planner that lead to the same prompts compare nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any

from rllib_llm_comm.chat.answer_schemas import any_answer, form_in
from rllib_llm_comm.chat.client import ChatError
from rllib_llm_comm.chat.usage import ChatCounters
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.chat_planner import ChatPlanner
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.plans import PlanRequest


class _Listening:
    """Keeps the prompts, and gives each an answer of its form that says nothing, so that the next one is asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        self.prompts.append(prompt)
        form, _ = form_in(prompt)
        return "" if form is None else any_answer(form)

    def recall(self, prompt: str, system: str = "") -> str | None:
        return None

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Nothing is kept."""


def prompts_of(planner: str | Mapping[str, Any], game: PlanningGame) -> list[str] | None:
    """The prompts of a planner for the moment that a game is in; empty forms answer, so that nobody is asked.

    Args:
        planner: See `rllib_llm_comm.sama.planners.make_planner`.
        game: A game that has begun.

    Returns:
        The prompts, as far as such answers lead; `None` of planners of the user's own that read none.
    """
    heard = _Listening()
    made = make_planner(planner, heard)
    if not isinstance(made, ChatPlanner):
        return None
    made.model = heard  # a planner of the user's own may have opened a model by itself
    made.begin()
    with suppress(ChatError, UserError):  # the plan is refused; the prompts until then are enough
        made.plan(PlanRequest(game, game.state()))
    return heard.prompts


def require_different_prompts(
    variants: Sequence[tuple[Mapping[str, Any], str | Mapping[str, Any]]], game: PlanningGame, what: str
) -> None:
    """Refuses a comparison of prompts in which two are the same.

    Args:
        variants: Per variant its labels, as a table names it, and its planner.
        game: A game that has begun.
        what: Name of the comparison.

    Raises:
        UserError: If two variants lead to the same prompts in this game.
    """
    prompts = [(labels, prompts_of(planner, game)) for labels, planner in variants]
    for (one, first), (other, second) in combinations(prompts, 2):
        if first is not None and first == second:
            name = str(getattr(game.env.unwrapped, "metadata", {}).get("name", type(game.env.unwrapped).__name__))
            lacks = "" if any(game.examples("goal")) else f" ({type(game).__name__} has no worked examples)"
            raise UserError(
                f"`rllib planning {what}` would compare identical prompts: in {name!r} {_named(one)} and "
                f"{_named(other)} lead to the same ones{lacks}; compare in another game, or give this one what differs."
            )


def _named(labels: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in labels.items())
