"""Pictures of the game: plain characters for a terminal, pixels for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from rllib_llm_comm.envs.drawing import COOK_COLOURS, INK, PAPER, Canvas, Colour, font, star
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, Unit
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    BARRACK,
    BLACKSMITH,
    CATAPULT,
    CAVALRY,
    DRAGON,
    GUARD_TOWER,
    HP,
    IS_BUILDING,
    IS_MOBILE,
    PEASANT,
    RESOURCE,
    SPEARMAN,
    STABLE,
    SWORDMAN,
    TOWN_HALL,
    WORKSHOP,
)
from rllib_llm_comm.envs.minirts.executor import Executor
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.words import COMMANDERS, KINDS, SINGULAR, group, phrase

_STEEL: Colour = (232, 236, 240)
_WALL: Colour = (236, 222, 196)
_WALL_DARK: Colour = (196, 176, 140)
_GOLD: Colour = (240, 190, 60)
_GOLD_DARK: Colour = (176, 128, 30)
_DOOR: Colour = (92, 66, 46)


@lru_cache(maxsize=512)
def sprite(kind: int, colour: Colour, size: int, ghost: bool = False) -> Image.Image:
    """The picture of a unit in the colour of its owner, RGBA; pale for a building site."""
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


CELL = 24
"""Pixels per cell of the big map."""
_SMALL = 12
_STRIP = 108
_LINE = 18
_BAR = 3
_FEW = 2
_WIDE = 768
_MAP = SIZE * CELL
_ENEMY: Colour = (196, 52, 52)
_SECOND: Colour = (40, 110, 190)
_LEFT, _LOST = (110, 230, 90), (150, 30, 30)
_NEUTRAL: Colour = (200, 200, 200)
_GRASS = ((124, 168, 92), (118, 162, 88))
_WATERS = ((86, 142, 190), (80, 136, 184))
_LINES: dict[str, Colour] = {"ATTACK": (214, 60, 50, 150), "GATHER": (240, 200, 90, 110), "MOVE": (250, 250, 250, 110)}
_LETTERS = dict(zip(KINDS, "PSWCDAKBLTOGH", strict=True))


# ---- characters --------------------------------------------------------------------------------------------


def ansi(game: RTSGame, side: Side, executor: Executor | None = None) -> str:
    """Knowledge of a side in characters.

    Args:
        game: The game.
        side: The side; capitals are its own, small letters the enemy's.
        executor: Its officers, for what is in force.

    Returns:
        A line on top; 32 lines of 64 characters; what the commanders have; a legend.
    """
    terrain = game.record["terrain"][0].reshape(SIZE, SIZE)
    seen, now = game.explored(side.player), game.visible(side.player)
    rows = [[_ground(terrain[y, x], seen[y, x], now[y, x]) for x in range(SIZE)] for y in range(SIZE)]
    for unit in side.resources:
        _write(rows, unit, "$")
    for unit in side.enemies:
        _write(rows, unit, _LETTERS[unit.type].lower())
    for unit in (*side.sites, *side.own):
        _write(rows, unit, _LETTERS[unit.type], "" if unit.finished else "?")
    lines = [f"tick {game.tick}, gold {side.money}"]
    lines += ["".join(cell.ljust(2) for cell in row) for row in rows]
    for commander in range(side.size):
        lines.append(f"{COMMANDERS[commander]} has {group(side.counts(commander))}{_in_force(executor, commander)}")
    lines.append(f"the enemy is known to have {group(side.enemy_counts())}")
    legend = ", ".join(f"{letter} {SINGULAR[kind]}" for kind, letter in _LETTERS.items())
    return "\n".join([*lines, f"{legend}; small letters: enemy; $ resource, ~ water, : seen before; ? building site"])


def _ground(terrain: int, seen: bool, now: bool) -> str:
    if not seen:
        return " "
    return "~" if terrain == WATER else "." if now else ":"


def _write(rows: list[list[str]], unit: Unit, letter: str, mark: str = "") -> None:
    x, y = unit.cell
    if 0 <= x < SIZE and 0 <= y < SIZE:
        rows[y][x] = letter + mark


def _in_force(executor: Executor | None, commander: int) -> str:
    if executor is None:
        return ""
    mine = executor.orders[commander]
    words = [*(["mine"] if mine.mining else []), mine.stance, *(phrase(job.command) for job in mine.jobs)]
    return f"; {', '.join(words)}"


# ---- pixels ------------------------------------------------------------------------------------------------


def rgb_array(game: RTSGame, side: Side | None = None, executor: Executor | None = None) -> np.ndarray:
    """The game as pixels: the whole map, darker where nobody of the side sees it; beside it what each side knows.

    Args:
        game: The game.
        side: The side whose fog lies on the map; without one all is light.
        executor: Its officers, for what is in force.

    Returns:
        (876, 1152, 3) uint8. Units stand on discs of the colour of their commander, those of the enemy on red ones. The
        hurt have a bar, of which the green part is left. More than two units in a cell have their number beside them.
        The strip below has what both sides have, what is in force, and a legend.
    """
    scene = Image.new("RGB", (_MAP + SIZE * _SMALL, _MAP + _STRIP), PAPER[:3])
    own = 0 if side is None else side.player
    scene.paste(_battlefield(game, side, own), (0, 0))
    for row, player in enumerate((own, 1 - own)):
        scene.paste(_known(game, player, own), (_MAP, row * SIZE * _SMALL))
    _status(scene, game, side, executor, own)
    return np.array(scene)


@lru_cache(maxsize=8)
def _terrain(cells: bytes, size: int) -> Image.Image:
    terrain = np.frombuffer(cells, np.int32).reshape(SIZE, SIZE)
    shade = np.add.outer(np.arange(SIZE), np.arange(SIZE)) % 2
    grass, water = np.array(_GRASS, np.uint8)[shade], np.array(_WATERS, np.uint8)[shade]
    pixels = np.where((terrain == WATER)[..., None], water, grass)
    return Image.fromarray(pixels.astype(np.uint8)).resize((SIZE * size, SIZE * size), Image.Resampling.NEAREST)


def _ground_of(game: RTSGame, size: int) -> Image.Image:
    return _terrain(game.record["terrain"][0].tobytes(), size).copy()


def _darken(scene: Image.Image, shadow: np.ndarray, size: int) -> None:
    """Lays darkness, 0 to 255 by row and column, on a map."""
    mask = Image.fromarray(shadow.astype(np.uint8)).resize((SIZE * size, SIZE * size), Image.Resampling.NEAREST)
    scene.paste((24, 30, 44), (0, 0), mask)


def _battlefield(game: RTSGame, side: Side | None, own: int) -> Image.Image:
    scene = _ground_of(game, CELL)
    if side is not None:
        now, ever = game.visible(own), game.explored(own)
        _darken(scene, np.where(now, 0, np.where(ever, 70, 130)), CELL)
    units = sorted(game.units(), key=lambda u: (not IS_BUILDING[u.type], u.y))
    _lines(scene, game, units)
    draw = ImageDraw.Draw(scene)
    for unit in units:
        colour = _NEUTRAL if unit.type == RESOURCE else _colour(unit, side, own)
        size = round(CELL * (1.7 if IS_BUILDING[unit.type] else 1.2))
        picture = sprite(unit.type, colour, size, not unit.finished)
        x, y = _pixel(unit.x), _pixel(unit.y)
        if IS_MOBILE[unit.type]:
            draw.ellipse((x - 9, y + 5, x + 9, y + 13), fill=colour[:3], outline=INK[:3])
        scene.paste(picture, (x - size // 2, y - size // 2), picture)
    _marks(draw, units)
    g = game.record[0]
    for i in range(int(g["num_bullets"])):
        x, y = _pixel(g["b_x"][i]), _pixel(g["b_y"][i])
        draw.ellipse((x - 2, y - 2, x + 2, y + 2), fill=(250, 240, 160), outline=INK[:3])
    return scene


def _marks(draw: ImageDraw.ImageDraw, units: Sequence[Unit]) -> None:
    """Bars of the hurt, and numbers of those who share a cell; on top of all units, so that none is covered."""
    for unit in units:
        if unit.hp >= HP[unit.type] or unit.type == RESOURCE:
            continue
        share, half = max(0.0, unit.hp / float(HP[unit.type])), round(CELL * (0.7 if IS_BUILDING[unit.type] else 0.35))
        x, y = _pixel(unit.x), _pixel(unit.y) - round(CELL * (0.85 if IS_BUILDING[unit.type] else 0.6))
        draw.rectangle((x - half - 1, y - 1, x + half + 1, y + _BAR), fill=INK[:3])
        draw.rectangle((x - half, y, x + half, y + _BAR - 1), fill=_LOST)
        if share:
            draw.rectangle((x - half, y, x - half + round(2 * half * share), y + _BAR - 1), fill=_LEFT)
    crowds = Counter(unit.cell for unit in units if IS_MOBILE[unit.type])
    for (column, row), count in crowds.items():
        if count > _FEW:
            place = (_pixel(column) + CELL // 2, _pixel(row) + CELL // 2)
            draw.text(
                place, f"x{count}", fill=PAPER[:3], font=font(11), anchor="rs", stroke_width=2, stroke_fill=INK[:3]
            )


def _pixel(place: float) -> int:
    return round((float(place) + 0.5) * CELL)


def _colour(unit: Unit, side: Side | None, own: int) -> Colour:
    if unit.player != own:
        return _ENEMY
    if side is None or not unit.finished:
        return _SECOND
    return COOK_COLOURS[side.owner(unit) % len(COOK_COLOURS)]


def _lines(scene: Image.Image, game: RTSGame, units: Sequence[Unit]) -> None:
    """From each unit to what it attacks, digs or goes to."""
    draw, g = ImageDraw.Draw(scene, "RGBA"), game.record[0]
    places = {unit.ref: (unit.x, unit.y) for unit in units}
    for unit in units:
        if unit.order not in _LINES:
            continue
        slot = unit.ref % len(g["to_x"])
        place = places.get(unit.target) if unit.order != "MOVE" else (g["to_x"][slot], g["to_y"][slot])
        if place is not None:
            ends = [(_pixel(unit.x), _pixel(unit.y)), (_pixel(place[0]), _pixel(place[1]))]
            draw.line(ends, fill=_LINES[unit.order], width=1)


def _known(game: RTSGame, player: int, own: int) -> Image.Image:
    """Map as a player knows it: black where it never was, dots for the units that it knows of."""
    scene = _ground_of(game, _SMALL)
    now, ever = game.visible(player), game.explored(player)
    _darken(scene, np.where(now, 0, np.where(ever, 110, 255)), _SMALL)
    draw = ImageDraw.Draw(scene)
    mine = [unit for unit in game.units(player) if unit.type != RESOURCE]
    colours: tuple[Colour, Colour] = (_SECOND, _ENEMY) if player == own else (_ENEMY, _SECOND)
    shown = ((game.seen_resources(player), (244, 204, 80)), (mine, colours[0]), (game.seen_enemies(player), colours[1]))
    for units, colour in shown:
        for unit in units:
            x, y = (unit.x + 0.5) * _SMALL, (unit.y + 0.5) * _SMALL
            radius = 5 if IS_BUILDING[unit.type] else 4
            shape = draw.rectangle if IS_BUILDING[unit.type] else draw.ellipse
            shape((x - radius, y - radius, x + radius, y + radius), fill=colour[:3], outline=(20, 20, 20))
    draw.rectangle((0, 0, scene.width - 1, scene.height - 1), outline=colours[0][:3], width=2)
    return scene


def known_map(game: RTSGame, side: Side) -> np.ndarray:
    """The map as a side knows it, uint8 (height, width, 3): fog, own units, seen resources and enemies in sight."""
    scene = _known(game, side.player, side.player)
    return np.asarray(scene.resize((_WIDE, _WIDE), Image.Resampling.NEAREST).convert("RGB"))


def _status(scene: Image.Image, game: RTSGame, side: Side | None, executor: Executor | None, own: int) -> None:
    """Time and gold, what both sides have, what is in force, and the names of what is on the map."""
    draw, y = ImageDraw.Draw(scene), _MAP + _LINE // 2
    names, found = ("blue", "red") if side is None else ("we", "enemy"), set[int]()
    for player, colour, name in ((own, _SECOND, names[0]), (1 - own, _ENEMY, names[1])):
        units = Counter(unit.type for unit in game.units(player) if unit.type != RESOURCE and unit.finished)
        words = f"{name}: {game.money(player)} gold{f', tick {game.tick}' if player == own else ''}"
        _items(scene, y, words, [(kind, str(units[kind])) for kind in KINDS if units[kind]], colour)
        found, y = found | set(units), y + _LINE
    if side is not None and executor is not None:
        for commander in range(side.size):
            words = f"{COMMANDERS[commander]}{_in_force(executor, commander)}".replace(";", ":", 1)
            _write_within(draw, (8, y), words, COOK_COLOURS[commander], scene.width - 16)
            y += _LINE
    _items(scene, y, "", [(kind, SINGULAR[kind]) for kind in KINDS if kind in found], _NEUTRAL)


def _items(scene: Image.Image, y: int, words: str, items: Sequence[tuple[int, str]], colour: Colour) -> None:
    """A line of words, then types with a word each."""
    draw, left = ImageDraw.Draw(scene), 8 if not words else 240
    if words:
        _write_within(draw, (8, y), words, colour, left - 16)
    step = min(100.0, (scene.width - left - 8) / max(1, len(items)))
    for number, (kind, word) in enumerate(items):
        picture, x = sprite(kind, colour, _LINE), round(left + number * step)
        scene.paste(picture, (x, y - _LINE // 2), picture)
        _write_within(draw, (x + _LINE + 2, y), word, colour if words else INK, step - _LINE - 4)


def _write_within(
    draw: ImageDraw.ImageDraw, place: tuple[float, float], words: str, colour: Colour, most: float
) -> None:
    """Writes words as large as they fit."""
    size = 14.0
    while size > 6 and draw.textlength(words, font=font(size)) > most:
        size -= 1
    draw.text(place, words, fill=colour[:3], font=font(size), anchor="lm")
