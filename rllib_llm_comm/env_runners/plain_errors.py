"""Errors of games in their own sentence: RLlib logs a traceback and raises a bare RuntimeError in their place."""

from __future__ import annotations

import logging
from typing import Any

from ray.rllib.env.env_runner import EnvRunner, logger
from ray.rllib.utils.annotations import override

from rllib_llm_comm.errors import UserError


class PlainErrorsMixin(EnvRunner):
    """Raises what a game does wrong as the `UserError` that it is, without RLlib's log of it.

    Where RLlib is told to make failed games anew (`restart_failed_sub_environments`), it does so and logs each.
    """

    @override(EnvRunner)
    def _try_env_step(self, actions: Any) -> Any:
        if self.config.restart_failed_sub_environments:
            return super()._try_env_step(actions)
        logger.addFilter(_not_told)
        try:
            return super()._try_env_step(actions)
        except RuntimeError as error:
            if isinstance(error.__cause__, UserError):
                raise error.__cause__ from None
            raise
        finally:
            logger.removeFilter(_not_told)


def _not_told(record: logging.LogRecord) -> bool:
    """False of records about errors that are raised in a sentence."""
    return not (record.exc_info and isinstance(record.exc_info[1], UserError))
