"""Tell me the door: a game of two steps in which one agent knows what the other needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names

if TYPE_CHECKING:
    from rllib_llm_comm.envs.door.env import Door as Door
    from rllib_llm_comm.envs.door.env import aec_env as aec_env
    from rllib_llm_comm.envs.door.env import parallel_env as parallel_env
    from rllib_llm_comm.envs.door.game import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.door.game import GAME as GAME

# Lazy: the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(__name__, {"env": ("Door", "aec_env", "parallel_env"), "game": ("ENV_ID", "GAME")})
