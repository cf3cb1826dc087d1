"""MiniRTS: a small real-time strategy game for one to three commanders of one side against a scripted opponent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.env import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.minirts.env import MiniRTS as MiniRTS
    from rllib_llm_comm.envs.minirts.env import aec_env as aec_env
    from rllib_llm_comm.envs.minirts.env import parallel_env as parallel_env

__all__ = ["ENV_ID", "MiniRTS", "aec_env", "parallel_env"]


def __getattr__(name: str) -> Any:
    # Lazy: the rules and the maps are used without PettingZoo, too.
    if name in __all__:
        from rllib_llm_comm.envs.minirts import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
