"""Officers who are late and take wrong targets, and commanders who change their minds.

RED learns from demonstrations that can be improved on. Scripted officers under the oracle win nearly always.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_llm_comm.envs.minirts.collective_command import (
    ATTACK,
    BUILD,
    CELL_AT,
    ENEMY_AT,
    GATHER,
    GO_ON_AT,
    KIND_AT,
    MOST_UNITS,
    MOVE,
    RESOURCE_AT,
    SITE_AT,
    nothing_new,
)
from rllib_llm_comm.envs.minirts.commanders.executor import Executor, Orders
from rllib_llm_comm.envs.minirts.commanders.tasks import NOTHING, WAIT, Command
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.side import Side

_ASTRAY = 2
HOLD = (5, 15)
"""Fewest and most decisions for which a moody commander holds a command that is not done."""


def disturbed(action: np.ndarray, side: Side, rng: np.random.Generator, delay: float, wrong: float) -> np.ndarray:
    """A collective command as an imperfect officer gives it: perhaps not yet, perhaps for a wrong target.

    A wrong target is any known enemy or resource, a building site up to two columns and rows away, or any cell to go
    to. What is trained or built stays as it is.

    Args:
        action: RED's action, int64 (58,).
        side: The side.
        rng: Draws.
        delay: Chance that nothing is ordered at this decision.
        wrong: Chance of a wrong target.
    """
    late, astray = rng.random(2) < (delay, wrong)
    if action[GO_ON_AT] or late:
        return nothing_new()
    if not astray:
        return action
    changed, kind = action.copy(), int(action[KIND_AT])
    if kind in (GATHER, ATTACK):
        listed = side.resources if kind == GATHER else side.enemies
        changed[RESOURCE_AT if kind == GATHER else ENEMY_AT] = rng.integers(min(len(listed), MOST_UNITS))
    elif kind == BUILD:
        row, column = np.array(divmod(int(action[SITE_AT]), SIZE)) + rng.integers(-_ASTRAY, _ASTRAY + 1, 2)
        changed[SITE_AT] = np.clip(row, 0, SIZE - 1) * SIZE + np.clip(column, 0, SIZE - 1)
    elif kind == MOVE:
        changed[CELL_AT] = rng.integers(SIZE * SIZE)
    return changed


class MoodyCommander:
    """Gives random commands, each until it is done or for 5 to 15 decisions; then all that it commanded is taken back.

    Args:
        executor: The side's officers.
        commands: Allowed commands.
        rng: Draws.
    """

    def __init__(self, executor: Executor, commands: Sequence[Command], rng: np.random.Generator) -> None:
        self._executor, self._rng = executor, rng
        self._commands = [command for command in commands if command.verb != WAIT]
        self._left = [0] * executor.side.size

    def __call__(self, commander: int) -> Command:
        """The command of a commander at a decision.

        Args:
            commander: Its number.
        """
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
