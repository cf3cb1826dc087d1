"""Environments by name, for RLlib."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from rllib_llm_comm.core.errors import UserError


def ensure_registered(env: Any) -> None:
    """Makes a PettingZoo parallel environment known to RLlib under its id, if it is not yet.

    Args:
        env: The value of a config's `env`. Anything but the id of a registered PettingZoo environment is left
            alone: RLlib has its own ways with it.
    """
    if not isinstance(env, str):
        return
    from pettingzoo.env_registry import registration
    from ray.tune.registry import ENV_CREATOR, _global_registry

    import rllib_llm_comm.envs  # noqa: F401  (registers our games with PettingZoo)
    from rllib_llm_comm.rl.rllib_adapter import register_parallel_env

    if _global_registry.contains(ENV_CREATOR, env):
        return
    try:
        registration.spec("parallel", env)
    except Exception:  # PettingZoo raises several kinds for names that it does not know
        return
    register_parallel_env(env)


def playable_id(env: Any) -> str | None:
    """The id under which PettingZoo has the environment that RLlib knows by a name; `None` for no name.

    Args:
        env: The value of a config's `env`.
    """
    from ray.tune.registry import ENV_CREATOR, _global_registry

    from rllib_llm_comm.envs.games import own_id

    if not isinstance(env, str):
        return None
    known = _global_registry.contains(ENV_CREATOR, env)
    entry = getattr(_global_registry.get(ENV_CREATOR, env), "entry", None) if known else None
    return (own_id(entry) if entry is not None else None) or env


@contextlib.contextmanager
def made_env(env: Any, env_config: Mapping[str, Any]) -> Iterator[Any]:
    """Makes an environment as RLlib would, and closes it.

    Args:
        env: The value of a config's `env`.
        env_config: The environment's settings.

    Raises:
        UserError: If the environment is unknown.
    """
    from ray.rllib.env.env_context import EnvContext
    from ray.tune.registry import ENV_CREATOR, _global_registry

    known = isinstance(env, str) and _global_registry.contains(ENV_CREATOR, env)
    make = _global_registry.get(ENV_CREATOR, env) if known else env
    if not callable(make):
        raise UserError(f"`env` is {env!r}, whose agents are unknown; give the id of a registered environment.")
    made = make(EnvContext(dict(env_config), worker_index=0))
    try:
        yield made
    finally:
        made.close()


def agents_of(env: Any, env_config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The agents that an environment can have; makes it once.

    Args:
        env: The value of a config's `env`.
        env_config: The environment's settings.

    Raises:
        UserError: If the environment is unknown.
    """
    with made_env(env, env_config) as made:
        return tuple(getattr(made, "possible_agents", ()) or ())
