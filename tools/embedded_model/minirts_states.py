"""Moments of scripted games of MiniRTS, for the second embedded model's corpus.

Commanders of one side play the oracle's strategy with an army type drawn at random per game in the place of the one
that beats the enemy, mixed with random commands and with commanders who do nothing. So the moments say nothing of which
type beats which. A commander's plan at a moment makes what the standing producers train, or else the game's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.commanders import say, say_tasks, strategy, wanted_types
from rllib_llm_comm.envs.minirts.engine.units import ARCHER, ARMY, COUNTER, DRAGON, GUARD_TOWER, MADE_BY, TOWN_HALL
from rllib_llm_comm.envs.minirts.sayings import CommanderSaying, EnemySaying, Saying
from rllib_llm_comm.envs.minirts.side import PRODUCERS
from rllib_llm_comm.envs.minirts.text import observation_text
from rllib_llm_comm.envs.minirts.words import (
    ATTACK,
    BUILD,
    COMMANDERS,
    DEFEND,
    MINE,
    SCOUT,
    TRAIN,
    WAIT,
    Command,
)

HELD_OUT = (ARCHER, DRAGON)
"""Army types of which nobody speaks in any game of the corpus: nobody asks for them or tells of them."""
SPOKEN = tuple(kind for kind in ARMY if kind not in HELD_OUT)
NUMBERS = ((3,), (3,), (1, 3, 5))
_OPPONENTS = ("simple", "medium", "medium", "medium", "medium2", "medium3", "medium_tower", "strong")
_MAX_TICKS = (5200, 6400, 12_800)
_CARELESS = (0.0, 0.1, 0.3, 0.6, 1.0)
_EARLY, _EARLY_SHARE, _LATER_SHARE = 16, 0.5, 0.25
_RARE = 0.03
_TALKS = (("told", 0.4), ("unit", 0.4), ("other", 0.2))
_GIVEN_UP = 0.3


@dataclass(frozen=True)
class Talk:
    """Something that another commander says, and the command that answers it.

    Attributes:
        saying: Its words' meaning.
        speaker: Number of the commander who says it.
        answer: The command.
    """

    saying: Saying
    speaker: int
    answer: Command


@dataclass(frozen=True)
class Moment:
    """A commander's decision in a scripted game.

    Attributes:
        text: Its observation.
        commander: Its number.
        allowed: Commands that would do something now, and "wait".
        plans: Next command of each commander.
        saying: Message of this one, by the teacher's rules; of the enemy's types only if it is told them.
        talk: A word of another one that is about something that can be done now; None if none was found.
    """

    text: str
    commander: int
    allowed: tuple[Command, ...]
    plans: tuple[Command, ...]
    saying: Saying
    talk: Talk | None

    @property
    def plan(self) -> Command:
        """The commander's own next command."""
        return self.plans[self.commander]


def random_settings(rng: np.random.Generator, numbers: Sequence[Sequence[int]] = NUMBERS) -> dict[str, Any]:
    """Settings of a game of two or three commanders.

    Args:
        rng: Source of randomness.
        numbers: Values of `numbers`, each as likely.
    """
    opponent = str(rng.choice(_OPPONENTS))
    told: tuple[Any, ...] = (None, None, ["alice"], ["alice"], "one", "all")
    return {
        "num_agents": int(rng.choice([2, 3], p=[0.65, 0.35])),
        "opponent": opponent,
        "numbers": list(numbers[int(rng.integers(len(numbers)))]),
        "max_tick": int(rng.choice(_MAX_TICKS)),
        "told_to": None if opponent == "strong" else told[int(rng.integers(len(told)))],
        "producers": "bob" if rng.random() < 0.4 else None,
        "observe": ["text"],
    }


def moments(
    rng: np.random.Generator, numbers: Sequence[Sequence[int]] = NUMBERS, talked_of: Sequence[int] = SPOKEN
) -> Iterator[Moment]:
    """Moments of one game after the other, without end.

    Args:
        rng: Source of randomness.
        numbers: Values of `numbers`, each as likely.
        talked_of: Army types that `talk` is about.
    """
    while True:
        yield from _game(rng, random_settings(rng, numbers), talked_of)


def _game(rng: np.random.Generator, settings: dict[str, Any], talked_of: Sequence[int]) -> Iterator[Moment]:
    env = minirts.parallel_env(**settings)
    env.reset(seed=int(rng.integers(2**31)))
    careless, own_type = float(rng.choice(_CARELESS)), int(rng.choice(ARMY))
    idle = [bool(rng.random() < 0.1) for _ in env.possible_agents]
    decision = 0
    while not env.game.over:
        plans = _plans(env, own_type)
        for commander in range(env.team.size):
            if rng.random() < (_EARLY_SHARE if decision < _EARLY else _LATER_SHARE):
                yield _moment(rng, env, commander, own_type, talked_of)
        for commander, plan in enumerate(plans):
            if idle[commander] and rng.random() < 0.7:
                continue
            if rng.random() < careless:
                allowed = _allowed(env, commander)
                plan = allowed[int(rng.integers(len(allowed)))]
            env.executor.command(commander, plan)
        env.advance(env.executor.give_orders())
        decision += 1


def _allowed(env: Any, commander: int) -> tuple[Command, ...]:
    return tuple(command for command in env.commands if not env.executor.refusal(commander, command))


def _plans(env: Any, wanted: int) -> list[Command]:
    """The oracle's commands for all commanders with this army type in the place of the one that beats the enemy."""
    chosen: list[Command] = []
    table = dict.fromkeys(ARMY, wanted)
    for commander in range(env.team.size):
        chosen.append(strategy(env.executor, commander, env.commands, table, chosen, ARMY[:1]))
    return chosen


def _moment(rng: np.random.Generator, env: Any, commander: int, own_type: int, talked_of: Sequence[int]) -> Moment:
    houses = {unit.type for unit in env.team.own} | {unit.making for unit in env.team.own}
    at_hand = [kind for kind in ARMY if int(MADE_BY[kind]) in houses & set(PRODUCERS)]
    wanted = int(rng.choice(at_hand)) if at_hand and own_type not in at_hand else own_type
    allowed, plans = _allowed(env, commander), _plans(env, wanted)
    plans[commander] = _rare(rng, env, allowed) or plans[commander]
    saying = say(env.executor, env.commands, commander)
    if isinstance(saying, CommanderSaying):
        saying = say_tasks(plans, commander)
    text = observation_text(env.executor, commander, env.settings["max_tick"])
    talk = _talk(rng, env, commander, allowed, plans, talked_of)
    return Moment(text, commander, allowed, tuple(plans), saying, talk)


def is_rare(command: Command) -> bool:
    """True for commands that the oracle never gives: to scout, and to build towers and halls."""
    return command.verb == SCOUT or (command.verb == BUILD and command.kind in (GUARD_TOWER, TOWN_HALL))


def _rare(rng: np.random.Generator, env: Any, allowed: Sequence[Command]) -> Command | None:
    """A sensible command that the oracle does not know: it neither scouts nor builds towers or halls."""
    if rng.random() >= _RARE:
        return None
    side, found = env.team, []
    if not side.enemy_counts()[TOWN_HALL]:
        found.append(Command(SCOUT))
    if side.threats():
        found.append(Command(BUILD, GUARD_TOWER, 1))
    if side.money >= 300 or not side.halls:
        found.append(Command(BUILD, TOWN_HALL, 1))
    found = [command for command in found if command in allowed]
    return found[int(rng.integers(len(found)))] if found else None


def _talk(
    rng: np.random.Generator,
    env: Any,
    commander: int,
    allowed: Sequence[Command],
    plans: Sequence[Command],
    talked_of: Sequence[int],
) -> Talk | None:
    others = [number for number in range(env.team.size) if number != commander]
    speaker = int(rng.choice(others))
    names, shares = zip(*_TALKS, strict=True)
    for _ in range(6):
        kind = str(rng.choice(names, p=shares))
        if kind == "told":
            number = 1 if rng.random() < 0.8 else 2
            told = [int(one) for one in rng.choice(talked_of, size=min(number, len(talked_of)), replace=False)]
            types = tuple(one for one in ARMY if one in told)
            answer = next(filter(None, (_made(allowed, one) for one in wanted_types(types, COUNTER))), None)
            if answer is None and rng.random() < _GIVEN_UP:
                answer = strategy(env.executor, commander, env.commands, None, (), types)
            if answer is not None:
                return Talk(EnemySaying(types), speaker, answer)
            continue
        asked = _asked(rng, kind, allowed, talked_of)
        if asked is not None:
            meaning, answer = asked
            mine = plans[speaker] if plans[speaker].kind not in HELD_OUT else Command(MINE)
            return Talk(CommanderSaying((mine.verb, mine.kind), COMMANDERS[commander], meaning), speaker, answer)
    return None


def _asked(
    rng: np.random.Generator, kind: str, allowed: Sequence[Command], talked_of: Sequence[int]
) -> tuple[tuple[str, int], Command] | None:
    """A request that can be answered now, as verb and kind, and the command that answers it."""
    if kind == "unit":
        unit = int(rng.choice(talked_of))
        answer = _made(allowed, unit)
        return None if answer is None else ((TRAIN, unit), answer)
    others = [c for c in allowed if c.verb in (ATTACK, DEFEND, SCOUT, MINE, BUILD, WAIT) or c.kind not in ARMY]
    answer = others[int(rng.integers(len(others)))]
    return (answer.verb, answer.kind), answer


def _made(allowed: Sequence[Command], unit: int) -> Command | None:
    """The command by which a unit is made: train it, or else build what trains it; None if neither is allowed."""
    trained = [command for command in allowed if (command.verb, command.kind) == (TRAIN, unit)]
    if trained:
        return min(trained, key=lambda command: abs(command.number - 3))
    building = Command(BUILD, int(MADE_BY[unit]), 1)
    return building if building in allowed else None
