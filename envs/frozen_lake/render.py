"""Pictures of the lake: plain characters for a terminal, pixels for a person."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from PIL import Image

from rllib_llm_comm.envs.drawing import COOK_COLOURS, INK, PAPER, SHADOW, Canvas, board, status_strip
from rllib_llm_comm.envs.frozen_lake.rules import ARRIVED, FELL, HOLE, ICE, TARGETS, Cell, Lake, LakeMap
from rllib_llm_comm.envs.frozen_lake.text import WALKERS

CELL = 64
_WIDTH = 5
_LEGEND = ". ice, H hole, a b targets; A B walkers, A! arrived, A~ fallen"
_ICE = ((226, 240, 250), (216, 233, 246))
_ICE_LINE, _WATER, _WATER_LINE = (190, 214, 234), (58, 96, 140), (150, 186, 216)
_SKIN, _POLE = (250, 214, 180), (110, 84, 62)


def ansi(lake: Lake, score: int = 0) -> str:
    """The lake in characters.

    Returns:
        Several lines: lake, step and score; a line per row of cells, 5 characters per cell; what each walker needs and
        what has become of it; a legend.
    """
    layout = lake.layout
    lines = [f"frozen lake {layout.name}, step {lake.time} of {lake.horizon}, score {score}"]
    for y in range(layout.height):
        lines.append("".join(_cell_text(lake, (x, y)).center(_WIDTH) for x in range(layout.width)).rstrip())
    for i, name in enumerate(WALKERS):
        needs = " or ".join(TARGETS[k] for k in lake.own[i]) or "nothing"
        what = {ARRIVED: f"has reached {needs}", FELL: "has fallen into a hole"}.get(lake.fates[i], f"needs {needs}")
        lines.append(f"{name} {what}")
    return "\n".join([*lines, _LEGEND])


def _cell_text(lake: Lake, cell: Cell) -> str:
    layout = lake.layout
    ground = HOLE if cell in layout.holes else ICE
    if cell in layout.targets:
        ground = TARGETS[layout.targets.index(cell)]
    marks = {ARRIVED: "!", FELL: "~"}
    walkers = [
        name[0].upper() + marks.get(lake.fates[i], "") for i, name in enumerate(WALKERS) if lake.cells[i] == cell
    ]
    return "".join(walkers) or ground


def rgb_array(lake: Lake, score: int = 0) -> np.ndarray:
    """The lake as pixels, seen from above.

    Returns:
        (64 * rows + 32, 64 * columns, 3) uint8; the strip at the bottom tells the step and the score. A flag has the
        colour of the only walker that it counts for (alice blue, bob orange), grey if it counts for both or for none.
    """
    scene = _background(lake.layout).copy()
    for k, (x, y) in enumerate(lake.layout.targets):
        owners = [i for i in range(2) if k in lake.own[i]]
        flag = _flag(owners[0] if len(owners) == 1 else -1)
        scene.paste(flag, (x * CELL, y * CELL), flag)
    _walkers(scene, lake)
    status_strip(scene, f"step {lake.time} / {lake.horizon}", f"score {score}")
    return np.array(scene)


def places_alone(lake: Lake) -> np.ndarray:
    """The walkers on plain ice, which is all that they see, as pixels, (64 * rows, 64 * columns, 3) uint8."""
    scene = board(lake.layout.width, lake.layout.height, CELL, lambda x, y: _ICES[(x + y) % 2], strip=0)
    _walkers(scene, lake)
    return np.array(scene)


def _walkers(scene: Image.Image, lake: Lake) -> None:
    for i, (x, y) in enumerate(lake.cells):
        together = lake.cells[0] == lake.cells[1]
        shift = (-CELL // 5 if i == 0 else CELL // 5) if together else 0
        figure = _walker(i, lake.fates[i])
        scene.paste(figure, (x * CELL + shift, y * CELL), figure)


@lru_cache(maxsize=32)
def _background(layout: LakeMap) -> Image.Image:
    """All that never changes of a lake's picture."""
    return board(
        layout.width, layout.height, CELL, lambda x, y: (_HOLES if (x, y) in layout.holes else _ICES)[(x + y) % 2]
    )


def _tile(c: Canvas, shade: int, hole: bool) -> None:
    c.box(0, 0, 1, 1, _ICE[shade], 0.0, _ICE_LINE)
    if hole:
        c.oval(0.5, 0.52, 0.40, 0.36, _WATER, _WATER_LINE)
        c.oval(0.44, 0.46, 0.16, 0.07, (86, 126, 168))
    else:
        c.stroke([(0.15 + 0.2 * shade, 0.30), (0.40 + 0.2 * shade, 0.20)], (244, 250, 254), 0.03)
        c.stroke([(0.60 - 0.2 * shade, 0.80), (0.80 - 0.2 * shade, 0.72)], (244, 250, 254), 0.03)


_ICES, _HOLES = ([partial(_tile, shade=shade, hole=hole) for shade in range(2)] for hole in (False, True))


@lru_cache(maxsize=3)
def _flag(owner: int) -> Image.Image:
    c = Canvas(CELL)
    c.oval(0.34, 0.88, 0.14, 0.05, SHADOW)
    c.stroke([(0.34, 0.12), (0.34, 0.88)], _POLE, 0.05)
    c.shape([(0.36, 0.12), (0.82, 0.26), (0.36, 0.42)], COOK_COLOURS[owner] if owner >= 0 else (150, 156, 164))
    return c.done(CELL)


@lru_cache(maxsize=6)
def _walker(i: int, fate: str) -> Image.Image:
    c = Canvas(CELL)
    if fate == FELL:  # the hat drifts on the water
        c.oval(0.5, 0.52, 0.18, 0.12, COOK_COLOURS[i], INK)
        c.letter(WALKERS[i][0].upper(), 0.5, 0.52, 0.18, PAPER)
        return c.done(CELL)
    c.oval(0.5, 0.86, 0.24, 0.07, SHADOW)
    c.oval(0.5, 0.66, 0.24, 0.22, COOK_COLOURS[i], INK)
    c.dot(0.5, 0.36, 0.17, _SKIN, INK)
    c.oval(0.5, 0.25, 0.18, 0.10, COOK_COLOURS[i], INK)
    c.letter(WALKERS[i][0].upper(), 0.5, 0.66, 0.26, PAPER)
    if fate == ARRIVED:  # both arms up
        for x in (-1, 1):
            c.stroke([(0.5 + 0.20 * x, 0.60), (0.5 + 0.36 * x, 0.34)], INK, 0.05)
    return c.done(CELL)
