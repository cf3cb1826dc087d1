"""The authors of plans, assignments, subgoals, reflections and judgements: named with each of them, and counted.

A language model's answer that cannot be used twice has to be replaced or given up. Neither happens silently: `fallback`
chooses, and `answered_by` names whoever answered in the end.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.usage import ChatCounters
from rllib_llm_comm.core.errors import UserError

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
RULES_MODEL: Final = "rules (no language model)"
"""Stands as the model's name in recordings of a chat model that answers by rules."""
NOBODY = "nobody"
"""Judged a step in place of a judge that gave no answer: the subgoal counts as not done."""

FALLBACKS = BY_RULES, NONE, ERROR = (RULES, "none", "error")
"""The meaning of `fallback` where a language model's answer cannot be used twice: rules take over; nothing does, and
there is no such plan or reflection; or the run ends."""


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
        asked: Counts while it answered; they tell whether a recording that is still growing knew the answer.
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


def source_of(model: ChatModel) -> str:
    """Name of whoever gave the last answer, for pages and records: a model, or a recording with its author and day.

    Args:
        model: The chat model.
    """
    name = str(getattr(model, "model", ""))
    if not isinstance(model, Cassette):
        return name
    if model.client is not None:
        return str(getattr(model.client, "model", ""))
    author = model.last or model.header.get("model", "")
    return f"recording {model.path.name} ({author}, {model.header.get('made', '')})"


def gave_up(error: AnswerError) -> UserError:
    """The end of a run whose `fallback` is "error".

    Args:
        error: The reason for which the answer cannot be used.
    """
    return UserError(
        f"{str(error).rstrip('.')}, and `fallback` is {ERROR!r}; set `fallback` to {BY_RULES!r} or {NONE!r}, or give "
        "another model."
    )
