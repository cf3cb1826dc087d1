"""Knowledge and possessions of one side. Its commanders share sight and money, and each owns some of the units.

Ownership. A finished unit gets its owner when it is first seen at a decision, and keeps it for life. Within each group
units go round by creation: the first to the first commander, the second to the second, and so on. Each type of mobile
unit is a group, guard towers are one, and all other buildings together are one. So with two commanders the town hall
is the first one's, the first building that trains fighters the second one's, and of three peasants the second is the
second one's. Where one commander has the producers, all buildings that train fighters are its own, and town halls alone
go round.

The enemy's army types can be a private fact. The opponent draws them at the start of a game, by the seed; the rules
know nothing of who is told them. Everything has the same shape for every commander. The types are in it only for who is
told.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, Unit
from rllib_llm_comm.envs.minirts.engine.state import FINISHED, NO_ONE, SLOTS
from rllib_llm_comm.envs.minirts.engine.units import (
    ARMY,
    COST,
    COUNTER,
    GUARD_TOWER,
    IS_ARMY,
    IS_BUILDING,
    MADE_BY,
    RESOURCE,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.words import army_words, listing
from rllib_llm_comm.envs.told_to import ALL, ONE

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


# ---- the enemy's army types: who is told them, and what they are in sentences and numbers --------------

TOLD_NUMBERS = len(ARMY)
"""Number of entries on top of the vector where `told_to` is set: one per army type."""


def enemy_types(side: Side) -> tuple[int, ...]:
    """The army types that the enemy makes, which the side cannot know: what it drew, or else what it has most of."""
    record, enemy = side.game.record, 1 - side.player
    drawn: tuple[int, ...] = ()
    if record["ai_kind"][0, enemy]:
        drawn = opponents.drawn(record, enemy).types
    if drawn:
        return drawn
    has = Counter(types_of(side.game, enemy))
    for kinds in (ARMY, [kind for kind in ARMY if has[int(MADE_BY[kind])]]):
        most = max(kinds, key=lambda kind: has[kind], default=None)
        if most is not None and (has[most] or kinds is not ARMY):
            return (most,)
    return ()


def told_facts(opponent: str) -> tuple[str, ...]:
    """All that can be told of an opponent in the spelling of the infos' `private`; "strong" has no types to tell."""
    named = opponents.parse(opponent)
    free = [kind for kind in opponents.DRAWN_TYPES if kind not in named.types]
    drawn = combinations(free, max(0, named.num_types - len(named.types)))
    return tuple(army_words((*named.types, *more)) for more in drawn)


def told_types(side: Side, commander: int) -> str | None:
    """Private information of a commander, such as "spearmen", or None."""
    return army_words(enemy_types(side)) if side.told is not None and side.told[commander] else None


def told_sentences(side: Side, commander: int) -> list[str]:
    """Sentences by which a commander is told the enemy's types; none if `told_to` is not set."""
    if side.told is None:
        return []
    fact = told_types(side, commander)
    return [f"The enemy trains {fact}." if fact else "You are not told what the enemy trains."]


def told_rules(told_to: str | Sequence[str] | None, producers: str | None, num_agents: int) -> list[str]:
    """The rules of the settings `told_to` and `producers` in sentences that are the same in every game."""
    sentences = []
    if told_to is not None and num_agents > 1:
        if isinstance(told_to, str):
            who = {ALL: "Everybody", ONE: "One commander, drawn for each game,"}[told_to]
        else:
            who = f"Only {listing(name.capitalize() for name in told_to)}"
        plural = not isinstance(told_to, str) and len(told_to) > 1
        sentences.append(f"{who} {'are' if plural else 'is'} told what the enemy trains.")
    if producers is not None:
        sentences.append(f"Only {producers.capitalize()} puts up and owns buildings that train fighters.")
    return sentences


def told_numbers(side: Side, commander: int) -> np.ndarray:
    """float32 (6,): 1 per army type that the enemy makes, in the order of `ARMY`; zeros for who is not told."""
    told = side.told is not None and side.told[commander]
    types = enemy_types(side) if told else ()
    return np.array([float(kind in types) for kind in ARMY], np.float32)


# ---- what can be concluded without being told --------------------------------------------------------------


def seen_types(side: Side) -> tuple[int, ...]:
    """Army types of the enemies in sight, or else those that its known producers train and opponents draw."""
    counts = side.enemy_counts()
    fighters = tuple(kind for kind in ARMY if counts[kind])
    return fighters or tuple(kind for kind in opponents.DRAWN_TYPES if counts[int(MADE_BY[kind])])


def prepared_types(side: Side) -> tuple[int, ...]:
    """Army types against which the side prepares, as its producers show, finished or under construction."""
    houses = {unit.type for unit in side.own} | {unit.making for unit in side.own}
    return tuple(kind for kind in ARMY if int(MADE_BY[COUNTER[kind]]) in houses & set(PRODUCERS))


def assumed_types(side: Side, commander: int) -> tuple[int, ...]:
    """Army types that a commander takes the enemy to make by what it is told and sees; empty if nothing tells."""
    if side.told is None or side.told[commander]:
        return enemy_types(side)
    return seen_types(side) or prepared_types(side)


def is_prepared(side: Side) -> bool:
    """True if the side has, or puts up, a producer of what beats each type that the enemy makes."""
    return set(enemy_types(side)) <= set(prepared_types(side))
