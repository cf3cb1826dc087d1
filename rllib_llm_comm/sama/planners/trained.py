"""A planner that was trained: a policy of `planner_seats`, which chooses each player's subgoal among those possible."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from rllib_llm_comm.core.errors import UserError, within
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.policies.decision import Decision, Request
from rllib_llm_comm.sama.planner_seats import (
    CENTRAL,
    SEATS,
    TRUTH,
    ActingCheckpoint,
    SeatSettings,
    refuse_controls,
    seat_observation,
    subgoals_of,
)
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.plans import MODEL, AssignedSubgoal, PhaseAnswers, Plan, Planner, PlanRequest

_OTHERS, _LEAST = 3, 0.05  # the reason of a subgoal names so many others, of this probability at least


class TrainedSettings(ActingCheckpoint):
    """Settings of the planner `trained`."""

    policy: Annotated[str, Field(min_length=1)] | SkipJsonSchema[Path] = Field(examples=["trained:CHECKPOINT"])
    """Checkpoint of agents that were trained in a game's planner seats: a path, or `zoo:NAME`."""


class TrainedPlanner(Planner):
    """Plans as agents that were trained in a game's planner seats; other settings of the same game are allowed.

    Args:
        **settings: Those of `TrainedSettings`.

    Raises:
        UserError: If a setting is not allowed, the checkpoint cannot be loaded, or it is of no planner seats.
    """

    name, settings_model = "trained", TrainedSettings
    answerers = (MODEL,)

    def __init__(self, **settings: Any) -> None:
        chosen = self.settings_model(**settings)
        policy, self.greedy = chosen.policy, chosen.greedy
        with within("planner"):
            self.policy = chosen.load(policy)
        self._path, self._env = str(policy), str(self.policy.manifest.env)
        if self._env not in SEATS:
            raise UserError(
                f"`planner` is '{self.name}:{policy}', which was trained in {self._env!r} and not as a planner; give a "
                f"checkpoint that was trained in one of {', '.join(SEATS)}."
            )
        refuse_controls(self.policy, f"`planner` '{self.name}:{policy}'")
        recorded = self.policy.manifest.env_config
        read = {key: recorded[key] for key in ("seats", "view") if key in recorded}
        with within(f"{self.name}:{policy}"):
            seats = SeatSettings.checked("env_config", read)
        self._seats, self._central, self._view = seats, seats.seats == CENTRAL, seats.view
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

    def check_game(self, game: PlanningGame) -> None:
        """Refuses another game than that of the training.

        Raises:
            UserError: If it is such.
        """
        record = game_of(game.env.unwrapped)
        if record is None or SEATS[self._env].game_id not in record.entry_points:
            raise UserError(
                f"`planner` is '{self.name}:{self._path}', which plans in {SEATS[self._env].game_id!r} and not in "
                f"{record.name if record else type(game).__name__!r}; give a checkpoint of this game."
            )

    def check_seats(self, given: Mapping[str, Any]) -> None:
        """Refuses settings of seats that say otherwise than those of the training, which it keeps.

        Args:
            given: Settings of `SeatSettings`, as they are given.

        Raises:
            UserError: If `seats` or `view` is another one.
        """
        for key in ("seats", "view"):
            own = getattr(self._seats, key)
            if given.get(key, own) != own:
                raise UserError(
                    f"`env_config.{key}` is {given[key]!r}, but '{self.name}:{self._path}' was trained with {own!r}, "
                    f"which it keeps; omit `{key}`."
                )

    def plan(self, request: PlanRequest) -> Plan:
        """Plan of the trained seats; players whose subgoals go on keep them.

        Subgoals that a player did not get done from this very moment are chosen again only if there is no other.
        """
        game, state = request.game, request.state
        current = {agent: request.current.get(agent, "") for agent in game.agents}
        for agent, subgoal in current.items():
            if subgoal and game.refusal(state, agent, subgoal):
                current[agent] = ""
        candidates = subgoals_of(game)
        made: dict[str, Decision] = {}
        due = [agent for agent in game.agents if not current[agent]]
        for asked in [[agent] for agent in due] if self._central else [due]:
            seen = {
                agent: seat_observation(
                    game, state, agent, current, request.outcomes, self._central, candidates, self._view
                )
                for agent in asked
            }
            for agent, observation in seen.items():
                observation["action_mask"] = _without_failed(request, agent, candidates, observation["action_mask"])
            if seen:
                decided = self.policy.act_together([Request(self._memory, seen)], explore=not self.greedy)[0]
                made.update(decided)
                current.update({agent: candidates[one.choice] for agent, one in decided.items()})
        return Plan(
            goal=f"what the trained planners{', who see all units of the enemy,' * (self._view == TRUTH)} hold best",
            subgoals=[
                AssignedSubgoal(
                    agent=agent, subgoal=current[agent], reason=_reason(made.get(agent), candidates), answered_by=MODEL
                )
                for agent in game.agents
            ],
            planner=self.name,
            answered_by=PhaseAnswers.all_by(MODEL),
            source=self._path,
        )


def _without_failed(request: PlanRequest, agent: str, candidates: Sequence[str], mask: np.ndarray) -> np.ndarray:
    """The mask without what the player did not get done in attempts that failed from here; as it is if nothing is left.

    Where all subgoals of such an attempt were done, the plan was at fault: nobody repeats its part.
    """
    failed = {one.plan.by_agent().get(agent) for one in request.failed if agent in one.undone or not one.undone}
    fresh = mask * np.array([candidate not in failed for candidate in candidates], mask.dtype)
    return fresh if fresh.any() else mask


def _reason(decision: Decision | None, candidates: Sequence[str]) -> str:
    """What a seat thought of its choice and of the likeliest others, and said."""
    if decision is None:
        return "goes on"
    probabilities = decision.probabilities
    words = [f"probability {float(probabilities[decision.choice]):.2f}"] if len(probabilities) else []
    others = [index for index in np.argsort(-np.asarray(probabilities)) if index != decision.choice]
    shown = [f"{candidates[i]} {float(probabilities[i]):.2f}" for i in others[:_OTHERS] if probabilities[i] >= _LEAST]
    words += [f"(else {', '.join(shown)})"] if shown else []
    return " ".join([*words, *([f"and says: {decision.said}"] if decision.said else [])])
