"""Scripted commanders of the command level: oracle, adversarial, random, none. Yardsticks, and a teacher's advice.

They follow RED's commanders of the same names in spirit: the oracle knows the enemy's army types and makes what beats
them; the adversarial one makes what they beat; the random one draws among what is allowed; none never says anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.envs.minirts.commanders.executor import Executor
from rllib_llm_comm.envs.minirts.commanders.tasks import ATTACK, BUILD, DEFEND, MINE, NOTHING, TRAIN, Command
from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    ARMY,
    CATAPULT,
    CAVALRY,
    DRAGON,
    GUARD_TOWER,
    MADE_BY,
    PEASANT,
    SPEARMAN,
    SWORDMAN,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.side import Side, types_of

COUNTER = {
    SPEARMAN: SWORDMAN,
    SWORDMAN: CAVALRY,
    CAVALRY: SPEARMAN,
    DRAGON: ARCHER,
    ARCHER: SWORDMAN,
    CATAPULT: SPEARMAN,
}
"""Counters of each army type."""
VICTIM = {
    SWORDMAN: SPEARMAN,
    CAVALRY: SWORDMAN,
    SPEARMAN: CAVALRY,
    DRAGON: SPEARMAN,
    ARCHER: DRAGON,
    CATAPULT: CATAPULT,
}
"""Types that each army type beats."""
NAMES = ("oracle", "adversarial", "random", "none")
_PEASANTS, _MORE_PEASANTS = 6, 8
_FEW, _ARMY, _LARGE = 3, 5, 8
GUESS = SWORDMAN
"""Type that is made against an enemy of whom nothing is known: it beats two of the five types that opponents draw."""

Commander = Callable[[int], Command]


def make_commander(name: str, executor: Executor, commands: Sequence[Command], seed: int = 0) -> Commander:
    """A function from a commander's number to the command that a commander of `NAMES` gives now.

    The seed is for "random".

    Raises:
        UserError: If there is no such commander.
    """
    require_choice("commander", name, NAMES)
    if name == "none":
        return lambda commander: NOTHING
    if name == "random":
        rng = np.random.default_rng(seed)
        return lambda commander: _random(executor, commander, commands, rng)
    table = COUNTER if name == "oracle" else VICTIM
    return lambda commander: strategy(executor, commander, commands, table)


def strategy_of_all(
    executor: Executor, commands: Sequence[Command], enemy: Sequence[int] | None = None
) -> list[Command]:
    """Commands of the oracle for all commanders, without doing a thing twice; the arguments are those of `strategy`."""
    chosen: list[Command] = []
    for commander in range(executor.side.size):
        chosen.append(strategy(executor, commander, commands, others=chosen, enemy=enemy))
    return chosen


def _random(executor: Executor, commander: int, commands: Sequence[Command], rng: np.random.Generator) -> Command:
    allowed = [command for command in commands if not executor.refusal(commander, command)]
    return allowed[int(rng.integers(len(allowed)))]


def strategy(
    executor: Executor,
    commander: int,
    commands: Sequence[Command],
    table: dict[int, int] | None = None,
    others: Collection[Command] = (),
    enemy: Sequence[int] | None = None,
) -> Command:
    """Command of the oracle, or with another table that of the adversary.

    First dig and train peasants, then a building for the wanted types, then the army; attack when it is big enough.

    Args:
        executor: The side's officers.
        commander: Its number.
        commands: Allowed commands.
        table: Type to make against each army type; `COUNTER` by default.
        others: Commands of the others at the same moment; their buildings are not built twice.
        enemy: The army types that the commander takes the enemy to make, perhaps none; the true ones by default.
    """
    types = enemy_types(executor.side) if enemy is None else enemy
    wanted = wanted_types(types, COUNTER if table is None else table)
    for command in _wishes(executor, commander, wanted):
        fitting = _fitting(executor, commander, commands, command)
        if fitting is not None and not (fitting.verb == BUILD and fitting in others):
            return fitting
    return NOTHING


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


def wanted_types(enemy: Sequence[int], table: dict[int, int]) -> list[int]:
    """The types to make, each once, in the order of the enemy's; a guess if these are not known."""
    return list(dict.fromkeys(table[kind] for kind in enemy)) or [GUESS]


def _wishes(executor: Executor, commander: int, wanted: Sequence[int]) -> list[Command]:
    """Wishes of a commander, the most urgent first."""
    side, mine = executor.side, executor.orders[commander]
    counts, jobs = side.counts(), [job.command.kind for orders in executor.orders for job in orders.jobs]
    wishes = [Command(MINE)]
    houses = list(dict.fromkeys(int(MADE_BY[kind]) for kind in wanted))
    peasants = counts[PEASANT] + jobs.count(PEASANT)
    if peasants < _PEASANTS - 1 and PEASANT not in jobs:
        wishes.append(Command(TRAIN, PEASANT, 1))
    for house in houses:
        if counts[house] == 0 and house not in jobs:
            wishes.append(Command(BUILD, house, 1))
    own = side.counts(commander)
    for kind in wanted:
        if kind not in jobs:
            wishes.append(Command(TRAIN, kind, max(1, _ARMY - own[kind])))
    if peasants < _MORE_PEASANTS and PEASANT not in jobs and any(counts[house] for house in houses):
        wishes.append(Command(TRAIN, PEASANT, 1))
    army, theirs = _strength(side, side.player), _strength(side, 1 - side.player)
    stuck = not side.resources or not counts[PEASANT] or not counts[TOWN_HALL]
    if army >= min(_LARGE, max(_ARMY, theirs + 1)) or stuck:
        wishes.insert(0, Command(ATTACK))
    elif army < _FEW and army < theirs and mine.stance == ATTACK:
        wishes.insert(0, Command(DEFEND))
    return wishes


def _strength(side: Side, player: int) -> int:
    """Fighters of a side; a tower counts as two."""
    types = types_of(side.game, player)
    return sum(kind in ARMY for kind in types) + 2 * types.count(GUARD_TOWER)


def _fitting(executor: Executor, commander: int, commands: Sequence[Command], wish: Command) -> Command | None:
    """A wish as a command that is allowed; with the nearest smaller number, or else the smallest."""
    same = [c for c in commands if (c.verb, c.kind) == (wish.verb, wish.kind)]
    fits = [c for c in same if not executor.refusal(commander, c)]
    smaller = [c for c in fits if c.number <= max(wish.number, min((c.number for c in same), default=0))]
    return max(smaller, key=lambda c: c.number, default=None)
