"""Drawing helpers of the games: a canvas for one cell, colours, and shapes that more than one game shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial

from PIL import Image, ImageDraw, ImageFont

_FINE = 4  # drawn this much larger, then shrunk: smooth edges
Colour = tuple[int, int, int] | tuple[int, int, int, int]
Point = tuple[float, float]

COOK_COLOURS: tuple[Colour, ...] = ((52, 120, 190), (226, 125, 40), (120, 84, 170))
FLOOR_COLOURS: tuple[Colour, ...] = ((246, 239, 226), (238, 228, 210))
INK: Colour = (62, 50, 42)
PAPER: Colour = (255, 252, 246)
SHADOW: Colour = (40, 25, 10, 60)
WOOD: Colour = (176, 128, 84)
WOOD_LIGHT: Colour = (201, 156, 110)
WOOD_DARK: Colour = (136, 94, 58)

STRIP = 32
"""Height in pixels of the line below a game."""

_FONT, _MARGIN = 18, 12  # of that line, in pixels


@lru_cache(maxsize=64)
def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font, loaded once per size."""
    return ImageFont.load_default(size)


def status_strip(scene: Image.Image, step: str, points: str) -> None:
    """Writes at the left and right of the line below a game, in smaller letters where they would not fit."""
    draw = ImageDraw.Draw(scene)
    middle, room = scene.height - STRIP / 2, scene.width - 3 * _MARGIN
    needed = draw.textlength(step + points, font=font(_FONT))
    letters = font(min(_FONT, int(_FONT * room / needed)))
    draw.text((_MARGIN, middle), step, fill=INK, font=letters, anchor="lm")
    draw.text((scene.width - _MARGIN, middle), points, fill=INK, font=letters, anchor="rm")


class Canvas:
    """A picture of one cell; all lengths are shares of the cell.

    Attributes:
        side: Pixels of the picture while it is drawn; `done` shrinks it.
        image: The picture, RGBA, clear at first.
        draw: Pillow's pen on it, in pixels of `side`.

    Args:
        size: Pixels of the finished picture.
    """

    def __init__(self, size: int) -> None:
        self.side = size * _FINE
        self.image = Image.new("RGBA", (self.side, self.side), (0, 0, 0, 0))
        self.draw = ImageDraw.Draw(self.image, "RGBA")

    def scaled(self, *values: float) -> list[float]:
        """Shares of the cell as pixels of `side`."""
        return [value * self.side for value in values]

    def oval(self, x: float, y: float, rx: float, ry: float, fill: Colour | None, line: Colour | None = None) -> None:
        """An ellipse around (x, y)."""
        box = self.scaled(x - rx, y - ry, x + rx, y + ry)
        self.draw.ellipse(box, fill=fill, outline=line, width=max(1, self.side // 64) if line else 0)

    def dot(self, x: float, y: float, radius: float, fill: Colour | None, line: Colour | None = None) -> None:
        """A circle around (x, y)."""
        self.oval(x, y, radius, radius, fill, line)

    def box(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        fill: Colour,
        round_: float = 0.0,
        line: Colour | None = None,
    ) -> None:
        """A rectangle with round corners."""
        self.draw.rounded_rectangle(
            self.scaled(x0, y0, x1, y1),
            radius=round_ * self.side,
            fill=fill,
            outline=line,
            width=max(1, self.side // 64) if line else 0,
        )

    def shape(self, points: list[Point], fill: Colour) -> None:
        """A polygon."""
        self.draw.polygon([(x * self.side, y * self.side) for x, y in points], fill=fill)

    def stroke(self, points: list[Point], colour: Colour, width: float) -> None:
        """A line."""
        scaled = [(x * self.side, y * self.side) for x, y in points]
        self.draw.line(scaled, fill=colour, width=max(1, round(width * self.side)), joint="curve")

    def letter(self, text: str, x: float, y: float, size: float, colour: Colour) -> None:
        """Text centred on (x, y)."""
        self.draw.text((x * self.side, y * self.side), text, fill=colour, font=font(size * self.side), anchor="mm")

    def done(self, size: int) -> Image.Image:
        """The finished picture."""
        return self.image.resize((size, size), Image.Resampling.LANCZOS)


@lru_cache(maxsize=512)
def drawn(paint: Callable[[Canvas], None], size: int) -> Image.Image:
    """What a function paints on a canvas of so many pixels, made once; not to be changed."""
    canvas = Canvas(size)
    paint(canvas)
    return canvas.done(size)


def board(
    width: int, height: int, cell: int, paint: Callable[[int, int], Callable[[Canvas], None]], strip: int = STRIP
) -> Image.Image:
    """The picture of a game seen from above.

    Args:
        width: Columns.
        height: Rows.
        cell: Pixels of a cell.
        paint: Gives what paints the cell of a column and a row.
        strip: Pixels of the empty line below.
    """
    scene = Image.new("RGB", (width * cell, height * cell + strip), PAPER[:3])
    for y in range(height):
        for x in range(width):
            scene.paste(drawn(paint(x, y), cell), (x * cell, y * cell))
    return scene


def star(x: float, y: float, outer: float, inner: float, points: int = 5) -> list[Point]:
    """The corners of a star around (x, y), first one on top."""
    corners = []
    for k in range(2 * points):
        radius = outer if k % 2 == 0 else inner
        angle = -math.pi / 2 + k * math.pi / points
        corners.append((x + radius * math.cos(angle), y + radius * math.sin(angle)))
    return corners


def floor(c: Canvas, shade: int) -> None:
    """A floor tile, of one of two shades."""
    c.box(0, 0, 1, 1, FLOOR_COLOURS[shade])
    c.stroke([(0, 0), (1, 0)], (222, 210, 190), 0.02)
    c.stroke([(0, 0), (0, 1)], (222, 210, 190), 0.02)


FLOORS = (partial(floor, shade=0), partial(floor, shade=1))
"""Floor tiles of both shades, which lie like a chessboard's."""


def counter(c: Canvas) -> None:
    """A wooden counter that fills the cell."""
    c.box(0, 0, 1, 1, WOOD_DARK)
    c.box(0.02, 0.02, 0.98, 0.90, WOOD_LIGHT, 0.06)
    c.box(0.05, 0.05, 0.95, 0.86, WOOD, 0.05)
    for y in (0.24, 0.46, 0.68):
        c.stroke([(0.10, y), (0.90, y + 0.015)], (165, 118, 75), 0.012)


def onion(c: Canvas) -> None:
    """A whole onion that fills most of the cell."""
    c.oval(0.50, 0.82, 0.26, 0.06, SHADOW)
    c.stroke([(0.50, 0.34), (0.47, 0.14)], (196, 168, 110), 0.05)
    c.stroke([(0.50, 0.34), (0.57, 0.17)], (176, 150, 96), 0.035)
    c.shape([(0.36, 0.42), (0.50, 0.22), (0.64, 0.42)], (168, 92, 158))
    c.oval(0.50, 0.57, 0.30, 0.25, (176, 98, 166), (122, 58, 118))
    for rx in (0.19, 0.08):
        c.oval(0.50, 0.57, rx, 0.24, None, (212, 156, 204))
    c.oval(0.38, 0.50, 0.045, 0.075, (228, 186, 222))
