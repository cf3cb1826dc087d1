"""Names of our algorithms and environments for Tune and the command line."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rllib_llm_comm.envs import GAMES

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

_HOMES = {
    "Verco": "verco",
    "MessageSFT": "message_sft",
    "TWOSOME": "twosome",
    "SymbolicPPO": "symbolic_ppo",
    "CommNet": "commnet",
    "MAPPO": "mappo",
    "EMMA": "emma",
    "SelfPlayPPO": "self_play_ppo",
}
NAMES = tuple(_HOMES)
ENVIRONMENTS = tuple(GAMES)


def algorithm_class(name: str) -> type[Algorithm]:
    """The algorithm of a registered name.

    Args:
        name: One of `NAMES`.
    """
    module = importlib.import_module(f"rllib_llm_comm.algorithms.{_HOMES[name]}")
    found: type[Algorithm] = getattr(module, name)
    return found


def register_all() -> None:
    """Registers our algorithms and environments with Tune. Doing it again changes nothing."""
    from ray.tune.registry import register_trainable

    from rllib_llm_comm.algorithms.env_registration import ensure_registered

    for name in NAMES:
        register_trainable(name, algorithm_class(name))
    for env in ENVIRONMENTS:
        ensure_registered(env)
