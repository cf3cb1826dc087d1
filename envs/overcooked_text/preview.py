"""Preview of macro-actions, as far as an agent sees and remembers: the ground of phrases and mask."""

from __future__ import annotations

from collections.abc import Sequence

from rllib_llm_comm.envs.overcooked_text.effects import (
    NOTHING,
    WAIT,
    Agent,
    Effect,
    Food,
    Knife,
    Lying,
    Plate,
    Thing,
    touch,
)
from rllib_llm_comm.envs.overcooked_text.layouts import AGENT, COUNTER, DELTAS, FLOOR, MOVES, SIZE, STAY
from rllib_llm_comm.envs.overcooked_text.macro_actions import Macro
from rllib_llm_comm.envs.overcooked_text.navigation import DISTANCE, first_step
from rllib_llm_comm.envs.overcooked_text.rules import Kitchen


def choppable(kitchen: Kitchen, agent: int) -> tuple[int, Knife] | None:
    """The board beside an agent with an unchopped food on it.

    Args:
        kitchen: The kitchen.
        agent: Index of the agent.

    Returns:
        The move that touches it and the board, or None. It is looked for on the right, below, on the left,
        above.
    """
    here = kitchen.agents[agent].cell
    for action, delta in enumerate(DELTAS):
        board = kitchen.board_at(here + delta)
        if board is not None and isinstance(board.on, Food) and not board.on.chopped:
            return action, board
    return None


def out_of_reach(kitchen: Kitchen, agent: int, macro: Macro) -> bool:
    """True if an agent knows at once that it cannot get an object: it is in a plate or in somebody's hand.

    The original looks only at food in plates that are in sight. Otherwise what is remembered counts, too, so
    that no cook runs after something that it saw somebody carry away.

    Args:
        kitchen: The kitchen.
        agent: Index of the agent.
        macro: The macro-action.
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


def preview(kitchen: Kitchen, agent: int, macro: Macro, counters: Sequence[int]) -> Effect:
    """Effect of `macro` now, by what `agent` sees and believes, if nobody interferes.

    Args:
        kitchen: The kitchen.
        agent: Index of the agent.
        macro: The macro-action.
        counters: Cells of the shared counter in the order in which "go to counter" tries them.

    Returns:
        Its effect; kind "none" if it would end at once with nothing done.
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


def _preview_chop(kitchen: Kitchen, agent: int) -> Effect:
    found = choppable(kitchen, agent)
    if found is None or found[1].on is None or kitchen.agents[agent].held is not None:
        return NOTHING
    board = found[1]
    return Effect("chop", board.on.name if board.on else "", board.name, (board.x, board.y))


def _preview_touch(kitchen: Kitchen, agent: int, macro: Macro, target: int, in_sight: bool) -> Effect:
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


def _lying_at(kitchen: Kitchen, agent: int, macro: Macro, target: int, in_sight: bool) -> Lying | None:
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
