"""Scripted cooks that play together: each knows the order only if it is told it, by the game or by another cook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.cook_rules import choose, say
from rllib_llm_comm.envs.overcooked_text.cook_view import BOARDS, COUNTER, ONE_ROOM, SHELF, Item, Option, View
from rllib_llm_comm.envs.overcooked_text.sayings import Saying, ordered_foods, understand, word

_OFTEN = 3
_STRAY = 0.5


class ScriptedTeam:
    """Plays all cooks of a kitchen by the rules of `cook_rules.py`, from what each sees, remembers and hears.

    Unlike the scripted teacher (`scripted_player.py`) a cook that is not told the order does not act on it: it acts on
    what it heard, or guesses. Like the teacher it sees the whole kitchen otherwise, if `everything`. The rules know no
    way around a cook that stands in the way and no remedy for full boards; so a cook that is asked for the fourth time
    while all things are where they were takes any step in half of the cases.

    Attributes:
        said: Last message of each cook, by name.
    """

    def __init__(self, env: Any, *, talk: bool = True, everything: bool = True, seed: int = 0) -> None:
        """Takes over a kitchen.

        Args:
            env: The (unwrapped) environment with macro-actions; call `begin` after each of its resets.
            talk: Whether cooks hear each other.
            everything: Whether each cook speaks and chooses by the whole kitchen (but for the order), else by what is
                in its sight. To keep out of the others' way it sees all in any case.
            seed: Of the wording and of steps out of a deadlock.
        """
        self._env, self._talk, self._everything = env, talk, everything
        self.begin(seed)

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed.

        Args:
            seed: Of the wording and of steps out of a deadlock in this episode.
        """
        self._rng = np.random.default_rng(seed)
        self._met: Counter[Hashable] = Counter()
        self.said: dict[str, str] = {}
        self._fetches: dict[str, Item | None] = {}
        self._decided: list[str] = []
        self._believed: dict[str, tuple[str, ...]] = {}

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all cooks that need an action.

        Args:
            infos: The last infos of the environment.
        """
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
        sayings = [understand(message) for speaker, message in self.said.items() if speaker != agent]
        return [saying for saying in sayings if saying is not None]

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


def _bowls(view: View) -> list[Item]:
    """The bowls that are seen elsewhere than in the own hands; those in others' hands come first."""
    items = [p.holding for p in view.partners] + [item for _, item in view.boards]
    items += [*view.shelf, *(view.counter or ())]
    return [item for item in items if item is not None and item.is_bowl]


def _in_the_way(view: View, option: Option, fetched: Sequence[Item]) -> bool:
    """True if an option does what another cook in the same room does, or begins a bowl beside a begun one.

    Args:
        view: The whole kitchen.
        option: Option of the cook.
        fetched: Things that others are on their way to get.
    """
    item, bowls = option.item, _bowls(view)
    begun = any(bowl.contents for bowl in bowls)
    if option.kind == "get" and item is not None:
        held = any(p.holding is not None and p.holding.is_bowl for p in view.partners)
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
