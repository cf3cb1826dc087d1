"""Plans that were followed, and how that went: what logs and replay pages tell of planning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from rllib_llm_comm.sama.answer_authors import OWN, Answerer
from rllib_llm_comm.sama.plans import Outcome, Phase, Plan


class Reflection(BaseModel):
    """The phase that is to blame for a failure, with the thoughts behind it and their author."""

    thoughts: str = ""
    phase: Phase
    why: str
    answered_by: Answerer = OWN


@dataclass
class Attempt:
    """One plan that was followed, and how it went.

    Attributes:
        plan: The plan.
        start: Steps of the environment before it.
        end: The same after it.
        outcomes: Ends of its subgoals; those that had not ended when the time was over are not in it.
        returns: Return per agent.
        failed: Whether a subgoal was not done.
        kept: Whether the game went on from it; else it was put back.
        reflection: Reflection on the failure, if there was one.
        unplanned: Reason for which there was no other plan after the failure, so that this attempt stands; else empty.
    """

    plan: Plan
    start: int
    end: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    returns: dict[str, float] = field(default_factory=dict)
    failed: bool = False
    kept: bool = True
    reflection: Reflection | None = None
    unplanned: str = ""

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            **vars(self),
            "plan": self.plan.model_dump(),
            "outcomes": [vars(outcome) for outcome in self.outcomes],
            "reflection": None if self.reflection is None else self.reflection.model_dump(),
        }
