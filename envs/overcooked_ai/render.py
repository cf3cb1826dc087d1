"""Pictures of the kitchen: plain characters for a terminal, pixels for a person."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PIL import Image

from rllib_llm_comm.envs.drawing import PAPER, STRIP, status_strip
from rllib_llm_comm.envs.overcooked_ai import sprites
from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.layouts import DISHES, FLOOR, ONIONS, POT, SERVING, TOMATOES, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.manual import soup_of
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL, contents
from rllib_llm_comm.envs.overcooked_ai.rules import Item, Kitchen

NAMES = ("alice", "bob")
CELL = 64
_WIDTH = 7
_WAYS = ("north", "south", "east", "west")
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


def _words(item: Item | None) -> str:
    if item is None:
        return "nothing"
    if item.kind == "soup":
        return f"a soup of {soup_of(contents(item.onions, item.tomatoes))}"
    return f"{'an' if item.kind == 'onion' else 'a'} {item.kind}"


def _cell_text(kitchen: Kitchen, cell: Cell) -> str:
    kind, item = kitchen.layout.kind(cell), kitchen.item(cell)
    if kind == FLOOR:
        return ".".center(_WIDTH)
    if kind == POT:
        return _pot_text(item).center(_WIDTH, "#")
    station = {ONIONS: " O ", TOMATOES: " T ", DISHES: " D ", SERVING: " S "}.get(kind, "")
    return (f" {_short(item)} " if item else station).center(_WIDTH, "#")


def ansi(kitchen: Kitchen, score: float = 0, names: Sequence[str] = NAMES) -> str:
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
        lines.append(f"{name} faces {_WAYS[player.facing]} and holds {_words(player.held)}")
    return "\n".join([*lines, f"{_LEGEND}; {_MORE}" if layout.has_tomatoes else _LEGEND])


def _wanted_words(kitchen: Kitchen, names: Sequence[str]) -> str:
    """The wanted pot and who is told it; empty where none is wanted."""
    if kitchen.wanted is None:
        return ""
    told = " and ".join(name for name, told in zip(names, kitchen.wanted.told, strict=True) if told)
    return f", wanted: {kitchen.wanted.name} (told to {told})"


@lru_cache(maxsize=32)
def _background(layout: Layout) -> Image.Image:
    """All that never changes of a kitchen's picture."""
    scene = Image.new("RGB", (layout.width * CELL, layout.height * CELL + STRIP), PAPER[:3])
    names = {ONIONS: "onions", TOMATOES: "tomatoes", DISHES: "dishes", SERVING: "serving"}
    for y in range(layout.height):
        for x in range(layout.width):
            kind = layout.kind((x, y))
            name = f"floor{(x + y) % 2}" if kind == FLOOR else names.get(kind, "counter")
            scene.paste(sprites.tile(name, CELL), (x * CELL, y * CELL))
    return scene


def _put(scene: Image.Image, item: Item, x: float, y: float, size: float) -> None:
    """Draws an item centred on a point, all in cells."""
    picture = sprites.item(item.kind, (item.onions, item.tomatoes), round(size * CELL))
    corner = (round((x - size / 2) * CELL), round((y - size / 2) * CELL))
    scene.paste(picture, corner, picture)


def _objects(scene: Image.Image, kitchen: Kitchen) -> None:
    items = kitchen.items()
    for x, y in kitchen.layout.cells(POT):
        inside = items.pop((x, y), None)
        held = (inside.onions, inside.tomatoes) if inside else (0, 0)
        tick, time = (inside.tick, inside.time) if inside else (IDLE, COOK_TIME)
        scene.paste(sprites.pot(held, tick, time, CELL), (x * CELL, y * CELL))
    for (x, y), item in items.items():
        _put(scene, item, x + 0.5, y + 0.45, 0.74)


def _cooks(scene: Image.Image, kitchen: Kitchen, names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        player = kitchen.cook(i)
        x, y = player.cell
        figure = sprites.cook(i, name[0].upper(), player.facing, player.held is not None, CELL)
        scene.paste(figure, (x * CELL, y * CELL), figure)
        if player.held is not None:
            dx, dy = sprites.turned(0.5, 0.12, player.facing)
            _put(scene, player.held, x + dx, y + dy, 0.48)


def rgb_array(kitchen: Kitchen, score: float = 0, names: Sequence[str] = NAMES) -> np.ndarray:
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
