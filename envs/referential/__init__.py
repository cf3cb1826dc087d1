"""A referential game: one agent knows which of several things is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_llm_comm.envs.referential.env import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.referential.env import Referential as Referential
    from rllib_llm_comm.envs.referential.env import aec_env as aec_env
    from rllib_llm_comm.envs.referential.env import parallel_env as parallel_env

__all__ = ["ENV_ID", "Referential", "aec_env", "parallel_env"]


def __getattr__(name: str) -> Any:
    # Lazy: the sayings are used without PettingZoo, too.
    if name in __all__:
        from rllib_llm_comm.envs.referential import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
