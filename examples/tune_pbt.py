"""Population-based training of Verco's step size and entropy bonus with Ray Tune.

This example:
    - gives Ray Tune's `PopulationBasedTraining` a `VercoConfig`, like any other RLlib config;
    - lets a trial that is behind take over the checkpoint of a better one (adapters, critic, optimizers) and go on with
      changed settings: checkpoints restore across trials;
    - prints what every trial ended with and how often it took over another one.

How to run this script
----------------------
`python tune_pbt.py`, or with `--smoke` for two trials of two small iterations. `--storage-path FOLDER` keeps the
results.
`scheduler: ASHA` in a YAML file does the same for stopping early (`tuned_examples/symbolic_ppo_search.yaml`).

Results to expect
-----------------
One line per trial with its last step size, entropy bonus and return.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining

from rllib_llm_comm import Verco, VercoConfig


def make_config(smoke: bool) -> VercoConfig:
    """Verco in silence (the quickest to train) with two settings that are changed on the way."""
    return (
        VercoConfig()
        .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
        .language_model(temperature=1.5)
        .communication(messages="none")
        .training(
            lr=tune.loguniform(3e-4, 6e-3),
            entropy_coeff=tune.uniform(0.0, 0.03),
            train_batch_size_per_learner=64 if smoke else 1024,
            minibatch_size=64 if smoke else 256,
            num_epochs=2,
        )
        .env_runners(num_envs_per_env_runner=4 if smoke else 16)
        .debugging(seed=0)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Population-based training of Verco.")
    parser.add_argument("--smoke", action="store_true", help="two trials, two small iterations")
    parser.add_argument("--storage-path", help="folder for the results; a temporary one by default")
    arguments = parser.parse_args()

    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        # With a tiny smoke run hardly any episode ends; what else there is serves as well to show the mechanics.
        metric="learners/shared/entropy" if arguments.smoke else "env_runners/episode_return_mean",
        mode="max",
        perturbation_interval=1 if arguments.smoke else 4,
        hyperparam_mutations={"lr": tune.loguniform(3e-4, 6e-3), "entropy_coeff": tune.uniform(0.0, 0.03)},
        quantile_fraction=0.5 if arguments.smoke else 0.25,
        # A smoke run is so short that one trial may end before the other has begun: there they wait for each other.
        synch=arguments.smoke,
    )
    ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            results = tune.Tuner(
                Verco,
                param_space=make_config(arguments.smoke),
                tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=2 if arguments.smoke else 4),
                run_config=tune.RunConfig(
                    name="verco_pbt",
                    storage_path=os.path.abspath(arguments.storage_path or scratch),
                    stop={"training_iteration": 2 if arguments.smoke else 24},
                    # All are kept: a trial that is behind may ask for one that its owner has long left behind.
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
                    verbose=0,
                ),
            ).fit()
        finally:
            ray.shutdown()
        for number, result in enumerate(results):
            if result.error:
                raise SystemExit(f"{result.path} failed: {result.error}")
            metrics = result.metrics or {}
            config, learned = metrics["config"], metrics["learners"]["shared"]
            print(
                f"trial {number}: lr {config['lr']:.2e} (in use: {learned['actor_learning_rate']:.2e})  "
                f"entropy_coeff {config['entropy_coeff']:.3f}  "
                f"return {metrics['env_runners'].get('episode_return_mean', float('nan')):.2f}"
            )
        print(f"checkpoints taken over from another trial: {scheduler._num_perturbations}")


if __name__ == "__main__":
    main()
