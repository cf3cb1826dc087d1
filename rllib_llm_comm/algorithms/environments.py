"""Environments by name, for RLlib."""

from __future__ import annotations

from typing import Any


def ensure_registered(env: Any) -> None:
    """Makes a PettingZoo parallel environment known to RLlib under its id, if it is not yet.

    Args:
        env: What a config's `env` holds. Anything but the id of a registered PettingZoo environment is left
            alone: RLlib has its own ways with it.
    """
    if not isinstance(env, str):
        return
    from pettingzoo.env_registry import registration
    from ray.tune.registry import ENV_CREATOR, _global_registry

    import rllib_llm_comm.envs  # noqa: F401  (registers our games with PettingZoo)
    from rllib_llm_comm.envs.rllib_adapter import register_parallel_env

    if _global_registry.contains(ENV_CREATOR, env):
        return
    try:
        registration.spec("parallel", env)
    except Exception:  # PettingZoo raises several kinds for names that it does not know
        return
    register_parallel_env(env)
