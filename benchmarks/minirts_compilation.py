"""Seconds of the first compilation of MiniRTS, and of loading what was compiled.

    python benchmarks/minirts_compilation.py --json docs/results/benchmarks/minirts_compilation.json

Fresh processes with an empty folder for compiled code, then with the same folder again. Seconds are those of one core's
own work (CPU time), without imports. The yardstick is what is asked for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from harness import Row, main

# What is asked for.
GOAL = 60.0
_TIMED = """
import time
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.engine.rts_game import compile_rules
start = time.process_time()
compile_rules()
rules = time.process_time()
minirts.parallel_env(action_level="red", observe=["planes", "lists", "officer"]).reset(seed=0)
print(rules - start, time.process_time() - rules)
"""


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows; for a smoke test what is compiled already is loaded instead."""
    with tempfile.TemporaryDirectory() as folder:
        first, views = _seconds(None if options.smoke else folder)
        again = sum(_seconds(None if options.smoke else folder))
    settings = {"clock": "cpu"}
    return [
        Row("minirts_compilation/rules", first, GOAL, "s", 1.0, settings, lower_is_better=True),
        Row("minirts_compilation/views", views, None, "s", None, settings, lower_is_better=True),
        Row("minirts_compilation/loaded", again, None, "s", None, settings, lower_is_better=True),
    ]


def _seconds(folder: str | None) -> tuple[float, float]:
    """CPU seconds of the rules and of the views in a fresh process; the latter with the first game."""
    environment = os.environ if folder is None else {**os.environ, "NUMBA_CACHE_DIR": folder}
    done = subprocess.run([sys.executable, "-c", _TIMED], env=environment, capture_output=True, check=True, text=True)
    rules, views = map(float, done.stdout.split())
    return rules, views


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
