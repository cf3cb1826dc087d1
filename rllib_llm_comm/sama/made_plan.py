"""Plans of planners, checked before anybody follows them: planners of one's own may return anything."""

from __future__ import annotations

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.plans import Plan, Planner, PlanRequest

_SHOWN = 8


def made_plan(planner: Planner, request: PlanRequest) -> Plan:
    """A planner's plan, all of whose agents and subgoals the game knows.

    Args:
        planner: The planner.
        request: The moment.

    Raises:
        ChatError: As of `Planner.plan`.
        UserError: As of `Planner.plan`; or if the answer is no plan, or names an agent or a subgoal that the game does
            not have.
    """
    plan = planner.plan(request)
    who = f"Planner {(planner.name or type(planner).__name__)!r}"
    if not isinstance(plan, Plan):
        raise UserError(
            f"{who} returned a {type(plan).__name__} but must return a `Plan` (`rllib_llm_comm.sama.plans`); "
            "correct its `plan`."
        )
    game = request.game
    for agent, subgoal in plan.by_agent().items():
        if agent not in game.agents:
            raise UserError(
                f"{who} gave a subgoal to {agent!r} but the agents of this game are {', '.join(game.agents)}; correct "
                f"its `plan`.{did_you_mean(agent, game.agents)}"
            )
        if not _is_known(game, subgoal):
            raise UserError(
                f"{who} gave {agent} the subgoal {subgoal!r} but must give one of this game's, in its words: "
                f"{_listed(request, agent)}; choose among `request.game.possible(request.state, agent)` in its "
                f"`plan`.{did_you_mean(subgoal, game.library(agent))}"
            )
    return plan


def _is_known(game: PlanningGame, subgoal: str) -> bool:
    return game.parse(subgoal) == subgoal or any(subgoal in game.library(agent) for agent in game.agents)


def _listed(request: PlanRequest, agent: str) -> str:
    """The subgoals that an agent can set about, the first few of many."""
    options = request.game.possible(request.state, agent) or request.game.library(agent)
    more = f", ... ({len(options)} are possible now)" if len(options) > _SHOWN else ""
    return ", ".join(map(repr, options[:_SHOWN])) + more
