"""Learners of FCP for populations that the study of partners has trained: with other settings, or without past ones.

    rllib study file tuned_examples/study_partners.yaml
    python benchmarks/fcp_learners.py results/study_partners results/fcp_learners
    python benchmarks/fcp_learners.py results/study_partners results/fcp_final --final

Settings are those of FCP in `tuned_examples/study_partners.yaml`; members are those of the study's FCP of the same
seed, whatever its learner's settings were. `partners_table.py` takes the folders with `--fcp` and `--fcp-final`. A seed
that is done is not trained again.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import ray
import yaml
from partners_page import KITCHENS

from rllib_llm_comm import FCPConfig

STUDY = Path(__file__).parents[1] / "tuned_examples" / "study_partners.yaml"
KEPT = ("env_runners", "population", "game_steps_with_population", "training_iteration")
CHECKPOINT = "checkpoint_000001"


def learner(kitchen: str, trial: Path, final: bool) -> FCPConfig:
    """Settings of a learner for the population of a trial."""
    study = yaml.safe_load(STUDY.read_text(encoding="utf-8"))
    config = FCPConfig().environment(env_config=study["scenarios"][kitchen])
    own = {"population_from": str(trial), "past_checkpoints": not final, "seed": int(trial.name.split("seed=")[1])}
    config.update_from_dict({**study["systems"]["fcp"]["config"], **own})
    return config


def iterations() -> int:
    """Iterations of a learner in the study."""
    fcp = yaml.safe_load(STUDY.read_text(encoding="utf-8"))["systems"]["fcp"]
    own = fcp["config"]
    parts = own["population_size"] * own["member_iterations"] // own["iterations_per_task"]
    return int(fcp["stop"]["training_iteration"]) - parts


def train(config: FCPConfig, folder: Path, count: int) -> None:
    """Trains a learner; writes its results, some settings and, at the end, its checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("num_epochs", "critic_observation", "past_checkpoints", "population_from", "seed")
    told = {name: getattr(config, name) for name in names}
    (folder / "params.json").write_text(json.dumps(told) + "\n", encoding="utf-8")
    algo, begun = config.build_algo(), time.time()
    try:
        with (folder / "result.json").open("w", encoding="utf-8") as file:
            for _ in range(count):
                found = algo.train()
                row: dict[str, Any] = {name: found[name] for name in KEPT if name in found}
                file.write(json.dumps({**row, "time_total_s": time.time() - begun}, default=float) + "\n")
        algo.save_to_path(str(folder / CHECKPOINT))
    finally:
        algo.stop()


def main() -> None:
    """Trains what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kitchens", nargs="+", default=KITCHENS)
    parser.add_argument("--final", action="store_true", help="without past checkpoints, the paper's ablation")
    options = parser.parse_args()
    ray.init(num_cpus=1, object_store_memory=200 * 2**20, include_dashboard=False, logging_level=logging.ERROR)
    try:
        for kitchen in options.kitchens:
            for trial in sorted((options.study / f"{kitchen}.fcp").glob("trial_*")):
                config = learner(kitchen, trial, options.final)
                folder = options.out / kitchen / f"seed_{config.seed}"
                if not (folder / CHECKPOINT / "policy").exists():
                    train(config, folder, iterations())
                print(f"{kitchen}, seed {config.seed}: {folder}", flush=True)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
