"""The onion-soup kitchens as the stages know them that prepare a game for planning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.plain_state import plain_state
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, Kitchen
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoal_file import kitchen_record
from rllib_llm_comm.envs.overcooked_ai.subgoals import SOUP, holdable, pots_in_use
from rllib_llm_comm.sama.action_translation import Check
from rllib_llm_comm.sama.code_index import CodeIndex
from rllib_llm_comm.sama.games.overcooked_ai import KitchenPlanning, Moment
from rllib_llm_comm.sama.kitchen.action_translation import primitive_actions, surroundings
from rllib_llm_comm.sama.kitchen.recorded_code import kitchen_code
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.preparation import GamePreparation, Transition

_NOTHING = "nothing"
_STARTED = COOK_TIME // 2
_SHARE_OF_RANDOM_STEPS = 0.3
_STEPS_FROM_A_START = 60


class Holding(BaseModel):
    """Content of a player's hands."""

    model_config = ConfigDict(json_schema_extra={"description": "What a player holds."})

    player: str
    holds: str


class PotContent(BaseModel):
    """Content of a pot."""

    model_config = ConfigDict(json_schema_extra={"description": "What is in a pot."})

    pot: str
    onions: int = Field(ge=0, le=FULL)
    cooks: Literal["no", "yes", "ready"] = "no"


class ProposedState(BaseModel):
    """A situation."""

    players: list[Holding]
    pots: list[PotContent]


class ProposedStates(BaseModel):
    """Situations that differ."""

    states: list[ProposedState]


class KitchenPreparation(GamePreparation):
    """Shows an onion-soup kitchen to the stages. Where cooks stand in proposed states is drawn.

    Args:
        game: The kitchen.
    """

    to_tell: ClassVar[str] = (
        "Say what each player holds, and what is in or on each thing that the team needs for its aim and whether it is "
        "at work or ready."
    )
    to_leave: ClassVar[str] = "coordinates, directions, counts of steps, and what lies about unused"
    course: ClassVar[str] = "from its start to the delivery of a soup"
    form: ClassVar[type[BaseModel] | None] = ProposedStates

    def __init__(self, game: PlanningGame) -> None:
        super().__init__(game)
        self._kitchen: Kitchen = game.env.unwrapped.kitchen
        layout = self._kitchen.layout
        names = places_of(layout).names
        self._pots = {names[cell]: cell for cell in pots_in_use(layout)}
        self._kinds = holdable(layout)

    def code(self) -> CodeIndex:
        """The recorded copy, which recordings quote."""
        return kitchen_code()

    def draw(self, rng: np.random.Generator) -> Moment:
        """Random legal state."""
        self._kitchen.restore(random_snapshot(self._kitchen.layout, self._kitchen.dynamics, rng))
        return self._now()

    def _planned(self) -> KitchenPlanning:
        assert isinstance(self.game, KitchenPlanning)
        return self.game

    def _now(self) -> Moment:
        state: Moment = self.game.state()
        return state

    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Steps of scripted cooks who are often disturbed, from random legal states."""
        layout, dynamics = self._kitchen.layout, self._kitchen.dynamics
        rng, kitchen = np.random.default_rng(seed), Kitchen(layout, dynamics)
        cooks, plain = ScriptedCooks(kitchen, seed), plain_state(kitchen)
        for step in range(number):
            if step % _STEPS_FROM_A_START == 0:
                kitchen.restore(random_snapshot(layout, dynamics, rng))
                cooks = ScriptedCooks(kitchen, int(rng.integers(2**31)))
                plain = plain_state(kitchen)
            before, plain_before = Moment(kitchen.state.copy(), 0), plain
            actions = [
                int(rng.integers(NUM_ACTIONS)) if rng.random() < _SHARE_OF_RANDOM_STEPS else action
                for action in cooks.actions()
            ]
            kitchen.step(actions)
            plain = plain_state(kitchen)
            yield Transition(before, Moment(kitchen.state.copy(), 0), plain_before, plain)

    def parts(self) -> str:
        """Hands of the cooks and content of the pots."""
        things, pots = ", ".join([_NOTHING, *sorted(self._kinds[0] | self._kinds[1])]), ", ".join(self._pots)
        return (
            f"what each player ({', '.join(COOKS)}) holds: {things}; and what is in each pot ({pots}): "
            'the number of onions, 0 to 3, and whether it cooks ("no", "yes" or "ready"). A pot with fewer than three '
            "onions does not cook; one with three cooks or is ready."
        )

    def impossible(self, proposed: ProposedState) -> str:
        """Reason against hands and pots."""
        if sorted(one.player for one in proposed.players) != sorted(COOKS):
            return f"each of {', '.join(COOKS)} must be named once in a situation"
        for one in proposed.players:
            if one.holds not in {_NOTHING, *self._kinds[COOKS.index(one.player)]}:
                return f"{one.player} can never hold {one.holds!r}"
        for pot in proposed.pots:
            if pot.pot not in self._pots:
                return f"there is no pot {pot.pot!r}, only {', '.join(self._pots)}"
            if (pot.onions == FULL) != (pot.cooks != "no"):
                return f"a pot with {pot.onions} onions cannot have cooks: {pot.cooks!r}"
        named = {pot.pot for pot in proposed.pots}
        return "" if len(named) == len(proposed.pots) else "a pot is named twice in a situation"

    def put(self, proposed: ProposedState, rng: np.random.Generator) -> Moment:
        """The proposed state, the cooks anywhere."""
        snapshot = random_snapshot(self._kitchen.layout, self._kitchen.dynamics, rng)
        held = {one.player: one.holds for one in proposed.players}
        for player, agent in enumerate(COOKS):
            snapshot["players"][player][3] = _thing(held[agent])
        content = [(self._pots[one.pot], one) for one in proposed.pots if one.onions]
        snapshot["objects"] = [[*cell, SOUP, one.onions, 0, _tick(one)] for cell, one in content]
        self._kitchen.restore(snapshot)
        return self._now()

    def actions(self, state: Moment, agent: str) -> Mapping[str, Check]:
        """The six primitive actions."""
        return primitive_actions(self._planned(), state, agent)

    def beside(self, state: Moment, agent: str) -> Mapping[str, str]:
        """The places on the four sides of a cook."""
        return surroundings(self._planned(), state, agent)

    def origin(self) -> dict[str, Any]:
        """The kitchen, as `subgoal_file` of its environment expects it."""
        return {"kitchen": kitchen_record(self._kitchen.layout)}


def _thing(kind: str) -> list[Any] | None:
    if kind == _NOTHING:
        return None
    return [SOUP, FULL, 0, COOK_TIME] if kind == SOUP else [kind]


def _tick(pot: PotContent) -> int:
    return {"no": IDLE, "yes": _STARTED, "ready": COOK_TIME}[pot.cooks]
