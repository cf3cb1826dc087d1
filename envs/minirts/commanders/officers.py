"""The officers that carry out commands in words, by name: scripted ones, or a trained network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.lazy import load

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.commanders.executor import Executor
    from rllib_llm_comm.envs.minirts.side import Side

SCRIPTED = "scripted"
TRAINED = "trained:"
# By name: games know nothing of networks, and these names are read without the compiled rules.
_SCRIPTED_EXECUTOR = "rllib_llm_comm.envs.minirts.commanders.executor:Executor"
_TRAINED_EXECUTOR = "rllib_llm_comm.agents.officer_executor:TrainedExecutor"


def check_executor(name: Any) -> None:
    """Refuses what names no officers; a checkpoint is looked at by `make_executor`.

    Args:
        name: The setting `executor`.

    Raises:
        UserError: If it is neither "scripted" nor "trained:" and a checkpoint.
    """
    if name == SCRIPTED or (isinstance(name, str) and name.startswith(TRAINED) and name != TRAINED):
        return
    raise UserError(
        f"`executor` is {name!r} but must be {SCRIPTED!r}, or {TRAINED!r} and the checkpoint of a trained officer, "
        "such as 'trained:results/officer'."
    )


def make_executor(name: str, side: Side, max_buildings: int) -> Executor:
    """The officers of a side.

    Args:
        name: The setting `executor`.
        side: The side.
        max_buildings: As of `Executor`.

    Raises:
        UserError: If there is no such checkpoint, or it is not one of an officer.
    """
    check_executor(name)
    if name == SCRIPTED:
        scripted: Callable[[Side, int], Executor] = load(_SCRIPTED_EXECUTOR)
        return scripted(side, max_buildings)
    trained: Callable[[Side, int, str], Executor] = load(_TRAINED_EXECUTOR)
    return trained(side, max_buildings, name.removeprefix(TRAINED))
