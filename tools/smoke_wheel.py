"""Builds the wheel and runs the smallest pipeline from it, in a fresh environment for each Python.

    python tools/smoke_wheel.py                        # python3.10 to python3.13, those that are there
    python tools/smoke_wheel.py /opt/python3.12 --out wheels.json

One line per interpreter: works, fails or not to be had. The environments see the wheel, never this repository. Each is
deleted after its run, since a PyTorch for GPUs takes gigabytes; `--venvs FOLDER` keeps them as `FOLDER/pyVERSION` and
takes those that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = tuple(f"python3.{minor}" for minor in (10, 11, 12, 13))
SMOKE = ROOT / "tests" / "data" / "verco_smoke.yaml"
LEFT = ("evaluation/evaluation.json", "replay/replay.html")
WORKS, FAILS, MISSING = "works", "fails", "not to be had"


@dataclass
class Outcome:
    """The smoke run of one interpreter.

    Attributes:
        python: Its name or path, as it was asked for.
        version: Its version; empty if there is none.
        outcome: `works`, `fails` or `not to be had`.
        seconds: Time of the smoke run.
        torch: Version of PyTorch in the environment.
        error: The end of the output of the command that failed.
    """

    python: str
    version: str = ""
    outcome: str = MISSING
    seconds: float = 0.0
    torch: str = ""
    error: str = ""

    def __str__(self) -> str:
        name = f"Python {self.version}" if self.version else self.python
        how = f" in {self.seconds:.0f} s, torch {self.torch}" if self.outcome == WORKS else ""
        return f"{name}: {self.outcome}{how}"


class FailedError(Exception):
    """A command has failed; the text is the end of its output."""


def build_wheel(folder: Path) -> Path:
    """The wheel of a copy of the repository's files, so that no earlier build gets into it.

    Args:
        folder: Place of the wheel.
    """
    copy = folder / "source"
    listed = _output("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    _output(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(copy), cwd=folder)
    return next(folder.glob("*.whl"))


def smoke(python: str, wheel: Path, scratch: Path, venvs: Path | None) -> Outcome:
    """Installs a wheel under an interpreter and runs the smallest pipeline.

    Args:
        python: Name or path of the interpreter.
        wheel: The wheel.
        scratch: An empty folder.
        venvs: Folder of environments that are kept; `None` for one that is deleted.
    """
    found = Outcome(python)
    try:
        found.version = _output(python, "-c", "import platform; print(platform.python_version())", cwd=scratch).strip()
    except (OSError, FailedError):
        return found
    venv = (venvs or scratch) / f"py{found.version}"
    try:
        _install(python, wheel, venv, scratch)
        own = str(venv / "bin" / "python")
        where = _output(own, "-c", "import rllib_llm_comm; print(rllib_llm_comm.__file__)", cwd=scratch).strip()
        if not Path(where).is_relative_to(venv):
            raise FailedError(f"rllib_llm_comm comes from {where}, not from the wheel")
        found.torch = _output(own, "-c", "import torch; print(torch.__version__)", cwd=scratch).strip()
        begin = time.perf_counter()
        _run_pipeline(venv, scratch)
        found.seconds = round(time.perf_counter() - begin, 1)
        found.outcome = WORKS
    except FailedError as error:
        found.outcome, found.error = FAILS, str(error)
    finally:
        if venvs is None:
            shutil.rmtree(venv, ignore_errors=True)
    return found


def _install(python: str, wheel: Path, venv: Path, scratch: Path) -> None:
    if not venv.exists():
        _output(python, "-m", "venv", str(venv), cwd=scratch)
    pip = (str(venv / "bin" / "pip"), "--quiet", "--disable-pip-version-check")
    _output(*pip, "install", "--no-compile", str(wheel), cwd=scratch)
    # A wheel of the same version takes the place of an earlier one.
    _output(*pip, "install", "--no-compile", "--no-deps", "--force-reinstall", str(wheel), cwd=scratch)
    _output(*pip, "check", cwd=scratch)


def _run_pipeline(venv: Path, scratch: Path) -> None:
    shutil.copy(SMOKE, scratch / "smoke.yaml")
    rllib = str(venv / "bin" / "rllib")
    _output(rllib, "train", "file", "smoke.yaml", "--ray-num-cpus", "4", cwd=scratch)
    for name in LEFT:
        if not (scratch / "results" / "smoke" / name).is_file():
            raise FailedError(f"{name} is missing")
    _output(rllib, "example", "list", cwd=scratch)
    _output(rllib, "example", "get", "verco", cwd=scratch)
    _output(rllib, "evaluate", "zoo:told_salad", "--episodes", "2", cwd=scratch)


def _output(*command: str, cwd: Path) -> str:
    """The standard output of a command that sees nothing of this repository."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FailedError(f"{' '.join(command[:3])}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description="Run the smallest pipeline from the wheel, per interpreter.")
    parser.add_argument("pythons", nargs="*", default=PYTHONS, help="interpreters; python3.10 to python3.13")
    parser.add_argument("--venvs", type=Path, help="folder of environments that are kept and taken again")
    parser.add_argument("--out", type=Path, help="JSON file of the outcomes")
    arguments = parser.parse_args()
    venvs = arguments.venvs and arguments.venvs.absolute()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        for number, python in enumerate(arguments.pythons):
            scratch = Path(folder) / str(number)
            scratch.mkdir()
            found.append(smoke(python, wheel, scratch, venvs))
            print(found[-1], flush=True)
            if found[-1].error:
                print(found[-1].error, file=sys.stderr)
            if arguments.out:
                arguments.out.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    if any(each.outcome == FAILS for each in found) or all(each.outcome == MISSING for each in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
