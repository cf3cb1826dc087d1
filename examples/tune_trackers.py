"""Follow a Ray Tune run in TensorBoard, MLflow or Weights & Biases, without an account.

This example:
    - trains two seeds of symbolic PPO, which is quick, with Ray Tune;
    - hands the results to one tracker: TensorBoard (Tune always writes its files), MLflow (one SQLite file) or
      Weights & Biases (offline: neither account nor key is needed);
    - prints what Tune itself has written last, for comparison with what the tracker shows.

How to run this script
----------------------
`python tune_trackers.py --tracker mlflow`; `tensorboard` (the default) and `wandb` are the other two. `--smoke` trains
two small iterations. `--storage-path FOLDER` says where the results go (`tracked` by default).
The trackers' packages are an extra: `pip install "rllib_llm_comm[trackers]"`, or install the one that you want.

Results to expect
-----------------
One line per seed with its iterations and its last team return, and the command that shows them in the tracker.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import tune
from ray.tune.logger import LoggerCallback
from ray.tune.utils import flatten_dict

from rllib_llm_comm import SymbolicPPO, SymbolicPPOConfig
from rllib_llm_comm.core.errors import UserError

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

# Tracker -> what has to be importable. TensorBoard's files are written without it; `mlflow-skinny` alone has `mlflow`
# but no database.
NEEDS: dict[str, tuple[str, ...]] = {"tensorboard": (), "mlflow": ("mlflow", "sqlalchemy"), "wandb": ("wandb",)}
PROJECT = "kitchen"


def require(tracker: str) -> None:
    """Says what to install, before any training.

    Args:
        tracker: One of `NEEDS`.

    Raises:
        UserError: If its package is missing.
    """
    if any(find_spec(name) is None for name in NEEDS[tracker]):
        raise UserError(f"`--tracker {tracker}` needs a package that is not installed: `pip install {tracker}`.")


def make_callbacks(tracker: str, folder: Path) -> list[LoggerCallback]:
    """What Tune calls besides its own loggers; TensorBoard's is one of those.

    Args:
        tracker: One of `NEEDS`.
        folder: Where the tracker writes.
    """
    if tracker == "mlflow":
        return [mlflow_callback(folder)]
    if tracker == "wandb":
        return [wandb_callback(folder)]
    return []


def mlflow_callback(folder: Path) -> LoggerCallback:
    """Ray's MLflow callback, which by itself writes the 300 numbers of a result one by one, most of them settings.

    Args:
        folder: Where the database lies.
    """
    import mlflow
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    class InOneGo(MLflowLoggerCallback):
        """Writes the numbers of a result together, and the settings only as the run's parameters."""

        def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
            flat = flatten_dict({key: value for key, value in result.items() if key != "config"})
            numbers = {key: float(value) for key, value in flat.items() if isinstance(value, Real)}
            mlflow.log_metrics(numbers, step=result["training_iteration"], run_id=self._trial_runs[trial])

    return InOneGo(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", experiment_name=PROJECT)


def wandb_callback(folder: Path) -> LoggerCallback:
    """Ray's W&B callback, as it is.

    Args:
        folder: Where the offline runs lie.
    """
    from ray.air.integrations.wandb import WandbLoggerCallback

    return WandbLoggerCallback(project=PROJECT, dir=str(folder))


def make_config(smoke: bool) -> SymbolicPPOConfig:
    """Symbolic PPO with the seed left to Tune."""
    return (
        SymbolicPPOConfig()
        .environment(
            "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "max_game_steps": 20 if smoke else 200}
        )
        .training(train_batch_size_per_learner=256 if smoke else 2048)
        .env_runners(num_envs_per_env_runner=4 if smoke else 16)
        # The team return is not a number until so many episodes have ended.
        .reporting(metrics_num_episodes_for_smoothing=4 if smoke else 16)
        .debugging(seed=tune.grid_search([0, 1]))
    )


def train(tracker: str, folder: Path, smoke: bool) -> tune.ResultGrid:
    """Trains both seeds side by side.

    Args:
        tracker: One of `NEEDS`.
        folder: Where Tune and the tracker write.
        smoke: Whether two small iterations are enough.
    """
    ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
    try:
        return tune.Tuner(
            SymbolicPPO,
            param_space=make_config(smoke),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=str(folder),
                stop={"training_iteration": 2 if smoke else 8},
                callbacks=make_callbacks(tracker, folder),
                verbose=0,
            ),
        ).fit()
    finally:
        ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description="Follow a Ray Tune run in a tracker.")
    parser.add_argument("--tracker", choices=list(NEEDS), default="tensorboard", help="which one")
    parser.add_argument("--smoke", action="store_true", help="two small iterations")
    parser.add_argument("--storage-path", default="tracked", help="folder for the results")
    arguments = parser.parse_args()
    try:
        require(arguments.tracker)
    except UserError as error:
        raise SystemExit(f"Error: {error}") from None
    # Ray's processes inherit these, so they have to stand before Ray starts.
    os.environ.setdefault("WANDB_MODE", "offline")
    # Ray's W&B callback hands a key that it finds here to a process of its own in a way that Ray writes to its log
    # files. Offline needs none; with WANDB_MODE=online, `wandb login` has stored one elsewhere.
    os.environ.pop("WANDB_API_KEY", None)
    folder = Path(arguments.storage_path).absolute() / arguments.tracker
    folder.mkdir(parents=True, exist_ok=True)

    for result in train(arguments.tracker, folder, arguments.smoke):
        if result.error:
            raise SystemExit(f"{result.path} failed: {result.error}")
        metrics = result.metrics or {}
        print(
            f"seed {metrics['config']['seed']}  {metrics['training_iteration']} iterations  "
            f"team return {metrics['env_runners']['team_return_mean']:.6f}"
        )
    shows = {
        "tensorboard": f"tensorboard --logdir {folder}",
        "mlflow": f"mlflow ui --backend-store-uri sqlite:///{folder / 'mlflow.db'}",
        "wandb": f"wandb sync {folder / 'wandb' / 'offline-run-*'}",
    }
    print(f"Show it: {shows[arguments.tracker]}")


if __name__ == "__main__":
    main()
