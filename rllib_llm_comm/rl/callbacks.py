"""Callbacks of our algorithms, and what they log: figures of episodes, seconds and costs, a warning of collapse."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core import ALL_MODULES
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS, NUM_AGENT_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rllib_llm_comm.core.phases import GPU_MEMORY, PHASE_SECONDS, PHASES, TOKENS, log_cost
from rllib_llm_comm.envs.interface import EPISODE_METRICS, solved

SUCCESS_RATE = "success_rate"
EPISODE_GAME_STEPS = "episode_game_steps"
TEAM_RETURN_MEAN = "team_return_mean"
DECISIONS = "decisions"
logger = logging.getLogger(__name__)
WARNINGS = "warnings"
"""Key of a result: this package's warnings since the one before, a line each; left out where there is none."""
_SEEN = "closing"
"""Key of the algorithm's metrics, and so of its checkpoints, for what `WarnOfEntropyCollapse` has seen."""
_COLLAPSED = 0.1
"""Share of the first entropy below which the entropy counts as collapsed."""


class EpisodeMetrics(RLlibCallback):
    """Adds `success_rate`, `episode_game_steps` and `team_return_mean` to the results under `env_runners`.

    RLlib counts environment steps, of which one may last many game steps when agents are busy, and it does not
    say which episodes were solved. Here an episode is solved if its game says so (`task_success` in the last infos)
    or, in games that say nothing, if it ended by a termination (a time limit is a truncation), the same rule as in
    `rllib evaluate`. Both are means over the episodes of RLlib's window
    (`metrics_num_episodes_for_smoothing`).

    `team_return_mean` is the mean return per agent over the same window, and not a number until the window is full
    for the first time (and in an iteration in which no episode ended): the first episodes to end are the short ones,
    so that an early mean flatters any policy, and a stop criterion on it would end a run that has learned nothing.

    `decisions`, at the top of the result, counts the decisions of all agents since the training began. Stop rules,
    schedules and `anneal` count the same.

    A game may count something itself: the numbers under `episode_metrics` in an agent's last info are logged under
    their names, such as `score`.

    `MultiAgentPPOConfig` adds this callback by itself; in a config of your own use `config.callbacks(EpisodeMetrics)`.
    """

    def on_episode_end(self, *, episode: Any, env_runner: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Logs one episode."""
        window = env_runner.config.metrics_num_episodes_for_smoothing
        metrics_logger.log_value(SUCCESS_RATE, float(was_solved(episode)), window=window)
        metrics_logger.log_value(EPISODE_GAME_STEPS, float(game_steps(episode)), window=window)
        for name, value in games_own_metrics(episode.get_infos(-1)).items():
            metrics_logger.log_value(name, value, window=window)

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Adds the team's return, and the decisions so far."""
        results = result.get(ENV_RUNNER_RESULTS)
        if results is not None:
            result[DECISIONS] = int(sum(results.get(NUM_AGENT_STEPS_SAMPLED_LIFETIME, {}).values()))
            results[TEAM_RETURN_MEAN] = team_return(results, algorithm.config.metrics_num_episodes_for_smoothing)


def team_return(results: dict[str, Any], window: int) -> float:
    """Mean return per agent over the last `window` episodes of results under `env_runners`; NaN while fewer ended."""
    returns = results.get("agent_episode_returns_mean") or {"": results.get("episode_return_mean", math.nan)}
    if results.get("num_episodes_lifetime", 0) < window:
        return math.nan
    return float(np.mean(list(returns.values())))


def games_own_metrics(infos: Any) -> dict[str, float]:
    """The game's own metrics, from the agents' infos (of one or several agents)."""
    parts = [infos, *(info for info in infos.values() if isinstance(info, dict))] if isinstance(infos, dict) else []
    own: dict[str, float] = {}
    for info in parts:
        own.update({str(name): float(value) for name, value in info.get(EPISODE_METRICS, {}).items()})
    return own


def was_solved(episode: Any) -> bool:
    """True if an episode (of one or several agents) ended well (`rllib_llm_comm.envs.interface.solved`)."""
    infos = episode.get_infos(-1)
    by_agent = {agent: info for agent, info in infos.items() if isinstance(info, dict)}
    return solved(bool(episode.is_terminated), {**by_agent, "": infos})


def game_steps(episode: Any) -> int:
    """Length of an episode: its infos' last `game_step`, or environment steps where the game gives none."""
    infos = episode.get_infos(-1)
    found = [infos["game_step"]] if "game_step" in infos else []
    found += [info["game_step"] for info in infos.values() if isinstance(info, dict) and "game_step" in info]
    return int(np.max(found)) if found else int(episode.env_t if hasattr(episode, "env_t") else episode.t)


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

    `MultiAgentPPOConfig` adds this callback by itself; the learner's part is logged by `MultiAgentPPOLearner`.
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
    """Seconds of every phase, from what EnvRunners and Learners have logged."""
    total: dict[str, float] = defaultdict(float, dict.fromkeys(PHASES, 0.0))
    learners = result.get(LEARNER_RESULTS, {}).get(ALL_MODULES, {})
    for part in (result.get(ENV_RUNNER_RESULTS, {}), learners):
        for name, seconds in part.get(PHASE_SECONDS, {}).items():
            total[name] += float(seconds)
    return dict(total)


class ChatCost:
    """Logs what the chat models of an EnvRunner have cost, under `env_runners/chat`, since the training began.

    The figures are those of `cost_of`; several EnvRunners are added up. Episodes tell only
    of plans that came before their end, these figures of all that was asked.

    Args:
        models: Models that the games of this runner ask; `None` and those given twice are left out.
    """

    def __init__(self, models: Iterable[Any]) -> None:
        self._models = list({id(model): model for model in models if model is not None}.values())
        self._before = self._now()

    def log(self, metrics_logger: Any) -> None:
        """Logs what was asked since the last call."""
        if not self._models:
            return
        now = self._now()
        for name, amount in now.items():
            metrics_logger.log_value(("chat", name), amount - self._before.get(name, 0.0), reduce="lifetime_sum")
        self._before = now

    def _now(self) -> dict[str, float]:
        from rllib_llm_comm.chat.chat_model import cost_of  # only games that ask a model need it

        found: dict[str, float] = {}
        for model in self._models:
            for name, amount in cost_of(model.counters).items():
                found[name] = found.get(name, 0.0) + float(amount)
        return found


class WarnOfEntropyCollapse(RLlibCallback):
    """Warns once when the entropy falls below a tenth of its start before any episode paid more than nothing.

    Such a policy has chosen among actions that all paid the same: it followed the noise of its critic, and explores no
    more. In a game in which every return is negative, such as one that charges each step, nothing is the best return of
    the first iteration in which an episode ended.

    What it has seen lies among the algorithm's metrics, and so in its checkpoints: a run that goes on after a kill is
    judged by its own start.

    `Verco` and the systems that it is compared with add this callback by themselves.
    """

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: MetricsLogger, result: dict[str, Any], **kwargs: Any
    ) -> None:
        """Looks at one iteration."""

        def seen(*place: str) -> float:  # not a number if it was not
            return float(metrics_logger.peek((_SEEN, *place), default=math.nan))

        def keep(value: float, *place: str) -> None:
            metrics_logger.log_value((_SEEN, *place), value, reduce="lifetime_sum")

        best = float(result.get(ENV_RUNNER_RESULTS, {}).get("episode_return_max", math.nan))
        if math.isfinite(best):
            if math.isnan(nothing := seen("nothing")):
                nothing = min(best, 0.0)
                keep(nothing, "nothing")
            elif best >= 0.0 > nothing and not seen("zero") > 0.0:
                keep(1.0, "zero")  # a return of 0 can be had, so that less is no start to compare with
            if best > (0.0 if seen("zero") > 0.0 else nothing):
                keep(1.0, "paid")
        if seen("paid") > 0.0 or seen("told") > 0.0:
            return
        for module_id, learned in result.get(LEARNER_RESULTS, {}).items():
            if module_id == ALL_MODULES or "entropy" not in learned:
                continue
            entropy = float(learned["entropy"])
            if math.isnan(first := seen("entropy", module_id)):
                first = entropy
                keep(first, "entropy", module_id)
            if entropy < _COLLAPSED * first:
                keep(1.0, "told")
                logger.warning(
                    "The entropy of %r fell from %.3g to %.3g before any episode paid more than nothing: the policy "
                    "collapses on noise. %s",
                    module_id,
                    first,
                    entropy,
                    _remedy(algorithm.config),
                )
                return


class _KeptWarnings(logging.Handler):
    """Keeps the sentences of warnings until they are taken."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one."""
        self._sentences.append(record.getMessage().replace("\n", " "))
        if logging.lastResort and not logging.getLogger().handlers:  # with this handler Python would show none
            logging.lastResort.handle(record)

    def take(self) -> list[str]:
        """What was kept, each sentence once; nothing is kept afterwards."""
        taken, self._sentences = self._sentences, []
        return list(dict.fromkeys(taken))


_kept_warnings = _KeptWarnings()


class ResultWarnings(RLlibCallback):
    """Adds `warnings` to a result: what this package has warned of in the algorithm's process since the last result.

    Tune trains in a process without a terminal, whose log `rllib train` does not show. Its table prints these
    sentences. Those of remote Learners and EnvRunners stay in their logs.
    """

    def on_algorithm_init(self, **kwargs: Any) -> None:
        """Begins to listen; a handler that is there already is not added again."""
        logging.getLogger(__package__.partition(".")[0]).addHandler(_kept_warnings)

    def on_train_result(self, *, result: dict[str, Any], **kwargs: Any) -> None:
        """Adds the sentences."""
        if sentences := _kept_warnings.take():
            result[WARNINGS] = "\n".join(sentences)


def _remedy(config: Any) -> str:
    entropy = f"`entropy_coeff` (now {config.entropy_coeff})"
    if not getattr(config, "has_critic", True):
        return f"Raise {entropy} or `group_size`, or begin with cloned actions."
    return (
        f"Raise `advantage_floor` (now {config.advantage_floor:g}) or {entropy}, let the critic "
        "learn alone at first (`critic_warmup`), or begin with cloned actions."
    )
