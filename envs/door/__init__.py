"""Tell me the door: a game of two steps in which one agent knows what the other needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_llm_comm.envs.door.env import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.door.env import Door as Door
    from rllib_llm_comm.envs.door.env import aec_env as aec_env
    from rllib_llm_comm.envs.door.env import parallel_env as parallel_env

__all__ = ["ENV_ID", "Door", "aec_env", "parallel_env"]


def __getattr__(name: str) -> Any:
    # Lazy: the sayings are used without PettingZoo, too.
    if name in __all__:
        from rllib_llm_comm.envs.door import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
