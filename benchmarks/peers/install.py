"""Makes the environments of the peers under a folder.

    python benchmarks/peers/install.py ENVIRONMENTS [--lamorel SOURCE]

Each peer gets `ENVIRONMENTS/NAME` with the versions below. A peer that cannot be installed is told in one sentence and
skipped by `run.py`. lamorel is on no package index: by default it comes from its repository, and `--lamorel` names
another source, such as a folder with a copy of it. None of this is a dependency of the package.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

# torch as the package itself wants it: below 2.14 a fresh install takes a CPU build where one is at hand.
TORCH = "torch>=2.8,<2.14"
LAMOREL = "git+https://github.com/flowersteam/lamorel.git@dce6f0d#subdirectory=lamorel"
NOT_INSTALLED = {"vllm": "vllm is not installed: its wheels want a GPU and a torch of several gigabytes."}


def requirements(lamorel: str = LAMOREL) -> dict[str, list[str]]:
    """Requirements of each peer, for pip.

    Args:
        lamorel: Source of lamorel.
    """
    return {
        # Its keys and values are tuples, which later versions of transformers refuse.
        "lamorel": [TORCH, "transformers==4.46.3", "peft==0.14.0", lamorel],
        "trl": [TORCH, "trl==1.16.0", "peft>=0.18,<1"],
    }


def install(folder: Path, wanted: Mapping[str, Sequence[str]]) -> list[str]:
    """Makes the environments that are not there yet.

    Args:
        folder: Their place, one folder each.
        wanted: Requirements of each of them.

    Returns:
        One sentence for each that could not be made; nothing of it is left.
    """
    failed = []
    for name, packages in wanted.items():
        target = folder / name
        if target.exists():
            continue
        venv.create(target, with_pip=True)
        python = str(target / "bin" / "python")
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            shutil.rmtree(target)
            reason = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), "")
            failed.append(f"{name} is not installed: pip gave up ({reason[:200]}).")
    return failed


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the environments go")
    parser.add_argument("--lamorel", default=LAMOREL, help="source of lamorel for pip, such as a folder")
    options = parser.parse_args()
    sentences = [*install(options.folder, requirements(options.lamorel)), *NOT_INSTALLED.values()]
    print("\n".join(sentences), file=sys.stderr)


if __name__ == "__main__":
    main()
