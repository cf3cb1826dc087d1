"""A server on 127.0.0.1 that speaks OpenAI's completions protocol, as vLLM does, with our own model behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from local_server import LocalServer


class CompletionServer(LocalServer):
    """Continues prompts with a function; the first replies may be statuses or bodies instead.

    Args:
        write: Prompts to texts.
        troubles: Statuses (int) or bodies (dict) of the first requests.
    """

    def __init__(self, write: Callable[[list[str]], list[str]], *troubles: int | dict[str, Any]) -> None:
        self._write, self._troubles = write, list(troubles)
        super().__init__()

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        trouble = self._troubles.pop(0) if self._troubles else None
        if isinstance(trouble, int):
            return trouble, {}, json.dumps({"error": {"message": "busy"}}).encode()
        # Any order: the index counts.
        choices = [
            {"index": k, "text": f" {text}\n", "finish_reason": "stop", "logprobs": None}
            for k, text in enumerate(self._write(body["prompt"]))
        ][::-1]
        answer = trouble or {
            "id": "x", "object": "text_completion", "created": 1, "model": body["model"], "choices": choices,
        }  # fmt: skip
        return 200, {}, json.dumps(answer).encode()
