"""What the tests' servers share: one POST handler on 127.0.0.1, in a thread, for the length of a `with`."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self


class LocalServer:
    """Answers every POST with what `reply` gives.

    Attributes:
        url: The address up to `/v1`.
        requests: The bodies received.
        paths: Where they were sent.
    """

    def __init__(self, port: int = 0) -> None:
        """Listens at a port; 0: at any that is free."""
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                outer.paths.append(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, extra, payload = outer.reply(self.path, headers, body)
                if status == 0:
                    return
                try:
                    self.send_response(status)
                    sent = {"content-type": "application/json", "content-length": str(len(payload)), **extra}
                    for name, value in sent.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(payload)
                except OSError:  # the client has gone
                    pass

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Status (0 closes the connection without a word), further headers and body of the answer."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
