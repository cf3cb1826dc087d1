"""Pictures of a game as numbered tiles: what does not change between moments is stored once."""

from __future__ import annotations

import base64
import io

import numpy as np

from rllib_llm_comm.evaluation.replay_schema import ReplayDrawing, ReplayPicture

TILE = 64
COLUMNS = 32
ROWS = 64
_PER_SHEET = COLUMNS * ROWS


class TileSheets:
    """Cuts pictures into square tiles and keeps each distinct tile once, on sheets.

    Games draw cells, most of which look the same from one moment to the next; a page with a long episode is a
    third to a tenth of what it would be with whole pictures.
    """

    def __init__(self) -> None:
        self._tiles: dict[bytes, int] = {}
        self._pictures: dict[tuple[int, ...], int] = {}
        self._layouts: list[ReplayPicture] = []

    def add(self, image: np.ndarray) -> int:
        """Takes a picture (H, W, 3) of uint8 values and gives its number; equal pictures have the same."""
        pixels = np.asarray(image, dtype=np.uint8)
        height, width = pixels.shape[:2]
        padding = ((0, -height % TILE), (0, -width % TILE), (0, 0))
        padded = np.pad(pixels[..., :3], padding, mode="edge")
        rows, columns = padded.shape[0] // TILE, padded.shape[1] // TILE
        blocks = padded.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2).reshape(rows * columns, -1)
        numbers = tuple(self._tiles.setdefault(block.tobytes(), len(self._tiles)) for block in blocks)
        key = (width, height, *numbers)
        if key not in self._pictures:
            self._pictures[key] = len(self._layouts)
            self._layouts.append({"width": width, "height": height, "tiles": list(numbers)})
        return self._pictures[key]

    def layout(self) -> ReplayDrawing:
        """The layout of the sheets, and for each picture its size and its tiles, row by row."""
        return {"tile": TILE, "columns": COLUMNS, "per_sheet": _PER_SHEET, "pictures": self._layouts}

    def data_urls(self) -> list[str]:
        """The sheets, lossless."""
        tiles = list(self._tiles)
        return [_sheet(tiles[start : start + _PER_SHEET]) for start in range(0, len(tiles), _PER_SHEET)]


def _sheet(tiles: list[bytes]) -> str:
    from PIL import Image

    rows = -(-len(tiles) // COLUMNS)
    columns = min(COLUMNS, len(tiles))
    pixels = np.zeros((rows * TILE, columns * TILE, 3), np.uint8)
    for number, tile in enumerate(tiles):
        y, x = TILE * (number // COLUMNS), TILE * (number % COLUMNS)
        pixels[y : y + TILE, x : x + TILE] = np.frombuffer(tile, np.uint8).reshape(TILE, TILE, 3)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="WEBP", lossless=True, method=6)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
