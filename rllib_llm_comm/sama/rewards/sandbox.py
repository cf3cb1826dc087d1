"""Reward code that a language model wrote runs here and nowhere else.

SAMA lets its planner write Python functions that say whether a subgoal is reached. Such code is not to be trusted: a
model can be wrong, and what it read (a paper, an observation, a message) can tell it what to write. It meets three
walls:

1. A list of what may be used: a few kinds of statements, some thirty builtins, thirty methods of lists, dictionaries,
   sets and texts. No imports, no other attribute, no name with two underscores, so none of the known ways from an
   object to the interpreter's insides.
2. A process of its own, which knows nothing of ours: no environment variables, no packages; only plain values (JSON)
   pass in, and a 0, a 1 or sentences out. It may not open a file or a socket, nor write to a file.
3. Limits that the system enforces: computing time per call and memory. What hits them ends, and the next call gets a
   new process.

Code is never parsed in our own process, since deep nesting can crash a parser.

Not chosen: pydantic-monty, an interpreter of a subset of Python in Rust; docs/guides/subgoal_rewards.md compares them.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings

_WORKER = Path(__file__).with_name("sandbox_worker.py")
_MOST_STATE = 1 << 20
_MOST_ANSWER = 1 << 18  # the most sentences of any script, as JSON writes them
_MOST_PROGRAMS = 1024
_REWARD, _TRANSLATE = "reward", "translate"  # as in the worker, which is not imported
_RETURNS = {
    _REWARD: "returns 1 if the subgoal is reached and 0 if not",
    _TRANSLATE: "returns a list of short sentences",
}
_PATIENCE = 20.0  # wall-clock seconds beyond the computing time: the machine may be busy, the worker never sleeps


class RefusedCodeError(UserError):
    """Code that may not run, ran into a limit, or did not return what it should.

    Attributes:
        reason: Reason, as a part of a sentence.
    """

    def __init__(self, reason: str, function: str = _REWARD) -> None:
        super().__init__(
            f"The {function} code is refused: {reason}; write a function `{function}(state)` in plain Python, without "
            f"imports, that {_RETURNS[function]}."
        )
        self.reason, self._function = reason, function

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.reason, self._function)


class SandboxLimits(Settings):
    """Limits on one call of reward code."""

    seconds: float = Field(0.5, gt=0, le=60)
    """Computing time."""
    megabytes: int = Field(64, ge=1, le=4096)
    """Memory beyond that of an empty interpreter."""


_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)


def code_of(text: str) -> str:
    """The code in a model's answer: its first fenced block, or all of it."""
    block = _FENCE.search(text)
    return block[1] if block else text


class Sandbox:
    """Runs reward code in a process without rights; many pieces of code share it and cannot see each other.

    Threads take turns. A copy in another process (forked or unpickled) starts a process of its own.
    """

    def __init__(self, limits: SandboxLimits = SandboxLimits()) -> None:  # noqa: B008  (frozen)
        """Starts nothing yet.

        Raises:
            UserError: If this system has no such limits.
        """
        if not sys.platform.startswith("linux"):
            raise UserError(
                f"The rewards are code, but the sandbox needs Linux and this is {sys.platform!r}; use hand-written "
                "rewards or a judge."
            )
        self.limits = limits
        self._lock = threading.RLock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize | None = None
        self._owner = 0
        self._numbers: dict[tuple[str, str], int] = {}

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Rewards that come to another process one by one still share one sandbox there.
        shared = shared_sandbox.cache_info().currsize and shared_sandbox() is self
        return (shared_sandbox, ()) if shared else (Sandbox, (self.limits,))

    def check(self, source: str) -> None:
        """Refuses code of a function `reward(state)` that uses anything that is not allowed; it is not run.

        Raises:
            RefusedCodeError: Says what and where.
        """
        with self._lock:
            self._number(source, _REWARD)

    def run(self, source: str, state: Any) -> int:
        """Result of the code's `reward(state)`, 0 or 1.

        Each call begins anew: the code keeps nothing from one call to the next.

        Args:
            state: Plain values, as JSON knows them.

        Raises:
            RefusedCodeError: If the code is refused, runs into a limit, fails, or returns anything else.
            UserError: If the state is not of plain values, or too large.
        """
        return int(self._run(source, state, _REWARD))

    def translate(self, source: str, state: Any) -> list[str]:
        """Result of the code's `translate(state)`: 1 to 80 sentences of at most 200 characters.

        Args:
            state: Plain values, as JSON knows them.

        Raises:
            RefusedCodeError: If the code is refused, runs into a limit, fails, or returns anything else.
            UserError: If the state is not of plain values, or too large.
        """
        try:
            return list(self._run(source, state, _TRANSLATE))
        except RefusedCodeError as error:
            raise RefusedCodeError(error.reason, _TRANSLATE) from None

    def _run(self, source: str, state: Any, function: str) -> Any:
        try:
            plain = json.dumps(state, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(
                f"`state` is not made of plain values only ({error}); give numbers, texts, lists, dicts."
            ) from None
        if len(plain) > _MOST_STATE:
            raise UserError(f"`state` has {len(plain)} characters but may have {_MOST_STATE}; omit what is not needed.")
        with self._lock:
            number = self._number(source, function)
            return self._ask(f'["run", {number}, {plain}]')

    def close(self) -> None:
        """Ends the process; the next call starts a new one."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
            self._worker, self._finalizer, self._numbers = None, None, {}

    def _number(self, source: str, function: str) -> int:
        """The number of a piece of code in the process, which gets it if it has not seen it."""
        if self._worker is None or self._owner != os.getpid() or len(self._numbers) >= _MOST_PROGRAMS:
            self._start()
        if (source, function) not in self._numbers:
            number = len(self._numbers)
            self._ask(json.dumps(["load", number, source, function]))
            self._numbers[source, function] = number
        return self._numbers[source, function]

    def _start(self) -> None:
        self.close()
        # Isolated, without site packages; what an unusual Python needs to find its own library is kept.
        env = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        command = [sys.executable, "-I", "-S", "-B", str(_WORKER), str(self.limits.seconds)]
        self._worker = subprocess.Popen(
            [*command, str(self.limits.megabytes << 20)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
            start_new_session=True,  # ctrl-C is for us
        )
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _end, self._worker, self._owner)
        assert self._worker.stdout is not None
        if not _read_line(self._worker.stdout, _PATIENCE).endswith(b"\n"):
            self.close()
            raise UserError("The sandbox's process cannot be started here; use hand-written rewards or a judge.")

    def _ask(self, line: str) -> Any:
        worker = self._worker
        assert worker is not None and worker.stdin is not None and worker.stdout is not None
        try:
            worker.stdin.write(line.encode() + b"\n")
            worker.stdin.flush()
            answer = _read_line(worker.stdout, self.limits.seconds + _PATIENCE)
        except OSError:  # the process has ended while we wrote
            answer = b""
        if not answer.endswith(b"\n"):
            reason = self._reason_of_end(worker, timed_out=answer == _LATE)
            self.close()
            raise RefusedCodeError(reason)
        document = json.loads(answer)
        if document.get("end"):
            self.close()
        if "refused" in document:
            raise RefusedCodeError(document["refused"])
        return document["result"]

    def _reason_of_end(self, worker: subprocess.Popen[bytes], timed_out: bool) -> str:
        if not timed_out:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(_PATIENCE)
        if timed_out or worker.returncode == -signal.SIGPROF:
            return f"it ran for more than {self.limits.seconds:g} s"
        return "it crashed its process"


_LATE = b"late"


def _read_line(pipe: IO[bytes], seconds: float) -> bytes:
    """A line of bounded length; without its end if the process has ended, `_LATE` if there is none in time."""
    line, number = b"", pipe.fileno()
    while not line.endswith(b"\n") and len(line) < _MOST_ANSWER:
        if not select.select([number], [], [], seconds)[0]:
            return _LATE
        part = os.read(number, _MOST_ANSWER)
        if not part:
            break
        line += part
    return line


def _end(worker: subprocess.Popen[bytes], owner: int) -> None:
    """Ends a process; a forked copy of ours only lets go of its pipes."""
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if owner == os.getpid():
        worker.kill()
        worker.wait()


@functools.cache
def shared_sandbox() -> Sandbox:
    """The sandbox with the usual limits that all rewards of this process share."""
    return Sandbox()
