"""A server on 127.0.0.1 that speaks OpenAI's completions protocol, as vLLM does, with our own model behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CompletionServer:
    """Continues prompts with a function; the first replies may be statuses or bodies instead.

    Args:
        write: Prompts to texts.
        troubles: Statuses (int) or bodies (dict) of the first requests.
    """

    def __init__(self, write: Callable[[list[str]], list[str]], *troubles: int | dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        left = list(troubles)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append({"path": self.path, **body})
                trouble = left.pop(0) if left else None
                status = trouble if isinstance(trouble, int) else 200
                if isinstance(trouble, int):
                    answer: dict[str, Any] = {"error": {"message": "busy"}}
                else:
                    texts = write(body["prompt"])
                    # Any order: the index counts.
                    choices = [{"index": k, "text": f" {text}\n", "finish_reason": "stop", "logprobs": None}
                               for k, text in enumerate(texts)][::-1]  # fmt: skip
                    answer = trouble or {"id": "x", "object": "text_completion", "created": 1, "model": body["model"],
                                         "choices": choices}  # fmt: skip
                payload = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> CompletionServer:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
