"""Subgoals that a planner says and those of the game: refusals, the nearest other one, and the best assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.chat.answers import AnswerError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.plans import MENU, Answerer, AssignedSubgoal, PlanRequest, Refusal

if TYPE_CHECKING:
    import torch


class Nearest(Protocol):
    """Finds the option that a text is nearest to.

    Attributes:
        by: Author of the last choice: "embedding" or "model".
    """

    by: str

    def __call__(self, text: str, options: Sequence[str]) -> str:
        """One of the options, of which there is at least one."""


class NearestByEmbedding:
    """The option whose mean token vector has the largest cosine with that of the text; of equals the first.

    Args:
        text_encoder: See `rllib_llm_comm.language.text_encoder.load_text_encoder`; loaded when it is first needed.
    """

    by = "embedding"

    def __init__(self, text_encoder: str = "embedded") -> None:
        self.text_encoder = text_encoder

    def __call__(self, text: str, options: Sequence[str]) -> str:
        """Possible subgoal that shares most words with a text."""
        said, known = directions((text, *options), self.text_encoder).split([1, len(options)])
        return options[int((known @ said[0]).argmax())]


def directions(texts: Sequence[str], text_encoder: str = "embedded") -> torch.Tensor:
    """Mean token vectors of texts, each of length 1: float32 (texts, width).

    Args:
        texts: At least one.
        text_encoder: See `rllib_llm_comm.language.text_encoder.load_text_encoder`.
    """
    import torch

    from rllib_llm_comm.language.text_encoder import load_text_encoder, padded

    encoder = load_text_encoder(text_encoder)
    tokens = padded([encoder.tokens(one) for one in texts])
    means = encoder.states(tokens).sum(1) / (tokens != 0).sum(1, keepdim=True).clamp(min=1)
    return torch.nn.functional.normalize(means, dim=1)


class Chosen(BaseModel):
    """Answer to the question for the nearest subgoal; the prompt has its description."""

    model_config = ConfigDict(
        json_schema_extra={"description": "What the model answers when it is asked for the nearest subgoal."}
    )

    number: int = Field(description="number of the line that comes nearest")


class NearestByModel:
    """Asks a chat model which option comes nearest; if it names none, `otherwise` decides."""

    def __init__(self, model: ChatModel, otherwise: Nearest) -> None:
        self.model, self.otherwise = model, otherwise
        self.by = "model"

    def __call__(self, text: str, options: Sequence[str]) -> str:
        """Possible subgoal that the chat model calls nearest to a text.

        Raises:
            ChatError: If a request failed for good.
            UserError: If the budget is spent or the key is missing.
        """
        self.by = "model"
        if len(options) == 1:
            return options[0]

        def check(answer: Chosen) -> None:
            if not 1 <= answer.number <= len(options):
                raise ValueError(f"number is {answer.number} but must be from 1 to {len(options)}")

        listed = "\n".join(f"{number}. {option}" for number, option in enumerate(options, 1))
        prompt = fill(__package__, "plan_nearest", subgoal=text, options=listed)
        try:
            return options[ask_for(self.model, prompt, Chosen, check=check).number - 1]
        except AnswerError:
            self.by = self.otherwise.by
            return self.otherwise(text, options)


def failed_assignments(request: PlanRequest) -> list[dict[str, str]]:
    """Assignments of attempts from this moment that failed."""
    return [attempt.plan.by_agent() for attempt in request.failed]


def assignments(request: PlanRequest, subgoals: Sequence[str]) -> list[dict[str, str]]:
    """All ways to give each agent one of as many subgoals, those with more possible ones and less effort first.

    Ways that have failed from this moment come last.

    Args:
        subgoals: In the game's words, one per agent.
    """
    game, failed = request.game, failed_assignments(request)

    def key(way: dict[str, str]) -> tuple[bool, int, float]:
        refused = sum(bool(game.refusal(request.state, agent, subgoal)) for agent, subgoal in way.items())
        effort = sum(game.effort(request.state, agent, subgoal) for agent, subgoal in way.items())
        return way in failed, refused, effort

    ways = [dict(zip(game.agents, order, strict=True)) for order in permutations(subgoals)]
    return sorted(ways, key=key)


def can_be_shared_out(request: PlanRequest, subgoals: Sequence[str]) -> bool:
    """True if each agent can get one of as many subgoals that it can set about now, in a way that has not failed."""
    best = assignments(request, subgoals)[0]
    possible = not any(request.game.refusal(request.state, agent, subgoal) for agent, subgoal in best.items())
    return possible and best not in failed_assignments(request)


def made_possible(
    request: PlanRequest, way: dict[str, str], nearest: Nearest, refused: list[Refusal]
) -> dict[str, str]:
    """Replaces what an agent cannot do now by the nearest that it can, and that no other agent is told.

    Where the result has failed before, agents whose subgoals were not done then get the nearest other one.
    """
    game, made = request.game, dict(way)
    for agent, subgoal in way.items():
        known = game.parse(subgoal)
        reason = "it is no subgoal" if known is None else game.refusal(request.state, agent, known)
        if not reason and known is not None:
            made[agent] = known
        else:
            made[agent] = _other(request, agent, subgoal, made, nearest)
            refused.append(_replaced(subgoal, reason, made[agent], nearest))
    for attempt in request.failed:
        if attempt.plan.by_agent() == made:
            agent = (attempt.undone or game.agents)[0]
            before, made[agent] = made[agent], _other(request, agent, made[agent], made, nearest)
            reason = "this assignment has failed from here"
            refused.append(_replaced(before, reason, made[agent], nearest))
    return made


def _replaced(subgoal: str, reason: str, instead: str, nearest: Nearest) -> Refusal:
    return Refusal(phase="assignment", subgoal=subgoal, reason=reason, instead=instead, chosen_by=nearest.by)


def _other(request: PlanRequest, agent: str, subgoal: str, made: dict[str, str], nearest: Nearest) -> str:
    """The possible subgoal nearest to one, with which the assignment is none that has failed."""
    taken = {other for name, other in made.items() if name != agent}
    options = [option for option in request.game.possible(request.state, agent) if option not in {*taken, subgoal}]
    fresh = [option for option in options if {**made, agent: option} not in failed_assignments(request)]
    if not options:  # nothing else can be done at all
        return request.game.possible(request.state, agent)[0]
    return nearest(subgoal, fresh or options)


def assigned(
    way: dict[str, str], reasons: Mapping[str, str], authors: Mapping[str, Answerer], refused: Sequence[Refusal]
) -> list[AssignedSubgoal]:
    """Subgoals with their reasons and authors, as a plan has them.

    Args:
        reasons: A reason per agent; missing ones are empty.
        authors: The author of each subgoal.
        refused: Refusals; the substitutes come from the menu of possible subgoals.
    """
    by: dict[str, Answerer] = {**authors, **dict.fromkeys((one.instead for one in refused if one.instead), MENU)}
    return [
        AssignedSubgoal(agent=agent, subgoal=way[agent], reason=reasons.get(agent, ""), answered_by=by[way[agent]])
        for agent in way
    ]
