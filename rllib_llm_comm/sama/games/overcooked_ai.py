"""The onion-soup kitchen as planners know it: its subgoals in words, its skill graph, and cooks that do as told."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.envs.overcooked_ai.checker import check_sentence
from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import (
    COUNTER,
    DISHES,
    FLOOR,
    LAYOUT_NAMES,
    ONIONS,
    POT,
    SERVING,
    Cell,
    Layout,
)
from rllib_llm_comm.envs.overcooked_ai.places import COOKS, STEPS, Places, places_of, routes_of
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks, Task, TaskPlanner, plan
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES, NUM_ACTIONS, SoupKitchen, plain_state
from rllib_llm_comm.envs.overcooked_ai.scripted_cooks import towards
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import SubgoalKitchen, random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import (
    ADD,
    DELIVER,
    GO,
    PLATE,
    PUT,
    SOUP,
    TAKE,
    Subgoal,
    completed,
    holdable,
    kitchen_record,
    library,
    parse_subgoal,
    possible,
    possible_subgoals,
    pots_in_use,
    subgoal_text,
    subgoals_by_text,
    task_subgoal,
)
from rllib_llm_comm.envs.overcooked_ai.text import (
    cook_sentences,
    manual,
    map_facts,
    primitive_phrases,
    state_sentences,
    target_phrases,
)
from rllib_llm_comm.sama.planning_game import PlanningGame, RulePlayer, State, examples_in
from rllib_llm_comm.sama.preparation import Check, CodeIndex, GamePreparation, Transition
from rllib_llm_comm.sama.recordings import recorded_code
from rllib_llm_comm.sama.skill_graph import Skill, SkillProblem, own

FORMS = (
    "fetch an onion from a place; put the onion into the pot; fetch a dish from a place; fill the dish with the soup "
    "from the pot; deliver the soup at the serving counter; put the onion, the dish or the soup on a counter; go to a "
    "place; wait. Where a place is not named, the nearest one that will do is taken"
)
"""The forms of subgoals, for models that get no list of those that are possible."""
_ARTICLES = re.compile(r"\b(?:an?|the|your|its|some)\b")
_SAME = (
    (re.compile(r"^(?:get|take|grab|collect|pick up)\b"), "fetch"),
    (re.compile(r"^(?:place|set|drop|lay)\b"), "put"),
    (re.compile(r"^add\b(.*)\bto\b"), r"put\1into"),
    (re.compile(r"^(?:serve|bring)\b"), "deliver"),
    (re.compile(r"^(?:stay|stand still|do nothing|stay put|wait here)$"), "wait"),
)


def without_places(subgoal: Subgoal) -> Iterator[str]:
    """The ways to say a subgoal without its place."""
    kind = subgoal.kind
    said = {
        TAKE: (f"fetch {kind}",),
        PUT: (f"put {kind} on counter", f"put down {kind}", f"put {kind} down"),
        ADD: (f"put {kind} into pot", f"put {kind} in pot"),
        PLATE: ("fill dish with soup", "fill dish", "fill dish with soup from pot"),
        DELIVER: ("deliver soup", "deliver soup at serving counter"),
        GO: (),
    }
    yield from said[subgoal.verb]


def plain_words(text: str) -> str:
    """A text without articles, capitals and full stop, with one verb for all that mean the same."""
    words = " ".join(_ARTICLES.sub(" ", text.lower()).split()).rstrip(".")
    for pattern, instead in _SAME:
        words = pattern.sub(instead, words)
    return words


TARGET = "a delivered soup"
_HANDS, _FREE = "free hands", "a free counter"
_SOURCES = {"onion": ONIONS, "dish": DISHES}


def kitchen_skills(game: PlanningGame, kitchen: SoupKitchen, state: State) -> SkillProblem:
    """A moment of a kitchen as a search problem.

    Things: what each cook holds ("alice: onion", "alice: free hands"), what lies on counters that both can use ("an
    onion on a counter"), free ones of these, and per pot its onions, the room for more, and a soup that cooks or is
    ready. A pot of three onions cooks by itself.

    Args:
        game: Tells which subgoals are possible, and how far they are.
        kitchen: The kitchen in this moment.
    """
    places = places_of(kitchen.layout)
    skills = [skill for i in range(2) for skill in _CookSkills(game, kitchen, state, i).skills()]
    for pot in places.fixtures[POT]:
        name = places.names[pot]
        skills.append(Skill(f"{name} cooks", {_onions(name): FULL}, {_soup(name): 1}, cost=1.0))
    rules = TaskPlanner(kitchen, ())
    idle = {name: subgoal_text(kitchen.layout, task_subgoal(rules.aside(i))) for i, name in enumerate(COOKS)}
    engaged = frozenset(name for i, name in enumerate(COOKS) if kitchen.cook(i).held is not None)
    return SkillProblem(skills, _have(kitchen, places), (TARGET,), idle, engaged)


def _onions(pot: str) -> str:
    return f"onions in {pot}"


def _room(pot: str) -> str:
    return f"room in {pot}"


def _soup(pot: str) -> str:
    return f"soup in {pot}"


def _lying(kind: str) -> str:
    return f"{kind} on a counter"


def _exchange(layout: Layout) -> tuple[Cell, ...]:
    """The counters that both cooks can use."""
    places = places_of(layout)
    reach = [places.reachable(start) for start in layout.starts]
    return tuple(cell for cell in places.fixtures[COUNTER] if cell in reach[0] and cell in reach[1])


def _have(kitchen: SoupKitchen, places: Places) -> Counter[str]:
    have: Counter[str] = Counter()
    for i, name in enumerate(COOKS):
        held = kitchen.cook(i).held
        have[own(name, _HANDS if held is None else held.kind)] += 1
    for cell in _exchange(kitchen.layout):
        item = kitchen.item(cell)
        have[_FREE if item is None else _lying(item.kind)] += 1
    for cell in places.fixtures[POT]:
        soup, pot = kitchen.item(cell), places.names[cell]
        onions = 0 if soup is None else soup.onions
        have[_soup(pot)] = int(soup is not None and soup.tick >= 0)
        have[_onions(pot)] = 0 if have[_soup(pot)] else onions
        have[_room(pot)] = FULL - onions
    return have


class _CookSkills:
    def __init__(self, game: PlanningGame, kitchen: SoupKitchen, state: State, player: int) -> None:
        self._game, self._kitchen, self._state, self._name = game, kitchen, state, COOKS[player]
        self._library = library(kitchen.layout, player)
        self._exchange = frozenset(_exchange(kitchen.layout))
        self._possible = frozenset(game.possible(state, self._name))

    def skills(self) -> list[Skill]:
        layout, names = self._kitchen.layout, places_of(self._kitchen.layout).names
        hands = self._own(_HANDS)
        skills = []
        for kind in ("onion", "dish", "soup"):
            lying, mine = {_lying(kind): 1}, self._own(kind)
            if kind in _SOURCES:
                source = self._at(TAKE, kind, lambda cell, kind=kind: layout.kind(cell) == _SOURCES[kind])
                skills.append(self._skill(f"fetch {kind}", hands, mine, source))
            counters = self._at(TAKE, kind, self._exchange.__contains__)
            skills.append(self._skill(f"pick up {kind}", {**hands, **lying}, {**mine, _FREE: 1}, counters))
            counters = self._at(PUT, kind, self._exchange.__contains__)
            skills.append(self._skill(f"put down {kind}", {**mine, _FREE: 1}, {**hands, **lying}, counters))
        for subgoal in self._library:
            pot = names[subgoal.cell]
            if subgoal.verb == ADD:
                uses = {**self._own("onion"), _room(pot): 1}
                skills.append(self._skill(f"fill {pot}", uses, {**hands, _onions(pot): 1}, [subgoal]))
            elif subgoal.verb == PLATE:
                uses, brings = {**self._own("dish"), _soup(pot): 1}, {**self._own("soup"), _room(pot): FULL}
                skills.append(self._skill(f"empty {pot}", uses, brings, [subgoal]))
        serving = self._at(DELIVER, "soup", lambda cell: layout.kind(cell) == SERVING)
        skills.append(self._skill("deliver", self._own("soup"), {**hands, TARGET: 1}, serving))
        return [skill for skill in skills if skill is not None]

    def _own(self, thing: str) -> dict[str, int]:
        return {own(self._name, thing): 1}

    def _at(self, verb: str, kind: str, here: object) -> list[Subgoal]:
        return [s for s in self._library if s.verb == verb and s.kind == kind and here(s.cell)]  # type: ignore[operator]

    def _skill(
        self, name: str, uses: dict[str, int], brings: dict[str, int], subgoals: Sequence[Subgoal]
    ) -> Skill | None:
        """A skill that is done by one of some subgoals, the nearest first; `None` if there are none."""
        layout = self._kitchen.layout
        words = [subgoal_text(layout, subgoal) for subgoal in subgoals]
        if not words:
            return None
        efforts = {text: self._game.effort(self._state, self._name, text) for text in words}
        now = [text for text in words if text in self._possible]
        ordered = tuple(sorted(now, key=lambda text: efforts[text]))
        return Skill(f"{self._name}: {name}", uses, brings, self._name, ordered, 1.0 + min(efforts.values()))


class FollowingCooks(RulePlayer):
    """Goes where its subgoal is to be done and does it, then stays; knows nothing of soups.

    A cook that cannot do its subgoal now, because it has done it, or because a thing is gone, stays where it is. Who
    has to fill a dish waits beside the pot until the soup is ready. With `action_level="goal"` a cook that has to go
    somewhere waits, as floor is no goal there.
    """

    game: KitchenPlanning

    def action(self, agent: str, seen: Mapping[str, Any]) -> int:
        """The next action of a cook."""
        env, state, subgoal = self.game.env.unwrapped, self.game.state(), str(seen["subgoal"])
        here = env.kitchen.cook(env.players[agent]).cell
        if not subgoal or self.game.refusal(state, agent, subgoal):
            return towards(env, agent, here, waits=True)
        meant = self.game.meant(subgoal)
        return towards(env, agent, meant.cell, waits=meant.verb == GO)


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of a kitchen.

    Attributes:
        state: `SoupKitchen.state`.
        soups: Soups delivered before it.
    """

    state: np.ndarray
    soups: int


class KitchenPlanning(PlanningGame):
    """Shows planners an `OvercookedAI`.

    Raises:
        UserError: If its settings are such that subgoals cannot be told or followed.
    """

    scenarios: ClassVar[Mapping[str, Mapping[str, Any]]] = {name: {"layout": name} for name in LAYOUT_NAMES}
    played_with: ClassVar[Mapping[str, Any]] = {"action_level": "goal_cell", "observe": ["entities"]}

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        game = env.unwrapped
        if game.settings["dynamics"] != "old":
            raise UserError(
                "`dynamics` is 'new', in which pots have to be started, but no subgoal says so; use `dynamics='old'`."
            )
        if game.settings["swap_roles"]:
            raise UserError(
                "`swap_roles` is true, but plans name the cooks, of which the first is alice; use `swap_roles=False`."
            )
        if game.settings["wanted"] is not None:
            raise UserError(
                f"`wanted` is {game.settings['wanted']!r}, but plans and subgoals do not know of it; omit it."
            )
        game.kitchen.layout.require_classic("Plans")
        self._layout: Layout = game.kitchen.layout

    def state(self) -> Moment:
        """Copy of the present state, and the soups delivered."""
        game = self.env.unwrapped
        return Moment(game.kitchen.state.copy(), game.soups)

    def passed(self) -> list[Moment]:
        """Moments of all steps since the last decision."""
        game = self.env.unwrapped
        return [Moment(state, game.soups) for state in game.passed]

    def kitchen(self, state: Moment) -> SoupKitchen:
        """A kitchen in this moment, to look at."""
        kitchen = copy.copy(self.env.unwrapped.kitchen)
        kitchen.state = state.state
        return kitchen

    def manual(self) -> str:
        """Rules of the game and map of the kitchen."""
        return " ".join(manual(self._layout))

    def scenario(self) -> str:
        """Map of the kitchen."""
        return " ".join(map_facts(self._layout))

    def situation(self, state: Moment) -> str:
        """Pots, counters, time and soups."""
        return " ".join(state_sentences(self.kitchen(state), state.soups))

    def situation_of(self, state: Moment, agent: str) -> str:
        """Place, direction and hands of a cook."""
        return " ".join(cook_sentences(self.kitchen(state), COOKS.index(agent)))

    def plain(self, state: Moment) -> Mapping[str, Any]:
        """State of the kitchen as plain values."""
        return plain_state(self.kitchen(state))

    def holds(self, state: Moment, sentence: str) -> bool | None:
        """True if the kitchen's checker proves a sentence, false if it disproves it."""
        return check_sentence(self.kitchen(state), sentence, soups=state.soups)

    def examples(self, phase: str) -> Sequence[str]:
        """Worked examples of a phase, from a template file."""
        return examples_in(__package__, f"example_overcooked_ai_{phase}")

    def paper_examples(self, phase: str) -> Sequence[str]:
        """Worked examples as SAMA's listings have them: goal and subgoals in one."""
        if phase == "assignment":
            return self.examples(phase)
        return examples_in(__package__, f"paper_example_overcooked_ai_{phase}")

    def library(self, agent: str) -> list[str]:
        """All subgoals of a cook, in words."""
        return [subgoal_text(self._layout, subgoal) for subgoal in library(self._layout, COOKS.index(agent))]

    def parse(self, text: str) -> str | None:
        """Subgoal that a text names, in the words of the library; `None` if it names none."""
        found = parse_subgoal(self._layout, text)
        return None if found is None else subgoal_text(self._layout, found)

    def resolve(self, state: Moment, agent: str, text: str) -> str | None:
        """Subgoal that a text means for a cook: without a place the nearest possible one; to wait is to go nowhere."""
        if (known := self.parse(text)) is not None:
            return known
        words, player = plain_words(text), COOKS.index(agent)
        if words == "wait":
            return subgoal_text(self._layout, Subgoal(GO, "", self.kitchen(state).cook(player).cell))
        meant = [one for one in library(self._layout, player) if words in without_places(one)]
        if not meant:
            return None
        options = [subgoal_text(self._layout, one) for one in meant]
        return min(options, key=lambda one: (bool(self.refusal(state, agent, one)), self.effort(state, agent, one)))

    def forms(self) -> str:
        """The verbs, things and places of subgoals."""
        return FORMS

    def refusal(self, state: Moment, agent: str, subgoal: str) -> str:
        """Reason against a subgoal of a cook now; to go to its own cell is to wait, and always possible."""
        kitchen, player, meant = self.kitchen(state), COOKS.index(agent), self.meant(subgoal)
        if possible(kitchen, player, meant) or self.waits(state, agent, subgoal):
            return ""
        if meant not in library(self._layout, player):
            return f"{agent} can never {subgoal}, as the place or the thing is out of {agent}'s reach"
        if meant.verb == GO:
            return f"{agent} cannot {subgoal} now, as somebody stands there"
        wanted = {TAKE: "nothing", PLATE: "a dish"}.get(meant.verb, f"the {meant.kind}")
        held = kitchen.cook(player).held
        holds = "nothing" if held is None else held.kind
        if holds != wanted.rpartition(" ")[2]:
            return f"{agent} cannot {subgoal} now, as for this {agent} must hold {wanted} but holds {holds}"
        return f"{agent} cannot {subgoal} now, as {self._there(kitchen, meant)}"

    def possible(self, state: Moment, agent: str) -> list[str]:
        """All subgoals that a cook can set about now, found in one pass, as they are asked for often."""
        kitchen, player = self.kitchen(state), COOKS.index(agent)
        here = Subgoal(GO, "", kitchen.cook(player).cell)
        found = {*possible_subgoals(kitchen, player), here}
        return [subgoal_text(self._layout, one) for one in library(self._layout, player) if one in found]

    def done(self, before: Moment, after: Moment, agent: str, subgoal: str) -> bool:
        """True if a cook has done a subgoal in one game step."""
        return completed(before.state, after.state, COOKS.index(agent), self.meant(subgoal))

    def waits(self, state: Moment, agent: str, subgoal: str) -> bool:
        """True if a cook is told to go to its own cell."""
        meant = self.meant(subgoal)
        return meant.verb == GO and self.kitchen(state).cook(COOKS.index(agent)).cell == meant.cell

    def effort(self, state: Moment, agent: str, subgoal: str) -> float:
        """Steps to the place of a subgoal, the other cook left out."""
        cook = self.kitchen(state).cook(COOKS.index(agent))
        return float(routes_of(self._layout).cost(cook.cell, cook.facing, self.meant(subgoal).cell))

    def judge_own_subgoals(self, done: Callable[[Moment, Moment, str, str], bool]) -> None:
        """Lets another test judge the subgoals that the kitchen gives itself."""
        game = self.env.unwrapped
        if not isinstance(game, SubgoalKitchen):
            super().judge_own_subgoals(done)

        step: list[Any] = [None, None, None]  # the arrays before a step, and its two moments

        def test(before: np.ndarray, after: np.ndarray, player: int, subgoal: Subgoal) -> bool:
            if step[0] is not before:
                soups = game.soups
                step[:] = before, Moment(before, soups), Moment(after, soups)
            return done(step[1], step[2], COOKS[player], subgoal_text(self._layout, subgoal))

        game.subgoal_test = test

    def scripted(self, state: Moment) -> tuple[str, dict[str, str]]:
        """Tasks of the scripted planner, as subgoals."""
        tasks = plan(self.kitchen(state))
        subgoals = {
            name: subgoal_text(self._layout, task_subgoal(task)) for name, task in zip(COOKS, tasks, strict=True)
        }
        return _goal(tasks), subgoals

    def skills(self, state: Moment) -> SkillProblem:
        """Skill graph of the kitchen at a moment."""
        return kitchen_skills(self, self.kitchen(state), state)

    def player(self) -> FollowingCooks:
        """Cooks that follow their subgoals."""
        return FollowingCooks(self)

    def shared(self) -> Sequence[Any]:
        """Layout and routes."""
        kitchen = self.env.unwrapped.kitchen
        return [kitchen.layout, routes_of(kitchen.layout)]

    def meant(self, subgoal: str) -> Subgoal:
        """A subgoal of the library, in words, as the game knows it."""
        return subgoals_by_text(self._layout)[subgoal]

    def _there(self, kitchen: SoupKitchen, subgoal: Subgoal) -> str:
        place = places_of(self._layout).phrases[subgoal.cell]
        item = kitchen.item(subgoal.cell)
        if item is None:
            return f"nothing is in {place}" if self._layout.kind(subgoal.cell) == POT else f"nothing lies on {place}"
        if self._layout.kind(subgoal.cell) == POT:
            state = "already has three onions" if item.tick >= 0 else "does not cook yet"
            return f"{place} {state}"
        return f"{place} has {'an' if item.kind == 'onion' else 'a'} {item.kind} on it"


def _goal(tasks: Sequence[Task]) -> str:
    """Purpose of the scripted tasks, the most advanced first."""
    verbs = {(task.verb, task.kind) for task in tasks}
    if any(kind == "soup" for _, kind in verbs):
        return "deliver a soup"
    if any(kind == "dish" for _, kind in verbs):
        return "have a dish ready for the soup"
    return "fill a pot with onions" if any(kind == "onion" for _, kind in verbs) else "wait for the soup"


# ---- preparation ------------------------------------------------------------------------------------------------


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
        truth: Its true effect, as `text.target_phrases` or `text.primitive_phrases` says it.
        beside: The place on each side of the cook, by direction, for words such as "turn east to face counter 4".

    Returns:
        The check; of words of more than 300 characters it cannot tell.
    """
    true = _meaning(layout, truth)

    def check(words: str) -> bool | None:
        if len(words) > MAX_SUBGOAL:
            return None
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
    text = _SUBJECT.sub("", " ".join(words.split()).rstrip(".").lower())
    if match := _VERB.match(text):
        verb = match.group(1)
        text = _ENDED.get(verb, verb) + text[match.end() :]
    head, _, last = text.rpartition(" ")
    return f"{head} {_OTHER_WAYS[last]}".strip() if last in _OTHER_WAYS else text


def goal_cell_actions(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, Check]:
    """An agent's goal cells that are no floor and in its reach, each with its check."""
    kitchen, player = game.kitchen(state), COOKS.index(agent)
    layout, places = kitchen.layout, places_of(kitchen.layout)
    near = places.reach[places.room_of[kitchen.cook(player).cell]]
    in_order = sorted(near, key=lambda cell: (cell[1], cell[0]))
    cells = [cell for cell in in_order if layout.kind(cell) != FLOOR]
    phrases = target_phrases(kitchen, player, cells)
    names = [f"goal cell {x},{y}: go to {places.names[x, y]} and interact" for x, y in cells]
    return {name: effect_check(layout, phrase) for name, phrase in zip(names, phrases, strict=True)}


_EMPTY = "nothing"
_TICKS = {"no": IDLE, "yes": COOK_TIME // 2, "ready": COOK_TIME}
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
    """Shows an onion-soup kitchen to the stages. Where cooks stand in proposed states is drawn."""

    to_tell: ClassVar[str] = (
        "Say what each player holds, and what is in or on each thing that the team needs for its aim and whether it is "
        "at work or ready."
    )
    to_leave: ClassVar[str] = "coordinates, directions, counts of steps, and what lies about unused"
    course: ClassVar[str] = "from its start to the delivery of a soup"
    form: ClassVar[type[BaseModel] | None] = ProposedStates

    game: KitchenPlanning

    def __init__(self, game: PlanningGame) -> None:
        super().__init__(game)
        self._kitchen: SoupKitchen = game.env.unwrapped.kitchen
        layout = self._kitchen.layout
        names = places_of(layout).names
        self._pots = {names[cell]: cell for cell in pots_in_use(layout)}
        self._kinds = holdable(layout)

    def code(self) -> CodeIndex:
        """The recorded copy, which recordings quote."""
        return recorded_code("kitchen_source")

    def draw(self, rng: np.random.Generator) -> Moment:
        """Random legal state."""
        self._kitchen.restore(random_snapshot(self._kitchen.layout, self._kitchen.dynamics, rng))
        return self.game.state()

    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Steps of scripted cooks who are often disturbed, from random legal states."""
        layout, dynamics = self._kitchen.layout, self._kitchen.dynamics
        rng, kitchen = np.random.default_rng(seed), SoupKitchen(layout, dynamics)
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
        snapshot["objects"] = [[*cell, SOUP, one.onions, 0, _TICKS[one.cooks]] for cell, one in content]
        self._kitchen.restore(snapshot)
        return self.game.state()

    def actions(self, state: Moment, agent: str) -> Mapping[str, Check]:
        """The six primitive actions."""
        kitchen = self.game.kitchen(state)
        phrases, beside = primitive_phrases(kitchen, COOKS.index(agent)), self.beside(state, agent)
        names = [f"action {number}: {name}" for number, name in enumerate(ACTION_NAMES)]
        return {name: effect_check(kitchen.layout, phrase, beside) for name, phrase in zip(names, phrases, strict=True)}

    def beside(self, state: Moment, agent: str) -> Mapping[str, str]:
        """The places on the four sides of a cook, by direction."""
        kitchen = self.game.kitchen(state)
        x, y = kitchen.cook(COOKS.index(agent)).cell
        names = places_of(kitchen.layout).names
        # No cook stands at the edge of a kitchen, so each side has a cell.
        return {way: names[x + dx, y + dy] for way, (dx, dy) in zip(ACTION_NAMES, STEPS, strict=False)}

    def origin(self) -> dict[str, Any]:
        """The kitchen, as `subgoal_file` of its environment expects it."""
        return {"kitchen": kitchen_record(self._kitchen.layout)}


def _thing(kind: str) -> list[Any] | None:
    if kind == _EMPTY:
        return None
    return [SOUP, FULL, 0, COOK_TIME] if kind == SOUP else [kind]
