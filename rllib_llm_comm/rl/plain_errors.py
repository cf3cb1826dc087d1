"""Errors of workers and modules, told as they are."""

from __future__ import annotations

import logging
from typing import Any

import ray
from ray.exceptions import RayError
from ray.rllib.env.env_runner import EnvRunner, logger
from ray.rllib.env.env_runner_group import EnvRunnerGroup
from ray.rllib.utils.actor_manager import FaultAwareApply
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError

_MOST_SECONDS = 10.0


class PlainErrorsMixin(EnvRunner):
    """Raises an error of a game as what it is; of a `UserError` it drops RLlib's log, too.

    Where RLlib is told to make failed games anew (`restart_failed_sub_environments`), it does so and logs each. A
    remote runner stays there for `raise_told`; all other errors end it, as RLlib has it.

    Attributes:
        told_error: The sentence of what a game did wrong; `None` for nothing.
    """

    told_error: str | None = None

    @override(FaultAwareApply)
    def apply(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function with this runner, for a driver elsewhere."""
        try:
            return func(self, *args, **kwargs)
        except UserError as error:
            self.told_error = str(error)
            raise
        except Exception as error:
            return super().apply(_raise, error)

    @override(EnvRunner)
    def _try_env_step(self, actions: Any) -> Any:
        if self.config.restart_failed_sub_environments:
            return super()._try_env_step(actions)
        logger.addFilter(_not_told)
        try:
            return super()._try_env_step(actions)
        except RuntimeError as error:
            raise error.__cause__ or error from None
        finally:
            logger.removeFilter(_not_told)


def _not_told(record: logging.LogRecord) -> bool:
    """False of records about errors that are raised in a sentence."""
    return not (record.exc_info and isinstance(record.exc_info[1], UserError))


def raise_told(group: EnvRunnerGroup) -> None:
    """Raises what a remote EnvRunner told: RLlib takes it for a fault of the machine, and goes on without samples.

    Args:
        group: The EnvRunners of an algorithm; those that are well are not asked.

    Raises:
        UserError: If one of them saw a game do what it must not.
    """
    manager = group._worker_manager
    for number in manager.actor_ids():
        if manager.is_actor_healthy(number):
            continue
        try:
            error = ray.get(manager.actors()[number].apply.remote(_told), timeout=_MOST_SECONDS)
        except RayError:  # it is gone, and RLlib makes it anew
            continue
        if error is not None:
            raise UserError(error)


def _told(runner: Any) -> str | None:
    error: str | None = getattr(runner, "told_error", None)
    return error


def _raise(runner: Any, error: Exception) -> None:
    raise error


class SetupErrorsMixin:
    """Keeps the message of an AttributeError in an RLModule's constructor or `setup`, by raising a RuntimeError.

    RLlib takes an AttributeError there as the sign of an old module, retries with a constructor that no longer exists,
    and reports that failure alone. Stands in front of `TorchRLModule` among the base classes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except AttributeError as error:
            raise RuntimeError(f"{type(self).__name__} cannot be set up: AttributeError: {error}") from error
