"""Let a planner give subgoals to an algorithm of your own.

This example:
    - takes RLlib's stock `PPOConfig` and its default network, which knows nothing of language;
    - adds the callback `AddPlannedSubgoals`: the scripted planner says what each cook should do, and each subgoal that
      is done earns a little;
    - writes a small env-to-module connector, by which the network sees the subgoal: as one more group of numbers
      beside the features of the kitchen.

A chat model plans instead with `AddPlannedSubgoals.of({"name": "chat", "chat": {"model": "gpt-4o"}})`; the games do not
wait for it.

How to run this script
----------------------
`python planner_in_own_ppo.py`, or with `--smoke` for two small iterations.

Results to expect
-----------------
A line per iteration: game steps so far, plans per episode, subgoals done per episode, and the soups' score. At first
cooks do what they are told by chance only.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2

from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import all_subgoals, parse_subgoal, subgoal_number
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from rllib_llm_comm.sama.planning_config import AddPlannedSubgoals

LAYOUT = get_layout("cramped_room")
FEATURES = 96


class FeaturesAndSubgoal(ConnectorV2):
    """Makes of each new observation one row of numbers: the kitchen's features, and a 1 at the subgoal's number."""

    def recompute_output_observation_space(self, observation_space, action_space):
        row = gym.spaces.Box(-64, 64, (FEATURES + len(all_subgoals(LAYOUT)),), np.float32)
        return gym.spaces.Dict(dict.fromkeys(observation_space.spaces, row))

    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, **kwargs):
        for episode in episodes:
            for agent, single in episode.agent_episodes.items():
                seen = single.get_observations(-1) if len(single.observations) else None
                if isinstance(seen, dict):
                    space = self.observation_space[agent]
                    row = np.zeros(space.shape, np.float32)
                    row[:FEATURES] = seen["vector"]
                    told = parse_subgoal(LAYOUT, seen["subgoal"])
                    if told is not None:  # a slow planner has not said anything yet
                        row[FEATURES + subgoal_number(LAYOUT, told)] = 1
                    single.set_observations(at_indices=-1, new_data=row)
                    single.observation_space = space
        return batch


def make_config(steps: int) -> PPOConfig:
    """A PPO as one would write it in an existing project."""
    register_parallel_env("my_kitchen", entry="rllib_llm_comm.envs.overcooked_ai:parallel_env")
    return (
        PPOConfig()
        .environment(
            "my_kitchen", disable_env_checking=True,
            env_config={"layout": "cramped_room", "horizon": 100, "observe": ["vector", "text"]},
        )
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=4,
            env_to_module_connector=lambda env, spaces, device: FeaturesAndSubgoal(),
        )
        .multi_agent(policies={"cook"}, policy_mapping_fn=lambda agent, episode, **_: "cook")
        .training(train_batch_size_per_learner=steps, minibatch_size=128, num_epochs=4, lr=1e-3, use_kl_loss=False)
        .callbacks(AddPlannedSubgoals.of("scripted", subgoal_reward=1.0, patience=25))
        .debugging(seed=0)
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Let a planner give subgoals to an algorithm of your own.")
    parser.add_argument("--smoke", action="store_true", help="two small iterations only")
    arguments = parser.parse_args()

    ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
    algo = make_config(400 if arguments.smoke else 2000).build_algo()
    try:
        for iteration in range(2 if arguments.smoke else 30):
            found = algo.train()["env_runners"]
            print(f"{iteration + 1:2d}  {found['num_env_steps_sampled_lifetime']:6.0f} steps  "
                  f"plans {found['plans']:5.1f}  subgoals done {found['subgoals_completed']:5.1f}  "
                  f"score {found['score']:5.1f}", flush=True)  # fmt: skip
    finally:
        algo.stop()
        ray.shutdown()


if __name__ == "__main__":
    main()
