"""Callback that logs what an iteration costs: seconds of every phase, tokens, GPU memory."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core import ALL_MODULES
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS

from rllib_llm_comm.core.phases import GPU_MEMORY, PHASE_SECONDS, PHASES, TOKENS, log_cost


class PhaseSeconds(RLlibCallback):
    """Adds `phase_seconds` to the results: the seconds that an iteration spent in each phase.

    * `env`: the games, their words included;
    * `text`: prompts and token ids;
    * `messages`: writing messages;
    * `scoring`: scoring candidates while acting;
    * `features`: the critic's frozen features;
    * `update`: the rest of the learner: advantages, losses, gradients, optimizer steps.

    Seconds of several EnvRunners or Learners are added up, so with many they may exceed the iteration's own.

    At the top of the result stand `tokens`, those that the language model has computed since the training began (what
    fills up a row included), and `gpu_memory_gb`, the peak of the process that took most.

    `Verco` adds this callback by itself; the learner's part is logged by `MultiAgentPPOLearner`.
    """

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        """Logs a roll-out in the process in which it ran."""
        log_cost(metrics_logger)

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Adds up roll-out and update."""
        result[PHASE_SECONDS] = phase_seconds(result)
        add_cost(result)


def add_cost(result: dict[str, Any]) -> None:
    """Adds `tokens` and `gpu_memory_gb` to a result, from what EnvRunners and Learners have logged."""
    parts = (result.get(ENV_RUNNER_RESULTS, {}), result.get(LEARNER_RESULTS, {}).get(ALL_MODULES, {}))
    if tokens := sum(int(part.get(TOKENS, 0)) for part in parts):
        result[TOKENS] = tokens
    if memory := max(float(part.get(GPU_MEMORY, 0.0)) for part in parts):
        result[GPU_MEMORY] = memory


def phase_seconds(result: dict[str, Any]) -> dict[str, float]:
    """Seconds of every phase, from what EnvRunners and Learners have logged.

    Args:
        result: RLlib's result of one iteration.
    """
    total: dict[str, float] = defaultdict(float, dict.fromkeys(PHASES, 0.0))
    learners = result.get(LEARNER_RESULTS, {}).get(ALL_MODULES, {})
    for part in (result.get(ENV_RUNNER_RESULTS, {}), learners):
        for name, seconds in part.get(PHASE_SECONDS, {}).items():
            total[name] += float(seconds)
    return dict(total)
