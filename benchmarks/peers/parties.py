"""The parties as processes: where their Python is, how they are asked, and how their work is timed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class PartyError(Exception):
    """A party that cannot be compared; the text is one sentence that says why."""


@dataclass(frozen=True)
class Party:
    """A side of the comparison.

    Attributes:
        name: Its name in rows, and of its folder of environments.
        program: Its program beside this file.
        own_environment: False if it runs in the driver's own.
    """

    name: str
    program: str
    own_environment: bool = True

    def python(self, environments: Path | None) -> str:
        """Its Python.

        Raises:
            PartyError: If it is not installed.
        """
        if not self.own_environment:
            return sys.executable
        if environments is None:
            raise PartyError(f"{self.name} is skipped: no folder of environments was named (`--environments FOLDER`).")
        python = environments / self.name / "bin" / "python"
        if not python.exists():
            raise PartyError(
                f"{self.name} is skipped: it is not installed in {str(environments)!r}; run "
                f"`python benchmarks/peers/install.py {environments}`."
            )
        return str(python)


OURS = Party("ours", "ours.py", own_environment=False)
TRANSFORMERS = Party("transformers", "plain_generate.py", own_environment=False)
PEERS = (Party("lamorel", "lamorel_ppo.py"), Party("trl", "trl_grpo.py"))


class Process:
    """A running party.

    Args:
        party: The side that runs.
        problem: Folder of the problem.
        environments: Folder of the environments.
        threads: Threads of torch.
        log: Takes what the party's libraries write.
    """

    def __init__(self, party: Party, problem: Path, environments: Path | None, threads: int, log: Path) -> None:
        self.name, self._log = party.name, log
        command = [party.python(environments), str(HERE / party.program), str(problem)]
        own = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
               "PYTHONPATH": ""}  # fmt: skip
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**os.environ, **own}, start_new_session=True,
            )  # fmt: skip
        self.versions: dict[str, str] = self._read()["versions"]

    def ask(self, work: str) -> Any:
        """The answer of the party to a request."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the end is told below, with its reason
            self._process.stdin.write(work + "\n")
            self._process.stdin.flush()
        return self._read()["result"]

    def seconds(self, work: str) -> float:
        """Seconds that a request takes: CPU seconds of the party's busiest process, or of the clock without /proc."""
        before, start = cpu_seconds(self._process.pid), time.perf_counter()
        self.ask(work)
        after = cpu_seconds(self._process.pid)
        spent = [after[pid] - before.get(pid, 0.0) for pid in after]
        return max(spent) if spent else time.perf_counter() - start

    def close(self) -> None:
        """Ends the party, and processes that it has left behind."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            last = self._log.read_text(encoding="utf-8").strip().splitlines()[-1:]
            raise PartyError(f"{self.name} is skipped: its program ended with {' '.join(last)[:300]!r}.")
        answer: dict[str, Any] = json.loads(line)
        return answer


def cpu_seconds(session: int) -> Mapping[int, float]:
    """CPU seconds of each process of a session; empty where there is no /proc."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[3]) == session:
            found[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found
