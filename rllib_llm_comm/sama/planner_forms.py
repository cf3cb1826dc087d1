"""The forms of a planner's questions to a chat model, and the checks that need no game.

Names, fields and descriptions of the forms are part of the prompts: they stand in the JSON schemas. A docstring is the
description unless `json_schema_extra` has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for, read_answer
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.sama.plans import Phase

Answer = TypeVar("Answer", bound=BaseModel)
_NAMES = re.compile(r"\s*\(\w+(?: or \w+)*\)$")


class Objects(BaseModel):
    """The things of a game that matter."""

    objects: list[str] = Field(min_length=1, max_length=40)


class Goal(BaseModel):
    """A goal, after thinking."""

    thoughts: str = ""
    goal: str = Field(min_length=1, max_length=300)


class ProposedSubgoal(BaseModel):
    """A subgoal with its reason."""

    subgoal: str = Field(min_length=1, max_length=300)
    reason: str = ""

    @field_validator("subgoal")
    @classmethod
    def _without_names(cls, subgoal: str) -> str:
        """Line of the menu without names behind it, which a model may have copied too: "... (alice or bob)"."""
        return _NAMES.sub("", subgoal)


class Decomposition(BaseModel):
    """Subgoals for all agents, after thinking."""

    thoughts: str = ""
    subgoals: list[ProposedSubgoal]


class AgentsNumber(BaseModel):
    """Number of the subgoal that an agent gets."""

    model_config = ConfigDict(json_schema_extra={"description": "Which subgoal an agent gets."})

    agent: str
    number: int = Field(description="number of the subgoal")
    reason: str = ""


class Assignment(BaseModel):
    """Assignment of subgoals to agents, after thinking."""

    model_config = ConfigDict(json_schema_extra={"description": "Who gets which subgoal, after thinking."})

    thoughts: str = ""
    assignment: list[AgentsNumber]


class Blame(BaseModel):
    """Cause of a failure, after thinking."""

    model_config = ConfigDict(title="Reflection", json_schema_extra={"description": "What went wrong, after thinking."})

    thoughts: str = ""
    phase: Phase
    why: str


def ask_leniently(
    model: ChatModel,
    prompt: str,
    form: type[Answer],
    check: Callable[[Answer], None],
    least: Callable[[Answer], object],
) -> tuple[Answer, AnswerError | None]:
    """The first of two answers that fits, or else the second one with its error, if it has at least the right form.

    Args:
        model: The chat model.
        prompt: The question.
        form: Of the answer.
        check: See `rllib_llm_comm.chat.answers.ask_for`.
        least: The check of an answer that has at least the right form.

    Raises:
        AnswerError: If the second one has not.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    try:
        return ask_for(model, prompt, form, check=check), None
    except AnswerError as error:
        try:
            return read_answer(error.answer, form, least), error
        except UnusableError:
            raise error from None


@lru_cache(maxsize=64)
def with_entries(form: type[Answer], name: str, count: int) -> type[Answer]:
    """A form whose list must have so many entries, so that the model reads the number in the schema.

    Args:
        form: `Decomposition` or `Assignment`.
        name: Of the list.
        count: Number.
    """
    entries: Any = (form.model_fields[name].annotation, Field(min_length=count, max_length=count))
    made: type[Answer] = create_model(form.__name__, __base__=form, **{name: entries})
    made.__doc__ = form.__doc__  # it stands in the schema
    return made


def check_count(answer: Decomposition, count: int) -> None:
    """Refuses a decomposition that is not one different subgoal per agent.

    Args:
        answer: The decomposition.
        count: Number of agents.

    Raises:
        UnusableError: If it is not.
    """
    if len(answer.subgoals) != count or len({same_words(one.subgoal) for one in answer.subgoals}) != count:
        raise UnusableError(f"there must be {count} different subgoals, one for each agent")


def assigned_way(answer: Assignment, agents: Sequence[str], subgoals: Sequence[ProposedSubgoal]) -> dict[str, str]:
    """A subgoal per agent, in the agents' order.

    Args:
        answer: The numbers of the agents' subgoals.
        agents: All agents.
        subgoals: In the order of their numbers.

    Raises:
        UnusableError: If not each agent gets one, and each subgoal is given.
    """
    numbers = {one.agent.strip().lower(): one.number for one in answer.assignment}
    if len(answer.assignment) != len(agents) or set(numbers) != {agent.lower() for agent in agents}:
        raise UnusableError(f"each of {', '.join(agents)} must be named once")
    if sorted(numbers.values()) != list(range(1, len(subgoals) + 1)):
        raise UnusableError(f"each of the numbers 1 to {len(subgoals)} must be given to one agent")
    return {agent: subgoals[numbers[agent.lower()] - 1].subgoal for agent in agents}


def same_words(text: str) -> str:
    """A text without what does not change its meaning: case, spaces, the last full stop.

    Args:
        text: Any words.
    """
    return " ".join(text.lower().split()).rstrip(".")
