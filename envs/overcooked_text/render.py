"""Pictures of the kitchen: plain characters for a terminal, pixels for a person."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from rllib_llm_comm.envs.drawing import INK
from rllib_llm_comm.envs.overcooked_text import sprites
from rllib_llm_comm.envs.overcooked_text.effects import CHOPS_NEEDED, Food, Item, Plate
from rllib_llm_comm.envs.overcooked_text.layouts import COUNTER, SIZE
from rllib_llm_comm.envs.overcooked_text.observation_text import NAMES
from rllib_llm_comm.envs.overcooked_text.rules import Kitchen

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


def _loose(kitchen: Kitchen) -> dict[int, Item]:
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


def ansi(kitchen: Kitchen) -> str:
    """The kitchen in characters.

    Args:
        kitchen: The kitchen.

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
        lines.append(f"{NAMES[i]} holds {_words(agent.held)}")
    return "\n".join([*lines, _LEGEND])


def _order(kitchen: Kitchen) -> str:
    told = kitchen.setup.told
    secret = "" if all(told) else f" (told to {', '.join(n for n, flag in zip(NAMES, told, strict=False) if flag)})"
    return f"{kitchen.recipe}{secret}{_count(kitchen)}"


def _count(kitchen: Kitchen) -> str:
    count = len(kitchen.setup.orders)
    return "" if count == 1 else f", order {min(kitchen.served + 1, count)} of {count}"


def _words(item: Item | None) -> str:
    if item is None:
        return "nothing"
    if isinstance(item, Food):
        return f"{'chopped' if item.chopped else 'raw'} {item.name}"
    return f"bowl of {' and '.join(sorted(f.name for f in item.contents))}" if item.contents else "empty bowl"


def _picture(item: Item, size: int) -> Image.Image:
    if isinstance(item, Plate):
        return sprites.bowl(tuple(food.name for food in item.contents), size)
    return sprites.food(item.name, item.chopped, size)


def _put(scene: Image.Image, item: Item, x: float, y: float, size: float) -> None:
    """Draws an item centred on a point."""
    side = round(size)
    scene.alpha_composite(_picture(item, side), (round(x - side / 2), round(y - side / 2)))


def rgb_array(kitchen: Kitchen, cell: int = CELL) -> np.ndarray:
    """The kitchen as pixels.

    Args:
        kitchen: The kitchen.
        cell: Pixels per cell.

    Returns:
        (7.75 * cell, 7 * cell, 3) uint8; the strip at the bottom tells the dish and the game step. Unless all are told
        the order, those who are think of its foods.
    """
    side, strip = SIZE * cell, round(0.75 * cell)
    scene = Image.new("RGBA", (side, side + strip), (255, 252, 246, 255))
    _draw_floor(scene, kitchen, cell)
    _draw_things(scene, kitchen, cell)
    for i, agent in enumerate(kitchen.agents):
        if kitchen.setup.told[i] and not all(kitchen.setup.told):
            _thought(scene, kitchen, agent.x, agent.y, cell)
    _caption(scene, kitchen, cell, side, strip)
    return np.asarray(scene.convert("RGB"))


def _draw_floor(scene: Image.Image, kitchen: Kitchen, cell: int) -> None:
    """Floor, counters, boards and the delivery."""
    for x in range(SIZE):
        for y in range(SIZE):
            scene.paste(_tile(kitchen, x, y, cell), (y * cell, x * cell))


def _draw_things(scene: Image.Image, kitchen: Kitchen, cell: int) -> None:
    """Things that lie somewhere, and cooks with what they hold."""
    for number, item in _loose(kitchen).items():
        x, y = divmod(number, SIZE)
        _put(scene, item, (y + 0.5) * cell, (x + 0.44) * cell, 0.78 * cell)
    for surface in (*kitchen.knives, kitchen.delivery):
        if surface.on is not None:
            left = 0.40 if surface is not kitchen.delivery else 0.5
            _put(scene, surface.on, (surface.y + left) * cell, (surface.x + 0.45) * cell, 0.60 * cell)
            _cuts(scene, surface.on, surface.x, surface.y, cell)
    for i, agent in enumerate(kitchen.agents):
        figure = sprites.cook(i, NAMES[i][0].upper(), cell)
        scene.alpha_composite(figure, (agent.y * cell, agent.x * cell))
        if agent.held is not None:
            _put(scene, agent.held, (agent.y + 0.78) * cell, (agent.x + 0.72) * cell, 0.46 * cell)


def seen_by(kitchen: Kitchen, cook: int, cell: int = CELL) -> np.ndarray:
    """The kitchen in the eyes of one cook as pixels: things and other cooks only where it looks.

    Args:
        kitchen: The kitchen.
        cook: The cook's number.
        cell: Pixels per cell.

    Returns:
        As of `rgb_array`; the strip tells the dish only to a cook that is told it, and nobody's thoughts are shown.
    """
    side, strip = SIZE * cell, round(0.75 * cell)
    scene = Image.new("RGBA", (side, side + strip), (255, 252, 246, 255))
    _draw_floor(scene, kitchen, cell)
    _draw_things(scene, kitchen, cell)
    night = Image.new("RGBA", (cell, cell), (60, 52, 44, 255))
    for number, visible in enumerate(kitchen.sight(cook)):
        if not visible:
            x, y = divmod(number, SIZE)
            bare = _tile(kitchen, x, y, cell).convert("RGBA")
            scene.paste(Image.blend(bare, night, 0.45), (y * cell, x * cell))
    _caption(scene, kitchen, cell, side, strip, kitchen.told(cook) is not None)
    return np.asarray(scene.convert("RGB"))


def _tile(kitchen: Kitchen, x: int, y: int, cell: int) -> Image.Image:
    number = x * SIZE + y
    if kitchen.board_at(number) is not None:
        return sprites.tile("board", cell)
    if number == kitchen.delivery.cell:
        return sprites.tile("delivery", cell)
    if kitchen.skeleton[number] == COUNTER:
        return sprites.tile("counter", cell)
    return sprites.tile(f"floor{(x + y) % 2}", cell)


def _cuts(scene: Image.Image, item: Item, x: int, y: int, cell: int) -> None:
    """Dots that count the cuts of a food that is being chopped."""
    if not isinstance(item, Food) or not 0 < item.chops < CHOPS_NEEDED:
        return
    draw = ImageDraw.Draw(scene)
    for k in range(CHOPS_NEEDED):
        cx, cy, radius = (y + 0.26 + 0.14 * k) * cell, (x + 0.82) * cell, 0.05 * cell
        fill = (255, 205, 72) if k < item.chops else (120, 84, 54)
        draw.ellipse((cx - radius, cy - radius, cx + radius, cy + radius), fill=fill, outline=INK)


def _thought(scene: Image.Image, kitchen: Kitchen, x: int, y: int, cell: int) -> None:
    """The foods of the order in a bubble at the upper left of a cell."""
    side = 0.26 * cell
    left, top, width = y * cell + 1, x * cell + 1, side * len(kitchen.recipe_foods)
    box = (left, top, left + width + 4, top + side + 4)
    ImageDraw.Draw(scene).rounded_rectangle(box, 0.12 * cell, fill=(255, 255, 255), outline=INK)
    for k, name in enumerate(kitchen.recipe_foods):
        scene.alpha_composite(sprites.food(name, True, round(side)), (round(left + 2 + k * side), round(top + 2)))


def _caption(scene: Image.Image, kitchen: Kitchen, cell: int, side: int, strip: int, with_order: bool = True) -> None:
    """The line below the kitchen: the order, unless it is hidden, and the game step."""
    draw = ImageDraw.Draw(scene)
    middle = side + strip / 2
    several = len(kitchen.setup.orders)
    font = ImageFont.load_default((0.28 if several == 1 else 0.22) * cell)
    state = "delivered!" if kitchen.delivered else f"step {kitchen.game_step}"
    state = state if several == 1 else f"{min(kitchen.served + 1, several)}/{several}, {state}"
    icon = 0.62 * cell
    foods = kitchen.recipe_foods if with_order else ()
    for k, name in enumerate(foods):
        picture = sprites.food(name, True, round(icon))
        scene.alpha_composite(picture, (round(0.15 * cell + k * icon), round(middle - icon / 2)))
    start = 0.3 * cell + len(foods) * icon
    draw.text((start, middle), kitchen.recipe if with_order else "a salad", fill=INK, font=font, anchor="lm")
    draw.text((side - 0.25 * cell, middle), state, fill=INK, font=font, anchor="rm")
