"""Evaluation of a checkpoint: returns, success, the game's own metrics, and measures of communication."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.phases import gpu_memory_gb, phase
from rllib_llm_comm.evaluation.communication import CommunicationFigures, TurnRecorder, measure
from rllib_llm_comm.evaluation.play_settings import EvaluationSettings, PlaySettings
from rllib_llm_comm.evaluation.rollout import Episode, EvaluationResult, Progress, figures_of
from rllib_llm_comm.policies.decision import Policy
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.sama.plans import authors_in


@dataclass(frozen=True)
class CheckpointEvaluation:
    """Figures of a checkpoint, and the episodes behind them.

    Attributes:
        checkpoint: The checkpoint's folder.
        figures: Returns, success, lengths and metrics.
        episodes: The episodes without their frames; under a planner their `rounds` hold all plans.
        communication: Measures of communication; `None` where they are not wanted or agents have no language model.
        seconds: Wall-clock time of all episodes; games that are played side by side share it.
        tokens: Tokens that the language model computed, those that fill up a row included; 0 without one.
        gpu_memory_gb: The most GPU memory that the process has held; `None` without a GPU.
        lacks_reference: True if PPO trained the messages but the checkpoint carries no adapter to measure their drift
            from; only with `communication`.
        stand_ins: What stands in for what the papers use (`evaluation.stand_ins`).
    """

    checkpoint: Path
    figures: EvaluationResult
    episodes: list[Episode] = field(repr=False)
    communication: CommunicationFigures | None
    seconds: float
    tokens: int
    gpu_memory_gb: float | None
    lacks_reference: bool
    stand_ins: list[str]

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values; of planners that ask a language model with `fallback` and `answers_from`."""
        told: dict[str, Any] = {"checkpoint": str(self.checkpoint), **self.figures.to_json()}
        told["seconds_per_game"] = round(self.seconds / len(self.episodes), 3)
        told["took"] = self.took()
        told |= answers_told(self.episodes)
        told["stand_ins"] = self.stand_ins
        if self.communication is not None:
            told["communication"] = self.communication.to_json()
        return told

    def took(self) -> dict[str, float]:
        """What playing took, as far as it was counted: the names of `study_results.RUN_COSTS` -> amounts."""
        counted = {
            "seconds": round(self.seconds, 3),
            "decisions": sum(episode.decisions for episode in self.episodes),
            "tokens": self.tokens or None,
            "gpu_memory_gb": None if self.gpu_memory_gb is None else round(self.gpu_memory_gb, 2),
        }
        return {name: amount for name, amount in counted.items() if amount is not None}


def evaluate_checkpoint(
    checkpoint: str | Path,
    settings: PlaySettings | None = None,
    *,
    progress: Progress | None = None,
    tell: Callable[[Sequence[str]], None] | None = None,
    **given: Any,
) -> CheckpointEvaluation:
    """Plays episodes of a checkpoint and computes their figures. Needs no Ray.

    Args:
        checkpoint: A checkpoint, trial, stage or run folder (`find_checkpoint`).
        settings: The play and what is measured; `None` for the defaults.
        progress: Called with the number of finished episodes and that of all.
        tell: Called with what stands in, before the first episode.
        **given: Fields of `EvaluationSettings` such as `episodes`, above those of `settings`.

    Returns:
        The figures, and the episodes.

    Raises:
        UserError: If the checkpoint cannot be loaded or played, or settings exclude each other.
    """
    how = EvaluationSettings.like(settings, **given)
    found = find_checkpoint(checkpoint)
    policy = how.load(found)
    phrases = how.stand_ins(policy)
    if tell is not None:
        tell(phrases)
    turns = TurnRecorder() if how.communication else None
    begun, before = time.perf_counter(), phase.tokens
    played = how.play(
        policy,
        episodes=how.episodes,
        seed=how.seed,
        num_envs=how.num_envs,
        progress=progress,
        observers=[] if turns is None else [turns],
    )
    seconds, tokens = time.perf_counter() - begun, phase.tokens - before
    talk = None if turns is None else _measured(policy, turns, how.seed)
    trained = policy.communication is not None and policy.communication.train_messages
    lacks = talk is not None and talk.drift is None and bool(talk.messages) and trained
    figures = figures_of(played, policy.draws and not how.greedy)
    return CheckpointEvaluation(found, figures, played, talk, seconds, tokens, gpu_memory_gb(), lacks, phrases)


def _measured(policy: Policy, turns: TurnRecorder, seed: int) -> CommunicationFigures | None:
    """The figures of talk; of agents without a language model only if their choices may tell a cue without words."""
    found = measure(policy, turns, seed)
    return found if policy.judge is not None or found.first_choice is not None else None


def answers_told(played: Sequence[Episode]) -> dict[str, str]:
    """The `fallback` of the plans and whose `answers_from` they are; nothing if no language model is asked."""
    found = {"fallback": _told_once(played, "fallback"), "answers_from": _told_once(played, "source")}
    return {name: words for name, words in found.items() if words}


def planned_by(played: Sequence[Episode]) -> dict[str, Any]:
    """All that records tell of who planned episodes: `answers_told`, and `plans`, their number by author."""
    counts: Counter[str] = Counter()
    for episode in played:
        counts.update({who: int(count) for who, count in authors_in(episode.metrics, "plans").items()})
    return {**answers_told(played), **({"plans": dict(counts)} if counts else {})}


def _told_once(played: Sequence[Episode], name: str) -> str:
    """The values of a field of all plans, each once; empty for planners that ask no language model."""
    plans = (attempt["plan"] for episode in played for attempts in episode.rounds for attempt in attempts)
    return ", ".join(sorted({plan.get(name, "") for plan in plans} - {""}))
