"""Pictures of the kitchen: plain characters for a terminal, pixels for a person."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rllib_llm_comm.envs.drawing import COOK_COLOURS, FLOORS, INK, SHADOW, Canvas, counter, drawn, onion, star
from rllib_llm_comm.envs.overcooked_text.layouts import COUNTER, SIZE
from rllib_llm_comm.envs.overcooked_text.observation_text import as_item, item_words
from rllib_llm_comm.envs.overcooked_text.rules import CHOPS_NEEDED, Food, Item, Plate, TextKitchen
from rllib_llm_comm.envs.told_to import NAMES


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


@lru_cache(maxsize=256)
def bowl(contents: tuple[str, ...], size: int) -> Image.Image:
    """A bowl with chopped foods in it."""
    picture = drawn(_bowl, size).copy()
    places = {1: [(0.5, 0.5)], 2: [(0.37, 0.45), (0.63, 0.55)], 3: [(0.36, 0.40), (0.64, 0.42), (0.50, 0.65)]}
    share = {1: 0.58, 2: 0.46, 3: 0.40}
    part = round(size * share.get(len(contents), 0.40))
    for name, (x, y) in zip(contents, places.get(len(contents), places[3]), strict=False):
        piece = drawn(_FOODS[name, True], part)
        picture.alpha_composite(piece, (round(x * size - part / 2), round(y * size - part / 2)))
    return picture


@lru_cache(maxsize=32)
def cook(index: int, letter: str, size: int) -> Image.Image:
    """A cook with its initial, in a colour of its own."""
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


CELL = 64
_WIDTH = 7
_LEGEND = "t l o raw, T L O chopped, ( ) bowl, [ ] board, >> delivery"


def _letters(item: Item | None) -> str:
    """An item in a few characters: t (raw tomato), T (chopped), (LT) (bowl with lettuce and tomato)."""
    if item is None:
        return ""
    if isinstance(item, Food):
        return item.name[0].upper() if item.chopped else item.name[0]
    return "(" + "".join(sorted(food.name[0].upper() for food in item.contents)) + ")"


def _loose(kitchen: TextKitchen) -> dict[int, Item]:
    """Objects that lie on counters, by cell number; of several in one cell the one on top."""
    hidden = {id(agent.held) for agent in kitchen.agents}
    hidden |= {id(surface.on) for surface in (*kitchen.knives, kitchen.delivery)}
    hidden |= {id(food) for plate in kitchen.plates for food in plate.contents}
    loose: dict[int, Item] = {}
    for item in kitchen.items.values():
        on_top = kitchen.cells[item.cell] == item.code
        if id(item) not in hidden and (on_top or item.cell not in loose):
            loose[item.cell] = item
    return loose


def ansi(kitchen: TextKitchen) -> str:
    """The kitchen in characters.

    Returns:
        Several lines: dish (with who is told it, unless all are) and step, seven rows of cells, what each cook holds, a
        legend.
    """
    loose = _loose(kitchen)
    cooks = {agent.cell: i for i, agent in enumerate(kitchen.agents)}
    lines = [f"{_order(kitchen)}, step {kitchen.game_step}{', delivered' if kitchen.delivered else ''}"]
    for x in range(SIZE):
        row = ""
        for y in range(SIZE):
            cell = x * SIZE + y
            board = kitchen.board_at(cell)
            if cell in cooks:
                i = cooks[cell]
                shown, fill = f"{NAMES[i][0].upper()}{_letters(kitchen.agents[i].held)}", " "
            elif board is not None:
                shown, fill = f"[{_letters(board.on) or '_'}]", "#"
            elif cell == kitchen.delivery.cell:
                shown, fill = f">{_letters(kitchen.delivery.on)}>", "#"
            elif cell in loose:
                shown, fill = f" {_letters(loose[cell])} ", "#"
            else:
                wall = kitchen.skeleton[cell] == COUNTER
                shown, fill = ("#" if wall else "."), ("#" if wall else " ")
            row += shown.center(_WIDTH, fill)
        lines.append(row)
    for i, agent in enumerate(kitchen.agents):
        lines.append(f"{NAMES[i]} holds {item_words(as_item(agent.held)) if agent.held else 'nothing'}")
    return "\n".join([*lines, _LEGEND])


def _order(kitchen: TextKitchen) -> str:
    told, count = kitchen.setup.told, len(kitchen.setup.orders)
    secret = "" if all(told) else f" (told to {', '.join(n for n, flag in zip(NAMES, told, strict=False) if flag)})"
    return f"{kitchen.recipe}{secret}" + ("" if count == 1 else f", order {min(kitchen.served + 1, count)} of {count}")


def _put(scene: Image.Image, item: Item, x: float, y: float, size: float) -> None:
    """Draws an item centred on a point."""
    side = round(size)
    if isinstance(item, Plate):
        picture = bowl(tuple(food.name for food in item.contents), side)
    else:
        picture = drawn(_FOODS[item.name, item.chopped], side)
    scene.alpha_composite(picture, (round(x - side / 2), round(y - side / 2)))


def rgb_array(kitchen: TextKitchen) -> np.ndarray:
    """The kitchen as pixels.

    Returns:
        (496, 448, 3) uint8; the strip at the bottom tells the dish and the game step. Unless all are told
        the order, those who are think of its foods.
    """
    scene = _scene(kitchen)
    for i, agent in enumerate(kitchen.agents):
        if kitchen.setup.told[i] and not all(kitchen.setup.told):
            _thought(scene, kitchen, agent.x, agent.y)
    _caption(scene, kitchen)
    return np.asarray(scene.convert("RGB"))


def _scene(kitchen: TextKitchen) -> Image.Image:
    """Floor, counters, boards and the delivery, things that lie somewhere, and cooks with what they hold."""
    scene = Image.new("RGBA", (SIZE * CELL, SIZE * CELL + round(0.75 * CELL)), (255, 252, 246, 255))
    for x in range(SIZE):
        for y in range(SIZE):
            scene.paste(_tile(kitchen, x, y), (y * CELL, x * CELL))
    for number, item in _loose(kitchen).items():
        x, y = divmod(number, SIZE)
        _put(scene, item, (y + 0.5) * CELL, (x + 0.44) * CELL, 0.78 * CELL)
    for surface in (*kitchen.knives, kitchen.delivery):
        if surface.on is not None:
            left = 0.40 if surface is not kitchen.delivery else 0.5
            _put(scene, surface.on, (surface.y + left) * CELL, (surface.x + 0.45) * CELL, 0.60 * CELL)
            _cuts(scene, surface.on, surface.x, surface.y)
    for i, agent in enumerate(kitchen.agents):
        figure = cook(i, NAMES[i][0].upper(), CELL)
        scene.alpha_composite(figure, (agent.y * CELL, agent.x * CELL))
        if agent.held is not None:
            _put(scene, agent.held, (agent.y + 0.78) * CELL, (agent.x + 0.72) * CELL, 0.46 * CELL)
    return scene


def seen_by(kitchen: TextKitchen, cook: int) -> np.ndarray:
    """`rgb_array` in the eyes of one cook: things and other cooks only where it looks, and nobody's thoughts.

    The strip tells the dish only to a cook that is told it.
    """
    scene = _scene(kitchen)
    night = Image.new("RGBA", (CELL, CELL), (60, 52, 44, 255))
    for number, visible in enumerate(kitchen.sight(cook)):
        if not visible:
            x, y = divmod(number, SIZE)
            bare = _tile(kitchen, x, y).convert("RGBA")
            scene.paste(Image.blend(bare, night, 0.45), (y * CELL, x * CELL))
    _caption(scene, kitchen, kitchen.told(cook) is not None)
    return np.asarray(scene.convert("RGB"))


def _tile(kitchen: TextKitchen, x: int, y: int) -> Image.Image:
    number = x * SIZE + y
    if kitchen.board_at(number) is not None:
        return drawn(_board, CELL)
    if number == kitchen.delivery.cell:
        return drawn(_delivery, CELL)
    return drawn(counter if kitchen.skeleton[number] == COUNTER else FLOORS[(x + y) % 2], CELL)


def _cuts(scene: Image.Image, item: Item, x: int, y: int) -> None:
    """Dots that count the cuts of a food that is being chopped."""
    if not isinstance(item, Food) or not 0 < item.chops < CHOPS_NEEDED:
        return
    draw = ImageDraw.Draw(scene)
    for k in range(CHOPS_NEEDED):
        cx, cy, radius = (y + 0.26 + 0.14 * k) * CELL, (x + 0.82) * CELL, 0.05 * CELL
        fill = (255, 205, 72) if k < item.chops else (120, 84, 54)
        draw.ellipse((cx - radius, cy - radius, cx + radius, cy + radius), fill=fill, outline=INK)


def _thought(scene: Image.Image, kitchen: TextKitchen, x: int, y: int) -> None:
    """The foods of the order in a bubble at the upper left of a cell."""
    side = 0.26 * CELL
    left, top, width = y * CELL + 1, x * CELL + 1, side * len(kitchen.recipe_foods)
    box = (left, top, left + width + 4, top + side + 4)
    ImageDraw.Draw(scene).rounded_rectangle(box, 0.12 * CELL, fill=(255, 255, 255), outline=INK)
    for k, name in enumerate(kitchen.recipe_foods):
        scene.alpha_composite(drawn(_FOODS[name, True], round(side)), (round(left + 2 + k * side), round(top + 2)))


def _caption(scene: Image.Image, kitchen: TextKitchen, with_order: bool = True) -> None:
    """The line below the kitchen: the order, unless it is hidden, and the game step."""
    draw = ImageDraw.Draw(scene)
    side, middle = SIZE * CELL, SIZE * CELL + round(0.75 * CELL) / 2
    several = len(kitchen.setup.orders)
    font = ImageFont.load_default((0.28 if several == 1 else 0.22) * CELL)
    state = "delivered!" if kitchen.delivered else f"step {kitchen.game_step}"
    state = state if several == 1 else f"{min(kitchen.served + 1, several)}/{several}, {state}"
    icon = 0.62 * CELL
    foods = kitchen.recipe_foods if with_order else ()
    for k, name in enumerate(foods):
        picture = drawn(_FOODS[name, True], round(icon))
        scene.alpha_composite(picture, (round(0.15 * CELL + k * icon), round(middle - icon / 2)))
    start = 0.3 * CELL + len(foods) * icon
    draw.text((start, middle), kitchen.recipe if with_order else "a salad", fill=INK, font=font, anchor="lm")
    draw.text((side - 0.25 * CELL, middle), state, fill=INK, font=font, anchor="rm")
