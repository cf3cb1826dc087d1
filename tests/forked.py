"""Runs Python programs in processes that are forked off a server which has imported the libraries.

A fresh interpreter takes five seconds to import them. From the fork on a program is what `python PROGRAM` is, but for
three processes of Ray's that no test needs. The workers of Ray, wherever it is started here, are such forks, too.
"""

from __future__ import annotations

import atexit
import fcntl
import inspect
import json
import multiprocessing
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partialmethod
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import numpy as np
from ray._private import services
from ray._private.parameter import RayParams
from ray._private.workers import setup_worker
from ray._raylet import Config
from ray.tune.utils import UtilMonitor

from tests import fork_server

CLI = "rllib_llm_comm.cli.main"
UtilMonitor.start = lambda *_: None
"""Every algorithm that stops would wait until a thread which looks at the machine's load has slept for 0.7 seconds."""


@cache
def _server() -> ForkServerContext:
    fork_server.start()
    return multiprocessing.get_context("forkserver")


def environment() -> dict[str, str]:
    """The tests' environment, but for the token mode that a Ray which runs here has left in it."""
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
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        command = [str(program), *map(str, arguments)]
        process = spawn(command, cwd, env, out, err)
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(command, timeout, out.read_text(), err.read_text())
        return subprocess.CompletedProcess(command, process.exitcode or 0, out.read_text(), err.read_text())


def begin(function: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Calls a function of a module in a process that ends with the tests, and whose environment is that of now."""
    process = _server().Process(target=_call, args=(dict(os.environ), function, arguments))
    process.start()
    atexit.register(process.kill)
    return process


def _call(env: dict[str, str], function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    os.environ.update(env)
    function(*arguments)


def spawn(command: list[str], cwd: Path, env: dict[str, str], out: Path, err: Path) -> BaseProcess:
    """Starts a program that writes to two places, which may be a pipe or a terminal."""
    return begin(_run, command, cwd, env, _import_path(env), out, err, workers())


@dataclass(frozen=True)
class Running:
    """A program that goes on beside the test; its methods are those of `subprocess.Popen`."""

    process: BaseProcess
    stdout: TextIO

    def poll(self) -> int | None:
        """Its exit code; `None` while it runs."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as soon as it has ended."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, "it has not ended"
        return self.process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, int]:
        """What is left of its output, and its exit code."""
        return self.stdout.read(), self.wait(timeout)

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.process.pid, number)


def start(program: str | Path, *arguments: str, cwd: Path, env: Mapping[str, str]) -> Running:
    """Starts a program in a folder, as `run` does, for a test that reads or kills it meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder, "pipe")
        os.mkfifo(pipe)
        process = spawn([str(program), *map(str, arguments)], cwd, dict(env), pipe, Path("/dev/stdout"))
        return Running(process, pipe.open())  # opens when both ends have come


def _import_path(env: dict[str, str]) -> list[str]:
    """The places from which a fresh interpreter imports, without the folder that it is started in."""
    return _asked_import_path(tuple(sorted((name, env[name]) for name in env if name.startswith(("PYTHON", "HOME")))))


@cache
def _asked_import_path(env: tuple[tuple[str, str], ...]) -> list[str]:
    program = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    return json.loads(subprocess.run(program, env=dict(env), capture_output=True, check=True).stdout)


@cache
def lighten_ray(workers: Callable[[], Path]) -> None:
    """Lets Ray start no monitor of its autoscaler, none of its workers' logs and no dashboard, and fork all else.

    Each, and each agent, is half a second of work at every start of Ray, which waits for the last; a worker is three.

    Args:
        workers: Gives what Ray starts in place of a worker, as `workers` does.
    """
    RayParams.__init__ = partialmethod(RayParams.__init__, no_monitor=True, include_log_monitor=False)
    services.start_api_server = lambda *_, **__: (None, None)  # as where it could not be started
    services._build_python_executable_command_memory_profileable = lambda *_: [sys.executable, str(workers())]
    start_raylet = services.start_raylet

    def start_forking(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(start_raylet).bind(*arguments, **named)
        bound.arguments["setup_worker_path"] = str(workers())
        return start_raylet(*bound.args, **bound.kwargs)

    services.start_raylet = start_forking


@cache
def lighten_connectors() -> None:
    """Lets RLlib's connectors look at the one frame that they use, not at all, each with its source.

    An algorithm makes a dozen of them. A worker of pytest-xdist has frames whose source is in no file: for each of
    them, at each look, Python looks through all modules, which is 0.6 seconds for an algorithm.
    """
    from ray.rllib.connectors import connector_v2

    def stack() -> list[Any]:
        return [None, SimpleNamespace(frame=sys._getframe(2))]  # only who called the caller is asked for

    connector_v2.inspect = SimpleNamespace(stack=stack, getargvalues=inspect.getargvalues)


@cache
def workers() -> Path:
    """Path of the program that Ray starts in place of a worker; a process of its own forks one at every call."""
    folder = Path(tempfile.mkdtemp(prefix="workers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(shutil.copy(Path(__file__).with_name("ray_worker.py"), folder))
    process = _server().Process(target=_serve, args=(folder / "socket",), daemon=True)
    process.start()
    while not (folder / "socket").exists():
        assert process.is_alive()
        time.sleep(0.01)
    return program


def _serve(place: Path) -> None:
    """Forks a worker for each that connects to a socket, until the tests have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the workers
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{place}.new")
    server.listen(64)
    os.rename(f"{place}.new", place)  # who finds it can connect
    tests = multiprocessing.parent_process()
    while tests.sentinel not in wait([server, tests.sentinel]):
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _become_worker(connection)
        connection.close()


@contextmanager
def _ending() -> Iterator[None]:
    """Ends the process with the block, as an interpreter ends with its program."""
    code = 1
    try:
        yield
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become_worker(connection: socket.socket) -> None:
    """Turns a forked process into the worker for which `ray_worker.py` was started; does not return."""
    os.setpgid(0, 0)  # the raylet signals to the worker's group
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    with _ending():
        length, streams, *_ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as told:
            arguments, env, cwd = json.loads(told.read(int.from_bytes(length, "big")))
        # Where `ray_worker.py` ends, with the raylet, this ends, too: a signal comes that nobody handles.
        fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
        for number, handle in enumerate(streams):
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin = os.fdopen(0, closefd=False)  # by its end an agent knows that of its raylet
        # As `setup_worker.py` of Ray's: the environment that the job asks for, then the program of the worker.
        given, command = setup_worker.parser.parse_known_args(arguments)
        env.update(json.loads(given.serialized_runtime_env_context or "{}").get("env_vars") or {})
        _become([one for one in command if one not in ("-s", "-S")], Path(cwd), env, _import_path(env))


def _run(
    command: list[str], cwd: Path, env: dict[str, str], path: list[str], out: Path, err: Path, worker: Path
) -> None:
    """Turns a forked process into a program that writes to two files and whose Ray forks its workers."""
    for place, number in ((out, 1), (err, 2)):
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, number)
        os.close(handle)
    # The server's own remember what they have been before; a test may read each line.
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    lighten_ray(lambda: worker)
    with _ending():
        _become(command, cwd, env, path)


def _become(command: list[str], cwd: Path, env: dict[str, str], path: list[str]) -> None:
    """Turns a forked process into `python -m MODULE ARGUMENTS` or `python SCRIPT ARGUMENTS`."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    lighten_connectors()
    np.random.seed()  # a fresh interpreter begins anywhere
    Config.initialize("")  # whether Ray asks for a token was read in the environment of the server
    program = command[0]
    script = program.endswith(".py")
    sys.path[:] = [str(Path(program).resolve().parent) if script else os.getcwd(), *path]
    sys.argv[:] = command
    for name in [name for name in sys.modules if name == program or name.split(".")[0] == "tests"]:
        del sys.modules[name]  # a module is run as `__main__`, not imported
    if script:
        runpy.run_path(program, run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
