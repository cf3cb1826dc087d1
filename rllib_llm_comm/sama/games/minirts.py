"""The strategy game as planners know it: commands in words are the subgoals (SAMA's "build 3 cavalry")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.checker import check_sentence
from rllib_llm_comm.envs.minirts.commanders import strategy_of_all
from rllib_llm_comm.envs.minirts.engine.units import BUILD_TICKS, MADE_BY, PEASANT, TRAIN_TICKS
from rllib_llm_comm.envs.minirts.env import EnvSnapshot, MiniRTS
from rllib_llm_comm.envs.minirts.executor import Executor
from rllib_llm_comm.envs.minirts.text import commander_sentences, enemy_sentence, manual, situation_sentences
from rllib_llm_comm.envs.minirts.words import (
    ATTACK,
    BUILD,
    COMMANDERS,
    DEFEND,
    MINE,
    MOST,
    SCOUT,
    SINGULAR,
    TRAIN,
    WAIT,
    Command,
    all_commands,
    parse_command,
    phrase,
)
from rllib_llm_comm.sama.planned_env import disturbed_game, disturbed_steps
from rllib_llm_comm.sama.planning_game import PlanningGame, RulePlayer, State, SubgoalStarts, examples_in
from rllib_llm_comm.sama.preparation import CodeIndex, GamePreparation, Transition
from rllib_llm_comm.sama.recordings import recorded_code


class FollowingCommanders(RulePlayer):
    """Gives the command of its subgoal as soon as it may, and else lets go on what is in force.

    Where the game lacks the number of a subgoal, the largest smaller one is commanded, until enough have come out.
    """

    def action(self, agent: str, seen: Mapping[str, Any]) -> int:
        """The next command of a commander, among those that its `action_mask` allows."""
        env, wanted = self.game.env.unwrapped, parse_command(str(seen["subgoal"]))
        jobs = [job.command for job in env.executor.orders[COMMANDERS.index(agent)].jobs]
        if wanted is None or any(job.kind == wanted.kind for job in jobs):
            return 0
        fitting = [
            number
            for number, command in enumerate(env.commands)
            if (command.verb, command.kind) == (wanted.verb, wanted.kind)
            and command.number <= wanted.number
            and seen["action_mask"][number]
        ]
        return max(fitting, key=lambda number: env.commands[number].number, default=0)


_LIBRARY = {phrase(command): command for command in all_commands()}
_FAR = 5.0
_OPPONENTS = ("simple", "medium", "medium2", "medium3", "strong")


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of the game; nothing in it changes.

    Attributes:
        situation: The team and the enemy, in sentences.
        truth: The enemy's units as they are, in a sentence.
        situations: Each commander, in sentences.
        refusals: Per commander why it cannot set about a subgoal; those it can are left out.
        made: Per commander how many units of each type it has made so far.
        digging: Per commander whether all its peasants are at work and one of them digs.
        fighting: Per commander whether its army attacks somebody.
        wanted: Command of the game's own rules for each commander.
        plain: JSON-able values.
    """

    tick: int
    situation: str
    truth: str
    situations: tuple[str, ...]
    refusals: tuple[dict[str, str], ...]
    made: tuple[Counter[int], ...]
    digging: tuple[bool, ...]
    fighting: tuple[bool, ...]
    wanted: tuple[str, ...]
    plain: Mapping[str, Any]


class StrategyPlanning(PlanningGame):
    """Shows planners a `MiniRTS` whose agents choose commands in words.

    One decision (50 ticks) is one game step here. To train some units is done when so many of the type have come out
    of the agent's own buildings since it was told to, whatever commands it gave for them.

    Raises:
        UserError: If agents do not choose commands in words.
    """

    scenarios: ClassVar[Mapping[str, Mapping[str, Any]]] = {name: {"opponent": name} for name in _OPPONENTS}
    played_with: ClassVar[Mapping[str, Any]] = {"numbers": list(range(1, MOST + 1)), "observe": ["text"]}
    counts_since: ClassVar[bool] = True
    tells_facts: ClassVar[bool] = False

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        if env.unwrapped.settings["action_level"] != "command":
            raise UserError(
                "`action_level` is 'red', where nobody carries out a subgoal in words; use `action_level='command'`."
            )
        self._latest: Moment | None = None
        self._starts = SubgoalStarts(self.same_moment)
        self._kept: WeakKeyDictionary[Moment, EnvSnapshot] = WeakKeyDictionary()
        self._looking: MiniRTS | None = None

    @property
    def _game(self) -> MiniRTS:
        game: MiniRTS = self.env.unwrapped
        return game

    def state(self) -> Moment:
        """Present moment, kept for `passed`."""
        self._latest = moment(self._game)
        return self._latest

    def passed(self) -> list[Moment]:
        """Moments before and after the last decision; the former only if it was looked at then, else the same."""
        before, after = self._latest, moment(self._game)
        self._latest = after
        fits = before is not None and 0 < after.tick - before.tick <= self._game.settings["decision_ticks"]
        return [before if before is not None and fits else after, after]

    def same_moment(self, one: Moment, other: Moment) -> bool:
        """True if two moments have one time."""
        return one.tick == other.tick

    def keep(self) -> Moment:
        """Present moment; sentences about it can be judged when the game has gone on, too."""
        state = self.state()
        self._kept[state] = self._game.snapshot()
        return state

    def holds(self, state: Moment, sentence: str) -> bool | None:
        """True if the game's checker proves a sentence, false if it disproves it.

        It looks at the game itself: `None` for moments that are over, unless they were kept.
        """
        game = self._game
        if state in self._kept:
            game = self._looking = self._looking or MiniRTS(**game.settings)
            if not game.agents:
                game.reset(seed=0)
            game.restore(self._kept[state])
        elif state.tick != game.game.tick:
            return None
        return check_sentence(game.executor, sentence, game.settings["max_tick"])

    def manual(self) -> str:
        """Rules of the game."""
        return " ".join(manual())

    def situation(self, state: Moment) -> str:
        """Situation that all commanders share."""
        return state.situation

    def truth(self, state: Moment) -> str:
        """All units of the enemy, in the fog or not."""
        return state.truth

    def situation_of(self, state: Moment, agent: str) -> str:
        """Units and orders of a commander."""
        return state.situations[COMMANDERS.index(agent)]

    def plain(self, state: Moment) -> Mapping[str, Any]:
        """Time, gold, commanders and known enemies."""
        return state.plain

    def paper_examples(self, phase: str) -> Sequence[str]:
        """Worked examples as SAMA's listings have them; it asks for no assignment here."""
        return () if phase == "assignment" else examples_in(__package__, f"paper_example_minirts_{phase}")

    def advice(self) -> str:
        """How a unit comes about, and how much is enough."""
        return (
            "The aim is to choose units that beat the enemy's, and soon; how they fight is not yours to say. To have a "
            "unit, 1. see that there is gold for it, and mine if there is not; 2. see that a building that trains it "
            "stands, and build that first if there is none; then train it. One building of each type is enough, and "
            "no more than 6 units of a type are asked for."
        )

    def library(self, agent: str) -> list[str]:
        """All commands in words."""
        return list(_LIBRARY)

    def parse(self, text: str) -> str | None:
        """Command that a text means, in the words of the library; `None` if it means none."""
        command = parse_command(text)
        return None if command is None else phrase(command)

    def refusal(self, state: Moment, agent: str, subgoal: str) -> str:
        """Reason for which a command would do nothing now; a command in force already is not refused."""
        reason = state.refusals[COMMANDERS.index(agent)].get(subgoal, "")
        return f"{agent} cannot {subgoal} now, as {reason}" if reason else ""

    def done(self, before: Moment, after: Moment, agent: str, subgoal: str) -> bool:
        """True if a command has come to its end in one decision."""
        command, number = _LIBRARY[subgoal], COMMANDERS.index(agent)
        if command.verb == MINE:
            return after.digging[number]
        if command.verb == ATTACK:
            return after.fighting[number]
        if command.verb not in (BUILD, TRAIN):
            return False
        start = self._starts.of(before, after, agent, subgoal)
        if after.made[number][command.kind] - start.made[number][command.kind] < command.number:
            return False
        self._starts.end(agent)
        return True

    def waits(self, state: Moment, agent: str, subgoal: str) -> bool:
        """True for the commands to wait, to defend and to scout, which have no end of their own."""
        return _LIBRARY[subgoal].verb in (WAIT, DEFEND, SCOUT)

    def effort(self, state: Moment, agent: str, subgoal: str) -> float:
        """Estimated decisions that a command takes, without the time that money takes."""
        command, ticks = _LIBRARY[subgoal], self._game.settings["decision_ticks"]
        if command.verb == BUILD:
            return _FAR + float(BUILD_TICKS / ticks)
        if command.verb == TRAIN:
            return float(command.number * TRAIN_TICKS[MADE_BY[command.kind]] / ticks)
        return {WAIT: 0.0, MINE: 1.0}.get(command.verb, _FAR)

    def scripted(self, state: Moment) -> tuple[str, dict[str, str]]:
        """Commands of the oracle, which knows what the enemy makes."""
        subgoals = dict(zip(self.agents, state.wanted, strict=True))
        return _goal([_LIBRARY[subgoal] for subgoal in state.wanted]), subgoals

    def player(self) -> FollowingCommanders:
        """Commanders that follow their subgoals."""
        return FollowingCommanders(self)

    def save(self) -> Any:
        """Snapshot of the game."""
        return self._game.snapshot()

    def load(self, saved: Any) -> None:
        """Puts a snapshot back and forgets all counts."""
        self._game.restore(saved)
        self._latest = None
        self._starts.clear()


def moment(game: MiniRTS) -> Moment:
    """The moment that a game is in."""
    executor, side = game.executor, game.team
    commanders = range(side.size)
    return Moment(
        tick=game.game.tick,
        situation=" ".join(situation_sentences(side)),
        truth=enemy_sentence(side),
        situations=tuple(" ".join(commander_sentences(executor, commander)) for commander in commanders),
        refusals=tuple(_refusals(executor, commander) for commander in commanders),
        made=tuple(Counter(made) for made in side.made),
        digging=tuple(_digging(executor, commander) for commander in commanders),
        fighting=tuple(any(u.order == "ATTACK" for u in side.army_of(commander)) for commander in commanders),
        wanted=tuple(phrase(command) for command in strategy_of_all(executor, game.commands)),
        plain=_plain(executor),
    )


def _refusals(executor: Executor, commander: int) -> dict[str, str]:
    """Reasons for which subgoals cannot be set about; what is in force already is not refused."""
    mine = executor.orders[commander]
    in_force = {Command(mine.stance), *(job.command for job in mine.jobs), *([Command(MINE)] if mine.mining else [])}
    found = {}
    for words, command in _LIBRARY.items():
        reason = "" if command in in_force else executor.refusal(commander, command)
        if reason:
            found[words] = reason
    return found


def _digging(executor: Executor, commander: int) -> bool:
    orders = [unit.order for unit in executor.side.units_of(commander, PEASANT)]
    return executor.orders[commander].mining and "GATHER" in orders and "IDLE" not in orders


def _plain(executor: Executor) -> dict[str, Any]:
    side = executor.side
    commanders = {}
    for commander, mine in enumerate(executor.orders):
        peasants = Counter(unit.order for unit in side.units_of(commander, PEASANT))
        commanders[COMMANDERS[commander]] = {
            "units": {SINGULAR[kind]: number for kind, number in sorted(side.counts(commander).items())},
            "made so far": {SINGULAR[kind]: number for kind, number in sorted(side.made[commander].items())},
            "mining": mine.mining,
            "peasants digging": peasants["GATHER"],
            "peasants idle": peasants["IDLE"],
            "army": mine.stance,
            "units attacking": sum(unit.order == "ATTACK" for unit in side.army_of(commander)),
            "commands": [phrase(job.command) for job in mine.jobs],
        }
    return {
        "tick": side.game.tick,
        "gold": side.money,
        "commanders": commanders,
        "known enemies": {SINGULAR[kind]: number for kind, number in sorted(side.enemy_counts().items())},
    }


def _goal(commands: list[Command]) -> str:
    verbs = {command.verb for command in commands}
    if ATTACK in verbs:
        return "destroy the enemy's town hall"
    if any(command.verb in (BUILD, TRAIN) and command.kind != PEASANT for command in commands):
        return "have an army that beats the enemy's"
    return "have enough gold" if verbs - {WAIT} else "keep on"


_PATIENCE = 20
_MOST_APART = 8
_DRAWN = 0.3
_MUCH_GOLD = 2000


class StrategyPreparation(GamePreparation):
    """Shows the strategy game to the stages.

    States are those of disturbed games: a war cannot be put into any state that somebody thinks of. Actions are
    commands in words already.
    """

    to_tell: ClassVar[str] = (
        "Say how much gold the team has, what each player commands and has given orders for, and what is known of the "
        "enemy."
    )
    to_leave: ClassVar[str] = "counts of ticks, and what has been made so far"

    game: StrategyPlanning

    def __init__(self, game: PlanningGame) -> None:
        super().__init__(game)
        self._running: Iterator[list[State]] = iter(())

    def code(self) -> CodeIndex:
        """The commands, their words, and the moment as planners see it."""
        return recorded_code("minirts_source")

    def draw(self, rng: np.random.Generator) -> Moment:
        """A state one to eight decisions after the last one, in a game that goes on from draw to draw."""
        for _ in range(int(rng.integers(1, _MOST_APART + 1))):
            if next(self._running, None) is None or not self.game.env.unwrapped.agents:
                self._running = disturbed_game(self.game, rng, _PATIENCE, subgoals=_DRAWN, actions=0.0)
                next(self._running)
        return self.game.keep()

    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Decisions of commanders who follow commands that are drawn, with much gold, so that they train a lot."""
        rich = MiniRTS(**{**self.game.env.unwrapped.settings, "money": _MUCH_GOLD})
        return disturbed_steps(StrategyPlanning(rich), number, seed, _PATIENCE)
