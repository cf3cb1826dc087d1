"""Callback that logs the seconds of every phase of an iteration."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core import ALL_MODULES
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS

from rllib_llm_comm.phases import PHASE_SECONDS, PHASES, phase


class PhaseSeconds(RLlibCallback):
    """Adds `phase_seconds` to the results: the seconds that an iteration spent in each phase.

    * `env`: the games, their words included;
    * `text`: prompts and token ids;
    * `messages`: writing messages;
    * `scoring`: scoring candidates while acting;
    * `features`: the critic's frozen features;
    * `update`: the rest of the learner: advantages, losses, gradients, optimizer steps.

    Seconds of several EnvRunners or Learners are added up, so with many they may exceed the iteration's own.

    `Verco` adds this callback by itself; the learner's part is logged by `MultiAgentPPOLearner`.
    """

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **kwargs: Any) -> None:
        """Logs a roll-out in the process in which it ran."""
        for name, seconds in phase.take().items():
            metrics_logger.log_value((PHASE_SECONDS, name), seconds, reduce="sum")

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Adds up roll-out and update."""
        result[PHASE_SECONDS] = phase_seconds(result)


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
