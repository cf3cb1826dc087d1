"""Matching of agents and subgoals: refusals with their reasons, and the best assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from rllib_llm_comm.sama.answer_authors import MENU, Answerer
from rllib_llm_comm.sama.nearest import Nearest
from rllib_llm_comm.sama.plans import AssignedSubgoal, PlanRequest, Refusal


def refusal_for_all(request: PlanRequest, text: str) -> str:
    """Reasons for which no agent can set about a subgoal; empty if one can.

    Args:
        request: The moment.
        text: The subgoal in any words.
    """
    known = request.game.parse(text)
    if known is None:
        return f"{text!r} is none of the subgoals of this game, or more than one"
    reasons = [request.game.refusal(request.state, agent, known) for agent in request.game.agents]
    return "; ".join(reasons) if all(reasons) else ""


def failed_assignments(request: PlanRequest) -> list[dict[str, str]]:
    """Assignments of attempts from this moment that failed."""
    return [attempt.plan.by_agent() for attempt in request.failed]


def assignments(request: PlanRequest, subgoals: Sequence[str]) -> list[dict[str, str]]:
    """All ways to give each agent one of as many subgoals, those with more possible ones and less effort first.

    Ways that have failed from this moment come last.

    Args:
        request: The moment.
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
    """True if each agent can get one of as many subgoals that it can set about now, in a way that has not failed.

    Args:
        request: The moment.
        subgoals: In the game's words, one per agent.
    """
    best = assignments(request, subgoals)[0]
    possible = not any(request.game.refusal(request.state, agent, subgoal) for agent, subgoal in best.items())
    return possible and best not in failed_assignments(request)


def made_possible(
    request: PlanRequest, way: dict[str, str], nearest: Nearest, refused: list[Refusal]
) -> dict[str, str]:
    """Replaces what an agent cannot do now by the nearest that it can, and that no other agent is told.

    Where the result has failed before, agents whose subgoals were not done then get the nearest other one.

    Args:
        request: The moment.
        way: A subgoal per agent, in any words.
        nearest: Finds the nearest one.
        refused: Replacements are noted here.
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
        way: A subgoal per agent.
        reasons: A reason per agent; missing ones are empty.
        authors: The author of each subgoal.
        refused: Refusals; the substitutes come from the menu of possible subgoals.
    """
    by: dict[str, Answerer] = {**authors, **dict.fromkeys((one.instead for one in refused if one.instead), MENU)}
    return [
        AssignedSubgoal(agent=agent, subgoal=way[agent], reason=reasons.get(agent, ""), answered_by=by[way[agent]])
        for agent in way
    ]
