"""Macro-actions such as "get tomato": run asynchronously, one primitive action per game step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rllib_llm_comm.envs.overcooked_text import preview as previews
from rllib_llm_comm.envs.overcooked_text.effects import Effect, Food, StepOutcome
from rllib_llm_comm.envs.overcooked_text.episodes import Setup
from rllib_llm_comm.envs.overcooked_text.layouts import (
    AGENT,
    COUNTER,
    DELTAS,
    FLOOR,
    SHARED_COUNTER_ROWS,
    SIZE,
    STAY,
)
from rllib_llm_comm.envs.overcooked_text.macro_actions import Macro, macros_of
from rllib_llm_comm.envs.overcooked_text.navigation import DISTANCE, first_step
from rllib_llm_comm.envs.overcooked_text.rules import Kitchen

CHOP_BUMPS = 3
_FIRST_BOARD_FRONT, _SECOND_BOARD_FRONT, _DELIVERY_FRONT = SIZE + 1, 2 * SIZE + 1, 3 * SIZE + 1
_FIRST_BOARD = SIZE
_CARRIED = ("food", "plate")


class MacroRunner:
    """Runs the macro-actions of all agents in one kitchen.

    Attributes:
        kitchen: The kitchen.
        macros: The macro-actions; an action is an index into them.
        names: Their names.
        current: Per agent the running (or last) macro-action, None at the start.
        finished: Per agent whether it needs a new macro-action.
        chop_bumps: Per agent the cuts made by the present "chop".
        waited: Per agent the game steps that the present "stay" has lasted.
        blocked: Per agent the game steps in a row in which it was in another one's way.
    """

    level = "macro"

    def __init__(
        self, kitchen: Kitchen, include_moves: bool = False, wait_steps: int = 4, blocked_steps: int | None = 3
    ) -> None:
        """Takes over a kitchen in any state, with all agents free.

        Args:
            kitchen: The kitchen.
            include_moves: Whether the four single steps are actions, too.
            wait_steps: Longest duration of "stay" in game steps; it ends earlier when the cook sees another
                one do something. 1 in legacy mode.
            blocked_steps: After so many blocked steps in a row a macro-action ends; None for never, as in legacy mode.
        """
        self.kitchen = kitchen
        self.wait_steps = 1 if kitchen.legacy else wait_steps
        self.blocked_steps = None if kitchen.legacy else blocked_steps
        self.include_moves = include_moves
        self.macros = macros_of(kitchen, include_moves)
        self.names = tuple(macro.name for macro in self.macros)
        self._runs: dict[str, Callable[[int, Macro], int]] = {
            "food": self._go, "plate": self._go, "knife": self._go, "deliver": self._deliver, "chop": self._chop,
            "counter": self._go_to_counter, "stay": self._stay, "move": self._move,
        }  # fmt: skip
        self._counters = tuple(x * SIZE + 3 for x in SHARED_COUNTER_ROWS[kitchen.map_name])
        self._free()

    def _free(self) -> None:
        count = self.kitchen.num_agents
        self.current: list[int | None] = [None] * count
        self.finished = [True] * count
        self.chop_bumps = [0] * count
        self.waited = [0] * count
        self.blocked = [0] * count

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return len(self.macros)

    def reset(self, setup: Setup | None = None) -> None:
        """Starts a new episode, with another setup if one is given."""
        self.kitchen.reset(setup)
        self._free()

    def step(self, actions: Sequence[int | None]) -> StepOutcome:
        """One game step.

        Args:
            actions: Per agent an index into `macros`; ignored (may be None) for an agent that is not
                `finished`.

        Returns:
            What the step did; `primitive` has the primitive actions.
        """
        finished, waited, macros, runs = self.finished, self.waited, self.macros, self._runs
        primitive = []
        for i, action in enumerate(actions):
            if finished[i]:
                self.current[i] = action
                finished[i] = False
                waited[i] = self.blocked[i] = 0
            macro = macros[self.current[i] or 0]
            primitive.append(runs[macro.kind](i, macro))
        outcome = self.kitchen.step(primitive)
        for i, done in enumerate(finished):
            if not done:
                finished[i] = self._roused(i, outcome) if waited[i] else self._ends(i) or self._gives_up(i, outcome)
        return outcome

    def preview(self, agent: int, action: int) -> Effect:
        """Effect of the macro-action now, as far as this agent sees and remembers.

        Args:
            agent: Index of the agent.
            action: Index into `macros`.

        Returns:
            The effect at its end; kind "none" if it would end at once with nothing done.
        """
        return previews.preview(self.kitchen, agent, self.macros[action], self._counters)

    def snapshot(self) -> dict[str, Any]:
        """The kitchen's snapshot, `waited`, `blocked` and `macro` (per agent [macro-action, finished, cuts made])."""
        state = self.kitchen.snapshot()
        state["waited"], state["blocked"] = list(self.waited), list(self.blocked)
        state["macro"] = [list(row) for row in zip(self.current, self.finished, self.chop_bumps, strict=True)]
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over a `snapshot`; without the key `macro` all agents are free."""
        self.kitchen.restore(state)
        self._free()
        self.waited = list(state.get("waited", self.waited))
        self.blocked = list(state.get("blocked", self.blocked))
        if "macro" in state:
            self.current, self.finished, self.chop_bumps = (
                list(column) for column in zip(*state["macro"], strict=True)
            )

    # ---- the next primitive action of each kind; sets `finished` when it is the last one -------------------------

    def _stay(self, i: int, macro: Macro) -> int:
        self.waited[i] += 1
        self.finished[i] = self.waited[i] >= self.wait_steps
        return STAY

    def _move(self, i: int, macro: Macro) -> int:
        self.finished[i] = True
        target = self.kitchen.agents[i].cell + DELTAS[macro.goal]
        return macro.goal if self.kitchen.beliefs[i].map[target] == FLOOR else STAY

    def _deliver(self, i: int, macro: Macro) -> int:
        here = self.kitchen.agents[i].cell
        narrow = here == _FIRST_BOARD_FRONT and self.kitchen.is_map_start
        if narrow and self.kitchen.beliefs[i].map[_SECOND_BOARD_FRONT] == AGENT:
            return 0  # two cooks in the narrow corner: this one makes room
        return self._go(i, macro)

    def _roused(self, i: int, outcome: StepOutcome) -> bool:
        """True if a waiting cook saw another one do something."""
        seen, cooks = self.kitchen.sight(i), self.kitchen.agents
        return any([events and j != i and seen[cooks[j].cell] for j, events in enumerate(outcome.events)])

    def _gives_up(self, i: int, outcome: StepOutcome) -> bool:
        """True if a cook has run into others for long enough."""
        self.blocked[i] = self.blocked[i] + 1 if i in outcome.blocked else 0
        return self.blocked_steps is not None and self.blocked[i] >= self.blocked_steps

    def _chop(self, i: int, macro: Macro) -> int:
        found = previews.choppable(self.kitchen, i)
        if found is None or (self.kitchen.agents[i].held is not None and not self.kitchen.legacy):
            self.finished[i] = True
            return STAY
        self.chop_bumps[i] += 1
        if self.chop_bumps[i] >= CHOP_BUMPS:
            self.finished[i] = True
            self.chop_bumps[i] = 0
        return found[0]

    def _go_to_counter(self, i: int, macro: Macro) -> int:
        kitchen = self.kitchen
        grid, here = kitchen.beliefs[i].map, kitchen.agents[i].cell
        target = next((cell for cell in self._counters if grid[cell] == COUNTER), None)
        if target is None:
            self.finished[i] = True
            return STAY
        action = first_step(kitchen.beliefs[i].ways, here, target)
        if DISTANCE[here][target] == 1 or (action == STAY and not kitchen.legacy):
            self.finished[i] = True
        return action

    def _go(self, i: int, macro: Macro) -> int:
        """Walks to an object and touches it."""
        kitchen = self.kitchen
        belief, cook = kitchen.beliefs[i], kitchen.agents[i]
        here, target = cook.cell, belief.cells[macro.goal]
        if macro.kind in _CARRIED and previews.out_of_reach(kitchen, i, macro):
            self.finished[i] = True
            return STAY
        narrow = target == _FIRST_BOARD and here == _DELIVERY_FRONT and kitchen.is_map_start
        if narrow and belief.map[_SECOND_BOARD_FRONT] == AGENT:
            return 0  # makes room
        if DISTANCE[here][target] == 1 and kitchen.skeleton[target] != FLOOR:
            self.finished[i] = True
            return self._touch(i, macro, target, DELTAS.index(target - here))
        if (belief.ways[target] == AGENT or target == here) and kitchen.sight(i)[target]:
            self.finished[i] = True  # somebody carries it
            return STAY
        action = first_step(belief.ways, here, target)
        if action == STAY:
            self.finished[i] = True
        elif DISTANCE[here][target] == 1:
            self.finished[i] = True
            return self._touch(i, macro, target, action)
        return action

    def _touch(self, i: int, macro: Macro, target: int, action: int) -> int:
        """The last step of `_go`: touches the object, or stays where touching would do something else."""
        kitchen = self.kitchen
        held = kitchen.agents[i].held
        if macro.kind == "plate" and isinstance(held, Food):
            if not held.chopped:
                return STAY
            self.finished[i] = False  # the food goes in now, the next step picks the plate up
            return action
        if macro.kind == "knife" and held is None:
            return STAY
        if macro.kind in _CARRIED and kitchen.things[macro.goal].cell != target:
            return STAY
        if macro.kind == "food" and _raw_on_board(kitchen, target):
            return STAY
        return action

    def _ends(self, i: int) -> bool:
        """True if a running macro-action ends after a game step."""
        kitchen = self.kitchen
        macro = self.macros[self.current[i] or 0]
        kind = macro.kind
        if kind not in ("food", "plate", "knife", "deliver"):
            return False
        cook, target = kitchen.agents[i], kitchen.beliefs[i].cells[macro.goal]
        adjacent = DISTANCE[cook.cell][target] == 1
        if kind in ("knife", "deliver"):
            return adjacent and cook.held is None
        thing = kitchen.things[macro.goal]
        if thing.cell != target:
            return True
        return kind == "food" and adjacent and _raw_food_at_board(kitchen, thing, target)


def _raw_on_board(kitchen: Kitchen, cell: int) -> bool:
    """True if an unchopped food lies on a board at `cell`."""
    board = kitchen.board_at(cell)
    return board is not None and isinstance(board.on, Food) and not board.on.chopped


def _raw_food_at_board(kitchen: Kitchen, thing: object, cell: int) -> bool:
    return isinstance(thing, Food) and not thing.chopped and kitchen.board_at(cell) is not None
