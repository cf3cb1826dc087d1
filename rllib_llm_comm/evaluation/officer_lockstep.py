"""MiniRTS games in lockstep: all officers of a moment take one pass of their network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from rllib_llm_comm.baselines.red.officer_policy import TrainedExecutor, orders_together
from rllib_llm_comm.envs.minirts.commanders.executor import Executor
from rllib_llm_comm.envs.minirts.commanders.tasks import Command
from rllib_llm_comm.envs.minirts.engine.unit_order import Order
from rllib_llm_comm.envs.minirts.env import MiniRTS


class LockstepGame:
    """A game at its first decision, and its commanders.

    Attributes:
        env: The environment.

    Args:
        env: As above; it is reset.
        seed: Of the game.
    """

    def __init__(self, env: MiniRTS, seed: int) -> None:
        self.env = env
        env.reset(seed=seed)

    def look(self) -> bool:
        """Looks at what the orders did; true if nothing is left to play."""
        return self.env.game.over

    def says(self, number: int) -> Command:
        """The command that a commander gives now.

        Args:
            number: Its number.
        """
        raise NotImplementedError

    def told(self) -> Executor:
        """The officers, after what the commanders say now: all of them before anybody is obeyed, as in `env.step`."""
        executor = self.env.executor
        for number, command in enumerate([self.says(number) for number in range(executor.side.size)]):
            executor.command(number, command)
        return executor


GameT = TypeVar("GameT", bound=LockstepGame)


def in_lockstep(envs: Sequence[MiniRTS], missing: Iterable[Callable[[MiniRTS], GameT]]) -> Iterator[GameT]:
    """Plays games at once; one that is over makes room for the next.

    Nothing is observed besides what officers see.

    Args:
        envs: Environments with the same settings, one for each game at a time.
        missing: Begins each game in one of them.

    Yields:
        Games, as they end; read them before the next one.
    """
    waiting, free = iter(missing), list(envs)
    going: list[GameT] = []
    while True:
        going += [begin(free.pop()) for begin in islice(waiting, len(free))]
        if not going:
            return
        for game, orders in zip(going, _orders(going), strict=True):
            game.env.advance(orders)
        for game in [game for game in going if game.look()]:
            going.remove(game)
            free.append(game.env)
            yield game


def _orders(going: Sequence[LockstepGame]) -> list[list[Order]]:
    executors = [game.told() for game in going]
    trained = [executor for executor in executors if isinstance(executor, TrainedExecutor)]
    return orders_together(trained) if trained else [executor.give_orders() for executor in executors]
