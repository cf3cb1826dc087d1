"""MiniRTS: a small real-time strategy game for one to three commanders of one side against a scripted opponent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.env import MiniRTS as MiniRTS
    from rllib_llm_comm.envs.minirts.env import aec_env as aec_env
    from rllib_llm_comm.envs.minirts.env import parallel_env as parallel_env
    from rllib_llm_comm.envs.minirts.game import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.minirts.game import GAME as GAME

# Lazy: the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(__name__, {"env": ("MiniRTS", "aec_env", "parallel_env"), "game": ("ENV_ID", "GAME")})
