"""The textual 7x7 kitchen, a game of cooks who see little and have to work together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_text.env import ENV_ID as ENV_ID
    from rllib_llm_comm.envs.overcooked_text.env import OvercookedText as OvercookedText
    from rllib_llm_comm.envs.overcooked_text.env import aec_env as aec_env
    from rllib_llm_comm.envs.overcooked_text.env import parallel_env as parallel_env

__all__ = ["ENV_ID", "OvercookedText", "aec_env", "parallel_env"]


def __getattr__(name: str) -> Any:
    # Lazy: the words and the rules of the game are used without PettingZoo, too.
    if name in __all__:
        from rllib_llm_comm.envs.overcooked_text import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
