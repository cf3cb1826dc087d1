"""What an iteration of Verco costs around the language model: random answers stand in the model's place.

    python benchmarks/floor.py --json docs/results/benchmarks/floor.json

A textual kitchen, all in one process, as in the main job. Messages, scores and features are drawn at random, which
takes a hundredth of the time; the game, the texts, RLlib and the update are what they are. Nearly every text is new, as
nobody plays with a plan. The goal is 0.3 ms per decision. All figures are CPU time of the one process, so that other
work on the machine counts little.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import ray
import torch

from harness import Row, main
from rllib_llm_comm import VercoConfig
from rllib_llm_comm.core.phases import phase
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.engines import Engine
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.scoring import MASKED, feature_size

GOAL_MS = 0.3
WORDS = ("tomato", "lettuce", "onion", "plate", "chop", "bring", "serve", "wait")


class RandomAnswers:
    """Answers as those of a model, drawn at random; scores can be trained.

    Attributes:
        seconds: Spent on answers.
    """

    def __init__(self) -> None:
        self._random = torch.Generator().manual_seed(0)
        self.seconds = 0.0

    def scores(
        self, model: AdaptedModel, prompts: torch.Tensor, candidates: torch.Tensor, mask: torch.Tensor, **_: Any
    ) -> torch.Tensor:
        """(B, K) scores that depend on one adapted weight, so that there is a gradient."""
        start = time.process_time()
        weight = next(parameter for name, parameter in model.named_adapter_parameters("action"))
        drawn = torch.randn(mask.shape, generator=self._random)
        drawn = (drawn + 0.0 * weight.sum()).masked_fill(~mask.bool(), MASKED)
        self.seconds += time.process_time() - start
        return drawn

    def features(self, model: AdaptedModel, critic_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        """(B, feature size) numbers."""
        start = time.process_time()
        drawn = torch.randn(len(critic_ids), feature_size(model.base), generator=self._random)
        self.seconds += time.process_time() - start
        return drawn

    def messages(self, model: AdaptedModel, prompts: Sequence[str], **_: Any) -> list[Written]:
        """Four words for each prompt."""
        start = time.process_time()
        drawn = torch.randint(len(WORDS), (len(prompts), 4), generator=self._random).tolist()
        written = [Written(" ".join(WORDS[index] for index in row)) for row in drawn]
        self.seconds += time.process_time() - start
        return written


def configure(decisions: int, minibatch: int, kitchens: int) -> Any:
    """Verco in the kitchen where one agent is told the order, two epochs."""
    return (
        VercoConfig()
        .environment(
            "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "recipe": "lettuce-tomato salad"}
        )
        .communication(messages="student", message_temperature=1.0)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=kitchens)
        .training(
            train_batch_size_per_learner=decisions, minibatch_size=minibatch, num_epochs=2, target_kl=None, lr=1e-6
        )
        .debugging(seed=0)
    )


def measure(options: argparse.Namespace) -> list[Row]:
    """A row per phase, and one for the whole iteration, in milliseconds per decision."""
    decisions, minibatch, kitchens = (128, 64, 8) if options.smoke else (4096, 512, 128)
    ray.init(num_cpus=1, num_gpus=0, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    answers = RandomAnswers()
    engine = Engine(answers.scores, answers.features, answers.messages, remembers=True)
    algorithm = configure(decisions, minibatch, kitchens).build_algo()
    seconds: dict[str, list[float]] = defaultdict(list)
    phase.clock = time.process_time
    try:
        for modules in (algorithm.env_runner.module, algorithm.learner_group._learner.module):
            modules["shared"].unwrapped().network._engine = engine
        algorithm.train()
        for _ in range(options.rounds):
            answers.seconds = 0.0
            start = time.process_time()
            result = algorithm.train()
            spent = {**result["phase_seconds"], "whole iteration": time.process_time() - start}
            spent["answers, part of the others"] = answers.seconds
            spent["RLlib's own"] = spent["whole iteration"] - sum(result["phase_seconds"].values())
            for name, value in spent.items():
                seconds[name].append(1e3 * value / decisions)
    finally:
        algorithm.stop()
        ray.shutdown()
    settings = {"decisions": decisions, "minibatch_size": minibatch, "num_epochs": 2, "kitchens": kitchens}
    rows = [
        Row(f"floor/{name}", statistics.median(values), None, "ms/decision", None, settings, True)
        for name, values in seconds.items()
        if name != "whole iteration"
    ]
    whole = statistics.median(seconds["whole iteration"])
    told = {**settings, "reference": "goal"}
    return [*rows, Row("floor/whole iteration", whole, GOAL_MS, "ms/decision", 1.0, told, True)]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
