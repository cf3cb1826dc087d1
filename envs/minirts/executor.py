"""Carries out commands in words: a scripted officer for each commander, who gives the orders to single units.

A command stays in force. "mine" lets idle peasants dig from then on; "build" and "train" are jobs, done one after the
other by age, whoever asked (so nobody's cheap wishes starve another's dear one); "attack", "defend" and "scout" tell an
army what to do until it is told otherwise. Guard towers shoot by themselves, and who is hit strikes back, as in the
rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rllib_llm_comm.envs.minirts.engine import rts_game
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE, WATER
from rllib_llm_comm.envs.minirts.engine.rts_game import Order, Unit
from rllib_llm_comm.envs.minirts.engine.units import (
    ARMY,
    ATTACK_TICKS,
    COST,
    DAMAGE,
    DRAGON,
    GUARD_TOWER,
    IS_ARMY,
    IS_BUILDING,
    MADE_BY,
    PEASANT,
    RANGE,
    SPEED,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.side import PRODUCERS, Side, distance
from rllib_llm_comm.envs.minirts.words import ATTACK, BUILD, DEFEND, MINE, MOST, SCOUT, STANCES, WAIT, Command, phrase

MOST_JOBS = 4
"""Most jobs of a commander that are not done."""


@dataclass(frozen=True)
class Job:
    """A command to build or train that is not done.

    Attributes:
        command: The command.
        since: Number of jobs given before it, to all commanders.
        left: Number still to be finished.
    """

    command: Command
    since: int
    left: int


@dataclass
class Orders:
    """Orders in force for one commander.

    Attributes:
        mining: Whether its idle peasants dig.
        stance: Stance of its army: "attack", "defend" or "scout".
        jobs: Units to build and to train, the oldest first.
    """

    mining: bool = False
    stance: str = DEFEND
    jobs: list[Job] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    """End of a command: done, or given up because nobody is left who could do it."""

    commander: int
    command: Command
    success: bool


class Executor:
    """The officers of all commanders of a side.

    Attributes:
        side: Their sight and possessions.
        orders: Orders in force, per commander.
        max_buildings: Most buildings of a type that the side may have.
    """

    def __init__(self, side: Side, max_buildings: int = 1) -> None:
        self.side, self.max_buildings = side, max_buildings
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """Begins a game: nothing is in force but to defend. These officers draw nothing, whatever the seed."""
        self.orders = [Orders() for _ in range(self.side.size)]
        self._given = 0
        self._settled = [Counter(made) for made in self.side.made]

    # ---- what may be commanded ---------------------------------------------------------------------------

    def refusal(self, commander: int, command: Command) -> str:
        """Reason, in a few words, for which a command would do nothing now; empty if it would do something.

        Money does not matter: a job waits for it.
        """
        verb, mine, own = command.verb, self.orders[commander], self.side.counts(commander)
        if verb == WAIT:
            return ""
        if verb == MINE:
            return self._no_mining(mine, own)
        if verb in STANCES:
            if mine.stance == verb:
                return "the army does that already"
            fit = any(own[kind] for kind in (*ARMY, *([PEASANT] if verb == SCOUT else [])))
            return "" if fit else "there is no army"
        if len(mine.jobs) >= MOST_JOBS:
            return f"{MOST_JOBS} commands wait already"
        return (
            self._no_building(commander, own, command) if verb == BUILD else self._no_training(commander, own, command)
        )

    def _no_mining(self, mine: Orders, own: Counter[int]) -> str:
        if mine.mining:
            return "the peasants mine already"
        if not own[PEASANT]:
            return "there are no peasants"
        return "" if self.side.resources and self.side.halls else "there is nothing to mine"

    def _no_building(self, commander: int, own: Counter[int], command: Command) -> str:
        if command.kind in PRODUCERS and self.side.producers not in (None, commander):
            return "another commander alone builds that"
        if not own[PEASANT]:
            return "there are no peasants"
        if self.coming(command.kind) + self.side.counts()[command.kind] >= self.max_buildings:
            return "the side has one already or builds it"
        return ""

    def _no_training(self, commander: int, own: Counter[int], command: Command) -> str:
        if not own[int(MADE_BY[command.kind])]:
            return "there is no building for it"
        wanted = sum(job.left for job in self.orders[commander].jobs if job.command.kind == command.kind)
        if own[command.kind] + wanted + command.number > MOST:
            return f"that would be more than {MOST}"
        return ""

    def coming(self, kind: int) -> int:
        """Buildings of a type that are commanded but not finished."""
        return sum(job.command.kind == kind for mine in self.orders for job in mine.jobs)

    # ---- what is in force --------------------------------------------------------------------------------

    def command(self, commander: int, command: Command) -> None:
        """Puts a command in force; one that would do nothing is dropped."""
        if command.verb == WAIT or self.refusal(commander, command):
            return
        mine = self.orders[commander]
        if command.verb == MINE:
            mine.mining = True
        elif command.verb in STANCES:
            mine.stance = command.verb
        else:
            mine.jobs.append(Job(command, self._given, command.number))
            self._given += 1

    def settle(self) -> list[Done]:
        """Takes jobs off that are done, or that nobody can do any more; call it after each look of the side."""
        ended = []
        for commander, mine in enumerate(self.orders):
            kinds = {unit.type for unit in self.side.units_of(commander)}
            new = self.side.made[commander] - self._settled[commander]
            kept = []
            for job in mine.jobs:
                taken = min(job.left, new[job.command.kind])
                new[job.command.kind] -= taken
                job = replace(job, left=job.left - taken)
                if job.left == 0 or MADE_BY[job.command.kind] not in kinds:
                    ended.append(Done(commander, job.command, job.left == 0))
                else:
                    kept.append(job)
            mine.jobs = kept
            if not self.side.army_of(commander) and mine.stance != SCOUT:
                mine.stance = DEFEND
        self._settled = [Counter(made) for made in self.side.made]
        return ended

    # ---- orders to units ---------------------------------------------------------------------------------

    def give_orders(self) -> list[Order]:
        """Orders for the next ticks, at most one per unit."""
        busy: set[int] = set()
        given: list[Order] = []
        for one in self._all_orders(busy):
            if one.unit not in busy:
                busy.add(one.unit)
                given.append(one)
        return given

    def _all_orders(self, busy: set[int]) -> Iterator[Order]:
        yield from tower_orders(self.side, [unit for unit in self.side.own if unit.type == GUARD_TOWER])
        yield from self._jobs(busy)
        for commander, mine in enumerate(self.orders):
            yield from army_orders(self.side, commander, mine.stance)
            if mine.mining:
                free = [u for u in self.side.units_of(commander, PEASANT) if u.order == "IDLE" and u.ref not in busy]
                yield from mining_orders(self.side, free)

    def _jobs(self, busy: set[int]) -> Iterator[Order]:
        """The oldest job first; what is too dear yet keeps its money for the time when it is not."""
        budget, spots = self.side.money, list[tuple[int, int]]()
        making = Counter((self.side.owner(unit), unit.making) for unit in self.side.own)
        waiting = [(job.since, commander, job) for commander, mine in enumerate(self.orders) for job in mine.jobs]
        for _, commander, job in sorted(waiting, key=lambda entry: entry[0]):
            kind = job.command.kind
            begun = min(job.left, making[commander, kind])
            making[commander, kind] -= begun
            for maker in self._makers(commander, kind, busy)[: job.left - begun]:
                if budget >= COST[kind]:
                    one = self._begin(maker, kind, spots, self._builders(commander, busy))
                    if one is None:
                        break
                    yield one
                budget -= COST[kind]

    def _begin(self, maker: Unit, kind: int, spots: list[tuple[int, int]], builders: Sequence[Unit]) -> Order | None:
        if not IS_BUILDING[kind]:
            return rts_game.train(maker, kind)
        spot = building_spot(self.side, kind, spots)
        if spot is None:
            return None
        spots.append(spot)
        return rts_game.build(min(builders, key=lambda unit: distance(unit, spot)), kind, *spot)

    def _makers(self, commander: int, kind: int, busy: set[int]) -> list[Unit]:
        """Units that could begin to make something now."""
        if IS_BUILDING[kind]:
            return self._builders(commander, busy)
        own = self.side.units_of(commander, int(MADE_BY[kind]))
        return [unit for unit in own if unit.order == "IDLE" and unit.ref not in busy]

    def _builders(self, commander: int, busy: set[int]) -> list[Unit]:
        """Peasants that may be called away."""
        peasants = self.side.units_of(commander, PEASANT)
        return [u for u in peasants if u.order not in ("BUILD", "ATTACK") and u.ref not in busy]

    # ---- to and fro --------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[list[Orders], int, list[Counter[int]]]:
        """All that is remembered besides what the side remembers."""
        return _copied(self.orders), self._given, [Counter(made) for made in self._settled]

    def restore(self, snapshot: tuple[list[Orders], int, list[Counter[int]]]) -> None:
        """Goes back."""
        orders, self._given, settled = snapshot
        self.orders, self._settled = _copied(orders), [Counter(made) for made in settled]


def _copied(orders: Sequence[Orders]) -> list[Orders]:
    return [replace(mine, jobs=list(mine.jobs)) for mine in orders]


MOST_SENTENCES = 6
"""Most sentences in force: to mine, a stance, and `MOST_JOBS` (RED: the last five, done or not)."""
OLDEST = 10
"""Age at which sentences count as old, in decisions (RED: 10)."""


@dataclass(frozen=True)
class Instruction:
    """A command that was accepted.

    Attributes:
        command: The command.
        sentence: Its wording.
        job: Number of its job (`Job.since`), -1 for none.
        age: Decisions since it was given, at most `OLDEST`.
    """

    command: Command
    sentence: str
    job: int = -1
    age: int = 0


class Instructions:
    """Sentences in force for each officer of a side."""

    def __init__(self, orders: Sequence[Orders]) -> None:
        self._told: list[list[Instruction]] = [[] for _ in orders]

    def give(self, commander: int, command: Command, orders: Orders, sentence: str | None = None) -> None:
        """Notes a command that the executor has accepted, so that `orders` have it, and perhaps its wording."""
        job = orders.jobs[-1].since if command.kind >= 0 else -1
        kept = [one for one in self._told[commander] if command.kind >= 0 or not _replaces(command, one.command)]
        self._told[commander] = [*kept, Instruction(command, sentence or phrase(command), job)]

    def in_force(self, commander: int, orders: Orders) -> list[Instruction]:
        """The commander's sentences that are not done or taken back, the oldest first, at most `MOST_SENTENCES`."""
        jobs = {job.since for job in orders.jobs}
        told = [one for one in self._told[commander] if _holds(one, orders, jobs)]
        self._told[commander] = told
        return told[-MOST_SENTENCES:]

    def pass_time(self) -> None:
        """Makes all sentences one decision older."""
        self._told = [[replace(one, age=min(one.age + 1, OLDEST)) for one in told] for told in self._told]

    def snapshot(self) -> list[list[Instruction]]:
        """All that is remembered."""
        return [list(told) for told in self._told]

    def restore(self, snapshot: Sequence[Sequence[Instruction]]) -> None:
        """Goes back."""
        self._told = [list(told) for told in snapshot]


def _replaces(new: Command, old: Command) -> bool:
    return old.verb == new.verb or (old.verb in STANCES and new.verb in STANCES)


def _holds(one: Instruction, orders: Orders, jobs: set[int]) -> bool:
    if one.command.verb in STANCES:
        return one.command.verb == orders.stance
    return orders.mining if one.command.verb == MINE else one.job in jobs


# ---- choices: building sites, resources, cells to scout, targets, times to move ------------------------

Cell = tuple[int, int]
_REACH, _EDGE = 6, 1
_ROOM = 1.5
_CROWD = 0.7
_DANGER = 6.0


def building_spot(side: Side, kind: int, taken: Sequence[Cell] = ()) -> Cell | None:
    """A free cell near the town hall for a new building: as near as there is room to walk around it.

    Towers come on the side of the middle of the map, other buildings on the far side. The ways of the peasants, between
    hall and resources, stay free, and so do cells that are taken already.
    """
    home = side.home
    columns, rows = (range(max(_EDGE, at - _REACH), min(SIZE - _EDGE, at + _REACH + 1)) for at in map(round, home))
    known = side.game.explored(side.player)
    land = known & (side.game.record["terrain"][0] != WATER).reshape(SIZE, SIZE)
    cells = [(x, y) for x in columns for y in rows if land[y, x]]
    things = [(u.x, u.y) for u in (*side.own, *side.sites, *side.resources, *side.enemies)] + list(taken)
    free = [(x, y) for x, y in cells if all(np.hypot(x - left, y - top) >= _ROOM for left, top in things)]
    lanes = [resource for resource in side.resources if distance(resource, home) < 9]
    open_ = [cell for cell in free if all(_off_lane(cell, home, (r.x, r.y)) for r in lanes)] or free
    if not open_:
        return None
    middle = SIZE / 2 if kind == GUARD_TOWER else home[0]
    return min(open_, key=lambda c: (np.hypot(c[0] - home[0], c[1] - home[1]), abs(c[0] - middle), c))


def _off_lane(cell: Cell, home: tuple[float, float], resource: tuple[float, float]) -> bool:
    """True if a cell is at least a cell away from the straight way between two places."""
    start, way = np.array(home), np.array(resource) - home
    share = float(np.clip(np.dot(np.array(cell) - start, way) / max(1e-9, float(way @ way)), 0, 1))
    return float(np.hypot(*(np.array(cell) - start - share * way))) >= 1.0


def mining_orders(side: Side, peasants: Sequence[Unit]) -> Iterator[Order]:
    """Sends idle peasants to dig: near the hall, not all to one place, not where enemies stand."""
    if not side.halls:
        return
    fighters = [enemy for enemy in side.enemies if IS_ARMY[enemy.type] or enemy.type == GUARD_TOWER]
    safe = [r for r in side.resources if all(distance(r, enemy) > _DANGER for enemy in fighters)]
    digging = Counter(unit.target for unit in side.own if unit.order == "GATHER")
    for peasant in peasants:
        if not safe:
            return
        hall = min(side.halls, key=lambda h: distance(h, peasant))
        best = min(safe, key=lambda r: (distance(hall, r) + _CROWD * digging[r.ref], r.ref))
        digging[best.ref] += 1
        yield rts_game.gather(peasant, hall, best)


def unexplored(side: Side, from_: Unit) -> Cell | None:
    """Next cell for a unit to scout: one that was never seen, far from home and near to it.

    Both town halls lie near opposite edges of the map, so cells on the far side are looked at first.
    """
    home = side.home
    seen = side.game.explored(side.player)
    rows, columns = np.nonzero(~seen[2 : SIZE - 2, 2 : SIZE - 2])
    if not rows.size:
        return None
    x, y = columns + 2, rows + 2
    far = np.hypot(x - (SIZE - 1 - home[0]), y - (SIZE - 1 - home[1]))
    near = np.hypot(x - from_.x, y - from_.y)
    best = int(np.argmin(far + 0.5 * near))
    return int(x[best]), int(y[best])


_AWARE = 9.0
"""Enemies this near to a fighter are fought before anything else, in cells."""
_RALLY = 4.0
_WALK = 1.0
_LATER = 1e6


def tower_orders(side: Side, units: Sequence[Unit]) -> Iterator[Order]:
    """Guard towers shoot at what is in reach."""
    for tower in units:
        near = [enemy for enemy in side.enemies if distance(tower, enemy) <= RANGE[GUARD_TOWER]]
        if tower.order == "IDLE" and (best := best_target(tower, near)):
            yield rts_game.attack(tower, best)


def army_orders(side: Side, commander: int, stance: str) -> Iterator[Order]:
    """Orders of a commander's fighters in a stance; one peasant where "scout" finds no fighter."""
    fighters = side.army_of(commander)
    if stance == SCOUT:
        scout = _scout(side, commander, fighters)
        if scout is not None:
            fighters = [unit for unit in fighters if unit.ref != scout.ref]
            yield from _explore(side, scout)
    for unit in fighters:
        yield from _fight(side, unit, stance)


def _scout(side: Side, commander: int, fighters: Sequence[Unit]) -> Unit | None:
    """The one that is on its way, or else the fastest flyer or walker."""
    free = list(fighters) or [u for u in side.units_of(commander, PEASANT) if u.order in ("IDLE", "GATHER", "MOVE")]
    moving = [unit for unit in free if unit.order == "MOVE"]
    return max(moving or free, key=lambda u: (u.type == DRAGON, SPEED[u.type], -u.ref), default=None)


def _explore(side: Side, unit: Unit) -> Iterator[Order]:
    cell = unexplored(side, unit)
    if cell is not None:
        yield rts_game.move(unit, *cell)


def _fight(side: Side, unit: Unit, stance: str) -> Iterator[Order]:
    reach = _AWARE if stance == ATTACK else _AWARE - 2
    near = [enemy for enemy in side.enemies if distance(unit, enemy) <= reach and _fights(enemy)]
    if stance != ATTACK:
        near += [enemy for enemy in side.threats() if enemy not in near]
    target = best_target(unit, near)
    if target is None and stance == ATTACK:
        target = best_target(unit, side.enemies)
    if target is not None:
        if _worth_changing(side, unit, target):
            yield rts_game.attack(unit, target)
    elif stance == ATTACK:
        yield from _explore(side, unit)
    else:
        yield from _go_home(side, unit)


def _worth_changing(side: Side, unit: Unit, target: Unit) -> bool:
    """True if a fighter should leave what it attacks: not while that is armed and in reach."""
    if unit.order != "ATTACK":
        return True
    current = side.game.unit(unit.target)
    armed = current is not None and _fights(current) and DAMAGE[unit.type, current.type] > 0
    return not (armed and current is not None and distance(unit, current) <= RANGE[unit.type] + 1)


def _fights(enemy: Unit) -> bool:
    return bool(IS_ARMY[enemy.type] or enemy.type == GUARD_TOWER)


def _go_home(side: Side, unit: Unit) -> Iterator[Order]:
    """To the side of the own hall that looks to the middle of the map."""
    x, y = side.home
    spot = (x + (_RALLY if x < SIZE / 2 else -_RALLY) * 0.6, y + (_RALLY if y < SIZE / 2 else -_RALLY) * 0.6)
    if unit.order == "IDLE" and distance(unit, spot) > _RALLY:
        yield rts_game.move(unit, *spot)


def best_target(unit: Unit, enemies: Sequence[Unit]) -> Unit | None:
    """Best target of a unit: soon dead and soon reached; fighters before peasants before buildings."""
    hurt = [enemy for enemy in enemies if DAMAGE[unit.type, enemy.type] > 0]
    return min(hurt, key=lambda enemy: (_urgency(unit, enemy), enemy.ref), default=None)


def _urgency(unit: Unit, enemy: Unit) -> float:
    """About how many ticks until an enemy is dead; more for one that does no harm."""
    shots = enemy.hp / DAMAGE[unit.type, enemy.type]
    walk = max(0.0, distance(unit, enemy) - RANGE[unit.type]) / max(0.01, float(SPEED[unit.type]))
    ticks = shots * float(ATTACK_TICKS[unit.type]) + _WALK * walk
    if IS_BUILDING[enemy.type] and enemy.type not in (GUARD_TOWER, TOWN_HALL):
        return ticks + 2 * _LATER
    return ticks + (0 if _fights(enemy) else _LATER)
