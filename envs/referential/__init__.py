"""A referential game: one agent knows which of several things is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names

if TYPE_CHECKING:
    from rllib_llm_comm.envs.referential.env import Referential as Referential
    from rllib_llm_comm.envs.referential.env import aec_env as aec_env
    from rllib_llm_comm.envs.referential.env import parallel_env as parallel_env
    from rllib_llm_comm.envs.referential.game import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.referential.game import GAME as GAME

# Lazy: the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(
    __name__, {"env": ("Referential", "aec_env", "parallel_env"), "game": ("ENV_ID", "GAME")}
)
