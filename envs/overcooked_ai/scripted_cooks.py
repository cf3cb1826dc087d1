"""The scripted cooks: the teacher, a team that talks of the wanted pot, and partners with habits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_ai.kernel import STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import POT, Cell
from rllib_llm_comm.envs.overcooked_ai.observations import DEFAULT_PARTS, VECTORS, observations
from rllib_llm_comm.envs.overcooked_ai.places import find_place
from rllib_llm_comm.envs.overcooked_ai.planner import CookWalker, Task, TaskPlanner, plan
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.sayings import DEEDS, CookSaying, PotSaying, Saying, understand, word
from rllib_llm_comm.envs.overcooked_ai.subgoals import pots_in_use
from rllib_llm_comm.envs.scripted_team import Team


def say(kitchen: SoupKitchen, player: int) -> Saying:
    """Present message of a scripted cook, which sees all but a wanted pot that it is not told.

    A cook that is told it while the other is not tells it, unless the wanted pot is the only one that is in use, which
    the other sees. A cook that is not told asks for it as long as not just one pot is in use. Else cooks speak of their
    tasks; one that is not told as if the pots were wanted that `guessed_pots` gives.
    """
    pots = None
    if (wanted := kitchen.wanted) is not None and not all(wanted.told):
        used = pot_in_use(kitchen)
        if wanted.told[player] and used != wanted.pot:
            return PotSaying(wanted.name)
        if not wanted.told[player] and used is None:
            return PotSaying("")
        pots = None if wanted.told[player] else guessed_pots(kitchen)
    tasks = plan(kitchen, pots)
    return CookSaying(_meaning(tasks[player]), _meaning(tasks[1 - player]))


def _meaning(task: Task) -> tuple[str, str]:
    return (task.verb, task.kind) if (task.verb, task.kind) in DEEDS else ("wait", "")


def pot_in_use(kitchen: SoupKitchen) -> Cell | None:
    """The only pot with something in it among those that may be wanted; None if there are several or none."""
    used = [pot for pot in _pots(kitchen) if kitchen.item(pot) is not None]
    return used[0] if len(used) == 1 else None


def guessed_pots(kitchen: SoupKitchen) -> tuple[Cell, ...]:
    """The pots that a cook uses who does not know which is wanted: the only one in use, else all."""
    used = pot_in_use(kitchen)
    return _pots(kitchen) if used is None else (used,)


def _pots(kitchen: SoupKitchen) -> tuple[Cell, ...]:
    assert kitchen.wanted is not None
    return kitchen.wanted.pots


def messages(state: SoupKitchen, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Label for each cook: the wanted pot or a question for it, else its next task and the other's.

    Each sees the whole kitchen, but knows the wanted pot only if it is told it; see `say`.
    """
    return {agent: word(say(state, i), rng) for i, agent in enumerate(agents)}


def advise(env: Any, agent: str) -> int:
    """Action of the planner's task for a cook; the planner knows the wanted pot for every cook."""
    task = plan(env.kitchen)[env.players[agent]]
    return towards(env, agent, task.cell, waits=task.verb == "wait")


def towards(env: Any, agent: str, cell: Cell, waits: bool = False) -> int:
    """The action that takes a cook to a cell, where it uses what is there.

    Args:
        env: The (unwrapped) environment, with any action level.
        agent: The agent in turn.
        cell: The cell; one that can be used where the actions are goals in words, unless the cook waits.
        waits: Whether it may as well wait where it is.
    """
    level = env.settings["action_level"]
    if level == "primitive":
        return CookWalker(env.kitchen, env.players[agent]).action(cell)
    if level == "goal_cell":
        return cell[1] * env.kitchen.layout.width + cell[0]
    return 0 if waits else int(env.level.goals.index(cell)) + 1


class ScriptedTeam(Team):
    """Plays both cooks of a kitchen by the planner's rules, each by what it sees, is told and hears.

    Unlike the scripted teacher's advice, a cook that is not told the wanted pot does not act on it. It uses the pot
    that the other's last message tells, else the only one in use, else the one that it was told of before, else any.
    Cooks that block each other take random steps.
    """

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed."""
        super().begin(seed)
        kitchen = self._env.kitchen
        self._walkers = [CookWalker(kitchen, player, np.random.default_rng([seed, player])) for player in range(2)]

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all who need an action."""
        env = self._env
        choosing = asked(env.agents, infos)
        if self._talk:
            self.said |= {agent: word(say(env.kitchen, env.players[agent]), self._rng) for agent in choosing}
        return {agent: self._choose(agent) for agent in choosing}

    def _choose(self, agent: str) -> int:
        player = self._env.players[agent]
        task = plan(self._env.kitchen, self._pots(agent))[player]
        if self._env.settings["action_level"] == "primitive":
            return self._walkers[player].action(task.cell)
        return towards(self._env, agent, task.cell, waits=task.verb == "wait")

    def _pots(self, agent: str) -> tuple[Cell, ...] | None:
        """The pots that a cook uses; None for those that pay."""
        kitchen = self._env.kitchen
        if kitchen.wanted is None or kitchen.wanted.told[self._env.players[agent]]:
            return None
        heard = map(understand, self._messages_to(agent))
        told = [find_place(kitchen.layout, one.pot) for one in heard if isinstance(one, PotSaying) and one.pot]
        if told and told[0] is not None:
            self._believed[agent] = told[0]
        elif (used := pot_in_use(kitchen)) is not None:
            self._believed[agent] = used
        return (self._believed[agent],) if agent in self._believed else guessed_pots(kitchen)


ONE_POT, ONIONS_ONLY, DISHES_ONLY = "one_pot", "onions_only", "dishes_only"
HABITS = ("", ONE_POT, ONIONS_ONLY, DISHES_ONLY)


class _HabitualPlanner(TaskPlanner):
    """The planner's rules for one cook that leaves a part of the work, by its habit, to the other."""

    def __init__(self, kitchen: SoupKitchen, player: int, habit: str) -> None:
        kitchen.layout.require_classic("The scripted cooks")
        pots = kitchen.layout.cells(POT) if kitchen.wanted is None else (kitchen.wanted.pot,)
        super().__init__(kitchen, pots_in_use(kitchen.layout)[:1] if habit == ONE_POT else pots)
        self._player, self._habit = player, habit

    def _with_nothing(self, i: int) -> Task:
        """An onion cook leaves soups on counters to the other."""
        if i != self._player or self._habit != ONIONS_ONLY:
            return super()._with_nothing(i)
        onion = self._onion_task(i)
        return onion if onion is not None else self.aside(i)

    def _onion_task(self, i: int) -> Task | None:
        """A cook that brings dishes only brings no onions."""
        return None if i == self._player and self._habit == DISHES_ONLY else super()._onion_task(i)


class HabitualCook:
    """A scripted cook for one episode: the planner's tasks, carried out by a cook that walks around the other.

    It sees the whole kitchen, and knows the wanted pot whether it is told it or not. Its task is the planner's for it
    if the other cook keeps to the planner, too.

    Args:
        kitchen: The game; its state may be another object at every call.
        player: The cook, 0 or 1.
        habit: `"one_pot"`: it uses one pot, the first of the map's rows. `"onions_only"`: it brings onions and nothing
            else. `"dishes_only"`: it brings dishes and soups and no onions. `""`: it does everything.
        rng: Draws the random steps of a cook that is blocked.

    Raises:
        UserError: If there is no such habit, or one pot is used where the game wants another one.
    """

    def __init__(self, kitchen: SoupKitchen, player: int, habit: str, rng: np.random.Generator) -> None:
        require_choice("habit", habit, HABITS)
        if habit == ONE_POT and kitchen.wanted is not None:
            raise UserError(
                "`habit` is 'one_pot' but `wanted` is 'pot', so that soups from one pot alone pay; use another."
            )
        self._kitchen, self._player, self._habit = kitchen, player, habit
        self._walker = CookWalker(kitchen, player, rng)

    def task(self) -> Task:
        """Its task now."""
        return _HabitualPlanner(self._kitchen, self._player, self._habit).tasks()[self._player]

    def action(self) -> int:
        """Its next primitive action."""
        return self._walker.action(self.task().cell)


def habitual_cook(env: Any, agent: str, habit: str, rng: np.random.Generator) -> Callable[[], int]:
    """A `HabitualCook`, whose arguments these are, that chooses among the actions of an environment of any level."""
    cook = HabitualCook(env.kitchen, env.players[agent], habit, rng)
    if env.settings["action_level"] == "primitive":
        return cook.action

    def act() -> int:
        task = cook.task()
        return towards(env, agent, task.cell, waits=task.verb == "wait")

    return act


def wait_action(env: Any, agent: str) -> int:
    """The action of doing nothing: "stay", the cook's own cell, or "wait", as the action level is."""
    level = env.settings["action_level"]
    if level == "primitive":
        return STAY
    return towards(env, agent, env.kitchen.cook(env.players[agent]).cell, waits=True)


def pose(env: Any, agent: str) -> tuple[tuple[int, int], int]:
    """Cell and direction of a cook."""
    cook = env.kitchen.cook(env.players[agent])
    return cook.cell, cook.facing


def view(env: Any, agent: str, seen: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A cook's observation of this moment by other settings `observe` and `vector`; parts that only it has stay."""
    parts, vector = settings.get("observe", DEFAULT_PARTS), settings.get("vector", VECTORS[0])
    if set(parts) <= set(env.settings["observe"]) and vector == env.settings["vector"]:
        return dict(seen)
    masks = [env.level.mask(player) for player in range(2)]
    own = observations(env.kitchen, tuple(parts), vector, env.soups, masks, env.level.phrases)[env.players[agent]]
    kept = {name: seen[name] for name in ("subgoal", "action_mask") if name in seen}  # wrappers may have changed them
    return {**seen, **own, **kept}
