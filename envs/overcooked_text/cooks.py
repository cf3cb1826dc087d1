"""The scripted cooks: what they do and say next, the teacher, a team that plays so; and what messages mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.layouts import FOOD_CODES
from rllib_llm_comm.envs.overcooked_text.observation_text import (
    BOARDS,
    BOWL,
    COUNTER,
    LEFT,
    ONE_ROOM,
    RIGHT,
    SHELF,
    Option,
    SeenItem,
    View,
    dish_name,
)
from rllib_llm_comm.envs.scripted_team import Team

# ---- messages ----------------------------------------------------------------------------------------

_SALAD = "salad"


@dataclass(frozen=True)
class Saying:
    """The meaning of a message.

    Attributes:
        kind: `bring` (a request: pass or take `thing`), `carry` (the speaker does it), `chop`, `fill`, `serve`,
            `wait`, `order` (`thing` was ordered), `ask` (the speaker does not know the order).
        thing: A food's name, `"bowl"`, for `order` the dish's name in words, or the empty string.
    """

    kind: str
    thing: str = ""


WORDINGS: dict[str, tuple[str, ...]] = {
    "bring": ("please bring the {thing}", "i need the {thing}", "give me the {thing}"),
    "carry": ("i bring the {thing}", "here comes the {thing}", "i take the {thing}"),
    "chop": ("i chop the {thing}", "i cut the {thing} now"),
    "fill": ("i fill the bowl", "i put the food into the bowl"),
    "serve": ("i serve the salad", "the salad is ready, i serve it"),
    "wait": ("i wait here", "i have nothing to do"),
    "order": ("make a {thing}", "we make a {thing}", "the order is a {thing}"),
    "ask": ("tell me the order", "which salad do we make"),
}
_THINGS = {"order": r"([a-z ]+ salad)"}
_PATTERNS = [
    (Saying(kind), re.compile("^" + re.escape(wording).replace(r"\{thing\}", _THINGS.get(kind, r"([a-z]+)")) + "$"))
    for kind, wordings in WORDINGS.items()
    for wording in wordings
]


def word(saying: Saying, rng: np.random.Generator, wording: int | None = None) -> str:
    """A message with this meaning: in a wording that `rng` draws, or in that of a number, at most the last."""
    wordings = WORDINGS[saying.kind]
    if wording is not None:
        return wordings[min(wording, len(wordings) - 1)].format(thing=saying.thing)
    # The first wording is the usual one: a listener meets it most.
    weights = np.array([3.0] + [1.0] * (len(wordings) - 1))
    return wordings[rng.choice(len(wordings), p=weights / weights.sum())].format(thing=saying.thing)


def understand(message: str) -> Saying | None:
    """The meaning of a message in one of our wordings, or `None`."""
    plain = " ".join(message.lower().split()).rstrip(".! ")
    for saying, pattern in _PATTERNS:
        match = pattern.match(plain)
        if match:
            return Saying(saying.kind, match.group(1) if match.groups() else "")
    return None


def order(dish: Sequence[str]) -> Saying:
    """The saying that tells the order of a dish, by its foods."""
    return Saying("order", dish_name(sorted(dish)))


def ordered_foods(saying: Saying) -> tuple[str, ...]:
    """The foods of the dish that an `order` names, sorted."""
    return tuple(sorted(saying.thing.removesuffix(_SALAD).split()))


def meaning(message: str) -> str:
    """The food or dish that a message names, whatever its wording.

    Returns:
        `"onion-tomato salad"` (spelt as the setting `recipe`) if it names foods and the word salad; else the foods and
        the bowl that it names, in the order of the message, such as `"tomato"` or `"tomato bowl"`; the empty string if
        it names none. `understand` tells whether the message is one of the game's own sentences.
    """
    words = re.findall("[a-z]+", message.lower())
    named = [name for name in dict.fromkeys(words) if name in FOOD_CODES or name == BOWL]
    foods = sorted(name for name in named if name != BOWL)
    if foods and _SALAD in words:
        return f"{'-'.join(foods)} {_SALAD}"
    return " ".join(named)


# ---- what to do and what to say ----------------------------------------------------------------------


def missing(view: View) -> list[str]:
    """The things of the dish that are still out of the cooks' hands, in the order in which they are wanted.

    Foods that are seen on a board, chopped, in a bowl or in somebody's hand are under way, as is a bowl that stands
    off the shelves. A chef in the left room counts what lies on the counter as arrived; what it does not see there,
    it misses.
    """
    arrived: list[SeenItem] = [item for _, item in view.boards if item]
    if view.holding:
        arrived.append(view.holding)
    arrived.extend(item for _, item in view.partners if item and view.room != LEFT)
    arrived.extend(view.counter or ())
    bowls = [item for item in arrived if item.is_bowl]
    foods = {item.name for item in arrived if not item.is_bowl} | {f for bowl in bowls for f in bowl.contents}
    wanted = [food for food in view.dish if food not in foods]
    return wanted + ([] if bowls or any(i.is_bowl and i.contents for i in view.shelf) else [BOWL])


def _needed(view: View, item: SeenItem | None) -> bool:
    return item is not None and not item.is_bowl and item.name in view.dish


def _complete(view: View, item: SeenItem | None) -> bool:
    wanted = tuple(sorted(view.dish))
    return item is not None and item.is_bowl and bool(wanted) and tuple(sorted(item.contents)) == wanted


def _spoilt(view: View, item: SeenItem) -> bool:
    return item.is_bowl and any(food not in view.dish for food in item.contents)


def say(view: View, heard: Sequence[Saying] = ()) -> Saying:
    """Message of a cook: a request for what it misses, else its own work.

    Where others are not told the order, it is told first: until the first food of the dish is under way, whenever
    somebody asks for it, and in place of "i wait here". A cook that does not know it asks until a food is under way.
    """
    if not view.dish:
        return _say_untold(view)
    if view.others_told:
        return _say_told(view)
    begun = any(food not in missing(view) for food in view.dish)
    said = _say_told(view)
    asked = any(saying.kind == "ask" for saying in heard)
    return said if begun and not asked and said.kind != "wait" else order(view.dish)


def _say_told(view: View) -> Saying:
    if _complete(view, view.holding):
        return Saying("serve") if view.room != RIGHT else Saying("carry", BOWL)
    wanted = missing(view)
    if view.room == RIGHT:
        if view.holding and (_needed(view, view.holding) or view.holding.is_bowl):
            return Saying("carry", view.holding.name)
        here = _on_shelf(view, wanted)
        return Saying("carry", here[0]) if here else Saying("wait")
    if view.room == ONE_ROOM:
        # One room: the speaker takes the first missing thing and asks for the second.
        return Saying("bring", wanted[min(1, len(wanted) - 1)]) if wanted else _own_work(view)
    return Saying("bring", wanted[0]) if wanted else _own_work(view)


def _say_untold(view: View) -> Saying:
    held = view.holding
    if held and view.room == RIGHT:
        return Saying("carry", held.name)
    for item in (held, *(item for _, item in view.boards)):
        if item and not item.is_bowl and not item.chopped:
            return Saying("chop", item.name)
    return Saying("wait") if _under_way(view) else Saying("ask")


def _under_way(view: View) -> list[str]:
    """The foods that are seen off the shelves, sorted."""
    items = [*_in_reach(view), *_carried(view)]
    return sorted({food for i in items for food in (i.contents if i.is_bowl else (i.name,))})


def _carried(view: View) -> list[SeenItem]:
    """The items in the hands of the others that are seen."""
    return [item for _, item in view.partners if item]


def guess(view: View, heard: Sequence[Saying] = ()) -> tuple[str, ...]:
    """The foods of the dish as a cook takes it that is not told the order.

    What is told counts; else what is asked for and what is under way; else the first food on the shelf. In the right
    room, whose cook sees nothing come back, everything is wanted once a food and a bowl are on their way.
    """
    told = [saying for saying in heard if saying.kind == "order"]
    if told:
        return ordered_foods(told[-1])
    foods = {item.name for item in view.shelf if not item.is_bowl}
    asked = {saying.thing for saying in heard if saying.kind == "bring" and saying.thing != BOWL}
    wanted = asked | set(_under_way(view))
    bowl = any(item.is_bowl for item in [*_in_reach(view), *_carried(view)])
    if view.room == RIGHT and bowl and not asked:
        return tuple(sorted(wanted | foods))
    return tuple(sorted(wanted)) or tuple(sorted(foods))[:1]


def _on_shelf(view: View, wanted: Sequence[str]) -> list[str]:
    names = {item.name for item in view.shelf}
    return [name for name in wanted if name in names]


def _own_work(view: View) -> Saying:
    raw = [i.name for i in _in_reach(view) if _needed(view, i) and not i.chopped]
    return Saying("chop", raw[0]) if raw else Saying("fill")


def _in_reach(view: View) -> list[SeenItem]:
    items = [view.holding] if view.holding else []
    items.extend(item for _, item in view.boards if item)
    items.extend(view.counter or ())
    return items


def choose(view: View, options: Sequence[Option], heard: Sequence[Saying] = ()) -> int:
    """The index of the option that the scripted cook takes; a request is obeyed where its hands are free for it."""
    if not view.dish:
        view = replace(view, dish=guess(view, heard))
    return max(range(len(options)), key=lambda i: (_worth(view, options[i], options, heard), -i))


def _worth(view: View, option: Option, options: Sequence[Option], heard: Sequence[Saying]) -> float:
    kind, item = option.kind, option.item
    if kind == "wait":
        return 0.0
    if kind == "serve":
        return 10.0 if _complete(view, item) else -1.0
    if kind == "chop":
        return 9.0 if _needed(view, item) and item is not None and not item.chopped else -1.0
    if kind in ("fill", "add"):
        return 8.0 if _needed(view, item) else -1.0
    if kind == "place":
        return _worth_placing(view, item, options)
    if kind == "counter":
        return _worth_counter(view, item, options)
    if kind == "walk":
        on_board = dict(view.boards).get(option.place)
        raw = _needed(view, on_board) and on_board is not None and not on_board.chopped
        return 7.0 if raw and not view.holding else -0.5
    if kind == "get":
        return _worth_getting(view, option, options, heard)
    return -1.0


def _worth_placing(view: View, item: SeenItem | None, options: Sequence[Option]) -> float:
    if item is None:
        return -1.0
    if _needed(view, item) and not item.chopped:
        return 6.0
    if item.is_bowl and not any(o.kind == "counter" for o in options) and _raw_waits(view):
        return 1.0  # hands must be free to chop, and there is no counter to put the bowl on
    return 0.5 if not _needed(view, item) and not item.is_bowl else -0.5


def _raw_waits(view: View) -> bool:
    return any(_needed(view, item) and item is not None and not item.chopped for _, item in view.boards)


def _worth_counter(view: View, item: SeenItem | None, options: Sequence[Option]) -> float:
    if item is None:
        return -1.0
    if view.room == RIGHT:
        return 5.0  # whatever it is, it is of use on the other side only, or in the way of free hands
    if item.is_bowl:
        return 4.0 if not _complete(view, item) else -1.0
    if _needed(view, item) and not item.chopped:
        return 1.0  # no board is free
    return 2.0 if not _needed(view, item) else 0.5


def _worth_getting(view: View, option: Option, options: Sequence[Option], heard: Sequence[Saying]) -> float:
    item = option.item
    if item is None or view.holding is not None:
        return -1.0
    asked = [s.thing for s in heard if s.kind == "bring"]
    promised = [s.thing for s in heard if s.kind == "carry"]
    from_shelf = option.place == "shelf"
    if from_shelf and item.name in asked:
        return 5.5
    if item.is_bowl:
        return _worth_bowl(view, item, option, promised)
    if not _needed(view, item) or item.chopped:
        return -1.0
    in_bowl = any(item.name in i.contents for i in _in_reach(view) if i.is_bowl)
    if in_bowl or (from_shelf and item.name in promised):
        return -0.2
    if view.room == RIGHT and not from_shelf:
        return -1.0  # it was put on the counter for the others
    free_board = any(on is None for _, on in view.boards)
    if view.room != RIGHT and view.boards and not free_board:
        return -0.2
    rank = view.dish.index(item.name)
    if view.room == ONE_ROOM and view.name == "bob":
        rank = len(view.dish) - 1 - rank  # two cooks in one room begin at different ends of the recipe
    return 4.0 - 0.1 * rank


def _worth_bowl(view: View, item: SeenItem, option: Option, promised: Sequence[str]) -> float:
    if view.room == RIGHT:
        wanted = missing(view)
        waiting = set(_on_shelf(view, wanted)) - {BOWL}
        return 3.0 if option.place == "shelf" and BOWL in wanted and not waiting else -1.0
    if option.place == "shelf" and BOWL in promised:
        return -0.2
    if _spoilt(view, item):
        return -0.3
    chopped = [i.name for _, i in view.boards if _needed(view, i) and i is not None and i.chopped]
    open_foods = [food for food in view.dish if food not in item.contents]
    ready = all(food in chopped for food in open_foods)
    if ready:
        return 5.0 + len(item.contents)
    # With a single free board the bowl collects what is done, so that the board gets free.
    crowded = bool(view.boards) and all(on is not None for _, on in view.boards)
    return 3.5 if crowded and any(food in chopped for food in open_foods) and not _raw_waits(view) else -0.4


def messages(state: Any, agents: Sequence[str], rng: np.random.Generator, wording: int | None = None) -> dict[str, str]:
    """Label for each cook: a request for the next thing that it misses, or its own work.

    Each sees the whole kitchen, but knows the order only if it is told it: who knows it tells it to the others first.
    """
    return {
        agent: word(say(observation_text.view(state, i, everything=True)), rng, wording)
        for i, agent in enumerate(agents)
    }


def advise(env: Any, agent: str) -> int | None:
    """Action of the scripted cook, which sees everything and knows the order; `None` with primitive actions."""
    runner = env.runner
    if runner.level != "macro":
        return None
    index = env.possible_agents.index(agent)
    _, mask = observation_text.candidates(runner, index)
    found = observation_text.options(runner, index)
    allowed = [action for action, offered in enumerate(mask) if offered]
    view = observation_text.view(runner, index, everything=True, order=True)
    return allowed[choose(view, [found[action] for action in allowed])]


def wait_action(env: Any, agent: str) -> int:
    """The action "stay"."""
    runner = env.runner
    return 0 if runner.level == "macro" else int(runner.names.index("stay"))


_OFTEN = 3
_STRAY = 0.5


class ScriptedTeam(Team):
    """Plays all cooks of a kitchen by the rules above, from what each sees, remembers and hears.

    Unlike the scripted teacher (`advise`) a cook that is not told the order does not act on it: it acts on
    what it heard, or guesses. Like the teacher it sees the whole kitchen otherwise, if `everything`. The rules know no
    way around a cook that stands in the way and no remedy for full boards; so a cook that is asked for the fourth time
    while all things are where they were takes any step in half of the cases.

    Args:
        env: The (unwrapped) environment with macro-actions.
        everything: Whether each cook speaks and chooses by the whole kitchen (but for the order), else by what is in
            its sight. To keep out of the others' way it sees all in any case.
        **told: As of `Team`.
    """

    def __init__(self, env: Any, *, everything: bool = True, **told: Any) -> None:
        super().__init__(env, **told)
        self._everything = everything

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed."""
        super().begin(seed)
        self._met: Counter[Hashable] = Counter()
        self._fetches: dict[str, SeenItem | None] = {}
        self._decided: list[str] = []

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all who need an action."""
        choosing = asked(self._env.agents, infos)
        if self._talk:
            spoken = {agent: word(say(self._view(agent), self._heard(agent)), self._rng) for agent in choosing}
            self.said.update(spoken)
        self._decided = []
        actions = {}
        for agent in choosing:
            actions[agent] = self._choose(agent)
            self._decided.append(agent)
        return actions

    def _heard(self, agent: str) -> list[Saying]:
        return [saying for message in self._messages_to(agent) if (saying := understand(message)) is not None]

    def _view(self, agent: str) -> View:
        """View of a cook, with the dish that it was told of last if the game does not tell it."""
        view = observation_text.view(
            self._env.runner, self._env.possible_agents.index(agent), everything=self._everything
        )
        return view if view.dish else replace(view, dish=self._believed.get(agent, ()))

    def _choose(self, agent: str) -> int:
        heard = self._heard(agent)
        for saying in heard:
            if saying.kind == "order":
                self._believed[agent] = ordered_foods(saying)
        view, found, sensible = self._view(agent), *self._options(agent)
        empties = [action for action in sensible if found[action].kind == "serve" and _hopeless(view)]
        if empties:
            action = empties[0]
        elif self._again(agent) and self._rng.random() < _STRAY:
            stray = [action for action in sensible if _harmless(view, found[action])]
            action = int(self._rng.choice(stray))
        else:
            action = sensible[choose(view, [found[action] for action in sensible], heard)]
            aside = [action for action in sensible if found[action].kind == "walk"]
            if found[action].kind == "wait" and view.at and view.room == ONE_ROOM and aside:
                action = int(self._rng.choice([action, *aside]))  # others may want to where it stands
        item = found[action].item
        self._fetches[agent] = item if item and found[action].kind == "get" else None
        return action

    def _options(self, agent: str) -> tuple[list[Option], list[int]]:
        """Effect of each action, and the indices of those that leave the others' work alone."""
        runner, agents = self._env.runner, self._env.possible_agents
        index = agents.index(agent)
        _, mask = observation_text.candidates(runner, index)
        found = observation_text.options(runner, index)
        offered = [action for action, flag in enumerate(mask) if flag]
        view = observation_text.view(runner, index, everything=True)
        if view.room != ONE_ROOM:
            return found, offered
        busy = [a for k, a in enumerate(agents) if k != index and (a in self._decided or not runner.finished[k])]
        fetched = [item for a in busy if (item := self._fetches.get(a)) is not None]
        return found, [action for action in offered if not _in_the_way(view, found[action], fetched)]

    def _again(self, agent: str) -> bool:
        """True if a cook is asked in a situation that it has met often enough."""
        kitchen = self._env.kitchen
        hands = {cook.held.name: cook.name for cook in kitchen.agents if cook.held}
        # An item in a hand has its holder's place, so walking about is no new situation.
        items = tuple((hands.get(item.name, item.cell), getattr(item, "chops", 0)) for item in kitchen.items.values())
        situation = (agent, kitchen.served, items)
        self._met[situation] += 1
        return self._met[situation] > _OFTEN


def _bowls(view: View) -> list[SeenItem]:
    """The bowls that are seen elsewhere than in the own hands; those in others' hands come first."""
    items = [*_carried(view), *(item for _, item in view.boards if item), *view.shelf, *(view.counter or ())]
    return [item for item in items if item.is_bowl]


def _in_the_way(view: View, option: Option, fetched: Sequence[SeenItem]) -> bool:
    """True if an option does what another cook in the room is on its way to do, or begins a bowl beside a begun one."""
    item, bowls = option.item, _bowls(view)
    begun = any(bowl.contents for bowl in bowls)
    if option.kind == "get" and item is not None:
        held = any(carried.is_bowl for carried in _carried(view))
        second = item.is_bowl and not item.contents and (begun or held)
        return second or any(item.name == other.name for other in fetched)
    if option.kind == "add" and begun:
        there = dict(view.boards).get(option.place)
        beside = [there] if option.place in BOARDS else view.shelf if option.place == SHELF else view.counter or ()
        return not any(bowl is not None and bowl.contents for bowl in beside)
    return option.kind == "fill" and begun and view.holding is not None and not view.holding.contents


def _harmless(view: View, option: Option) -> bool:
    """True if a step out of a deadlock may be this one: it empties no shelf and serves nothing."""
    item = option.item
    if option.kind == "serve":
        return False
    wanted = item is not None and item.name in view.dish
    return option.kind != "get" or option.place == COUNTER or option.place in BOARDS and not wanted


def _hopeless(view: View) -> bool:
    """True if the bowl in hand can never become the dish, so that only a wrong delivery empties it."""
    held = view.holding
    if held is None or not held.contents:
        return False
    wrong = bool(view.dish) and any(food not in view.dish for food in held.contents)
    return wrong or any(len(bowl.contents) >= len(held.contents) for bowl in _bowls(view))
