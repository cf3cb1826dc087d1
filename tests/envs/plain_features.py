"""The 96 features of the onion-soup kitchen in plain Python: the yardstick of the compiled ones."""

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.kernel import CELLS, DISH, FIELDS, IDLE, NOTHING, ONION, PLAYER, SOUP, TOMATO
from rllib_llm_comm.envs.overcooked_ai.layouts import DISHES, FLOOR, ONIONS, POT, SERVING, TOMATOES
from rllib_llm_comm.envs.overcooked_ai.recipes import FULL, ingredients

_BLOCK = 46


def features(state, layout, routes) -> np.ndarray:
    """The 96 features of Overcooked-AI for both players, two pots, counters not among the planner's goals.

    Own block (46), partner's block (46), partner's place relative to one's own (2), own place (2).

    Args:
        state: int16 (S,).
        layout: The kitchen.
        routes: Its ways.

    Returns:
        int16 (2, 96).
    """
    blocks = [_block(state, i, layout, routes) for i in range(2)]
    places = [state[PLAYER + FIELDS * i : PLAYER + FIELDS * i + 2] for i in range(2)]
    rows = [
        np.concatenate([blocks[i], blocks[1 - i], places[1 - i] - places[i], places[i]]).astype(np.int16)
        for i in range(2)
    ]
    return np.stack(rows)


def _block(state, i: int, layout, routes) -> np.ndarray:
    at = PLAYER + FIELDS * i
    x, y, facing, held, inside, _ = (int(value) for value in state[at : at + FIELDS])
    block = np.zeros(_BLOCK, np.int16)
    block[facing] = 1
    if held != NOTHING:
        block[4 + {ONION: 0, SOUP: 1, DISH: 2, TOMATO: 3}[held]] = 1

    def delta(where: int, kind: int) -> None:
        cells = routes.nearest((x, y), facing, kind)
        if cells:
            block[where : where + 2] = cells[0][0] - x, cells[0][1] - y

    # Loose objects and empty counters are never found: counters are no goals of the original's default planner.
    if held != ONION:
        delta(8, ONIONS)
    if held != TOMATO:
        delta(10, TOMATOES)
    if held != DISH:
        delta(12, DISHES)
    if held == SOUP:
        block[16:18] = ingredients(inside)
    delta(18, SERVING)
    for number, pot in enumerate(routes.nearest((x, y), facing, POT)[:2]):
        block[22 + 10 * number : 32 + 10 * number] = _pot(state, pot, (x, y), layout)
    for number, (dx, dy) in enumerate(((0, -1), (0, 1), (1, 0), (-1, 0))):
        block[42 + number] = layout.kind((x + dx, y + dy)) != FLOOR
    return block


def _pot(state, pot: tuple[int, int], place: tuple[int, int], layout) -> list[int]:
    """Exists, empty, full, cooking, ready, onions, tomatoes, steps left, dx, dy."""
    at = CELLS + 3 * (pot[1] * layout.width + pot[0])
    kind, inside, tick = (int(value) for value in state[at : at + 3])
    onions, tomatoes = ingredients(inside)
    started = kind == SOUP and tick != IDLE
    left = max(0, layout.recipes.times[inside] - tick) if started else 0
    ready = started and left == 0
    return [
        1,
        int(kind == NOTHING),
        int(started or (kind == SOUP and onions + tomatoes == FULL)),
        int(started and not ready),
        int(ready),
        onions,
        tomatoes,
        left,
        pot[0] - place[0],
        pot[1] - place[1],
    ]
