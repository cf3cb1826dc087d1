"""A small server on 127.0.0.1 that plays OpenAI's chat completions, with troubles on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | int | tuple[int, dict[str, str]] | bytes | float


def completion(text: str | None) -> bytes:
    return json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    ).encode()


class ChatServer:
    """Replies in turn, the last one for ever: a text, a status, (status, headers), raw bytes, seconds to sleep,
    or a function of the prompt."""

    def __init__(self, *replies: Reply | Callable[[str], str]) -> None:
        self.replies = list(replies)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.times.append(time.monotonic())
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                reply = outer.replies.pop(0) if len(outer.replies) > 1 else outer.replies[0]
                if callable(reply):
                    reply = reply(body["messages"][-1]["content"])
                status, headers, payload = 200, {}, b""
                if isinstance(reply, float):
                    time.sleep(reply)
                    payload = completion("too late")
                elif isinstance(reply, int):
                    status, payload = reply, json.dumps({"error": {"message": f"echo {self.headers}"}}).encode()
                elif isinstance(reply, tuple):
                    status, headers = reply
                elif isinstance(reply, bytes):
                    payload = reply
                else:
                    payload = completion(reply)
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                except OSError:
                    pass

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
