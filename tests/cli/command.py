"""Runs the real `rllib` command in a process of its own, forked off a server that has imported the libraries.

Its Ray's workers are no processes below it: where a test looks at these, the command is started from nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import forked

COMMAND = [sys.executable, "-m", forked.CLI]


def environment() -> dict[str, str]:
    """The tests' environment, for output without colours; the tests' own servers are asked without a proxy."""
    here = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    return {**forked.environment(), **here, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def rllib(
    *arguments: str, cwd: Path, timeout: float = 240, columns: int = 200, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `rllib ARGUMENTS` in a folder until it ends; `variables` are added to the environment."""
    env = {**environment(), "COLUMNS": str(columns), **variables}
    return forked.run(forked.CLI, *arguments, cwd=cwd, env=env, timeout=timeout)


def fork_rllib(*arguments: str, cwd: Path) -> forked.Running:
    """Forks `rllib ARGUMENTS` in a folder; its output can be read line by line."""
    return forked.start(forked.CLI, *arguments, cwd=cwd, env=environment())


def start_rllib(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """As `fork_rllib`, started from nothing, with Ray's workers below it."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=cwd,
        env={**environment(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def succeeds(*arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """As `rllib`, for a command that has to succeed."""
    done = rllib(*arguments, cwd=cwd, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
