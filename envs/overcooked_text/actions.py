"""Macro-actions and single steps: what each would do now, and how they are carried out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rllib_llm_comm.envs.overcooked_text.layouts import (
    AGENT,
    COUNTER,
    DELTAS,
    FLOOR,
    MOVES,
    SHARED_COUNTER_ROWS,
    SIZE,
    STAY,
    Setup,
)
from rllib_llm_comm.envs.overcooked_text.rules import (
    DISTANCE,
    NOTHING,
    WAIT,
    Agent,
    Effect,
    Food,
    KitchenMoment,
    Knife,
    Lying,
    Plate,
    StepOutcome,
    TextKitchen,
    Thing,
    first_step,
    moment,
    touch,
)


class Macro(NamedTuple):
    """A macro-action.

    Attributes:
        name: Its name, such as "get plate 1".
        kind: "stay", "food", "plate", "knife", "deliver", "chop", "counter" or "move".
        goal: Index in `TextKitchen.things` of the object it goes to; for a move the primitive action.
    """

    name: str
    kind: str
    goal: int = -1


def macros_of(kitchen: TextKitchen, include_moves: bool) -> tuple[Macro, ...]:
    """The macro-actions of a kitchen, perhaps with the four single steps, but for those whose object does not exist."""
    index = {thing.name: k for k, thing in enumerate(kitchen.things)}
    macros = [Macro("stay", "stay")]
    macros += [Macro(f"get {name}", "food", index[name]) for name in kitchen.foods]
    macros += [Macro(f"get plate {k}", "plate", index[p.name]) for k, p in enumerate(kitchen.plates, 1)]
    macros += [Macro(f"go to knife {k}", "knife", index[n.name]) for k, n in enumerate(kitchen.knives, 1)]
    macros += [Macro("deliver", "deliver", index["delivery"]), Macro("chop", "chop")]
    if SHARED_COUNTER_ROWS[kitchen.map_name]:
        macros.append(Macro("go to counter", "counter"))
    if include_moves:
        macros += [Macro(name, "move", action) for action, name in enumerate(MOVES)]
    return tuple(macros)


def choppable(kitchen: TextKitchen, agent: int) -> tuple[int, Knife] | None:
    """The board beside an agent with an unchopped food on it, and the move that touches it.

    It is looked for on the right, below, on the left, above.
    """
    here = kitchen.agents[agent].cell
    for action, delta in enumerate(DELTAS):
        board = kitchen.board_at(here + delta)
        if board is not None and _raw_on_board(kitchen, here + delta):
            return action, board
    return None


def out_of_reach(kitchen: TextKitchen, agent: int, macro: Macro) -> bool:
    """True if an agent knows at once that it cannot get an object: it is in a plate or in somebody's hand.

    The original looks only at food in plates that are in sight. Otherwise what is remembered counts, too, so
    that no cook runs after something that it saw somebody carry away.
    """
    if macro.kind not in ("food", "plate"):
        return False
    belief = kitchen.beliefs[agent]
    target = belief.cells[macro.goal]
    if kitchen.legacy:
        in_sight = kitchen.sight(agent)[target]
        return macro.kind == "food" and bool(in_sight) and any(p.cell == target for p in kitchen.plates)
    if kitchen.skeleton[target] == FLOOR:
        return True
    return macro.kind == "food" and any([belief.cells[k] == target for k in kitchen.plate_numbers])


def preview(kitchen: TextKitchen, agent: int, macro: Macro, counters: Sequence[int]) -> Effect:
    """Effect of `macro` now, by what `agent` sees and believes, if nobody interferes.

    It is of the kind "none" if the macro-action would end at once with nothing done.

    Args:
        kitchen: The kitchen.
        agent: Index of the agent.
        macro: The macro-action.
        counters: Cells of the shared counter in the order in which "go to counter" tries them.
    """
    kind, cook = macro.kind, kitchen.agents[agent]
    if kind == "stay":
        return WAIT
    if kind == "chop":
        return _preview_chop(kitchen, agent)
    belief, here = kitchen.beliefs[agent], cook.cell
    if kind == "move":
        target = here + DELTAS[macro.goal]
        return (
            Effect("move", place=MOVES[macro.goal], cell=divmod(target, SIZE))
            if belief.map[target] == FLOOR
            else NOTHING
        )
    if kind == "counter":
        free = next((cell for cell in counters if belief.map[cell] == COUNTER), None)
        if free is None or first_step(belief.ways, here, free) == STAY:
            return NOTHING
        return _or_walk(touch(cook.held, "counter", free, None), here, free, "counter")
    if out_of_reach(kitchen, agent, macro):
        return NOTHING
    target = belief.cells[macro.goal]
    thing = kitchen.things[macro.goal]
    in_sight = bool(kitchen.sight(agent)[target])
    if in_sight and kind in ("food", "plate") and not _lies_open(thing, target, belief.map):
        return NOTHING
    if first_step(belief.ways, here, target) == STAY:
        return NOTHING
    if kind == "deliver":
        return _or_walk(kitchen.touched(cook.held, target), here, target, "delivery")
    return _preview_touch(kitchen, agent, macro, target, in_sight)


def _lies_open(thing: Thing, target: int, grid: bytearray) -> bool:
    """True if an object in sight lies where it is believed, and in nobody's hand."""
    return thing.cell == target and grid[target] != AGENT


def _preview_chop(kitchen: TextKitchen, agent: int) -> Effect:
    found = choppable(kitchen, agent)
    if found is None or kitchen.agents[agent].held is not None:
        return NOTHING
    board = found[1]
    return Effect("chop", board.on.name if board.on else "", board.name, (board.x, board.y))


def _preview_touch(kitchen: TextKitchen, agent: int, macro: Macro, target: int, in_sight: bool) -> Effect:
    """The end of "get ..." and "go to knife ..."."""
    cook: Agent = kitchen.agents[agent]
    held, here = cook.held, cook.cell
    board = kitchen.board_at(target)
    place = board.name if board is not None else "counter"
    if macro.kind == "knife" and held is None:
        return _or_walk(NOTHING, here, target, place)  # goes there only
    lying = _lying_at(kitchen, agent, macro, target, in_sight)
    effect = touch(held, place, target, lying)
    if macro.kind == "food" and board is not None and lying is not None and not lying.chopped:
        effect = NOTHING  # never cuts, and a raw food is not taken off a board
    elif macro.kind == "plate" and isinstance(held, Food) and effect.kind == "add_to_plate":
        effect = effect._replace(takes_plate=True)
    return _or_walk(effect, here, target, place)


def _lying_at(kitchen: TextKitchen, agent: int, macro: Macro, target: int, in_sight: bool) -> Lying | None:
    """Item that the agent believes at the target of its macro-action."""
    item: Thing | None = kitchen.things[macro.goal]
    belief = kitchen.beliefs[agent]
    if isinstance(item, Knife):
        # Out of sight a plate hides the foods in it, as they are believed in the same place.
        believed = [] if in_sight else [k for k in range(len(kitchen.items)) if belief.cells[k] == target]
        item = item.on if in_sight else kitchen.things[believed[-1]] if believed else None
    if isinstance(item, Food):
        return Lying(item, item.chopped if in_sight else belief.food_status(item.name) >= 1)
    return Lying(item, False) if isinstance(item, Plate) else None


def _or_walk(effect: Effect, here: int, target: int, place: str) -> Effect:
    """The effect of touching, or the bare walk to where touching does nothing."""
    if effect.kind != "none":
        return effect
    return NOTHING if DISTANCE[here][target] == 1 else Effect("walk", place=place, cell=divmod(target, SIZE))


CHOP_BUMPS = 3
_FIRST_BOARD_FRONT, _SECOND_BOARD_FRONT, _DELIVERY_FRONT = SIZE + 1, 2 * SIZE + 1, 3 * SIZE + 1
_FIRST_BOARD = SIZE
_CARRIED = ("food", "plate")


def _rules(names: Sequence[str], kitchen: TextKitchen) -> str:
    parts = (names, kitchen.map_name, kitchen.layout, kitchen.num_agents, kitchen.view_radius, kitchen.legacy)
    return sys.intern(repr(parts))


class MacroRunner:
    """Runs the macro-actions of all agents in one kitchen.

    Attributes:
        kitchen: The kitchen.
        macros: The macro-actions; an action is an index into them.
        names: Their names.
        rules: All settings on which a cook's words depend beside its state; the same text in all kitchens of a kind.
        current: Per agent the running (or last) macro-action, None at the start.
        finished: Per agent whether it needs a new macro-action.
        chop_bumps: Per agent the cuts made by the present "chop".
        waited: Per agent the game steps that the present "stay" has lasted.
        blocked: Per agent the game steps in a row in which it was in another one's way.
    """

    level = "macro"

    def __init__(
        self, kitchen: TextKitchen, include_moves: bool = False, wait_steps: int = 4, blocked_steps: int | None = 3
    ) -> None:
        """Takes over a kitchen in any state, with all agents free; the rest are settings of the environment."""
        self.kitchen = kitchen
        self.wait_steps = 1 if kitchen.legacy else wait_steps
        self.blocked_steps = None if kitchen.legacy else blocked_steps
        self.include_moves = include_moves
        self.macros = macros_of(kitchen, include_moves)
        self.names = tuple(macro.name for macro in self.macros)
        self.rules = _rules(self.names, kitchen)
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
        """One game step. Per agent an index into `macros`, which is ignored for an agent that is not `finished`."""
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
        """Effect of the macro-action at its end, as of now and as far as this agent sees and remembers."""
        return preview(self.kitchen, agent, self.macros[action], self._counters)

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
        found = choppable(self.kitchen, i)
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
        if macro.kind in _CARRIED and out_of_reach(kitchen, i, macro):
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
        at_board = adjacent and kitchen.board_at(target) is not None
        return at_board and isinstance(thing, Food) and not thing.chopped


def _raw_on_board(kitchen: TextKitchen, cell: int) -> bool:
    """True if an unchopped food lies on a board at `cell`."""
    board = kitchen.board_at(cell)
    return board is not None and isinstance(board.on, Food) and not board.on.chopped


class PrimitiveRunner:
    """Every action lasts one game step: right, down, left, up, stay.

    Attributes:
        names: Names of the actions.
        macros: The same, under the name that the actions have in `MacroRunner`.
        current: Per agent the last action, None at the start.
        finished: Per agent whether it needs a new action: always.
    """

    level = "primitive"
    names = (*MOVES, "stay")
    macros = names

    def __init__(self, kitchen: TextKitchen) -> None:
        """Takes over a kitchen in any state."""
        self.kitchen = kitchen
        self.rules = _rules(self.names, kitchen)
        self.finished = [True] * kitchen.num_agents
        self.current: list[int | None] = [None] * kitchen.num_agents

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return len(self.names)

    def reset(self, setup: Setup | None = None) -> None:
        """Starts a new episode, with another setup if one is given."""
        self.kitchen.reset(setup)
        self.current = [None] * self.kitchen.num_agents

    def step(self, actions: Sequence[int | None]) -> StepOutcome:
        """One game step with one action per agent (None stays)."""
        self.current = list(actions)
        return self.kitchen.step([STAY if action is None else action for action in actions])

    def preview(self, agent: int, action: int) -> Effect:
        """Effect of the action now if nobody else moves; kind "none" if nothing."""
        return self.kitchen.effect(agent, action)

    def snapshot(self) -> dict[str, Any]:
        """The kitchen's snapshot."""
        return self.kitchen.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over a `snapshot`."""
        self.kitchen.restore(state)
        self.current = [None] * self.kitchen.num_agents


GAME_STEP = "game_step"


class Passed(NamedTuple):
    """Results of the game steps that have passed.

    Attributes:
        rewards: Per agent the reward of each game step.
        events: Per agent its events, in words.
        blocked: Numbers of the agents that had a collision.
        done: True if the last order was served.
        over: True if the episode has ended, by that or by the time limit.
        moments: Moment before the game steps and those after each of them, if they are kept.
    """

    rewards: list[list[float]]
    events: list[list[str]]
    blocked: frozenset[int]
    done: bool
    over: bool
    moments: list[KitchenMoment]


def advance(
    runner: MacroRunner | PrimitiveRunner,
    chosen: Sequence[int | None],
    until: str,
    max_game_steps: int,
    watched: bool = False,
) -> Passed:
    """Runs game steps.

    Args:
        runner: Carries out the actions.
        chosen: Action of each agent, or `None` where it needs none.
        until: `"game_step"`: one game step; `"decision"`: until at least one agent needs an action.
        max_game_steps: Time limit of the episode.
        watched: Whether the moments are kept.
    """
    rewards: list[list[float]] = [[] for _ in chosen]
    events: list[list[str]] = [[] for _ in chosen]
    blocked: set[int] = set()
    moments = [moment(runner.kitchen)] if watched else []
    while True:
        outcome = runner.step(chosen)
        for i, reward in enumerate(outcome.rewards):
            rewards[i].append(reward)
            events[i] += outcome.events[i]
        if outcome.blocked:
            blocked.update(outcome.blocked)
        if watched:
            moments.append(moment(runner.kitchen, outcome.events))
        over = outcome.done or runner.kitchen.game_step >= max_game_steps
        if over or until == GAME_STEP or True in runner.finished:
            return Passed(rewards, events, frozenset(blocked), outcome.done, over, moments)
