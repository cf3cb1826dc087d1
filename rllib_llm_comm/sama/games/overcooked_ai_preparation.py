"""The onion-soup kitchen as the stages know it that prepare a game for planning.

The game knows what an action would really do (`text.target_phrases`, `text.primitive_phrases`), so words for it are
checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import FLOOR, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES, NUM_ACTIONS, Kitchen, plain_state
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import SOUP, holdable, kitchen_record, parse_subgoal, pots_in_use
from rllib_llm_comm.envs.overcooked_ai.text import primitive_phrases, target_phrases
from rllib_llm_comm.sama.code_index import Check, CodeIndex
from rllib_llm_comm.sama.games.overcooked_ai import KitchenPlanning, Moment
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.preparation import GamePreparation, Transition
from rllib_llm_comm.sama.recordings import recorded_code
from rllib_llm_comm.sama.subgoals.new import NewSubgoals, NewSubgoalSettings


def kitchen_code() -> CodeIndex:
    """The code of the onion-soup kitchens that recordings are asked about, to search in."""
    return recorded_code("kitchen_source")


_LONGEST = 200
_WAYS = "north|south|east|west"
_OTHER_WAYS = {"up": "north", "down": "south", "right": "east", "left": "west"}
_SUBJECT = re.compile(
    rf"^(?:(?:{'|'.join(COOKS)}|the cook|it|you|i|he|she)\b)?\s*(?:would|will|can)?\s*", re.IGNORECASE
)
_VERB = re.compile(
    r"^(fetch|tak|get|grab|collect|pick|put|plac|set|drop|lay|add|fill|deliver|serv|bring|go|walk|mov|turn|keep|stay|"
    r"wait|do|fac|step)(?:es|s|e|)\b",
    re.IGNORECASE,
)
_ENDED = {"tak": "take", "plac": "place", "serv": "serve", "mov": "move", "fac": "face"}
_NOTHING = re.compile(
    r"\b(?:nothing|stays?|wait|keep facing|no effect|not change|no change|out of reach|cannot be reached|not move)\b"
)
_STEP = re.compile(rf"^(?:go|move|walk|step)(?: one step)?(?: to the)? ({_WAYS})$")
_TURN = re.compile(rf"^(?:turn|face)(?: to)?(?: the)? ({_WAYS})$")
_PLACE = re.compile(rf"^((?:go|move|walk|step|turn|face) (?:{_WAYS}))(?: to)?(?: face)?(?: the)? (\w.*)$")


def effect_check(layout: Layout, truth: str, beside: Mapping[str, str] | None = None) -> Check:
    """Check of words against the effect of an action of the onion-soup kitchen.

    Args:
        layout: The kitchen.
        truth: Its true effect, as `text.target_phrases` or `text.primitive_phrases` says it.
        beside: The place on each side of the cook, by direction, for words such as "turn east to face counter 4".
    """
    true = _meaning(layout, truth)

    def check(words: str) -> bool | None:
        named = _PLACE.match(_plain(words)) if beside else None
        said = _meaning(layout, named.group(1) if named else words)
        if said is None:
            return None
        return said == true and (beside is None or named is None or beside[said[1]] == named.group(2))

    return check


def _meaning(layout: Layout, words: str) -> Any:
    """Meaning of words: a subgoal, a direction to go or turn to, or "nothing"; `None` if it cannot be told."""
    text = _plain(words)
    for ways, verb in ((_STEP, "go"), (_TURN, "turn")):
        if match := ways.fullmatch(text):
            return verb, match.group(1)
    return parse_subgoal(layout, text) or ("nothing" if _NOTHING.search(text) else None)


def _plain(words: str) -> str:
    """Words in lower case that begin with the verb as it stands in a subgoal, with the directions of the map."""
    text = _SUBJECT.sub("", " ".join(words[:_LONGEST].split()).rstrip(".").lower())
    if match := _VERB.match(text):
        verb = match.group(1)
        text = _ENDED.get(verb, verb) + text[match.end() :]
    head, _, last = text.rpartition(" ")
    return f"{head} {_OTHER_WAYS[last]}".strip() if last in _OTHER_WAYS else text


def goal_cell_actions(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, Check]:
    """An agent's goal cells that are no floor and in its reach, each with its check.

    Args:
        game: The kitchen's adapter.
        state: The moment.
        agent: Its name.
    """
    kitchen, player = game.kitchen(state), COOKS.index(agent)
    layout, places = kitchen.layout, places_of(kitchen.layout)
    near = places.reach[places.room_of[kitchen.cook(player).cell]]
    cells = [cell for cell in _in_order(near) if layout.kind(cell) != FLOOR]
    phrases = target_phrases(kitchen, player, cells)
    names = [f"goal cell {x},{y}: go to {places.names[x, y]} and interact" for x, y in cells]
    return {name: effect_check(layout, phrase) for name, phrase in zip(names, phrases, strict=True)}


def primitive_actions(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, Check]:
    """An agent's six primitive actions, each with its check.

    Args:
        game: The kitchen's adapter.
        state: The moment.
        agent: Its name.
    """
    kitchen = game.kitchen(state)
    phrases, beside = primitive_phrases(kitchen, COOKS.index(agent)), surroundings(game, state, agent)
    names = [f"action {number}: {name}" for number, name in enumerate(ACTION_NAMES)]
    return {name: effect_check(kitchen.layout, phrase, beside) for name, phrase in zip(names, phrases, strict=True)}


def surroundings(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, str]:
    """The places on the four sides of an agent, by direction.

    Args:
        game: The kitchen's adapter.
        state: The moment.
        agent: Its name.
    """
    kitchen = game.kitchen(state)
    x, y = kitchen.cook(COOKS.index(agent)).cell
    names = places_of(kitchen.layout).names
    # No cook stands at the edge of a kitchen, so each side has a cell.
    return {way: names[x + dx, y + dy] for way, (dx, dy) in zip(ACTION_NAMES, STEPS, strict=False)}


def _in_order(cells: Any) -> list[Cell]:
    return sorted(cells, key=lambda cell: (cell[1], cell[0]))


class KitchenSubgoals(NewSubgoals):
    """Asks in states of kitchens that give subgoals themselves, which no planner looks at while agents train.

    Args:
        settings: The settings.
        layout: The kitchen: a name, or rows of one's own.
        path: As of `NewSubgoals`, and the others, too.
        with_code: Whether subgoals are judged by code.
        seed: Of cooks' places in proposed states, and of the steps in which code is compared.

    Raises:
        UserError: If the data set cannot be read.
    """

    def __init__(
        self, settings: NewSubgoalSettings, layout: Any, path: str, *, with_code: bool = False, seed: int = 0
    ) -> None:
        super().__init__(settings, ENV_ID, {"layout": layout}, path, with_code=with_code, seed=seed)

    def put(self, game: PlanningGame, snapshot: Any) -> None:
        """Puts a kitchen into a state of `Kitchen.snapshot`."""
        game.env.unwrapped.kitchen.restore(snapshot)


_EMPTY = "nothing"
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
        things, pots = ", ".join([_EMPTY, *sorted(self._kinds[0] | self._kinds[1])]), ", ".join(self._pots)
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
            if one.holds not in {_EMPTY, *self._kinds[COOKS.index(one.player)]}:
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
    if kind == _EMPTY:
        return None
    return [SOUP, FULL, 0, COOK_TIME] if kind == SOUP else [kind]


def _tick(pot: PotContent) -> int:
    return {"no": IDLE, "yes": _STARTED, "ready": COOK_TIME}[pot.cooks]
