"""A server that speaks the Hugging Face hub's protocol, as far as publishing and fetching small models needs it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from typing_extensions import Self


class HubServer:
    """Keeps repositories in memory; every commit replaces the files that it names.

    Attributes:
        url: Its address, for `HF_ENDPOINT`.
        repos: Name -> path -> content.
        private: Names of repositories that were made private.
        told_sizes: Repository and path -> the size that is told of it, where that is not the true one.
        tokens: The tokens that came.
        asked: Method and path of all requests.
    """

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.told_sizes: dict[tuple[str, str], int] = {}
        self.tokens: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                self._answer(*outer.post(self._path(), body))

            def do_GET(self) -> None:
                self._answer(*outer.get(self._path()))

            do_HEAD = do_GET  # noqa: N815

            def _path(self) -> str:
                path = unquote(urlsplit(self.path).path)
                outer.asked.append((self.command, path))
                outer.tokens.add(self.headers.get("authorization", ""))
                return path

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def commit(self, repo: str) -> str:
        """The name of a repository's latest commit."""
        return hashlib.sha1(
            json.dumps({k: hashlib.sha1(v).hexdigest() for k, v in self.repos[repo].items()}).encode()
        ).hexdigest()

    def post(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Makes repositories, tells how files come, and takes commits."""
        if path == "/api/repos/create":
            told = json.loads(body)
            name = f"{told['organization']}/{told['name']}"
            if name in self.repos:
                return _json(409, {"error": "there already", "url": f"{self.url}/{name}"})
            self.repos[name] = {}
            if told.get("private") or told.get("visibility") == "private":
                self.private.add(name)
            return _json(200, {"url": f"{self.url}/{name}"})
        if path == "/api/validate-yaml":
            return _json(200, {"errors": [], "warnings": []})
        repo = "/".join(path.split("/")[3:5])
        if repo not in self.repos:
            return _json(404, {"error": "Repository not found"}, {"x-error-code": "RepoNotFound"})
        if "/preupload/" in path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return _json(200, {"files": files})
        if "/commit/" in path:
            for line in body.splitlines():
                told = json.loads(line)
                if told["key"] == "deletedFile":
                    del self.repos[repo][told["value"]["path"]]
                if told["key"] == "file":
                    assert told["value"]["encoding"] == "base64"
                    self.repos[repo][told["value"]["path"]] = base64.b64decode(told["value"]["content"])
            commit = self.commit(repo)
            return _json(200, {"commitUrl": f"{self.url}/{repo}/commit/{commit}", "commitOid": commit, "success": True})
        return _json(404, {"error": path})

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Tells what is in repositories, and gives files."""
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo = "/".join(parts[2:4])
            if repo not in self.repos:
                return _json(404, {"error": "Repository not found"}, {"x-error-code": "RepoNotFound"})
            commit = self.commit(repo)
            if "tree" in parts:
                files = [
                    {"type": "file", "path": name, "size": len(held), "oid": hashlib.sha1(held).hexdigest()}
                    for name, held in self.repos[repo].items()
                ]
                return _json(200, files)
            siblings = [
                {"rfilename": name, "size": self.told_sizes.get((repo, name), len(held))}
                for name, held in self.repos[repo].items()
            ]
            return _json(
                200, {"id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "private": False, "tags": []}
            )
        repo, name = "/".join(parts[:2]), "/".join(parts[4:])
        if name not in self.repos.get(repo, {}):
            return _json(404, {"error": "Entry not found"}, {"x-error-code": "EntryNotFound"})
        held = self.repos[repo][name]
        return 200, {"etag": f'"{hashlib.sha1(held).hexdigest()}"', "x-repo-commit": self.commit(repo)}, held


def _json(status: int, told: Any, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json", **(headers or {})}, json.dumps(told).encode()
