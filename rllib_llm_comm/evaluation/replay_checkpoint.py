"""Replay of a checkpoint: recorded episodes as one HTML page, and the first one as an animated picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from rllib_llm_comm.evaluation.animation import write_animation
from rllib_llm_comm.evaluation.play_settings import PlaySettings
from rllib_llm_comm.evaluation.replay import write_comparison, write_replay
from rllib_llm_comm.evaluation.rollout import Episode
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.load_policy import Loading


def replay_checkpoint(
    checkpoint: str | Path,
    page: str | Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    settings: PlaySettings | None = None,
    beside: str | Path | None = None,
    counterfactuals: bool = True,
    animation: Path | None = None,
    watch: Callable[[Sequence[Episode]], None] | None = None,
    tell: Callable[[Sequence[str]], None] | None = None,
) -> Path:
    """Records episodes of a checkpoint as a self-contained HTML page. Needs no Ray.

    Args:
        checkpoint: A checkpoint, trial, stage or run folder (`find_checkpoint`).
        page: The file to write; it appears at once or not at all.
        episodes: Number of episodes, >= 1.
        seed: Seed of the first; the others count up.
        settings: Settings of play that differ from training; `None` for none.
        beside: Another checkpoint, whose episodes with the same seeds are shown beside these; it keeps its own message
            mode.
        counterfactuals: True to score decisions of listeners also without what they heard.
        animation: File of an animated picture (GIF) of the first episode; `None` for none.
        watch: Called with the checkpoint's episodes once they are played, such as to tell who planned them.
        tell: Called with what stands in, before the first episode of each checkpoint.

    Returns:
        The page's path.

    Raises:
        UserError: If a checkpoint cannot be loaded or played, or the game draws no pictures for an animation.
    """
    chosen = settings or PlaySettings()
    standing: dict[str, None] = {}

    def play(path: str | Path, loading: Loading) -> list[Episode]:
        policy = loading.load(path)
        found = [phrase for phrase in chosen.stand_ins(policy) if phrase not in standing]
        standing.update(dict.fromkeys(found))
        if tell is not None:
            tell(found)
        return chosen.play(policy, episodes=episodes, seed=seed, keep_frames=True, counterfactuals=counterfactuals)

    played = play(checkpoint, chosen.loading)
    if watch is not None:
        watch(played)
    if animation is not None:
        write_animation(played[0], animation)
    if beside is None:
        return write_replay(played, page, stand_ins=list(standing))
    names = name_apart(str(find_checkpoint(checkpoint)), str(find_checkpoint(beside)))
    other = play(beside, dataclasses.replace(chosen.loading, messages=None))
    sides = dict(zip(names, (played, other), strict=True))
    return write_comparison(sides, page, title="Side by side", stand_ins=list(standing))


def name_apart(one: str, two: str) -> tuple[str, str]:
    """Names of two runs: the first parts in which their paths differ, or the whole paths.

    Args:
        one: Path of a checkpoint.
        two: Path of another.
    """
    parts, others = Path(one).parts, Path(two).parts
    for part, other in zip(parts, others, strict=False):
        if part != other:
            return part, other
    return (one, two) if one != two else ("one", "the same once more")
