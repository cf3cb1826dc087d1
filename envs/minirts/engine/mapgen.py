"""Map generator: rivers, town halls, resources and peasants, drawn from a seed as by the original's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from rllib_llm_comm.envs.minirts.engine.units import PEASANT, RESOURCE, TOWN_HALL

SIZE = 32
"""Cells per side."""
GRASS, WATER = 0, 1
_MODULUS = 65537
_FIXED_POINT = 49859
_SEGMENTS = 3
_FAR = 16
_NEIGHBOURS = ((1, 0), (0, 1), (-1, 0), (0, -1))

Draw = Callable[[int, int], int]


@dataclass(frozen=True)
class MapSettings:
    """Settings of a map.

    Attributes:
        fair: Whether near resources lie at the same distances for both players.
        num_peasants: Peasants per player.
        num_resources: Near resources per player; three far ones are added.
        resource_dist: Distance of the first resource, in cells; the i-th lies i times as far. 0 draws 4 to 6.
    """

    fair: bool = False
    num_peasants: int = 3
    num_resources: int = 3
    resource_dist: int = 4


@dataclass
class GameMap:
    """A map with what stands on it at the start.

    Attributes:
        terrain: int8 (1024,), row by row: `GRASS` or `WATER`.
        units: (player, type, x, y) in the order of creation.
    """

    terrain: np.ndarray
    units: list[tuple[int, int, int, int]] = field(default_factory=list)


def game_seed(seed: int) -> int:
    """The seed of a process's first game, as the original takes it from its option `seed`."""
    return int(np.random.RandomState(seed).randint(0, 2**32, 1, np.uint32)[0].astype(np.int32))


def generate(seed: int, settings: MapSettings | None = None) -> GameMap:
    """Draws a map.

    Args:
        seed: Any whole number; maps repeat modulo 65537.
        settings: Settings other than the defaults.
    """
    settings = settings or MapSettings()
    made = GameMap(_rivers(_generator(seed)))
    draw = _generator(seed)
    bases = _bases(made.terrain, draw)
    distance = settings.resource_dist or draw(4, 6)
    for player, base in enumerate(bases):
        _settle(made, player, base, distance, settings, draw)
    return made


def _generator(seed: int) -> Draw:
    state = seed % _MODULUS
    # The generator would give this state for ever.
    state += state == _FIXED_POINT

    def draw(low: int, high: int) -> int:
        """The next whole number from low to high, both included."""
        nonlocal state
        state = (1009 * state + 9007) % _MODULUS
        return state % (high - low + 1) + low

    return draw


def _rivers(draw: Draw) -> np.ndarray:
    terrain = np.full(SIZE * SIZE, GRASS, np.int8)
    length = SIZE // _SEGMENTS
    for vertical in (False, True):
        level = draw(1, _SEGMENTS - 1)
        with_hole: set[int] = set()
        wanted = draw(2, _SEGMENTS)
        while len(with_hole) < wanted:
            with_hole.add(draw(1, _SEGMENTS))
        for segment in range(1, _SEGMENTS + 1):
            next_level = draw(max(level - 2, 1), min(level + 2, _SEGMENTS - 1))
            start, end = (length * (segment - 1), length * level), (length * segment, length * next_level)
            if vertical:
                start, end = start[::-1], end[::-1]
            _line(terrain, start, end, segment in with_hole, draw)
            level = next_level
    return terrain


def _line(terrain: np.ndarray, start: tuple[int, int], end: tuple[int, int], hole: bool, draw: Draw) -> None:
    """A piece of river, two cells wide, with a ford of two to four cells if there is a hole."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    d = max(abs(dx), abs(dy), 1)
    hole_size = draw(2, 4)
    hole_start = draw(0, d - hole_size)
    for k in range(d + 1):
        if hole and hole_start <= k < hole_start + hole_size:
            continue
        x = start[0] + (1 if dx > 0 else -1) * int(k / d * abs(dx))
        y = start[1] + (1 if dy > 0 else -1) * int(k / d * abs(dy))
        beside = (x - 1, y) if abs(dy) > abs(dx) else (x, y - 1)
        for cell_x, cell_y in ((x, y), beside):
            if _inside(cell_x, cell_y):
                terrain[cell_y * SIZE + cell_x] = WATER


def _bases(terrain: np.ndarray, draw: Draw) -> list[tuple[int, int]]:
    rotate, swap = draw(0, 999) < 500, draw(0, 999) < 500
    bases: list[tuple[int, int]] = []
    for _ in range(100):
        x1, x2 = draw(2, SIZE - 3), draw(2, SIZE - 3)
        y1, y2 = draw(2, 4), SIZE - 1 - draw(2, 4)
        bases = [(y1, x1), (y2, x2)] if rotate else [(x1, y1), (x2, y2)]
        if swap:
            bases.reverse()
        if terrain[bases[1][1] * SIZE + bases[1][0]] == GRASS and bases[1] in _reachable(terrain, bases[0]):
            break
    return bases


def _settle(
    made: GameMap, player: int, base: tuple[int, int], distance: int, settings: MapSettings, draw: Draw
) -> None:
    """Puts a player's town hall, resources and peasants on the map."""
    taken = {(x, y) for _, _, x, y in made.units}

    def put(kind: int, x: int, y: int) -> None:
        if (x, y) not in taken:
            taken.add((x, y))
            made.units.append((player, kind, x, y))

    put(TOWN_HALL, *base)
    grid = made.terrain.reshape(SIZE, SIZE)
    grid[max(base[1] - distance, 0) : base[1] + distance + 1, max(base[0] - distance, 0) : base[0] + distance + 1] = (
        GRASS
    )
    reachable = _reachable(made.terrain, base)
    nearest = 1
    for i in range(1, settings.num_resources + 1):
        cells = _at_distance(base, i * distance) if settings.fair else _ring(base, nearest, i * distance)
        spots = [cell for cell in cells if cell in reachable and _open_land(made.terrain, *cell)]
        if not spots:
            break
        put(RESOURCE, *spots[draw(1, len(spots)) - 1])
        nearest = i * distance
    for _ in range(3):
        spots = [c for c in _at_distance(base, _FAR) if c in reachable and _open_land(made.terrain, *c)]
        if spots:
            put(RESOURCE, *spots[draw(1, len(spots)) - 1])
    for _ in range(settings.num_peasants):
        for _ in range(21):
            x, y = base[0] + draw(-5, 5), base[1] + draw(-5, 5)
            if _open_land(made.terrain, x, y) and (x, y) not in taken:
                put(PEASANT, x, y)
                break


def _at_distance(centre: tuple[int, int], distance: int) -> Iterator[tuple[int, int]]:
    for x in range(centre[0] - distance, centre[0] + distance + 1):
        rest = distance - abs(x - centre[0])
        yield x, centre[1] - rest
        if rest:
            yield x, centre[1] + rest


def _ring(centre: tuple[int, int], low: int, high: int) -> Iterator[tuple[int, int]]:
    for dx in range(-high, high + 1):
        for dy in range(-high, high + 1):
            if low <= abs(dx) + abs(dy) <= high:
                yield centre[0] + dx, centre[1] + dy


def _inside(x: int, y: int) -> bool:
    return 0 <= x < SIZE and 0 <= y < SIZE


def _open_land(terrain: np.ndarray, x: int, y: int) -> bool:
    """True if a cell and its four neighbours are land inside the map."""
    cells = ((x, y), *((x + dx, y + dy) for dx, dy in _NEIGHBOURS))
    return all(_inside(*cell) and terrain[cell[1] * SIZE + cell[0]] != WATER for cell in cells)


def _reachable(terrain: np.ndarray, start: tuple[int, int]) -> set[tuple[int, int]]:
    """Cells that a walker reaches from a cell."""
    land = (terrain != WATER).tolist()
    seen, front = {start}, [start]
    while front:
        x, y = front.pop()
        for dx, dy in _NEIGHBOURS:
            cell = (x + dx, y + dy)
            if cell not in seen and _inside(*cell) and land[cell[1] * SIZE + cell[0]]:
                seen.add(cell)
                front.append(cell)
    return seen
