"""Knowledge and possessions of one side. Its commanders share sight and money, and each owns some of the units.

Ownership. A finished unit gets its owner when it is first seen at a decision, and keeps it for life. Within each group
units go round by creation: the first to the first commander, the second to the second, and so on. Each type of mobile
unit is a group, guard towers are one, and all other buildings together are one. So with two commanders the town hall
is the first one's, the first building that trains fighters the second one's, and of three peasants the second is the
second one's. Where one commander has the producers, all buildings that train fighters are its own, and town halls alone
go round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, Unit
from rllib_llm_comm.envs.minirts.engine.state import FINISHED, NO_ONE, SLOTS
from rllib_llm_comm.envs.minirts.engine.units import (
    ARMY,
    COST,
    GUARD_TOWER,
    IS_ARMY,
    IS_BUILDING,
    MADE_BY,
    RESOURCE,
    TOWN_HALL,
)

PRODUCERS = tuple(sorted({int(MADE_BY[kind]) for kind in ARMY}))
"""Buildings that train fighters."""
NEAR = 8.0
"""Enemies this near to an own building are a threat, in cells."""
_HOUSES = -1


@dataclass(frozen=True)
class SideSnapshot:
    """Memory of a side, as `Side.snapshot` saves it."""

    owners: dict[int, int]
    shared_out: Counter[int]
    makers: dict[int, tuple[int, int]]
    made: list[Counter[int]]
    told: tuple[bool, ...] | None = None


class Side:
    """One side of a game, as of the latest `look`.

    Attributes:
        game: The game.
        player: Its side, 0 or 1.
        size: Number of commanders.
        own: Finished units and buildings, in the order of creation.
        sites: Own buildings that are not finished.
        enemies: The enemy in sight, remembered buildings included.
        resources: Resources, as far as it was ever seen.
        made: Per commander, how many units of each type its buildings and peasants have made so far.
        producers: The commander who alone puts up and owns the buildings that train fighters, as a number; None if
            they go round.
        owner_of_slot: int32 (512,): per slot of the game's record the commander of the own finished unit there, or -1.
        told: Per commander whether it is told what the enemy trains; None if nobody is and it is no matter.
    """

    def __init__(self, game: RTSGame, player: int, size: int, producers: int | None = None) -> None:
        self.game, self.player, self.size, self.producers = game, player, size, producers
        self.told: tuple[bool, ...] | None = None
        self.owner_of_slot = np.full(SLOTS, NO_ONE, np.int32)
        self.begin()

    def begin(self) -> None:
        """Begins a game."""
        self._owners: dict[int, int] = {}
        self._shared_out: Counter[int] = Counter()
        self._makers: dict[int, tuple[int, int]] = {}
        self.made: list[Counter[int]] = [Counter() for _ in range(self.size)]
        self.look()

    def look(self) -> None:
        """Takes in how the game is now, and shares out new units."""
        ours, self.enemies, self.resources = self.game.known_to(self.player)
        self.own = [unit for unit in ours if unit.finished and unit.type != RESOURCE]
        self.sites = [unit for unit in ours if not unit.finished]
        new = [unit for unit in self.own if unit.ref not in self._owners]
        for unit in new:
            if self.producers is not None and unit.type in PRODUCERS:
                self._owners[unit.ref] = self.producers
                continue
            group = _HOUSES if IS_BUILDING[unit.type] and unit.type != GUARD_TOWER else unit.type
            self._owners[unit.ref] = self._shared_out[group] % self.size
            self._shared_out[group] += 1
        self._credit(new)
        self._units = [[u for u in self.own if self._owners[u.ref] == commander] for commander in range(self.size)]
        self._counts = [Counter(unit.type for unit in units) for units in self._units]
        self.owner_of_slot[:] = NO_ONE
        self.owner_of_slot[[unit.ref % SLOTS for unit in self.own]] = [self._owners[unit.ref] for unit in self.own]

    def _credit(self, new: Sequence[Unit]) -> None:
        """Counts new units for the commanders whose units were making them at the last look and are done."""
        making = {unit.ref: unit.making for unit in self.own if unit.making >= 0}
        idle = [own for ref, own in self._makers.items() if making.get(ref) != own[1]]
        for unit in new:
            maker = next((own for own in idle if own[1] == unit.type), None)
            if maker is not None:
                idle.remove(maker)
                self.made[maker[0]][unit.type] += 1
        self._makers = {ref: (self._owners[ref], kind) for ref, kind in making.items()}

    # ---- who has what ------------------------------------------------------------------------------------

    def owner(self, unit: Unit) -> int:
        """The commander of an own finished unit, as a number from 0."""
        return self._owners[unit.ref]

    def units_of(self, commander: int, kind: int | None = None) -> list[Unit]:
        """Finished units of a commander, all or those of a type."""
        return [unit for unit in self._units[commander] if kind in (None, unit.type)]

    def army_of(self, commander: int) -> list[Unit]:
        """Mobile fighters of a commander."""
        return [unit for unit in self.units_of(commander) if IS_ARMY[unit.type]]

    def counts(self, commander: int | None = None) -> Counter[int]:
        """Numbers of finished units by type, of the side or of one commander."""
        if commander is None:
            return Counter(unit.type for unit in self.own)
        return self._counts[commander]

    def enemy_counts(self) -> Counter[int]:
        """Numbers of enemy units that are seen or remembered, by type."""
        return Counter(unit.type for unit in self.enemies)

    @property
    def money(self) -> int:
        """Money that the commanders have together."""
        return self.game.money(self.player)

    @property
    def halls(self) -> list[Unit]:
        """Finished town halls."""
        return [unit for unit in self.own if unit.type == TOWN_HALL]

    @property
    def home(self) -> tuple[float, float]:
        """Place of the first town hall, or else of the first building or unit."""
        places = self.halls or [unit for unit in self.own if IS_BUILDING[unit.type]] or self.own
        return (places[0].x, places[0].y) if places else (16.0, 16.0)

    def threats(self) -> list[Unit]:
        """Seen mobile enemies near own buildings."""
        houses = [unit for unit in (*self.own, *self.sites) if IS_BUILDING[unit.type]]
        return [
            enemy
            for enemy in self.enemies
            if not IS_BUILDING[enemy.type] and any(distance(enemy, house) <= NEAR for house in houses)
        ]

    def value(self, player: int) -> float:
        """Cost of all of a side's finished units and buildings, whoever sees them."""
        return float(sum(COST[kind] for kind in types_of(self.game, player)))

    # ---- to and fro --------------------------------------------------------------------------------------

    def snapshot(self) -> SideSnapshot:
        """All that is remembered; what is seen comes from the game."""
        return SideSnapshot(
            dict(self._owners),
            Counter(self._shared_out),
            dict(self._makers),
            [Counter(made) for made in self.made],
            self.told,
        )

    def restore(self, snapshot: SideSnapshot) -> None:
        """Goes back, after the game has."""
        self._owners, self._shared_out = dict(snapshot.owners), Counter(snapshot.shared_out)
        self.made = [Counter(made) for made in snapshot.made]
        self.told = snapshot.told
        self._makers = {}
        self.look()
        self._makers = dict(snapshot.makers)


def distance(one: Unit, other: Unit | tuple[float, float]) -> float:
    """Cells between two units, or a unit and a place."""
    x, y = other if isinstance(other, tuple) else (other.x, other.y)
    return math.hypot(one.x - x, one.y - y)


def types_of(game: RTSGame, player: int) -> list[int]:
    """The types of a player's finished units and buildings."""
    g = game.record[0]
    slots = g["roster"][player, : g["count"][player]]
    types = g["type"][slots]
    kept: list[int] = types[(g["stage"][slots] == FINISHED) & (types != RESOURCE)].tolist()
    return kept
