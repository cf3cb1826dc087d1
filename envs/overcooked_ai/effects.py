"""Effects of using a cell: one short word per case, for masks, phrases and scripted cooks."""

from __future__ import annotations

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, ONIONS, POT, SERVING, TOMATOES, Cell
from rllib_llm_comm.envs.overcooked_ai.rules import Item, Kitchen

NONE, TAKE, PUT, ADD, START, PLATE, DELIVER = "", "take", "put", "add", "start", "plate", "deliver"


def effect(kitchen: Kitchen, held: Item | None, cell: Cell) -> str:
    """Effect of an interact with a cell.

    Args:
        kitchen: The game.
        held: Item in the cook's hands.
        cell: The cell that it would face.

    Returns:
        `TAKE` (from a counter, crate or stack), `PUT` (onto a counter), `ADD` (an onion or a tomato to a pot), `START`
        (cooking; new dynamics only), `PLATE` (a ready soup), `DELIVER` (a soup), or `NONE`.
    """
    kind, item = kitchen.layout.kind(cell), kitchen.item(cell)
    if kind == COUNTER:
        if held is None:
            return TAKE if item is not None else NONE
        return PUT if item is None else NONE
    if kind in (ONIONS, TOMATOES, DISHES):
        return TAKE if held is None else NONE
    if kind == POT:
        return _pot_effect(kitchen, held, item)
    return DELIVER if kind == SERVING and held is not None and held.kind == "soup" else NONE


def _pot_effect(kitchen: Kitchen, held: Item | None, soup: Item | None) -> str:
    idle = soup is not None and soup.tick < 0
    if held is None:
        return START if idle and kitchen.dynamics == "new" else NONE
    if held.kind in ("onion", "tomato"):
        return NONE if soup is not None and soup.full else ADD
    return PLATE if held.kind == "dish" and soup is not None and soup.ready else NONE
