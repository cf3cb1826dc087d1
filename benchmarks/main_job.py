"""PPO iterations of the main job, `tuned_examples/verco.yaml`, beside an earlier checkout.

    git worktree add ../before 75edb1ee~1
    python benchmarks/main_job.py --before ../before --json docs/results/benchmarks/main_job.json

Both checkouts train with the settings of this one's file, except that the message adapter is that of the shipped
policy `verco_salad`. Each round is a fresh process per checkout, in turn. It takes one iteration that does not count,
then a few more. Seconds are CPU seconds of the process, as the machine may be busy. Without `--before` the yardstick's
column stays empty.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from harness import Row, main

ROOT = Path(__file__).resolve().parents[1]
ADAPTER = ROOT / "rllib_llm_comm" / "policies" / "zoo_policies" / "verco_salad"
GOAL = 0.95  # "no slower", but for what rounds differ by


def settings(smoke: bool) -> dict[str, Any]:
    """The settings of the file's stage `verco`."""
    told = yaml.safe_load((ROOT / "tuned_examples" / "verco.yaml").read_text())["verco"]
    config = {**told["config"], "env": told["env"], "message_checkpoint": str(ADAPTER)}
    if smoke:
        config.update(train_batch_size_per_learner=32, minibatch_size=32, num_envs_per_env_runner=2)
    return config


def train(config: dict[str, Any], iterations: int) -> dict[str, Any]:
    """CPU seconds of each iteration but the first; runs in the process of one checkout."""
    import torch

    import rllib_llm_comm
    from rllib_llm_comm.rl.algorithms import register_all
    from rllib_llm_comm.verco.verco import VercoConfig

    torch.set_num_threads(1)
    register_all()
    algo = VercoConfig().update_from_dict(config).build_algo()
    try:
        seconds: list[float] = []
        for _ in range(iterations + 1):
            start = time.process_time()
            algo.train()
            seconds.append(time.process_time() - start)
    finally:
        algo.stop()
    return {"seconds": seconds[1:], "package": rllib_llm_comm.__file__}


def of_checkout(folder: Path, options: argparse.Namespace) -> float:
    """Median CPU seconds of an iteration."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    asked = json.dumps([settings(options.smoke), 1 if options.smoke else options.iterations])
    done = subprocess.run(
        [sys.executable, __file__, "--serve"], input=asked, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"The main job failed in {folder}:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    if folder not in Path(told["package"]).parents:
        raise SystemExit(f"{told['package']} was taken instead of the package in {folder}.")
    return statistics.median(told["seconds"])


def measure(options: argparse.Namespace) -> list[Row]:
    """One row."""
    folders = [ROOT, *([options.before.resolve()] if options.before else [])]
    rounds = [[of_checkout(folder, options) for folder in folders] for _ in range(options.rounds)]
    own = statistics.median(seconds[0] for seconds in rounds)
    before = own * statistics.median(seconds[1] / seconds[0] for seconds in rounds) if options.before else None
    told = {"iterations": options.iterations, "seconds": "CPU", "decisions": settings(options.smoke)[
        "train_batch_size_per_learner"], "rounds_seconds": rounds}  # fmt: skip
    goal = GOAL if options.before else None
    return [Row("main_job/iteration", own, before, "s", goal, told, lower_is_better=True)]


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, help="folder of an earlier checkout, the yardstick")
    parser.add_argument("--iterations", type=int, default=3, help="timed iterations of a process")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        print(json.dumps(train(*json.loads(sys.stdin.read()))))
    else:
        main(__doc__.splitlines()[0], measure, _more)
