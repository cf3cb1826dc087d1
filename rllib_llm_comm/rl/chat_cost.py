"""The cost of questions to chat models while agents learn, among the results of their EnvRunners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rllib_llm_comm.chat.chat_model import cost_of

CHAT = "chat"


class ChatCost:
    """Logs what the chat models of an EnvRunner have cost, under `env_runners/chat`, since the training began.

    The figures are those of `cost_of`; several EnvRunners are added up. Episodes tell only
    of plans that came before their end, these figures of all that was asked.

    Args:
        models: Models that the games of this runner ask; `None` and those given twice are left out.
    """

    def __init__(self, models: Iterable[Any]) -> None:
        self._models = list({id(model): model for model in models if model is not None}.values())
        self._before = self._now()

    def log(self, metrics_logger: Any) -> None:
        """Logs what was asked since the last call."""
        if not self._models:
            return
        now = self._now()
        for name, amount in now.items():
            metrics_logger.log_value((CHAT, name), amount - self._before.get(name, 0.0), reduce="lifetime_sum")
        self._before = now

    def _now(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for model in self._models:
            for name, amount in cost_of(model.counters).items():
                found[name] = found.get(name, 0.0) + float(amount)
        return found
