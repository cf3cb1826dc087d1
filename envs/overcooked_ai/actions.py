"""Action sets: single steps, goal cells, or goals to choose among; with the rule by which agents are asked.

An agent that committed to a goal is busy until it is done with it, so agents are asked at different times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import text
from rllib_llm_comm.envs.overcooked_ai.kernel import STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import FLOOR, POT, Cell
from rllib_llm_comm.envs.overcooked_ai.places import routes_of
from rllib_llm_comm.envs.overcooked_ai.planner import CookWalker, goal_places
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, SoupKitchen

BLOCKED_STEPS = 8
"""Steps in one place after which a committed cook gives its goal up."""
WAIT_STEPS = 4
"""Longest time that a committed cook waits."""
_ALL_ALLOWED = np.ones(NUM_ACTIONS, np.int8)


class PrimitiveActions:
    """North, south, east, west, stay, interact; all allowed always."""

    num_actions = NUM_ACTIONS

    def __init__(self, kitchen: SoupKitchen) -> None:
        self._kitchen = kitchen
        self._chosen = [STAY, STAY]

    def reset(self, rng: np.random.Generator) -> None:
        """Begins an episode."""
        self._chosen = [STAY, STAY]

    def choose(self, player: int, action: int) -> None:
        """Takes a player's new action."""
        self._chosen[player] = action

    def primitive(self, player: int) -> int:
        """The player's next primitive action."""
        return self._chosen[player]

    def after_step(self, player: int) -> None:
        """Looks at what the step brought: nothing lasts."""

    def needs_action(self, player: int) -> bool:
        """True if a player is free to choose: always."""
        return True

    def mask(self, player: int) -> np.ndarray:
        """int8 (num_actions,): which actions are worth to choose now: all."""
        return _ALL_ALLOWED.copy()

    def phrases(self, player: int) -> list[str]:
        """Effect of each action, in words."""
        return text.primitive_phrases(self._kitchen, player)


class GoalCells:
    """One action per cell of the map, numbered row by row (SAMA's action space).

    Args:
        kitchen: The game.
        commit: Whether a cook keeps its goal until it is done (or blocked for `BLOCKED_STEPS`, or has waited for
            `WAIT_STEPS`), instead of choosing anew at each step.
        goals: Cells; all by default.
    """

    def __init__(self, kitchen: SoupKitchen, commit: bool, goals: Sequence[Cell] | None = None) -> None:
        layout = kitchen.layout
        self._kitchen, self._commit = kitchen, commit
        self.goals: list[Cell] = (
            list(goals) if goals is not None else [(x, y) for y in range(layout.height) for x in range(layout.width)]
        )
        self.num_actions = len(self.goals)
        self._walkers = [CookWalker(kitchen, player) for player in range(2)]
        numbers = [y * layout.width + x for x, y in self.goals]
        self._legal = [routes_of(layout).reachable(start)[numbers].astype(np.int8) for start in layout.starts]
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Begins an episode."""
        for walker in self._walkers:
            walker.reset(np.random.default_rng(rng.integers(2**31)))
        self._goal: list[Cell | None] = [None, None]
        self._used = [False, False]
        self._waited, self._stood = [0, 0], [0, 0]
        self._before = [self._kitchen.cook(player) for player in range(2)]

    def choose(self, player: int, action: int) -> None:
        """Takes a player's new action."""
        self._goal[player] = self.goals[action]
        self._waited[player] = self._stood[player] = 0

    def primitive(self, player: int) -> int:
        """The player's next primitive action."""
        goal = self._goal[player]
        if goal is None:
            return STAY
        walker = self._walkers[player]
        self._before[player] = self._kitchen.cook(player)
        self._used[player] = walker.arrived(goal) and walker.useful(goal)
        return walker.action(goal)

    def after_step(self, player: int) -> None:
        """Ends a goal that is reached and used, that is hopeless or that was waited for long enough."""
        goal = self._goal[player]
        if goal is None:
            return
        arrived = self._walkers[player].arrived(goal)
        standing = arrived and self._kitchen.layout.kind(goal) == FLOOR
        self._waited[player] = self._waited[player] + 1 if arrived else 0
        cook, before = self._kitchen.cook(player), self._before[player]
        self._stood[player] = self._stood[player] + 1 if (cook.cell, cook.facing) == (before.cell, before.facing) else 0
        over = self._used[player] or standing
        over = over or self._waited[player] >= WAIT_STEPS or self._stood[player] >= BLOCKED_STEPS
        if over or not self._commit:
            self._goal[player] = None

    def needs_action(self, player: int) -> bool:
        """True if a player is free to choose."""
        return self._goal[player] is None

    def mask(self, player: int) -> np.ndarray:
        """The cells that the player's cook can reach; the other cook left out."""
        return self._legal[player].copy()

    def phrases(self, player: int) -> list[str]:
        """Effect of going to each cell and using it, in words."""
        return text.target_phrases(self._kitchen, player, self.goals)


class GoalActions(GoalCells):
    """A short menu for agents that read: wait, and one action per cell that can be used. Cooks commit to goals.

    Args:
        kitchen: The game.
        mask_useless: Whether goals at which nothing can be done now are masked; a cooking pot is none for a cook that
            holds a dish.
    """

    def __init__(self, kitchen: SoupKitchen, mask_useless: bool) -> None:
        super().__init__(kitchen, commit=True, goals=goal_places(kitchen.layout))
        self._mask_useless = mask_useless
        self.num_actions = len(self.goals) + 1
        self._waiting = [0, 0]

    def reset(self, rng: np.random.Generator) -> None:
        """Begins an episode."""
        super().reset(rng)
        self._waiting = [0, 0]

    def choose(self, player: int, action: int) -> None:
        """Takes a player's new action; the first is to wait."""
        if action == 0:
            self._waiting[player] = WAIT_STEPS
        else:
            super().choose(player, action - 1)

    def after_step(self, player: int) -> None:
        """Ends goals and waiting."""
        self._waiting[player] = max(0, self._waiting[player] - 1)
        super().after_step(player)

    def needs_action(self, player: int) -> bool:
        """True if a player is free to choose."""
        return not self._waiting[player] and super().needs_action(player)

    def mask(self, player: int) -> np.ndarray:
        """Waiting, and what the player's cook can reach (and use)."""
        legal = self._legal[player].copy()
        if self._mask_useless:
            legal &= np.array([self._worth_going(player, goal) for goal in self.goals], np.int8)
        return np.concatenate([np.ones(1, np.int8), legal])

    def phrases(self, player: int) -> list[str]:
        """Waiting, and what each goal would do."""
        return ["wait", *super().phrases(player)]

    def _worth_going(self, player: int, goal: Cell) -> bool:
        held, soup = self._kitchen.cook(player).held, self._kitchen.item(goal)
        pot = self._kitchen.layout.kind(goal) == POT
        soon = pot and held is not None and held.kind == "dish" and soup is not None and soup.tick >= 0
        return soon or self._walkers[player].useful(goal)


ActionLevel = PrimitiveActions | GoalCells
"""Turns the chosen actions of both players into primitive ones."""
LEVELS = ("primitive", "goal_cell", "goal")


def make_level(kitchen: SoupKitchen, level: str, commit: bool, mask_useless: bool) -> ActionLevel:
    """The actions of an environment of one of `LEVELS`; `commit` is for "goal_cell", `mask_useless` for "goal"."""
    if level == "primitive":
        return PrimitiveActions(kitchen)
    return GoalCells(kitchen, commit) if level == "goal_cell" else GoalActions(kitchen, mask_useless)


_SINGLE_STEPS = LEVELS[0]


class OwnActions:
    """The goals of one cook for one episode, carried out in single steps.

    Args:
        env: The (unwrapped) environment, whose actions are single steps, after its reset.
        agent: The cook.
        level: The cook's own action level, one of `LEVELS`.
        rng: Draws the random steps of a cook that is blocked.
    """

    def __init__(self, env: Any, agent: str, level: str, rng: np.random.Generator) -> None:
        self._player = env.players[agent]
        self._level = make_level(env.kitchen, level, env.settings["commit"], env.settings["mask_useless"])
        self._level.reset(rng)
        self._moved = False

    def free(self) -> bool:
        """True if the cook has to choose a goal now; call it once in every step, before `action`."""
        if self._moved:
            self._level.after_step(self._player)
        return self._level.needs_action(self._player)

    def mask(self) -> np.ndarray:
        """int8 (K,): the goals that are worth to choose now."""
        return self._level.mask(self._player)

    def choose(self, goal: int) -> None:
        """Takes a new goal, by its number."""
        self._level.choose(self._player, goal)

    def action(self) -> int:
        """The single step towards the goal."""
        self._moved = True
        return self._level.primitive(self._player)


def own_actions(env: Any, agent: str, settings: Mapping[str, Any], rng: np.random.Generator) -> OwnActions | None:
    """The own actions of a cook that was trained with other settings; `None` if the environment has them.

    Whether it keeps to a goal until that is done, and which goals are masked, is as the environment's `commit` and
    `mask_useless` say, which mean nothing else in single steps.

    Args:
        env: The (unwrapped) environment, after its reset.
        agent: The cook.
        settings: Those of the cook's training.
        rng: As of `OwnActions`.

    Raises:
        UserError: If the environment asks for goals, and not for those of the cook.
    """
    own, played = settings.get("action_level", _SINGLE_STEPS), env.settings["action_level"]
    if own == played:
        return None
    if played != _SINGLE_STEPS:
        raise UserError(
            f"`action_level` is {played!r} but {agent!r} is held by a policy that was trained with {own!r}; set "
            f"`action_level` to {_SINGLE_STEPS!r} in `env_config`, in which both can play."
        )
    return OwnActions(env, agent, own, rng)
