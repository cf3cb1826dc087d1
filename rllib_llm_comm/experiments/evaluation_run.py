"""Evaluation of checkpoints with a progress bar, a table on the console, and JSON files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import say, say_stand_ins, short_path
from rllib_llm_comm.experiments.evaluation_table import print_figures, print_talk
from rllib_llm_comm.experiments.progress import counting_bar

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.evaluate_checkpoint import CheckpointEvaluation
    from rllib_llm_comm.evaluation.play_settings import PlaySettings
    from rllib_llm_comm.evaluation.rollout import Episode


def run_evaluation(
    checkpoints: Sequence[str | Path],
    settings: PlaySettings,
    *,
    episodes: int,
    seed: int,
    communication: bool = False,
    json_path: Path | None = None,
    log_path: Path | None = None,
    curve: bool = False,
    tell: bool = True,
) -> dict[str, Any]:
    """Evaluates checkpoints, prints tables and writes files.

    Args:
        checkpoints: Paths that `find_checkpoint` understands.
        settings: Settings of play that differ from training.
        episodes: Episodes per checkpoint, >= 1.
        seed: Seed of the first episode; the others count up.
        communication: True to measure communication, too.
        json_path: File of the figures; `None` for none.
        log_path: File of all plans, attempts and reflections, a line of JSON per episode; `None` for none.
        curve: True to add `training_iteration` to the figures of each checkpoint.
        tell: True to print what stands in before the episodes and below the table; a stage's run does it itself.

    Returns:
        The figures of the checkpoint; of several, a list of them under `checkpoints`.

    Raises:
        UserError: If a checkpoint cannot be loaded or played.
    """
    from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest

    rows: list[dict[str, Any]] = []
    log: list[str] = []
    for path in checkpoints:
        with counting_bar(f"playing {episodes} episodes") as progress:
            evaluated = evaluate_checkpoint(
                path,
                episodes=episodes,
                seed=seed,
                settings=settings,
                communication=communication,
                progress=progress,
                tell=say_stand_ins if tell else None,
            )
        row = {**evaluated.to_json(), "checkpoint": short_path(evaluated.checkpoint)}
        if curve:
            row["training_iteration"] = read_manifest(find_policy(evaluated.checkpoint)).provenance.get(
                "training_iteration"
            )
        log += [log_line(row["checkpoint"], episode) for episode in evaluated.episodes if episode.rounds]
        _tell_missing_reference(evaluated)
        rows.append(row)
    _print(rows, communication)
    if tell:
        say_stand_ins(dict.fromkeys(phrase for row in rows for phrase in row["stand_ins"]))
    figures = rows[0] if len(rows) == 1 else {"checkpoints": rows}
    if json_path is not None:
        write_atomically(json_path, json.dumps(figures, indent=2) + "\n")
        say(f"Written to {short_path(json_path)}")
    if log_path is not None and log:
        write_atomically(log_path, "".join(log))
        say(f"All plans are in {short_path(log_path)}")
    return figures


def kept_checkpoints(path: str | Path) -> list[Path]:
    """All checkpoints that the run behind a path kept, from the earliest to the last.

    Args:
        path: As of `find_checkpoint`.

    Raises:
        UserError: If nothing is there, or it kept one alone, which is no curve.
    """
    from rllib_llm_comm.policies.find_checkpoint import find_checkpoint

    found = find_checkpoint(path)
    kept = sorted(one for one in found.parent.glob("checkpoint_*") if one.is_dir())
    if len(kept) < 2:
        raise UserError(
            f"`curve` is true but {short_path(found.parent)!r} holds {len(kept)} checkpoints; train with "
            "`checkpoint_config: {checkpoint_frequency: N, num_to_keep: null}`, or leave `curve` away."
        )
    return kept


def log_line(checkpoint: str, episode: Episode) -> str:
    """The plans of an episode with all attempts, as a line of JSON.

    Args:
        checkpoint: Path of the checkpoint that played.
        episode: The episode.
    """
    told = {name: getattr(episode, name) for name in ("seed", "returns", "length", "success", "metrics", "rounds")}
    return json.dumps({"checkpoint": checkpoint, **told}) + "\n"


def _print(rows: Sequence[dict[str, Any]], communication: bool) -> None:
    print_figures(rows)
    if any("communication" in row for row in rows):
        print_talk([row["checkpoint"] for row in rows], [row.get("communication") for row in rows])
    elif communication:
        say("Nobody speaks: agents without a language model say nothing.")


def _tell_missing_reference(evaluated: CheckpointEvaluation) -> None:
    if evaluated.lacks_reference:
        say(
            f"The drift of the messages of {short_path(evaluated.checkpoint)} is not measured: the checkpoint carries "
            "no reference. Give --reference, the checkpoint whose message adapter its training began with."
        )
