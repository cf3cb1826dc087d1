"""A planner that was trained: a policy of `planner_seats`, which chooses each player's subgoal among those possible."""

from __future__ import annotations

import copy
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.policies.decision import Decision, Request
from rllib_llm_comm.policies.load_policy import Loading
from rllib_llm_comm.sama.planner_seats import APART, CENTRAL, SEATS, refuse_controls, seat_observation, subgoals_of
from rllib_llm_comm.sama.plans import MODEL, AssignedSubgoal, PhaseAnswers, Plan, Planner, PlanRequest


class TrainedPlanner(Planner):
    """Plans as agents that were trained in a game's planner seats; other settings of the same game are allowed.

    Args:
        policy: Their checkpoint: a path, or `zoo:NAME`.
        greedy: True if the most likely subgoal is taken instead of a sampled one.

    Raises:
        UserError: If the checkpoint cannot be loaded, or is of no planner seats.
    """

    name = "trained"
    answerers = (MODEL,)

    def __init__(self, policy: str = "", greedy: bool = False) -> None:
        if not policy:
            raise UserError(f"`planner` is {self.name!r} but `policy` is not set; write '{self.name}:CHECKPOINT'.")
        require_choice("planner.greedy", greedy, (False, True))
        self.policy, self.greedy = Loading().load(policy), greedy
        self._path, self._env = str(policy), str(self.policy.manifest.env)
        if self._env not in SEATS:
            raise UserError(
                f"`planner` is '{self.name}:{policy}', which was trained in {self._env!r} and not as a planner; give a "
                f"checkpoint that was trained in one of {', '.join(SEATS)}."
            )
        refuse_controls(self.policy, f"`planner` '{self.name}:{policy}'")
        config = self.policy.manifest.env_config
        self._central = config.get("seats", CENTRAL) != APART
        self._seed, self._memory = 0, self.policy.begin(0)

    def begin(self) -> None:
        """Forgets the last episode."""
        self._memory = self.policy.begin(self._seed)
        self._seed += 1

    def reseed(self, seed: int) -> None:
        """Fixes the draws of the next episodes."""
        self._seed = seed
        self.policy.reset(seed)

    def beside(self) -> Planner:
        """A planner with the same policy and a memory of its own."""
        other = copy.copy(self)
        other._memory = self.policy.begin(self._seed)
        return other

    def settings(self) -> dict[str, Any]:
        """Checkpoint, and how it chooses."""
        return {"name": self.name, "policy": self._path, "greedy": self.greedy}

    def plan(self, request: PlanRequest) -> Plan:
        """Plan of the trained seats; players whose subgoals go on keep them.

        Raises:
            UserError: If the game is another one than that of the training.
        """
        game, state = request.game, request.state
        record = game_of(game.env.unwrapped)
        if record is None or SEATS[self._env].game_id not in record.entry_points:
            raise UserError(
                f"`planner` is '{self.name}:{self._path}', which plans in {SEATS[self._env].game_id!r} and not in "
                f"{record.name if record else type(game).__name__!r}; give a checkpoint of this game."
            )
        current = {agent: request.current.get(agent, "") for agent in game.agents}
        for agent, subgoal in current.items():
            if subgoal and game.refusal(state, agent, subgoal):
                current[agent] = ""
        candidates = subgoals_of(game)
        made: dict[str, Decision] = {}
        due = [agent for agent in game.agents if not current[agent]]
        for asked in [[agent] for agent in due] if self._central else [due]:
            seen = {
                agent: seat_observation(game, state, agent, current, request.outcomes, self._central, candidates)
                for agent in asked
            }
            if seen:
                decided = self.policy.act_together([Request(self._memory, seen)], explore=not self.greedy)[0]
                made.update(decided)
                current.update({agent: candidates[one.choice] for agent, one in decided.items()})
        return Plan(
            goal="what the trained planners hold best",
            subgoals=[
                AssignedSubgoal(agent=agent, subgoal=current[agent], reason=_reason(made.get(agent)), answered_by=MODEL)
                for agent in game.agents
            ],
            planner=self.name,
            answered_by=PhaseAnswers.all_by(MODEL),
            source=self._path,
        )


def _reason(decision: Decision | None) -> str:
    """What a seat thought of its choice, and said."""
    if decision is None:
        return "goes on"
    chances = decision.probabilities
    weighed = f"probability {float(chances[decision.choice]):.2f}" if len(chances) else ""
    return " ".join([weighed, *([f"and says: {decision.said}"] if decision.said else [])])
