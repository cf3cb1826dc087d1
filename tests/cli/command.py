"""Runs the real `rllib` command in a process of its own.

A command that is waited for is forked off a server that has imported the libraries, which takes a fresh interpreter
five seconds; from there on it is what `python -m` does. One that runs on while a test reads or kills it is started
from nothing.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

MODULE = "rllib_llm_comm.cli.main"
COMMAND = [sys.executable, "-m", MODULE]
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        MODULE,
        "ray.tune",
        "ray.rllib.algorithms.ppo",
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.tokenization_auto",
        "transformers.models.llama.modeling_llama",
        "peft",
        "numba",
        "openai",
        "pyarrow.parquet",
        "matplotlib.figure",
    ]
)


def environment() -> dict[str, str]:
    """The tests' environment, for output without colours; the tests' own servers are asked without a proxy.

    A test's own Ray says in the environment that it asks for a token. A forked command would start such a server and
    know nothing of it itself, since it read its settings when the libraries were imported.
    """
    here = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    given = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    return {**given, **here, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def rllib(
    *arguments: str, cwd: Path, timeout: float = 240, columns: int = 200, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `rllib ARGUMENTS` in a folder until it ends; `variables` are added to the environment."""
    env = {**environment(), "COLUMNS": str(columns), **variables}
    command = [*COMMAND, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _SERVER.Process(target=_become, args=(arguments, cwd, env, _import_path(env), out, err))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(command, process.exitcode or 0, out.read_text(), err.read_text())


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


def _import_path(env: dict[str, str]) -> list[str]:
    """The places from which a fresh interpreter imports, without the folder that it is started in."""
    return _asked_import_path(tuple(sorted((name, env[name]) for name in env if name.startswith(("PYTHON", "HOME")))))


@cache
def _asked_import_path(env: tuple[tuple[str, str], ...]) -> list[str]:
    program = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    return json.loads(subprocess.run(program, env=dict(env), capture_output=True, check=True).stdout)


def _become(arguments: tuple[str, ...], cwd: Path, env: dict[str, str], path: list[str], out: Path, err: Path) -> None:
    """Turns a forked process into `python -m rllib_llm_comm.cli.main ARGUMENTS`."""
    for place, number in ((out, 1), (err, 2)):
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = [os.getcwd(), *path]
    sys.argv[:] = [MODULE, *arguments]
    for name in [name for name in sys.modules if name == MODULE or name.split(".")[0] == "tests"]:
        del sys.modules[name]  # the command is run as `__main__`, not imported
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
