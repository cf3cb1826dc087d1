"""Sweep over seeds and a setting with Ray Tune, in Python.

This example:
    - gives `ray.tune.Tuner` a `VercoConfig` with search spaces in it, like any other RLlib config;
    - lets every trial take the messages from one checkpoint of MessageSFT, if there is one;
    - prints a table of the trials and makes a policy of the best checkpoint.

`tuned_examples/verco_seeds.yaml` is the same sweep as a file for `rllib train file`.

How to run this script
----------------------
`python tune_sweep.py --message-checkpoint results/verco/message_sft` after
`rllib train file tuned_examples/verco.yaml`; without it the agents are silent (`messages="none"`). `--smoke` trains
two seeds for one small iteration. `--storage-path FOLDER` keeps the results (and a second call goes on with them).

Results to expect
-----------------
One line per trial with seed, temperature, team return and success rate. Two trials run side by side on two cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import ray
from ray import tune

from rllib_llm_comm import Verco, VercoConfig, load_policy


def make_config(message_checkpoint: str | None, smoke: bool) -> VercoConfig:
    """Verco with two settings left to Tune."""
    return (
        VercoConfig()
        .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
        .language_model(temperature=1.5 if smoke else tune.grid_search([1.0, 1.5]))
        .communication(messages="student" if message_checkpoint else "none", message_checkpoint=message_checkpoint)
        .training(train_batch_size_per_learner=128 if smoke else 1024, minibatch_size=128, num_epochs=2)
        .reporting(metrics_num_episodes_for_smoothing=20)
        .debugging(seed=tune.grid_search([0, 1]))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Sweep over seeds and a setting with Ray Tune.")
    parser.add_argument("--smoke", action="store_true", help="two seeds, one small iteration")
    parser.add_argument("--message-checkpoint", help="checkpoint of MessageSFT")
    parser.add_argument("--storage-path", help="folder for the results; a temporary one by default")
    arguments = parser.parse_args()
    checkpoint = arguments.message_checkpoint and os.path.abspath(arguments.message_checkpoint)

    ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.abspath(arguments.storage_path or scratch)
        name = "verco_sweep"
        try:
            if tune.Tuner.can_restore(os.path.join(folder, name)):
                tuner = tune.Tuner.restore(os.path.join(folder, name), trainable=Verco)
            else:
                tuner = tune.Tuner(
                    Verco,
                    param_space=make_config(checkpoint, arguments.smoke),
                    run_config=tune.RunConfig(
                        name=name,
                        storage_path=folder,
                        stop={"training_iteration": 1 if arguments.smoke else 15},
                        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
                        verbose=0,
                    ),
                )
            results = tuner.fit()
        finally:
            ray.shutdown()
        for result in results:
            if result.error:
                raise SystemExit(f"{result.path} failed: {result.error}")
            metrics = result.metrics or {}
            runners = metrics["env_runners"]
            print(
                f"seed {metrics['config']['seed']}  temperature {metrics['config']['temperature']}  "
                f"return {runners['team_return_mean']:.3f}  solved {runners.get('success_rate', float('nan')):.2f}"
            )
        # Tune's `get_best_result` wants a number in every trial, which a smoke run has not.
        best = max(results, key=lambda result: (result.metrics or {})["env_runners"].get("success_rate", 0.0))
        assert best.checkpoint is not None
        policy = load_policy(best.checkpoint.path)
        observations, _ = policy.env().reset(seed=0)
        decisions = policy.act(observations)
        print({agent: decision.candidates[decision.action] for agent, decision in decisions.items()})


if __name__ == "__main__":
    main()
