"""Little pictures of everything in the kitchen, drawn with Pillow; each is drawn once per size and kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from PIL import Image

from rllib_llm_comm.envs.drawing import COOK_COLOURS, INK, SHADOW, Canvas, counter, floor, onion, star


def _board(c: Canvas) -> None:
    counter(c)
    c.box(0.10, 0.14, 0.74, 0.81, (128, 86, 52), 0.08)
    c.box(0.08, 0.11, 0.72, 0.78, (240, 217, 170), 0.08, (205, 172, 118))
    c.dot(0.40, 0.165, 0.028, (205, 172, 118))
    c.shape([(0.80, 0.14), (0.90, 0.24), (0.90, 0.54), (0.80, 0.54)], (214, 220, 226))
    c.stroke([(0.80, 0.14), (0.80, 0.54)], (165, 174, 184), 0.015)
    c.box(0.80, 0.54, 0.89, 0.80, (66, 58, 60), 0.03)


def _delivery(c: Canvas) -> None:
    counter(c)
    c.box(0.10, 0.10, 0.90, 0.81, (58, 142, 128), 0.08, (38, 104, 94))
    c.shape(star(0.50, 0.475, 0.31, 0.13), (30, 92, 84, 120))
    c.shape(star(0.50, 0.455, 0.30, 0.125), (255, 205, 72))


def _tomato(c: Canvas) -> None:
    c.oval(0.50, 0.80, 0.28, 0.07, SHADOW)
    c.oval(0.50, 0.54, 0.32, 0.29, (214, 52, 44), (160, 30, 28))
    c.oval(0.39, 0.43, 0.08, 0.055, (250, 138, 122))
    c.shape(star(0.50, 0.29, 0.17, 0.06), (72, 140, 60))
    c.stroke([(0.50, 0.29), (0.54, 0.17)], (58, 112, 48), 0.035)


def _tomato_chopped(c: Canvas) -> None:
    for x, y in ((0.33, 0.40), (0.67, 0.42), (0.49, 0.68)):
        c.oval(x, y + 0.03, 0.19, 0.18, SHADOW)
        c.dot(x, y, 0.185, (206, 46, 40))
        c.dot(x, y, 0.145, (240, 110, 92))
        for k in range(3):
            angle = 2 * math.pi * k / 3 + x
            c.oval(x + 0.075 * math.cos(angle), y + 0.075 * math.sin(angle), 0.042, 0.042, (252, 205, 130))


def _lettuce(c: Canvas) -> None:
    c.oval(0.50, 0.82, 0.30, 0.07, SHADOW)
    for k in range(8):
        angle = 2 * math.pi * k / 8
        c.dot(0.50 + 0.21 * math.cos(angle), 0.52 + 0.19 * math.sin(angle), 0.14, (66, 146, 58), (46, 112, 44))
    for k in range(6):
        angle = 2 * math.pi * k / 6 + 0.4
        c.dot(0.50 + 0.12 * math.cos(angle), 0.51 + 0.11 * math.sin(angle), 0.11, (112, 186, 78), (80, 152, 62))
    c.dot(0.50, 0.50, 0.10, (182, 224, 128))


def _lettuce_chopped(c: Canvas) -> None:
    leaves = [(0.30, 0.36, 30), (0.58, 0.30, -25), (0.74, 0.52, 60), (0.44, 0.55, 5), (0.28, 0.68, -35)]
    for x, y, turn in [*leaves, (0.62, 0.74, 20)]:
        angle = math.radians(turn)
        along, across = (math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))
        corners = []
        for k in range(16):
            t = 2 * math.pi * k / 16
            length, width = 0.17 * math.cos(t), (0.085 + 0.012 * (-1) ** k) * math.sin(t)
            corners.append((x + length * along[0] + width * across[0], y + length * along[1] + width * across[1]))
        c.shape([(a + 0.01, b + 0.03) for a, b in corners], SHADOW)
        c.shape(corners, (88, 168, 66))
        ends = [(x - 0.12 * along[0], y - 0.12 * along[1]), (x + 0.12 * along[0], y + 0.12 * along[1])]
        c.stroke(ends, (190, 226, 140), 0.025)


def _onion_chopped(c: Canvas) -> None:
    for x, y, radius in ((0.36, 0.38, 0.20), (0.68, 0.48, 0.17), (0.44, 0.71, 0.17)):
        c.oval(x, y + 0.03, radius, radius, SHADOW)
        c.dot(x, y, radius, (160, 86, 152))
        c.dot(x, y, radius * 0.84, (248, 238, 246))
        c.dot(x, y, radius * 0.56, (202, 150, 196))
        c.dot(x, y, radius * 0.42, (250, 242, 248))


def _bowl(c: Canvas) -> None:
    c.oval(0.50, 0.58, 0.41, 0.38, SHADOW)
    c.dot(0.50, 0.50, 0.40, (252, 252, 250), (168, 180, 192))
    c.dot(0.50, 0.50, 0.31, (226, 234, 240), (196, 208, 218))
    c.oval(0.44, 0.42, 0.16, 0.13, (238, 243, 247))


_FOODS: dict[tuple[str, bool], Callable[[Canvas], None]] = {
    ("tomato", False): _tomato,
    ("tomato", True): _tomato_chopped,
    ("lettuce", False): _lettuce,
    ("lettuce", True): _lettuce_chopped,
    ("onion", False): onion,
    ("onion", True): _onion_chopped,
}
_TILES: dict[str, Callable[[Canvas], None]] = {
    "floor0": lambda c: floor(c, 0),
    "floor1": lambda c: floor(c, 1),
    "counter": counter,
    "board": _board,
    "delivery": _delivery,
}


@lru_cache(maxsize=64)
def tile(name: str, size: int) -> Image.Image:
    """A tile of the kitchen.

    Args:
        name: "floor0", "floor1", "counter", "board" or "delivery".
        size: Pixels.
    """
    canvas = Canvas(size)
    _TILES[name](canvas)
    return canvas.done(size)


@lru_cache(maxsize=256)
def food(name: str, chopped: bool, size: int) -> Image.Image:
    """A food.

    Args:
        name: Its name.
        chopped: Whether it is chopped.
        size: Pixels.
    """
    canvas = Canvas(size)
    _FOODS[name, chopped](canvas)
    return canvas.done(size)


@lru_cache(maxsize=256)
def bowl(contents: tuple[str, ...], size: int) -> Image.Image:
    """A bowl.

    Args:
        contents: Names of the chopped foods in it.
        size: Pixels.
    """
    canvas = Canvas(size)
    _bowl(canvas)
    picture = canvas.done(size)
    places = {1: [(0.5, 0.5)], 2: [(0.37, 0.45), (0.63, 0.55)], 3: [(0.36, 0.40), (0.64, 0.42), (0.50, 0.65)]}
    share = {1: 0.58, 2: 0.46, 3: 0.40}
    part = round(size * share.get(len(contents), 0.40))
    for name, (x, y) in zip(contents, places.get(len(contents), places[3]), strict=False):
        piece = food(name, True, part)
        picture.alpha_composite(piece, (round(x * size - part / 2), round(y * size - part / 2)))
    return picture


@lru_cache(maxsize=32)
def cook(index: int, letter: str, size: int) -> Image.Image:
    """A cook.

    Args:
        index: Its index, which gives the colour.
        letter: Its initial.
        size: Pixels.
    """
    c = Canvas(size)
    colour = COOK_COLOURS[index % len(COOK_COLOURS)]
    dark = tuple(int(part * 0.72) for part in colour[:3])
    c.oval(0.50, 0.93, 0.30, 0.06, SHADOW)
    c.box(0.20, 0.55, 0.80, 0.94, colour, 0.16, (dark[0], dark[1], dark[2]))
    c.box(0.34, 0.60, 0.66, 0.92, (250, 249, 246), 0.07)
    c.letter(letter, 0.50, 0.765, 0.25, colour)
    c.dot(0.50, 0.42, 0.20, (250, 214, 180), (206, 160, 124))
    for x in (0.43, 0.57):
        c.dot(x, 0.42, 0.026, INK)
    c.draw.arc(c.scaled(0.42, 0.40, 0.58, 0.53), 25, 155, fill=INK, width=max(1, c.side // 60))
    for x, y in ((0.36, 0.155), (0.64, 0.155), (0.50, 0.125)):
        c.dot(x, y, 0.125, (255, 255, 255), (196, 196, 204))
    c.box(0.32, 0.15, 0.68, 0.31, (255, 255, 255), 0.03)
    c.stroke([(0.32, 0.30), (0.68, 0.30)], colour, 0.05)
    return c.done(size)
