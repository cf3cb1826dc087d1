"""`rllib evaluate`: episodes of a checkpoint, as a table and as JSON."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rllib_llm_comm.checkpoints.find_checkpoint import find_checkpoint
from rllib_llm_comm.checkpoints.loading import (
    AS_RECORDED,
    BaseModelOption,
    Loading,
    MessagesOption,
    ReferenceOption,
    ServerOption,
    TeacherOption,
)
from rllib_llm_comm.cli.options import TrustRecorded
from rllib_llm_comm.cli.play_options import (
    PatienceOption,
    PlannerOption,
    RecoverOption,
    TrialsOption,
    planning_of_options,
)
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import print_table, say, short_path
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries
from rllib_llm_comm.files import write_atomically

if TYPE_CHECKING:
    from rllib_llm_comm.agents.array_policy import ArrayPolicy
    from rllib_llm_comm.agents.load_policy import Policy
    from rllib_llm_comm.evaluation.rollout import Episode

_TRIAL = re.compile(r"^trial_\d+_|^\d+_")
_SHOWN = (
    "return_mean",
    "return_std",
    "success_rate",
    "length_mean",
    "episodes",
    "sampled",
    "fallback",
    "shuffled_same_share",
)


def evaluate_checkpoints(
    checkpoints: Sequence[str | Path],
    *,
    episodes: int,
    seed: int,
    greedy: bool = False,
    env_config: Mapping[str, Any] | None = None,
    loading: Loading = AS_RECORDED,
    num_envs: int = 16,
    planning: Mapping[str, Any] | None = None,
    trials: int | None = None,
    recover: str | None = None,
    communication: bool = False,
    json_path: Path | None = None,
    log_path: Path | None = None,
) -> dict[str, Any]:
    """Plays episodes of one or more checkpoints, prints a table and writes JSON.

    Args:
        checkpoints: Paths that `find_checkpoint` understands.
        episodes: Episodes per checkpoint, >= 1.
        seed: Seed of the first episode; the others count up.
        greedy: Whether the most likely action is taken instead of a sampled one.
        env_config: Settings of the environment that differ from training.
        loading: How checkpoints are loaded, such as with another message mode than in training.
        num_envs: Episodes that are played at once.
        planning: Who gives subgoals, if not as in training: `planner` and maybe `patience`, `replan`.
        trials: Plays with reflection, with at most so many trials per round; `None`: without.
        recover: How failed rounds are put back, "snapshot" (if `None`) or "replay"; only with `trials`.
        communication: Measures talk, too (`evaluation.communication`): an entry `communication` in the figures.
        json_path: Where the figures are written.
        log_path: Where all plans, attempts and reflections are written, a line of JSON per episode.

    Returns:
        The figures of the checkpoint; of several, a list of them under `checkpoints`.

    Raises:
        UserError: If a checkpoint cannot be loaded or played.
    """
    from rllib_llm_comm.evaluation.communication import TurnRecorder, measure
    from rllib_llm_comm.evaluation.planned_play import play_planned
    from rllib_llm_comm.evaluation.rollout import figures_of

    rows: list[dict[str, Any]] = []
    log: list[str] = []
    if communication and trials is not None:
        raise UserError("`communication` is measured without reflection; leave `trials` away.")
    require_measured(loading.reference, communication)
    for path in checkpoints:
        found = find_checkpoint(path)
        policy = loading.load(found)
        turns = TurnRecorder() if communication and hasattr(policy, "probabilities") else None
        with counting_bar(f"playing {episodes} episodes") as progress:
            played = play_planned(
                policy,
                episodes=episodes,
                seed=seed,
                explore=not greedy,
                env_config=env_config,
                num_envs=num_envs,
                planning=planning,
                trials=trials,
                recover=recover,
                progress=progress,
                watch=turns,
            )
        result = figures_of(played, not greedy)
        log += [log_line(found, episode) for episode in played if episode.rounds]
        row = {"checkpoint": short_path(found), **result.to_json(), **_fallback(played)}
        if turns is not None:
            row["communication"] = measure(policy, turns, seed).to_json()
            _tell_missing_reference(policy, row)
        rows.append(row)
    figures = rows[0] if len(rows) == 1 else {"checkpoints": rows}
    _print(rows)
    if any("communication" in row for row in rows):
        print_talk([row["checkpoint"] for row in rows], [row.get("communication") for row in rows])
    elif communication:
        say("Nobody speaks: agents without a language model say nothing.")
    if json_path is not None:
        write_atomically(json_path, json.dumps(figures, indent=2) + "\n")
        say(f"Written to {short_path(json_path)}")
    if log_path is not None and log:
        write_atomically(log_path, "".join(log))
        say(f"All plans are in {short_path(log_path)}")
    return figures


def require_measured(reference: str | None, communication: bool) -> None:
    """Refuses a reference that nothing is compared with.

    Args:
        reference: As of `Loading`.
        communication: Whether talk is measured.

    Raises:
        UserError: If a reference is given and talk is not measured.
    """
    if reference is not None and not communication:
        raise UserError(
            f"`reference` is {reference!r} but talk is not measured; set `communication`, too, or leave it away."
        )


def _tell_missing_reference(policy: Policy | ArrayPolicy, row: Mapping[str, Any]) -> None:
    talk, settings = row["communication"], getattr(policy, "communication", None)
    if talk["drift"] is None and talk["messages"] and settings is not None and settings.train_messages:
        say(
            f"The drift of the messages of {row['checkpoint']} is not measured: the checkpoint carries no reference. "
            "Give --reference, the checkpoint whose message adapter its training began with."
        )


def _fallback(played: Sequence[Episode]) -> dict[str, str]:
    """The `fallback` of planners that ask a language model; nothing for others."""
    plans = (attempt["plan"] for episode in played for attempts in episode.rounds for attempt in attempts)
    found = sorted({plan["fallback"] for plan in plans} - {""})
    return {"fallback": ", ".join(found)} if found else {}


def log_line(checkpoint: Path, episode: Episode) -> str:
    """What was planned in an episode, with all attempts, as a line of JSON.

    Args:
        checkpoint: Who played.
        episode: The episode.
    """
    told = {name: getattr(episode, name) for name in ("seed", "returns", "length", "success", "metrics", "rounds")}
    return json.dumps({"checkpoint": short_path(checkpoint), **told}) + "\n"


def command(
    checkpoint: Annotated[str, typer.Argument(help="Checkpoint, trial, stage or run folder.")],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first episode; the others count up.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most likely action instead of sampling.")] = False,
    env_config: Annotated[
        str | None, typer.Option(help="Environment settings that differ from training, as JSON.")
    ] = None,
    messages: MessagesOption = None,
    teacher: TeacherOption = None,
    message_server: ServerOption = None,
    base_model: BaseModelOption = None,
    trust: TrustRecorded = False,
    num_envs: Annotated[int, typer.Option(min=1, help="Episodes played at once.")] = 16,
    planner: PlannerOption = None,
    trials: TrialsOption = None,
    recover: RecoverOption = None,
    patience: PatienceOption = None,
    communication: Annotated[
        bool, typer.Option("--communication", help="Measure what messages tell and whether they are listened to.")
    ] = False,
    reference: ReferenceOption = None,
    log: Annotated[
        Path | None, typer.Option(help="Write all plans, attempts and reflections to this file (JSON lines).")
    ] = None,
) -> None:
    """Play episodes with a trained checkpoint and print what came out (no Ray needed).

    Examples:

        rllib evaluate results/verco/verco --episodes 50 --json evaluation.json

        rllib evaluate CHECKPOINT --greedy --env-config '{"map_name": "A"}'

        rllib evaluate CHECKPOINT --planner scripted --trials 3 --log plans.jsonl
    """
    quiet_libraries(0)
    require_writable({"--json": json_file, "--log": log})
    evaluate_checkpoints(
        [checkpoint],
        episodes=episodes,
        seed=seed,
        greedy=greedy,
        env_config=load_json_option("--env-config", env_config) if env_config else None,
        loading=Loading.of_options(messages, teacher, message_server, base_model, trust, reference),
        num_envs=num_envs,
        planning=planning_of_options(planner, patience),
        trials=trials,
        recover=recover,
        communication=communication,
        json_path=json_file,
        log_path=log,
    )


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    from rllib_llm_comm.planning.answer_counts import without_empty_counts

    shown = [name for name in _SHOWN if any(row.get(name) is not None for row in rows)]
    metrics = [row["metrics"] for row in rows]
    counted = without_empty_counts(dict.fromkeys(name for one in metrics for name in one), metrics)
    figures = [
        {name: "" if row.get(name) is None else row[name] for name in shown}
        | {name: row["metrics"].get(name, "") for name in counted}
        for row in rows
    ]
    # What is the same for all checkpoints stands once below: a terminal has few columns.
    same = [name for name in shown if len(rows) > 1 and len({str(figure[name]) for figure in figures}) == 1]
    caption = ", ".join(f"{name.replace('_', ' ')} {_text(figures[0][name])}" for name in same)
    names = [name for name in figures[0] if name not in same]
    labels = _labels([row["checkpoint"] for row in rows]) if len(rows) > 1 else [""]
    lines = [[label, *(_text(figure[name]) for name in names)] for label, figure in zip(labels, figures, strict=True)]
    cells = [["checkpoint", *(name.replace("_", " ") for name in names)], *lines]
    if len(rows) == 1:
        cells = [line[1:] for line in cells]
    print_table(cells, f"All: {caption}" if same else None)


def print_talk(checkpoints: Sequence[str], measured: Sequence[Mapping[str, Any] | None]) -> None:
    """Prints the measures of talk, a row per checkpoint; `-` where there is none.

    Args:
        checkpoints: Their paths.
        measured: The entry `communication` of each one's figures; `None` for agents that say nothing.
    """
    drifts = any((told or {}).get("drift") for told in measured)
    shown = {**_TALK, **_DRIFT} if drifts else _TALK
    cells = [["checkpoint", *shown]]
    for label, told in zip(_labels(checkpoints) if len(checkpoints) > 1 else [""], measured, strict=True):
        values = [_nested(told, path) for path in shown.values()]
        cells.append([label, *("-" if value is None else _text(value) for value in values)])
    print_table([line if len(checkpoints) > 1 else line[1:] for line in cells], "Talk: docs/guides/communication.md")


_TALK = {
    "signalling (nats)": "signalling.corrected",
    "p": "signalling.p_value",
    "listening (nats)": "listening",
    "obeyed": "obeyed",
    "by chance": "obeyed_chance",
    "vocabulary": "vocabulary",
    "understood": "understood",
}
_DRIFT = {
    "drift (nats per message)": "drift.kl",
    "new words": "drift.new_words",
    "taught": "drift.new_words_reference",
    "unreadable": "drift.unreadable",
    "taught ": "drift.unreadable_reference",
}


def _nested(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = None if values is None else values[key]
    return values


def _labels(checkpoints: Sequence[str]) -> list[str]:
    """What the paths of checkpoints differ in, so that a row fits in a line: trials by what was varied."""
    columns = list(itertools.zip_longest(*(Path(path).parts for path in checkpoints)))
    differing = [column for column in columns if len(set(column)) > 1] or columns
    names = [[_TRIAL.sub("", part) for part in column if part] for column in differing]
    if len(set(names[0])) == len(checkpoints):
        return names[0]
    return ["/".join(part for part in row if part) for row in zip(*differing, strict=True)]


def _text(value: Any) -> str:
    """A figure as the table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{round(value, 3) + 0.0:g}" if isinstance(value, float) else str(value)
