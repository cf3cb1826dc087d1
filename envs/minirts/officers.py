"""The officers that carry out commands in words, by name: scripted ones, a trained network, or two."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.executor import Executor
    from rllib_llm_comm.envs.minirts.side import Side

SCRIPTED = "scripted"
TRAINED = "trained:"
SWITCH = "switch:"
# By name: games know nothing of networks, and these names are read without the compiled rules.
_SCRIPTED_EXECUTOR = "rllib_llm_comm.envs.minirts.executor:Executor"
_TRAINED_EXECUTOR = "rllib_llm_comm.baselines.red.officer_policy:TrainedExecutor"
# In a switch a colon parts two checkpoints, unless it belongs to the name of one that has no folder yet. So one such
# name alone is not two folders.
_CHECKPOINT = "((?:zoo:|hf:)[^:]+|(?!(?:zoo|hf):)[^:]+)"
_TWO_CHECKPOINTS = re.compile(f"{SWITCH}{_CHECKPOINT}:{_CHECKPOINT}")


def checkpoints_of(name: Any) -> tuple[str, ...] | None:
    """The checkpoints that the setting `executor` names: none, one, or two; None if it names no officers."""
    if name == SCRIPTED:
        return ()
    if not isinstance(name, str):
        return None
    if name.startswith(TRAINED) and name != TRAINED:
        return (name.removeprefix(TRAINED),)
    two = _TWO_CHECKPOINTS.fullmatch(name)
    return None if two is None else two.groups()


def check_executor(name: Any) -> None:
    """Refuses what names no officers; checkpoints are looked at by `make_executor`.

    Raises:
        UserError: If it is none of the three forms.
    """
    if checkpoints_of(name) is None:
        raise UserError(
            f"`executor` is {name!r} but must be {SCRIPTED!r}, '{TRAINED}CHECKPOINT', or '{SWITCH}TOLD:UNTOLD' with "
            "two checkpoints of trained officers whose paths have no colon, such as 'trained:results/officer' or "
            "'switch:zoo:red_officer:results/rl'."
        )


def make_executor(name: str, side: Side, max_buildings: int) -> Executor:
    """The officers of a side by the setting `executor`, which `check_executor` has passed.

    Raises:
        UserError: If there is no such checkpoint, or it is not one of an officer.
    """
    if name == SCRIPTED:
        scripted: Callable[[Side, int], Executor] = load(_SCRIPTED_EXECUTOR)
        return scripted(side, max_buildings)
    trained: Callable[..., Executor] = load(_TRAINED_EXECUTOR)
    return trained(side, max_buildings, *(checkpoints_of(name) or ()))
