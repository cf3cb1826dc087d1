"""The server of `tests.forked`. Processes that share the tests share it, too."""

from __future__ import annotations

import os
from multiprocessing import forkserver
from pathlib import Path

import pytest

_server = forkserver._forkserver


def start() -> str:
    """Starts the server unless there is one; gives its address.

    Ray reads what a worker is told of in its environment when it is imported, which here is before there is a worker:
    it belongs to the first job of its Ray, and ends without its raylet, whose place the tests take.
    """
    forkserver.set_forkserver_preload(["tests.preloaded"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_JOB_ID", "01000000")
        patch.setenv("RAY_RAYLET_PID", str(os.getpid()))
        patch.setenv("RAY_enable_pipe_based_agent_to_parent_health_check", "1")  # as a raylet tells its agents
        patch.chdir(Path(__file__).parents[1])
        _server.ensure_running()
    return _server._forkserver_address


def share(address: str) -> None:
    """Takes the server of another process, with which it ends."""
    _server._forkserver_address, _server._forkserver_alive_fd = address, os.open(os.devnull, os.O_WRONLY)
    _server.ensure_running = lambda: None
    connect = forkserver.connect_to_new_process

    def connected(fds: list[int]) -> tuple[int, int]:
        try:
            return connect(fds)
        except (ConnectionRefusedError, FileNotFoundError):
            raise RuntimeError(f"the tests' fork server at {address} has died; run the tests again.") from None

    forkserver.connect_to_new_process = connected
