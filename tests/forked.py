"""Runs Python programs in processes that are forked off a server which has imported the libraries.

A fresh interpreter takes five seconds to import them. From the fork on a program is what `python PROGRAM` is, but for
three processes of Ray's that no test needs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, partialmethod
from pathlib import Path

from ray._private import services
from ray._private.parameter import RayParams

CLI = "rllib_llm_comm.cli.main"
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        CLI,
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
    """The tests' environment, but for the token mode of a Ray that runs here.

    A forked program would start such a server and know nothing of it itself, since it read its settings when the
    libraries were imported.
    """
    return {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}


def run(
    program: str | Path, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder until it ends, and gives what it wrote.

    Args:
        program: Path of a script, or the name of a module.
        arguments: What follows on its command line.
        cwd: Folder in which it runs.
        env: All of its environment; `None` takes that of the tests.
        timeout: Seconds after which it is killed.

    Raises:
        subprocess.TimeoutExpired: If it has not ended by then.
    """
    env = environment() if env is None else dict(env)
    command = [str(program), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _SERVER.Process(target=_become, args=(command, cwd, env, _import_path(env), out, err))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(command, process.exitcode or 0, out.read_text(), err.read_text())


def _import_path(env: dict[str, str]) -> list[str]:
    """The places from which a fresh interpreter imports, without the folder that it is started in."""
    return _asked_import_path(tuple(sorted((name, env[name]) for name in env if name.startswith(("PYTHON", "HOME")))))


@cache
def _asked_import_path(env: tuple[tuple[str, str], ...]) -> list[str]:
    program = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    return json.loads(subprocess.run(program, env=dict(env), capture_output=True, check=True).stdout)


@cache
def lighten_ray() -> None:
    """Lets Ray start no monitor of its autoscaler, none of its workers' logs and no dashboard.

    Each is half a second of work at every start of Ray, which waits for the last.
    """
    RayParams.__init__ = partialmethod(RayParams.__init__, no_monitor=True, include_log_monitor=False)
    services.start_api_server = lambda *_, **__: (None, None)  # as where it could not be started


def _become(command: list[str], cwd: Path, env: dict[str, str], path: list[str], out: Path, err: Path) -> None:
    """Turns a forked process into `python -m MODULE ARGUMENTS` or `python SCRIPT ARGUMENTS`."""
    for place, number in ((out, 1), (err, 2)):
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    program = command[0]
    script = program.endswith(".py")
    sys.path[:] = [str(Path(program).resolve().parent) if script else os.getcwd(), *path]
    sys.argv[:] = command
    lighten_ray()
    for name in [name for name in sys.modules if name == program or name.split(".")[0] == "tests"]:
        del sys.modules[name]  # a module is run as `__main__`, not imported
    if script:
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
