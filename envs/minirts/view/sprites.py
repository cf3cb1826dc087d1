"""Drawings of single units and buildings, made by shapes, each once per size and colour."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from PIL import Image

from rllib_llm_comm.envs.drawing import INK, Canvas, Colour, star
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    BARRACK,
    BLACKSMITH,
    CATAPULT,
    CAVALRY,
    DRAGON,
    GUARD_TOWER,
    IS_BUILDING,
    PEASANT,
    RESOURCE,
    SPEARMAN,
    STABLE,
    SWORDMAN,
    TOWN_HALL,
    WORKSHOP,
)

_STEEL: Colour = (232, 236, 240)
_WALL: Colour = (236, 222, 196)
_WALL_DARK: Colour = (196, 176, 140)
_GOLD: Colour = (240, 190, 60)
_GOLD_DARK: Colour = (176, 128, 30)
_DOOR: Colour = (92, 66, 46)


@lru_cache(maxsize=512)
def sprite(kind: int, colour: Colour, size: int, ghost: bool = False) -> Image.Image:
    """The picture of a unit, RGBA.

    Args:
        kind: Its type.
        colour: Of its owner.
        size: Pixels per side.
        ghost: Whether it is a building site.
    """
    c = Canvas(size)
    if kind == RESOURCE:
        _resource(c)
    elif IS_BUILDING[kind]:
        _building(c, kind, colour)
    else:
        c.oval(0.5, 0.88, 0.30, 0.08, (20, 30, 10, 80))
        _MOBILE[kind](c, colour)
    picture = c.done(size)
    if ghost:
        picture.putalpha(picture.getchannel("A").point(lambda value: value * 2 // 5))
    return picture


def _resource(c: Canvas) -> None:
    c.oval(0.5, 0.84, 0.40, 0.10, (20, 30, 10, 80))
    for x, y, scale in ((0.34, 0.62, 0.22), (0.68, 0.64, 0.20), (0.50, 0.42, 0.26)):
        c.shape([(x, y - scale), (x + scale * 0.8, y), (x, y + scale), (x - scale * 0.8, y)], _GOLD_DARK)
        c.shape([(x, y - scale * 0.8), (x + scale * 0.5, y), (x, y + scale * 0.6), (x - scale * 0.6, y)], _GOLD)
    c.shape(star(0.54, 0.34, 0.10, 0.03, 4), (255, 250, 220))


# ---- buildings ---------------------------------------------------------------------------------------------


def _building(c: Canvas, kind: int, colour: Colour) -> None:
    c.oval(0.5, 0.92, 0.46, 0.07, (20, 30, 10, 90))
    if kind == GUARD_TOWER:
        c.box(0.34, 0.30, 0.66, 0.92, _WALL_DARK, 0.03, INK)
        c.box(0.26, 0.14, 0.74, 0.36, _WALL, 0.03, INK)
        c.shape([(0.22, 0.16), (0.50, 0.0), (0.78, 0.16)], colour)
        c.box(0.45, 0.20, 0.55, 0.30, INK)
        return
    tall = kind == TOWN_HALL
    c.box(0.10, 0.46, 0.90, 0.93, _WALL, 0.03, INK)
    c.shape([(0.02, 0.50), (0.50, 0.10 if tall else 0.22), (0.98, 0.50)], colour)
    c.box(0.41, 0.66, 0.59, 0.93, _DOOR, 0.03)
    if tall:
        c.stroke([(0.50, 0.14), (0.50, -0.02)], INK, 0.04)
        c.shape([(0.51, 0.0), (0.78, 0.06), (0.51, 0.13)], _GOLD)
        for x in (0.22, 0.72):
            c.box(x, 0.58, x + 0.10, 0.70, _DOOR)
    else:
        _SIGN[kind](c)


def _spear_sign(c: Canvas) -> None:
    _spear(c, 0.26, 0.60, 0.26, 0.90)
    _spear(c, 0.74, 0.60, 0.74, 0.90)


def _anvil_sign(c: Canvas) -> None:
    c.shape([(0.14, 0.62), (0.36, 0.62), (0.30, 0.72), (0.33, 0.82), (0.17, 0.82), (0.22, 0.72)], INK)
    _sword(c, 0.68, 0.58, 0.82, 0.88)


def _horseshoe_sign(c: Canvas) -> None:
    for x in (0.25, 0.75):
        c.dot(x, 0.72, 0.11, None, _GOLD_DARK)
        c.box(x - 0.06, 0.76, x + 0.06, 0.86, _WALL)


def _wheel_sign(c: Canvas) -> None:
    for x in (0.25, 0.75):
        _wheel(c, x, 0.74, 0.11)


_SIGN: dict[int, Callable[[Canvas], None]] = {
    BARRACK: _spear_sign,
    BLACKSMITH: _anvil_sign,
    STABLE: _horseshoe_sign,
    WORKSHOP: _wheel_sign,
}


# ---- those that move ---------------------------------------------------------------------------------------


def _body(c: Canvas, colour: Colour, x: float = 0.5) -> None:
    c.oval(x, 0.66, 0.20, 0.23, colour, INK)
    c.dot(x, 0.34, 0.15, (244, 214, 180), INK)


def _spear(c: Canvas, x0: float, y0: float, x1: float, y1: float) -> None:
    c.stroke([(x0, y0), (x1, y1)], _DOOR, 0.05)
    c.shape([(x0 - 0.06, y0 + 0.04), (x0, y0 - 0.12), (x0 + 0.06, y0 + 0.04)], _STEEL)


def _sword(c: Canvas, x0: float, y0: float, x1: float, y1: float) -> None:
    c.stroke([(x0, y0), (x1, y1)], INK, 0.11)
    c.stroke([(x0, y0), (x1, y1)], _STEEL, 0.07)
    mx, my = x0 + (x1 - x0) * 0.75, y0 + (y1 - y0) * 0.75
    c.stroke(
        [(mx - (y1 - y0) * 0.25, my + (x1 - x0) * 0.25), (mx + (y1 - y0) * 0.25, my - (x1 - x0) * 0.25)], INK, 0.05
    )


def _wheel(c: Canvas, x: float, y: float, radius: float) -> None:
    c.dot(x, y, radius, (150, 108, 70), INK)
    c.dot(x, y, radius * 0.35, INK)


def _peasant(c: Canvas, colour: Colour) -> None:
    _body(c, colour)
    c.shape([(0.28, 0.28), (0.50, 0.08), (0.72, 0.28)], (220, 190, 110))
    c.stroke([(0.24, 0.28), (0.76, 0.28)], (180, 146, 70), 0.05)


def _spearman(c: Canvas, colour: Colour) -> None:
    _body(c, colour, 0.44)
    _spear(c, 0.78, 0.14, 0.78, 0.90)


def _swordman(c: Canvas, colour: Colour) -> None:
    _body(c, colour, 0.42)
    c.shape([(0.27, 0.32), (0.42, 0.14), (0.57, 0.32)], _STEEL)
    _sword(c, 0.88, 0.22, 0.62, 0.74)


def _cavalry(c: Canvas, colour: Colour) -> None:
    c.oval(0.48, 0.66, 0.36, 0.16, (132, 92, 60), INK)
    c.shape([(0.72, 0.64), (0.80, 0.34), (0.98, 0.40), (0.94, 0.52), (0.86, 0.66)], (132, 92, 60))
    for x in (0.24, 0.40, 0.60, 0.72):
        c.stroke([(x, 0.76), (x, 0.93)], (100, 68, 44), 0.06)
    c.oval(0.44, 0.42, 0.13, 0.16, colour, INK)
    c.dot(0.44, 0.20, 0.11, (244, 214, 180), INK)


def _dragon(c: Canvas, colour: Colour) -> None:
    c.shape([(0.46, 0.50), (0.02, 0.14), (0.10, 0.60), (0.30, 0.58)], colour)
    c.shape([(0.54, 0.50), (0.98, 0.14), (0.90, 0.60), (0.70, 0.58)], colour)
    c.oval(0.50, 0.56, 0.15, 0.28, (70, 130, 80), INK)
    c.dot(0.50, 0.24, 0.13, (70, 130, 80), INK)
    for x in (0.45, 0.55):
        c.dot(x, 0.21, 0.035, _GOLD)


def _archer(c: Canvas, colour: Colour) -> None:
    _body(c, colour, 0.42)
    c.stroke([(0.70, 0.16), (0.88, 0.34), (0.88, 0.62), (0.70, 0.82)], _DOOR, 0.06)
    c.stroke([(0.70, 0.16), (0.70, 0.82)], _STEEL, 0.03)
    c.stroke([(0.52, 0.49), (0.96, 0.49)], INK, 0.035)


def _catapult(c: Canvas, colour: Colour) -> None:
    c.box(0.12, 0.52, 0.88, 0.72, colour, 0.04, INK)
    c.stroke([(0.30, 0.62), (0.80, 0.16)], _DOOR, 0.08)
    c.dot(0.80, 0.18, 0.11, (110, 110, 115), INK)
    for x in (0.26, 0.74):
        _wheel(c, x, 0.78, 0.14)


_MOBILE: dict[int, Callable[[Canvas, Colour], None]] = {
    PEASANT: _peasant,
    SPEARMAN: _spearman,
    SWORDMAN: _swordman,
    CAVALRY: _cavalry,
    DRAGON: _dragon,
    ARCHER: _archer,
    CATAPULT: _catapult,
}
