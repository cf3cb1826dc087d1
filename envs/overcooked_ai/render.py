"""Pictures of the kitchen: plain characters for a terminal, pixels for a person."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from PIL import Image

from rllib_llm_comm.envs.drawing import (
    COOK_COLOURS,
    FLOORS,
    INK,
    PAPER,
    SHADOW,
    WOOD_DARK,
    WOOD_LIGHT,
    Canvas,
    Colour,
    Point,
    board,
    counter,
    drawn,
    onion,
    status_strip,
)
from rllib_llm_comm.envs.overcooked_ai.kernel import EAST, IDLE, NORTH, SOUTH, WEST
from rllib_llm_comm.envs.overcooked_ai.layouts import DISHES, FLOOR, ONIONS, POT, SERVING, TOMATOES, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.places import COOKS
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES, Item, SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.text import item_words

_WOOD_SHADE = (144, 102, 66)  # on a tile: a clear colour would cut a hole into it
_CHINA, _CHINA_LINE, _CHINA_INNER = (252, 252, 250), (150, 162, 176), (228, 235, 241)
_STEEL, _STEEL_DARK, _POT_INSIDE = (122, 130, 142), (78, 84, 96), (54, 56, 66)
_BROTH, _BROTH_LINE = (240, 178, 62), (206, 138, 34)
_FIRE, _DONE = (240, 106, 40), (70, 160, 84)
_SKIN, _SKIN_LINE = (250, 214, 180), (206, 160, 124)
_HAT = 0.66  # how far from the front its middle is
_TURNS = {
    NORTH: None,
    SOUTH: Image.Transpose.ROTATE_180,
    EAST: Image.Transpose.ROTATE_270,
    WEST: Image.Transpose.ROTATE_90,
}
Inside = tuple[int, int]
"""Onions and tomatoes in a pot or a soup."""
# Places of one, two or three pieces of vegetable around the middle of a pot or a dish.
_PIECES: dict[int, list[Point]] = {
    0: [],
    1: [(0.0, 0.0)],
    2: [(-0.5, 0.05), (0.5, -0.05)],
    3: [(-0.5, -0.3), (0.5, -0.3), (0.0, 0.5)],
}


def _tomato(c: Canvas) -> None:
    c.oval(0.50, 0.60, 0.38, 0.34, SHADOW)
    c.oval(0.50, 0.54, 0.38, 0.34, (214, 58, 44), (150, 32, 26))
    c.oval(0.38, 0.44, 0.10, 0.07, (244, 128, 108))
    for k in range(5):
        angle = math.pi * (0.5 + 2 * k / 5)
        c.stroke([(0.5, 0.26), (0.5 + 0.17 * math.cos(angle), 0.28 + 0.09 * math.sin(angle))], (72, 140, 60), 0.06)


def _crate(c: Canvas, vegetable: Callable[[Canvas], None]) -> None:
    counter(c)
    c.box(0.08, 0.08, 0.92, 0.86, (112, 74, 44), 0.05)
    c.box(0.13, 0.13, 0.87, 0.81, (84, 54, 32), 0.03)
    bulb = Canvas(c.side)
    vegetable(bulb)
    small = bulb.done(round(0.44 * c.side))
    for x, y in ((0.10, 0.06), (0.46, 0.08), (0.28, 0.26)):
        c.image.alpha_composite(small, (round(x * c.side), round(y * c.side)))
    for y in (0.60, 0.74):
        c.box(0.06, y, 0.94, y + 0.115, WOOD_LIGHT, 0.02, WOOD_DARK)
        for x in (0.11, 0.89):
            c.dot(x, y + 0.058, 0.018, WOOD_DARK)


def _dishes(c: Canvas) -> None:
    counter(c)
    c.oval(0.52, 0.63, 0.38, 0.26, _WOOD_SHADE)
    for y in (0.60, 0.53, 0.46, 0.39):
        c.oval(0.50, y, 0.36, 0.26, _CHINA, _CHINA_LINE)
    c.oval(0.50, 0.39, 0.25, 0.17, _CHINA_INNER, (190, 202, 214))


def _serving(c: Canvas) -> None:
    """A teal mat with a service bell."""
    counter(c)
    c.box(0.06, 0.06, 0.94, 0.85, (58, 142, 128), 0.08, (38, 104, 94))
    c.box(0.11, 0.11, 0.89, 0.80, (74, 160, 145), 0.05)
    c.oval(0.52, 0.70, 0.32, 0.07, (46, 118, 106))
    c.box(0.21, 0.60, 0.79, 0.71, (120, 84, 40), 0.05)
    bell = [(0.5 - 0.25 * math.cos(math.pi * k / 24), 0.61 - 0.32 * math.sin(math.pi * k / 24)) for k in range(25)]
    c.shape(bell, (255, 205, 72))
    c.draw.arc(c.scaled(0.32, 0.34, 0.66, 0.86), 190, 250, fill=(255, 240, 190), width=round(0.04 * c.side))
    c.box(0.47, 0.20, 0.53, 0.31, (120, 84, 40), 0.02)
    c.dot(0.50, 0.205, 0.055, (255, 205, 72), (190, 140, 40))


_TILES: dict[int, Callable[[Canvas], None]] = {
    ONIONS: partial(_crate, vegetable=onion),
    TOMATOES: partial(_crate, vegetable=_tomato),
    DISHES: _dishes,
    SERVING: _serving,
}


def _piece(c: Canvas, x: float, y: float, radius: float) -> None:
    """A slice of onion."""
    c.dot(x, y, radius, (160, 86, 152))
    c.dot(x, y, radius * 0.82, (250, 242, 248))
    c.dot(x, y, radius * 0.55, (206, 156, 200))
    c.dot(x, y, radius * 0.34, (250, 242, 248))


def _red_piece(c: Canvas, x: float, y: float, radius: float) -> None:
    """A slice of tomato."""
    c.dot(x, y, radius, (176, 40, 32))
    c.dot(x, y, radius * 0.82, (226, 84, 62))
    for dx, dy in ((-0.35, 0.2), (0.35, 0.2), (0.0, -0.4)):
        c.dot(x + dx * radius, y + dy * radius, radius * 0.22, (250, 206, 120))


def _pieces(c: Canvas, inside: Inside, x: float, y: float, spread: float, radius: float) -> None:
    for number, (dx, dy) in enumerate(_PIECES[sum(inside)]):
        piece = _piece if number < inside[0] else _red_piece
        piece(c, x + spread * dx, y + spread * dy, radius)


def _dish(c: Canvas) -> None:
    c.oval(0.50, 0.57, 0.41, 0.38, SHADOW)
    c.dot(0.50, 0.50, 0.40, _CHINA, _CHINA_LINE)
    c.dot(0.50, 0.50, 0.28, _CHINA_INNER, (196, 208, 218))
    c.oval(0.44, 0.43, 0.14, 0.11, (240, 244, 248))


def _soup(c: Canvas, inside: Inside) -> None:
    _dish(c)
    c.dot(0.50, 0.50, 0.32, _BROTH, _BROTH_LINE)
    _pieces(c, inside, 0.50, 0.50, 0.27, 0.135)


def _pot(c: Canvas, inside: Inside, tick: int, time: int) -> None:
    counter(c)
    c.box(0.04, 0.04, 0.96, 0.88, (70, 68, 74), 0.08, (44, 42, 48))
    x, y = 0.50, 0.46
    for left in (0.02, 0.86):
        c.box(left, y - 0.07, left + 0.12, y + 0.07, _STEEL_DARK, 0.04)
    started = sum(inside) > 0 and tick != IDLE
    ready = started and tick >= time
    c.dot(x, y, 0.40, _STEEL_DARK)
    c.dot(x, y, 0.385, _STEEL)
    if started:
        box = c.scaled(x - 0.385, y - 0.385, x + 0.385, y + 0.385)
        end = -90 + 360 * min(1.0, tick / max(1, time))
        c.draw.arc(box, -90, end, fill=_DONE if ready else _FIRE, width=round(0.075 * c.side))
    c.dot(x, y, 0.31, _POT_INSIDE)
    if started:
        c.dot(x, y, 0.30, _BROTH, _BROTH_LINE)
    _pieces(c, inside, x, y, 0.25, 0.125)
    if ready:
        _steam(c)
    elif started:
        c.dot(0.78, 0.77, 0.19, PAPER, _FIRE)
        c.letter(str(time - tick), 0.78, 0.77, 0.24, INK)


def _steam(c: Canvas) -> None:
    for left, low in ((0.30, 0.52), (0.50, 0.42), (0.70, 0.52)):
        wisp = [(left + 0.045 * math.sin(k / 3.2), low - 0.022 * k) for k in range(20)]
        c.stroke(wisp, (255, 255, 255), 0.05)
    c.dot(0.78, 0.77, 0.17, _DONE, PAPER)
    c.stroke([(0.70, 0.77), (0.76, 0.83), (0.87, 0.70)], PAPER, 0.05)


def _body(c: Canvas, colour: Colour, holds: bool) -> None:
    """A cook seen from above that looks north, without its letter."""
    dark = (int(colour[0] * 0.72), int(colour[1] * 0.72), int(colour[2] * 0.72))
    hand_x, hand_y = (0.27, 0.25) if holds else (0.36, 0.33)
    for side in (-1, 1):
        shoulder, hand = (0.5 + side * 0.31, 0.64), (0.5 + side * hand_x, hand_y)
        c.stroke([shoulder, hand], dark, 0.17)
        c.stroke([shoulder, hand], colour, 0.13)
        c.dot(*hand, 0.085, _SKIN, _SKIN_LINE)
    c.box(0.11, 0.50, 0.89, 0.86, colour, 0.18, dark)
    c.oval(0.50, 0.50, 0.225, 0.225, _SKIN, _SKIN_LINE)
    c.oval(0.50, 0.285, 0.045, 0.05, _SKIN, _SKIN_LINE)
    for x in (0.40, 0.60):
        c.oval(x, 0.385, 0.035, 0.045, INK)
    for k in range(8):
        angle = 2 * math.pi * k / 8
        c.dot(0.50 + 0.14 * math.cos(angle), _HAT + 0.14 * math.sin(angle), 0.105, (255, 255, 255), (190, 190, 198))
    c.dot(0.50, _HAT, 0.18, (255, 255, 255))


@lru_cache(maxsize=256)
def pot(inside: Inside, tick: int, time: int, size: int) -> Image.Image:
    """A pot on its stove: its ingredients, a ring that closes and the steps left while it cooks, steam when it is done.

    Args:
        inside: Onions and tomatoes in it, three at most.
        tick: -1 before cooking, counts from 1 while it cooks.
        time: The tick at which it is ready.
        size: Pixels.
    """
    canvas = Canvas(size)
    _pot(canvas, inside, tick, time)
    return canvas.done(size)


@lru_cache(maxsize=64)
def item_picture(kind: str, inside: Inside, size: int) -> Image.Image:
    """A thing in a hand or on a counter; `inside` are onions and tomatoes of a soup."""
    if kind != "soup":
        return drawn({"onion": onion, "tomato": _tomato, "dish": _dish}[kind], size)
    canvas = Canvas(size)
    _soup(canvas, inside)
    return canvas.done(size)


@lru_cache(maxsize=64)
def cook(index: int, letter: str, facing: int, holds: bool, size: int) -> Image.Image:
    """A cook seen from above: eyes and hands are where it looks, the letter on its hat stays upright.

    Args:
        index: Its index, which gives the colour.
        letter: Its initial.
        facing: 0 north, 1 south, 2 east, 3 west.
        holds: Whether its hands reach out for what it holds.
        size: Pixels.
    """
    colour = COOK_COLOURS[index % len(COOK_COLOURS)]
    body = Canvas(size)
    _body(body, colour, holds)
    turn = _TURNS[facing]
    figure = body.image if turn is None else body.image.transpose(turn)
    c = Canvas(size)
    shadow = Image.new("RGBA", figure.size, SHADOW[:3])
    shadow.putalpha(figure.getchannel("A").point(lambda alpha: alpha * 70 // 255))
    c.image.alpha_composite(shadow, (0, round(0.035 * c.side)))
    c.image.alpha_composite(figure)
    c.letter(letter, *turned(0.50, _HAT, facing), 0.34, colour)
    return c.done(size)


def turned(x: float, y: float, facing: int) -> Point:
    """Place of a point of a cell after a cook that looks north turns, as shares of the cell."""
    return {NORTH: (x, y), SOUTH: (1 - x, 1 - y), EAST: (1 - y, x), WEST: (y, 1 - x)}[facing]


CELL = 64
_WIDTH = 7
_ARROWS = "^v><"
_LEGEND = "O onions, D dishes, S serving counter, P pot (cooking :steps left, ready !); o onion, d dish, s3 soup of 3"
_MORE = "T tomatoes; t tomato, soot soup of two onions and a tomato"


def _short(item: Item | None) -> str:
    """A loose or held item in a few characters: o (onion), d (dish), t (tomato), s3 (soup of three onions), sott."""
    if item is None:
        return ""
    if item.kind == "soup":
        return f"s{'o' * item.onions}{'t' * item.tomatoes}" if item.tomatoes else f"s{item.onions}"
    return item.kind[0]


def _pot_text(item: Item | None) -> str:
    """A pot in at most `_WIDTH` characters: Poo_ (two onions), Pooo:12 (12 steps left), Pooo! (ready)."""
    if item is None:
        return "P___"
    inside = "P" + ("o" * item.onions + "t" * item.tomatoes).ljust(FULL, "_")
    if item.tick == IDLE:
        return inside
    return f"{inside}!" if item.ready else f"{inside}:{item.left}"


def _cell_text(kitchen: SoupKitchen, cell: Cell) -> str:
    kind, item = kitchen.layout.kind(cell), kitchen.item(cell)
    if kind == FLOOR:
        return ".".center(_WIDTH)
    if kind == POT:
        return _pot_text(item).center(_WIDTH, "#")
    station = {ONIONS: " O ", TOMATOES: " T ", DISHES: " D ", SERVING: " S "}.get(kind, "")
    return (f" {_short(item)} " if item else station).center(_WIDTH, "#")


def ansi(kitchen: SoupKitchen, score: float = 0, names: Sequence[str] = COOKS) -> str:
    """The kitchen in characters.

    Args:
        kitchen: The kitchen.
        score: Reward for soups so far.
        names: Names of the agents that play player 0 and player 1.

    Returns:
        Several lines: kitchen, step, score and any wanted pot; a line per row of cells, 7 characters per cell, a cook
        with an arrow where it looks and what it holds (`A>o`); what each cook does; a legend.
    """
    layout, players = kitchen.layout, [kitchen.cook(i) for i in range(2)]
    at = {
        player.cell: f"{name[0].upper()}{_ARROWS[player.facing]}{_short(player.held)}"
        for name, player in zip(names, players, strict=True)
    }
    lines = [f"{layout.name}, step {kitchen.time} of {kitchen.horizon}, score {score}{_wanted_words(kitchen, names)}"]
    for y in range(layout.height):
        cells = [(x, y) for x in range(layout.width)]
        lines.append("".join(at[c].center(_WIDTH) if c in at else _cell_text(kitchen, c) for c in cells))
    for name, player in zip(names, players, strict=True):
        lines.append(f"{name} faces {ACTION_NAMES[player.facing]} and holds {item_words(player.held)}")
    return "\n".join([*lines, f"{_LEGEND}; {_MORE}" if layout.has_tomatoes else _LEGEND])


def _wanted_words(kitchen: SoupKitchen, names: Sequence[str]) -> str:
    """The wanted pot and who is told it; empty where none is wanted."""
    if kitchen.wanted is None:
        return ""
    told = " and ".join(name for name, told in zip(names, kitchen.wanted.told, strict=True) if told)
    return f", wanted: {kitchen.wanted.name} (told to {told})"


@lru_cache(maxsize=32)
def _background(layout: Layout) -> Image.Image:
    """All that never changes of a kitchen's picture."""

    def paint(x: int, y: int) -> Callable[[Canvas], None]:
        kind = layout.kind((x, y))
        return FLOORS[(x + y) % 2] if kind == FLOOR else _TILES.get(kind, counter)

    return board(layout.width, layout.height, CELL, paint)


def _put(scene: Image.Image, item: Item, x: float, y: float, size: float) -> None:
    """Draws an item centred on a point, all in cells."""
    picture = item_picture(item.kind, (item.onions, item.tomatoes), round(size * CELL))
    corner = (round((x - size / 2) * CELL), round((y - size / 2) * CELL))
    scene.paste(picture, corner, picture)


def _objects(scene: Image.Image, kitchen: SoupKitchen) -> None:
    items = kitchen.items()
    for x, y in kitchen.layout.cells(POT):
        inside = items.pop((x, y), None)
        held = (inside.onions, inside.tomatoes) if inside else (0, 0)
        tick, time = (inside.tick, inside.time) if inside else (IDLE, COOK_TIME)
        scene.paste(pot(held, tick, time, CELL), (x * CELL, y * CELL))
    for (x, y), item in items.items():
        _put(scene, item, x + 0.5, y + 0.45, 0.74)


def _cooks(scene: Image.Image, kitchen: SoupKitchen, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        player = kitchen.cook(i)
        x, y = player.cell
        figure = cook(i, name[0].upper(), player.facing, player.held is not None, CELL)
        scene.paste(figure, (x * CELL, y * CELL), figure)
        if player.held is not None:
            dx, dy = turned(0.5, 0.12, player.facing)
            _put(scene, player.held, x + dx, y + dy, 0.48)


def rgb_array(kitchen: SoupKitchen, score: float = 0, names: Sequence[str] = COOKS) -> np.ndarray:
    """The kitchen as pixels, seen from above.

    Args:
        kitchen: The kitchen.
        score: Reward for soups so far.
        names: Names of the agents that play player 0 and player 1.

    Returns:
        (64 * rows + 32, 64 * columns, 3) uint8; the strip at the bottom tells the step and the score. A cook's
        colour is that of the player (0 blue, 1 orange), the letter on its hat that of the name.
    """
    scene = _background(kitchen.layout).copy()
    _objects(scene, kitchen)
    _cooks(scene, kitchen, names)
    status_strip(scene, f"step {kitchen.time} / {kitchen.horizon}", f"score {score}")
    return np.array(scene)
