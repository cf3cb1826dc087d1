"""A small server on 127.0.0.1 that plays OpenAI's chat completions, with troubles on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from local_server import LocalServer

from rllib_llm_comm.chat.client import ChatClient


class Half(bytes):
    """A body of which only the first half is sent."""


Reply = str | int | tuple[int, dict[str, str]] | bytes | float | None


def completion(text: str | None, finish: str = "stop") -> bytes:
    return json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    ).encode()


class Late:
    """Answers after a while, as a model does, and counts how many questions are under way, and the most so far.

    The wait differs from question to question, so that answers come in another order.

    Args:
        together: Questions that must have been under way at once before any is answered, so that a busy machine counts
            no fewer than a quick one.
        patience: Seconds after which a question no longer waits for the others.
    """

    def __init__(self, answer: Callable[[str], str], together: int = 1, patience: float = 1.0) -> None:
        self.answer, self.now, self.most, self.together, self.patience = answer, 0, 0, together, patience
        self._changed = threading.Condition()

    def __call__(self, prompt: str) -> str:
        with self._changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self.together, self.patience)
        time.sleep(0.02 if len(prompt) % 2 else 0.04)
        with self._changed:
            self.now -= 1
            return self.answer(prompt)


class ChatServer(LocalServer):
    """Replies in turn, the last one for ever: a text, a status, (status, headers), raw bytes, half a body, seconds to
    sleep, None (closes the connection without a word), or a function of the prompt."""

    def __init__(self, *replies: Reply | Callable[[str], str], port: int = 0) -> None:
        self.replies = list(replies)
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        super().__init__(port)

    def settings(self, **more: Any) -> dict[str, Any]:
        """Settings of a client that does not wait between requests."""
        return {"model": "tiny", "base_url": self.url, "requests_per_minute": 1e6, **more}

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        self.times.append(time.monotonic())
        self.headers.append(headers)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = reply(body["messages"][-1]["content"])
        if reply is None:
            return 0, {}, b""
        if isinstance(reply, Half):
            return 200, {"content-length": str(len(reply))}, reply[: len(reply) // 2]
        if isinstance(reply, float):
            time.sleep(reply)
            return 200, {}, completion("too late")
        if isinstance(reply, int):
            return reply, {}, json.dumps({"error": {"message": f"echo {headers}"}}).encode()
        if isinstance(reply, tuple):
            return *reply, b""
        return 200, {}, reply if isinstance(reply, bytes) else completion(reply)


def client(server: ChatServer, **settings: Any) -> ChatClient:
    """A client of the server that does not wait between requests."""
    return ChatClient("tiny", server.url, **{"requests_per_minute": 1e6, **settings})
