"""Shares of games in which MiniRTS officers make one unit in time when they are told to (RED's Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rllib_llm_comm.core.errors import UserError, require_choice, require_whole
from rllib_llm_comm.envs.minirts.commanders.officers import SCRIPTED
from rllib_llm_comm.envs.minirts.commanders.tasks import BUILD, MINE, NOTHING, TRAIN, Command
from rllib_llm_comm.envs.minirts.engine.units import ARMY, MADE_BY
from rllib_llm_comm.envs.minirts.env import MiniRTS
from rllib_llm_comm.envs.minirts.view.names import KIND_OF, SINGULAR
from rllib_llm_comm.evaluation.officer_lockstep import LockstepGame, in_lockstep
from rllib_llm_comm.evaluation.statistics import wilson

UNITS = tuple(SINGULAR[kind] for kind in ARMY)
TOLD, UNTOLD = "told", "not told"


@dataclass(frozen=True)
class OfficerTaskSettings:
    """Settings of the test.

    In each game all commanders say "mine" at first. The last one says "build one ..." for the building that makes the
    unit, until a commander has it. From then on the owner says "train 1 ..." once, or with the control nothing.

    Attributes:
        executor: The officers, as of `envs.minirts`.
        units: Units to make, such as "archer"; all fighters by default.
        games: Games per unit, with and without the command, >= 1.
        decisions: Decisions within which the building must stand, and then the unit, >= 1. RED: 30 for the unit.
        seed: Seed of the first game; the others count up.
        opponent: As of `envs.minirts`.
        num_agents: As of `envs.minirts`.
        side_by_side: Games that are played at once, >= 1; changes no result.
    """

    executor: str = SCRIPTED
    units: Sequence[str] = UNITS
    games: int = 100
    decisions: int = 30
    seed: int = 0
    opponent: str = "medium2"
    num_agents: int = 2
    side_by_side: int = 16

    def __post_init__(self) -> None:
        for name, least in (("games", 1), ("decisions", 1), ("seed", 0), ("side_by_side", 1)):
            require_whole(name, getattr(self, name), least)
        for unit in self.units:
            require_choice("units", unit, UNITS)
        if len(set(self.units)) < len(self.units):
            raise UserError(f"`units` is {', '.join(self.units)} but must name each unit once.")

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return MiniRTS(num_agents=self.num_agents, opponent=self.opponent, executor=self.executor, observe=["vector"])


def officer_tasks(settings: OfficerTaskSettings, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Plays the beginnings of games in which one unit is asked for, and the same games without asking.

    Args:
        settings: The settings.
        progress: Called with the numbers of games that are done and of all.

    Returns:
        Settings; and per unit `building`, the share of games in which its building stood in time, with its interval
        `building_95`, and of those games the share in which the unit came in time: `told` and `not_told`, with theirs.
    """
    seeds = range(settings.seed, settings.seed + settings.games)
    asked = [(unit, told, seed) for unit in settings.units for told in (TOLD, UNTOLD) for seed in seeds]
    begins = [
        partial(_TaskGame, unit=unit, how=told, seed=seed, decisions=settings.decisions) for unit, told, seed in asked
    ]
    envs = [settings.env() for _ in range(min(settings.side_by_side, len(asked)))]
    ended: list[tuple[str, str, bool, bool]] = []
    for game in in_lockstep(envs, begins):
        ended.append((game.unit, game.how, game.built, game.made))
        if progress:
            progress(len(ended), len(asked))
    kept = {name: value for name, value in asdict(settings).items() if name != "side_by_side"}
    return {"settings": kept, "units": {unit: _figures(unit, ended) for unit in settings.units}}


class _TaskGame(LockstepGame):
    """A game until the unit is there, or time is up.

    Attributes:
        unit: Name of the unit.
        how: `TOLD` or `UNTOLD`.
        built: Whether the building stood in time.
        made: Whether the unit came in time.
    """

    def __init__(self, env: MiniRTS, unit: str, how: str, seed: int, decisions: int) -> None:
        super().__init__(env, seed)
        self.unit, self.how = unit, how
        self.built = self.made = False
        self._kind = KIND_OF[unit]
        self._building = int(MADE_BY[self._kind])
        self._limit = self._left = decisions
        self._said = list[Command]()
        self._owner, self._before = -1, 0

    def look(self) -> bool:
        """Sees whether the building stands, and then the unit; true if it does or time is up."""
        self._left -= 1
        if self.built:
            self.made = self._number_made() > self._before
        elif owners := [n for n in range(self.env.team.size) if self.env.team.counts(n)[self._building]]:
            self.built, self._owner = True, owners[0]
            self._left, self._before = self._limit, self._number_made()
        return self.made or self._left == 0 or self.env.game.over

    def _number_made(self) -> int:
        return sum(made[self._kind] for made in self.env.team.made)

    def says(self, number: int) -> Command:
        """Mine, once; the building, by the last commander; the unit, once, by who has the building."""
        commanders = self.env.team.size
        if len(self._said) < commanders:
            self._said.append(Command(MINE))
            return self._said[-1]
        if not self.built:
            return Command(BUILD, self._building, 1) if number == commanders - 1 else NOTHING
        train = Command(TRAIN, self._kind, 1)
        if number != self._owner or self.how == UNTOLD or train in self._said:
            return NOTHING
        self._said.append(train)
        return train


def _figures(unit: str, ended: Sequence[tuple[str, str, bool, bool]]) -> dict[str, Any]:
    own = [one for one in ended if one[0] == unit]
    standing = [one for one in own if one[2]]
    built = wilson(len(standing), len(own)).rounded()
    figures: dict[str, Any] = {
        "games": len(own), "building": built["value"], "building_95": [built["low"], built["high"]],
    }  # fmt: skip
    for how, name in ((TOLD, "told"), (UNTOLD, "not_told")):
        made = [one[3] for one in standing if one[1] == how]
        if made:
            share = wilson(sum(made), len(made)).rounded()
            figures |= {name: share["value"], f"{name}_95": [share["low"], share["high"]], f"{name}_games": len(made)}
    return figures
