"""Runs the real `rllib` command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "rllib_llm_comm.cli.main"]


def environment() -> dict[str, str]:
    """The tests' environment, for output without colours; the tests' own servers are asked without a proxy."""
    here = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    return {**os.environ, **here, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def rllib(*arguments: str, cwd: Path, timeout: float = 240, columns: int = 200) -> subprocess.CompletedProcess[str]:
    """Runs `rllib ARGUMENTS` in a folder until it ends."""
    env = {**environment(), "COLUMNS": str(columns)}
    return subprocess.run([*COMMAND, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)


def start_rllib(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Starts `rllib ARGUMENTS` in a folder; its output can be read line by line."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env={**environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
