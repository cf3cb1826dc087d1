"""PPO without language: an MLP on the game's numeric vector, with Verco's decisions, masks, losses and advantages.

This example:
    - writes a small RLModule (masked MLP) and an env-to-module connector that keeps `vector` and `action_mask` of an
      observation and drops its texts;
    - puts them under this package's learner `CommPPOLearner`, which asks a module for its actor and critic parameters
      and nothing else, so that discounting per game step and both optimizers are the same as in Verco;
    - trains on the kitchen of `tuned_examples/verco.yaml` and prints what Verco prints, for a rough comparison.

How to run this script
----------------------
`python symbolic_ppo.py --seed 0 --lr 0.001`, or with `--smoke` for two small iterations. `--json FILE` keeps the curve.

Results to expect
-----------------
One line per iteration. Map B, lettuce-tomato salad: see README for the figures beside Verco's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from rllib_llm_comm.callbacks.episode_metrics import EpisodeMetrics
from rllib_llm_comm.connectors.ordered_observations import AddObservationsInOrder
from rllib_llm_comm.envs.rllib_adapter import register_parallel_env
from rllib_llm_comm.learners.comm_ppo_learner import CommPPOLearner

VECTOR, MASK = "vector", "action_mask"
FORBIDDEN = -1e9


class MaskedMLP(TorchRLModule, ValueFunctionAPI):
    """Actor and critic of two tanh layers each; forbidden actions get no probability."""

    def setup(self) -> None:
        inputs = self.observation_space[VECTOR].shape[0]
        width = self.model_config["width"]
        self.actor = _mlp(inputs, width, self.action_space.n, 0.01)
        self.critic = _mlp(inputs, width, 1, 1.0)

    def actor_parameters(self) -> list[nn.Parameter]:
        return list(self.actor.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        return list(self.critic.parameters())

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        seen = batch[Columns.OBS]
        logits = self.actor(seen[VECTOR].float())
        return {Columns.ACTION_DIST_INPUTS: logits.masked_fill(seen[MASK] == 0, FORBIDDEN)}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return self.critic(batch[Columns.OBS][VECTOR].float()).squeeze(-1)


def _mlp(inputs: int, width: int, outputs: int, scale: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in (width, width):
        layers += [nn.Linear(inputs, size), nn.Tanh()]
        nn.init.orthogonal_(layers[-2].weight, 2**0.5)
        inputs = size
    layers.append(nn.Linear(inputs, outputs))
    nn.init.orthogonal_(layers[-1].weight, scale)
    return nn.Sequential(*layers)


class WithoutTexts(ConnectorV2):
    """Keeps the numbers of every new observation."""

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        return gym.spaces.Dict(
            {
                agent: gym.spaces.Dict({VECTOR: space[VECTOR], MASK: space[MASK]})
                for agent, space in input_observation_space.spaces.items()
            }
        )

    def __call__(self, *, episodes: Sequence[Any], batch: dict[str, Any], **kwargs: Any) -> Any:
        for episode in episodes:
            for agent, single in episode.agent_episodes.items():
                seen = single.get_observations(-1) if len(single.observations) else {}
                if "text" in seen:
                    numbers = {VECTOR: np.asarray(seen[VECTOR], np.float32), MASK: np.asarray(seen[MASK])}
                    single.set_observations(at_indices=-1, new_data=numbers)
                    single.observation_space = self.observation_space[agent]
        return batch


class SymbolicPPOConfig(PPOConfig):
    """PPO with the settings that `CommPPOLearner` reads."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.critic_lr = 1e-3
        self.value_clip_mode = "max"
        self.kl_target = 0.05
        self.anneal: int | None = None

    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
        pipeline = super().build_env_to_module_connector(env=env, spaces=spaces, device=device)
        for piece in (WithoutTexts(), AddObservationsInOrder()):
            pipeline.insert_before("AddObservationsFromEpisodesToBatch", piece)
        return pipeline


def make_config(seed: int, lr: float, decisions: int) -> PPOConfig:
    """The kitchen and the batch sizes of `tuned_examples/verco.yaml`."""
    register_parallel_env("kitchen", entry="rllib_llm_comm.envs.overcooked_text:parallel_env")
    config = SymbolicPPOConfig()
    config.critic_lr = lr
    return (
        config.environment("kitchen", env_config={"map_name": "B", "recipe": "lettuce-tomato salad"})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .multi_agent(policies={"cook"}, policy_mapping_fn=lambda *_, **__: "cook", count_steps_by="agent_steps")
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={"cook": RLModuleSpec(module_class=MaskedMLP, model_config={"width": 64})}
            )
        )
        .training(
            learner_class=CommPPOLearner, train_batch_size_per_learner=decisions, minibatch_size=min(decisions, 256),
            num_epochs=4, lr=lr, gamma=0.99, lambda_=0.95, clip_param=0.2, vf_clip_param=0.2, vf_loss_coeff=0.5,
            entropy_coeff=0.01, grad_clip=0.5, use_kl_loss=False, kl_coeff=0.0,
        )
        .callbacks(EpisodeMetrics)
        .debugging(seed=seed)
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="PPO without language on the kitchen of Verco.")
    parser.add_argument("--smoke", action="store_true", help="two small iterations only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1e-3, help="step size of actor and critic")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--json", help="file for the curve")
    arguments = parser.parse_args()

    ray.init(num_cpus=1, object_store_memory=10**8, include_dashboard=False, log_to_driver=False)
    algo = make_config(arguments.seed, arguments.lr, 128 if arguments.smoke else 1024).build_algo()
    curve = []
    try:
        for iteration in range(2 if arguments.smoke else arguments.iterations):
            results = algo.train()
            runners = results["env_runners"]
            row = {
                "iteration": iteration + 1,
                "decisions": sum(runners["num_agent_steps_sampled_lifetime"].values()),
                "return": runners["team_return_mean"],
                "success_rate": runners.get("success_rate", float("nan")),
                "entropy": float(results["learners"]["cook"]["entropy"]),
            }
            curve.append(row)
            print(
                f"{row['iteration']:3d}  {row['decisions']:7,.0f} decisions  return {row['return']:6.3f}  "
                f"solved {row['success_rate']:.2f}  entropy {row['entropy']:.2f}",
                flush=True,
            )
    finally:
        algo.stop()
        ray.shutdown()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"seed": arguments.seed, "lr": arguments.lr, "curve": curve}, file, indent=1)


if __name__ == "__main__":
    main()
