"""The bar of a training, as a terminal shows it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import forked
from tests.cli.command import environment

CONFIG = {"input_": "labels", "train_batch_size_per_learner": 4, "judge_interval": 0, "judge_prompts": 1}
STAGE = {"run": "MessageSFT", "stop": {"training_iteration": 1}, "config": CONFIG}
PROGRAM = """
from rllib_llm_comm.cli.main import app
from rllib_llm_comm.experiments import console

console.out.__init__(highlight=False)  # whether there is a terminal was asked where this program was forked off
app()
"""


def _on_a_terminal(arguments, cwd) -> str:
    """All that a command writes to a terminal of 120 columns."""
    ours, its = pty.openpty()
    terminal = Path(os.ttyname(its))
    env = {**environment(), "TERM": "xterm", "COLUMNS": "120"}
    (cwd / "program.py").write_text(PROGRAM)
    running = forked.spawn([str(cwd / "program.py"), *arguments], cwd, env, terminal, terminal)
    written = b""
    while running.is_alive() or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            written += os.read(ours, 4096)
    os.close(ours)
    os.close(its)
    assert running.exitcode == 0, written.decode()
    return written.decode()


@pytest.mark.slow
def test_the_bar_moves_inside_an_iteration_of_sft_and_tells_the_time_that_remains(tmp_path):
    folder = tmp_path / "labels"
    folder.mkdir()
    prompts = [f"you are alice. you see {number}. " + "it is step 1. " * 8 for number in range(400)]
    env = json.dumps({"id": "rllib_llm_comm/door-v0", "settings": {}})
    table = {"prompt": prompts, "message": ["i wait"] * len(prompts), "env": [env] * len(prompts)}
    pq.write_table(pa.table(table), folder / "part-0.parquet")
    (tmp_path / "sft.json").write_text(json.dumps({"sft": STAGE}))
    shown = _on_a_terminal(["train", "file", "sft.json", "--ray-num-cpus", "4"], tmp_path)
    shares = [int(share) for share in re.findall(r"training.*?(\d+)%", shown)]
    assert len(set(shares) - {0, 100}) >= 2 and shares == sorted(shares)
    assert re.search(r"training.*?\d+% \d:\d\d:\d\d \d:\d\d:\d\d", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown))
