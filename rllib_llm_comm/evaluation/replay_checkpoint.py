"""Replay of a checkpoint: recorded episodes as one HTML page, and the first one as an animated picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rllib_llm_comm.evaluation.animation import write_animation
from rllib_llm_comm.evaluation.play_settings import PlaySettings, ReplaySettings
from rllib_llm_comm.evaluation.replay import write_comparison, write_replay
from rllib_llm_comm.evaluation.rollout import Episode
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint


def replay_checkpoint(
    checkpoint: str | Path,
    page: str | Path,
    settings: PlaySettings | None = None,
    *,
    beside: str | Path | None = None,
    animation: Path | None = None,
    watch: Callable[[Sequence[Episode]], None] | None = None,
    tell: Callable[[Sequence[str]], None] | None = None,
    **given: Any,
) -> Path:
    """Records episodes of a checkpoint as a self-contained HTML page. Needs no Ray.

    Args:
        checkpoint: A checkpoint, trial, stage or run folder (`find_checkpoint`).
        page: The file to write; it appears at once or not at all.
        settings: The play and what is shown; `None` for the defaults.
        beside: Another checkpoint, whose episodes with the same seeds are shown beside these; it keeps its own message
            mode.
        animation: File of an animated picture (GIF) of the first episode; `None` for none.
        watch: Called with the checkpoint's episodes once they are played, such as to tell who planned them.
        tell: Called with what stands in, before the first episode of each checkpoint.
        **given: Fields of `ReplaySettings` such as `episodes`, above those of `settings`.

    Returns:
        The page's path.

    Raises:
        UserError: If a checkpoint cannot be loaded or played, or the game draws no pictures for an animation.
    """
    chosen = ReplaySettings.like(settings, **given)
    standing: dict[str, None] = {}

    def play(path: str | Path, how: ReplaySettings) -> list[Episode]:
        policy = how.load(path)
        found = [phrase for phrase in chosen.stand_ins(policy) if phrase not in standing]
        standing.update(dict.fromkeys(found))
        if tell is not None:
            tell(found)
        return chosen.play(
            policy,
            episodes=chosen.episodes,
            seed=chosen.seed,
            keep_frames=True,
            counterfactuals=chosen.counterfactuals,
        )

    played = play(checkpoint, chosen)
    if watch is not None:
        watch(played)
    if animation is not None:
        write_animation(played[0], animation)
    if beside is None:
        return write_replay(played, page, stand_ins=list(standing))
    names = name_apart(str(find_checkpoint(checkpoint)), str(find_checkpoint(beside)))
    other = play(beside, chosen.replace(messages=None))
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
