"""Scripted commanders of the command level, and the team of them that speaks.

They follow RED's commanders of the same names in spirit: the oracle knows the enemy's army types and makes what beats
them; the adversarial one makes what they beat; the random one draws among what is allowed; none never says anything.
They are yardsticks, and the oracle is the teacher: its advice, and messages of its plans. Last the team that knows only
what it is told, sees and hears.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.envs.minirts.engine.units import (
    ARMY,
    COUNTER,
    GUARD_TOWER,
    MADE_BY,
    PEASANT,
    SWORDMAN,
    TOWN_HALL,
    VICTIM,
)
from rllib_llm_comm.envs.minirts.executor import Executor, Orders
from rllib_llm_comm.envs.minirts.sayings import CommanderSaying, EnemySaying, Saying, understand, word
from rllib_llm_comm.envs.minirts.side import (
    Side,
    assumed_types,
    enemy_types,
    is_prepared,
    prepared_types,
    seen_types,
    types_of,
)
from rllib_llm_comm.envs.minirts.words import (
    ATTACK,
    BUILD,
    COMMANDERS,
    DEFEND,
    MINE,
    NOTHING,
    TRAIN,
    WAIT,
    Command,
    all_commands,
)
from rllib_llm_comm.envs.scripted_team import Team

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


HOLD = (5, 15)
"""Fewest and most decisions for which a moody commander holds a command that is not done."""


class MoodyCommander:
    """Gives random commands, each until it is done or for 5 to 15 decisions; then all that it commanded is undone."""

    def __init__(self, executor: Executor, commands: Sequence[Command], rng: np.random.Generator) -> None:
        self._executor, self._rng = executor, rng
        self._commands = [command for command in commands if command.verb != WAIT]
        self._left = [0] * executor.side.size

    def __call__(self, commander: int) -> Command:
        """The command of a commander at a decision."""
        orders = self._executor.orders[commander]
        self._left[commander] -= 1
        busy = bool(orders.jobs) or orders != Orders()
        if self._left[commander] > 0 and busy:
            return NOTHING
        self._executor.orders[commander] = Orders()
        allowed = [one for one in self._commands if not self._executor.refusal(commander, one)]
        if not allowed:
            return NOTHING
        self._left[commander] = int(self._rng.integers(HOLD[0], HOLD[1] + 1))
        return allowed[int(self._rng.integers(len(allowed)))]


# ---- messages and advice of the oracle ---------------------------------------------------------------


def say(executor: Executor, commands: Sequence[Command], commander: int) -> Saying:
    """Present message of a scripted commander.

    Where `told_to` is not set it knows what the enemy makes, and so does one that is told. One that is told while
    others are not tells it, until the side has, or puts up, producers against all of it, which the others see. One that
    is not told asks as long as it knows of no enemy fighter or producer and the side has no producer. Else they speak
    of their tasks, to the next one who has something to do; one that is not told as if the enemy made what
    `side.assumed_types` gives.
    """
    types, fact = assumed_types(executor.side, commander), say_fact(executor.side, commander)
    if fact is not None and not (is_prepared(executor.side) if fact.types else types):
        return fact
    return say_tasks(strategy_of_all(executor, commands, types), commander)


def say_fact(side: Side, commander: int) -> EnemySaying | None:
    """Message of a commander who is told the enemy's types, which names them, or question of one who is not.

    `None` where all are told or nobody is.
    """
    if side.told is None or all(side.told):
        return None
    types = enemy_types(side) if side.told[commander] else ()
    return EnemySaying(tuple(kind for kind in ARMY if kind in types))


def say_tasks(plans: Sequence[Command], commander: int) -> CommanderSaying:
    """A commander's word on its own task and on that of the next one who has something to do, of the plans of all."""
    size, own = len(plans), (plans[commander].verb, plans[commander].kind)
    others = [(commander + i) % size for i in range(1, size)]
    busy = [other for other in others if plans[other].verb != WAIT] or others
    if not busy:
        return CommanderSaying(own, "", (WAIT, -1))
    return CommanderSaying(own, COMMANDERS[busy[0]], (plans[busy[0]].verb, plans[busy[0]].kind))


def messages(
    state: Executor, agents: Sequence[str], rng: np.random.Generator, ask_to_wait: bool = True
) -> dict[str, str]:
    """Label for each commander: the command that it gives next, and the one that another commander should give.

    Without `ask_to_wait` a message that would ask to wait tells the speaker's own command alone.
    """
    commands = all_commands()
    said = {agent: say(state, commands, COMMANDERS.index(agent)) for agent in agents}
    if not ask_to_wait:
        said = {agent: _without_wait(saying) for agent, saying in said.items()}
    return {agent: word(saying, rng) for agent, saying in said.items()}


def _without_wait(saying: Saying) -> Saying:
    if isinstance(saying, CommanderSaying) and saying.theirs[0] == WAIT:
        return CommanderSaying(saying.mine, "", saying.theirs)
    return saying


def facts(state: Executor, agents: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Messages about what some commanders are told: these say it, the others ask for it; none if nobody misses it."""
    said = {agent: say_fact(state.side, COMMANDERS.index(agent)) for agent in agents}
    return {agent: word(saying, rng) for agent, saying in said.items() if saying is not None}


def advise(env: Any, agent: str) -> int | None:
    """Command of the oracle at this moment; nothing for RED's actions."""
    if env.settings["action_level"] != "command":
        return None
    wanted = strategy_of_all(env.executor, env.commands)[COMMANDERS.index(agent)]
    return int(env.commands.index(wanted))


def wait_action(env: Any, agent: str) -> int | None:
    """The command "wait"; nothing for RED's actions, of which none is idle."""
    if env.settings["action_level"] != "command":
        return None
    return int(env.commands.index(NOTHING))


class ScriptedTeam(Team):
    """Plays all commanders of a side by the oracle's rules, each by what it is told, hears and sees of the enemy.

    Unlike the scripted teacher's advice, a commander that is not told the types does not act on them. It takes the
    enemy to make what was told it last, else what it sees, else what it saw last. One that knows nothing makes
    `GUESS`. Who has no producers goes along with those that stand. The strength of the enemy, as a number,
    is known to all as it is to the oracle. The environment has commands in words, and all decide at once.
    """

    def begin(self, seed: int = 0) -> None:
        """Forgets what was said and believed."""
        super().begin(seed)
        self._seen: tuple[int, ...] = ()

    def act(self, infos: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Speaks, listens and chooses for all who need an action."""
        env = self._env
        if self._talk:
            for agent in env.agents:
                saying = say(env.executor, env.commands, COMMANDERS.index(agent))
                self.said[agent] = word(saying, self._rng)
        self._seen = seen_types(env.team) or self._seen
        chosen: list[Command] = []
        for agent in env.agents:
            commander = COMMANDERS.index(agent)
            types = self._types(agent, commander)
            if env.team.producers not in (None, commander):
                types = prepared_types(env.team) or types
            chosen.append(strategy(env.executor, commander, env.commands, others=chosen, enemy=types))
        return {agent: env.commands.index(command) for agent, command in zip(env.agents, chosen, strict=True)}

    def _types(self, agent: str, commander: int) -> tuple[int, ...]:
        """The army types that a commander takes the enemy to make."""
        told = self._env.team.told
        if told is None or told[commander]:
            return enemy_types(self._env.team)
        for saying in map(understand, self._messages_to(agent)):
            if isinstance(saying, EnemySaying) and saying.types:
                self._believed[agent] = saying.types
        return self._believed.get(agent) or self._seen
