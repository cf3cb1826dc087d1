"""Checkpoints evaluated and played with each other: progress bar, tables on the console, and files."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm import __version__
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import digest_of, read_text, write_atomically
from rllib_llm_comm.core.json_file import JsonValue, read_json
from rllib_llm_comm.core.trust import names_code, texts_in
from rllib_llm_comm.experiments.console import (
    counting_bar,
    print_table,
    require_writable,
    say,
    say_stand_ins,
    short_path,
)
from rllib_llm_comm.experiments.experiment_file import load_file

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.cross_play import CrossPlay
    from rllib_llm_comm.evaluation.play_settings import CrossPlaySettings, EvaluationSettings

_TRIAL = re.compile(r"^trial_\d+_|^\d+_")
_SHOWN = (
    "return_mean",
    "return_std",
    "success_rate",
    "length_mean",
    "episodes",
    "seconds_per_game",
    "sampled",
    "fallback",
    "answers_from",
    "message_words_mean",
    "shuffled_same_share",
    "shuffled_silent_share",
)
# Told of controls that change messages, where they say what the control is worth.
_OF_CONTROLS = ("message_words_mean", "shuffled_same_share", "shuffled_silent_share")
_LOGGED = ("seed", "returns", "length", "success", "metrics", "rounds")
_COSTS = {
    "seconds": "seconds",
    "decisions": "decisions",
    "tokens": "tokens",
    "gpu_memory_gb": "GPU memory (GB)",
}
_TALK = {
    "signalling (nats)": "signalling.corrected",
    "p": "signalling.p_value",
    "first choice (nats)": "first_choice.corrected",
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


def print_figures(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints returns, success, metrics, and what playing took, a row per `CheckpointEvaluation.to_json`."""
    from rllib_llm_comm.sama.plans import without_empty_counts

    changed = any(row.get("shuffled_same_share") is not None for row in rows)
    shown = [
        name
        for name in _SHOWN
        if any(row.get(name) is not None for row in rows) and (changed or name not in _OF_CONTROLS)
    ]
    costs = [name for name in _COSTS if any(name in row.get("took", ()) for row in rows)]
    metrics = [row["metrics"] for row in rows]
    counted = without_empty_counts(dict.fromkeys(name for one in metrics for name in one), metrics)
    figures = [
        {name: "" if row.get(name) is None else row[name] for name in shown}
        | {name: row["metrics"].get(name, "") for name in counted}
        | {_COSTS[name]: row.get("took", {}).get(name, "") for name in costs}
        for row in rows
    ]
    # Equal figures of all checkpoints stand once below: a terminal has few columns.
    same = [name for name in shown if len(rows) > 1 and len({str(figure[name]) for figure in figures}) == 1]
    caption = ", ".join(f"{name.replace('_', ' ')} {_text(figures[0][name])}" for name in same)
    names = [name for name in figures[0] if name not in same]
    labels = labels_of([row["checkpoint"] for row in rows]) if len(rows) > 1 else [""]
    lines = [[label, *(_text(figure[name]) for name in names)] for label, figure in zip(labels, figures, strict=True)]
    cells = [["checkpoint", *(name.replace("_", " ") for name in names)], *lines]
    if len(rows) == 1:
        cells = [line[1:] for line in cells]
    print_table(cells, f"All: {caption}" if same else None)


def print_talk(checkpoints: Sequence[str], measured: Sequence[Mapping[str, Any] | None]) -> None:
    """Prints the measures of communication, a row per checkpoint; `-` for a missing one, no column where all miss it.

    `measured` are the entries `communication` of their figures, `None` where there is none. Of agents that say nothing
    only a cue without words is told.
    """
    if not any(told and told["messages"] for told in measured):
        say("Nobody speaks: these agents say nothing.")
    measured = [told if not told or told["messages"] else {**told, "vocabulary": None} for told in measured]
    drifts = any((told or {}).get("drift") for told in measured)
    named = {**_TALK, **_DRIFT} if drifts else _TALK
    shown = {name: path for name, path in named.items() if any(_nested(told, path) is not None for told in measured)}
    if not shown:
        return
    cells = [["checkpoint", *shown]]
    for label, told in zip(labels_of(checkpoints) if len(checkpoints) > 1 else [""], measured, strict=True):
        values = [_nested(told, path) for path in shown.values()]
        cells.append([label, *("-" if value is None else _text(value) for value in values)])
    print_table([line if len(checkpoints) > 1 else line[1:] for line in cells], "Talk")
    say("docs/guides/communication.md says what the columns mean.", "dim")


def _nested(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = None if values is None else values[key]
    return values


def labels_of(checkpoints: Sequence[str]) -> list[str]:
    """The parts in which paths of checkpoints differ, so that a row fits in a line: trials by their varied settings."""
    columns = list(itertools.zip_longest(*(Path(path).parts for path in checkpoints)))
    differing = [column for column in columns if len(set(column)) > 1] or columns
    names = [[_TRIAL.sub("", part) for part in column if part] for column in differing]
    if len(set(names[0])) == len(checkpoints):
        return names[0]
    return ["/".join(part for part in row if part) for row in zip(*differing, strict=True)]


def _text(value: Any) -> str:
    """A figure as a cell of the table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{round(value, 3) + 0.0:g}" if isinstance(value, float) else str(value)


class _PlayedCheckpoints:
    """Figures of the checkpoints that an evaluation of several has played, kept until it has ended.

    Args:
        path: The evaluation's file of figures, beside which they lie.
        settings: Its settings; figures of others are not taken.

    Attributes:
        known: Key of a checkpoint -> its figures as `row` and the lines of its plans as `log`.
    """

    def __init__(self, path: Path, settings: EvaluationSettings) -> None:
        self.path = path.with_name(f".{path.stem}.played.json")
        require_writable({"--json": self.path})
        self._how = json.dumps([__version__, settings.to_dict(), _contents(settings.to_dict())], default=str)
        self.known: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):  # there is none yet, or it is damaged
            found = json.loads(read_text(self.path))
            if isinstance(found, dict) and all(_is_played(one) for one in found.values()):
                self.known = found

    def key(self, checkpoint: Path) -> str:
        """What stands for a checkpoint, with its weights and settings, under the settings of this evaluation."""
        told = json.dumps([self._how, _contents(str(checkpoint)), short_path(checkpoint)])
        return hashlib.sha256(told.encode()).hexdigest()

    def keep(self, key: str, row: Mapping[str, Any], log: Sequence[str]) -> None:
        """Adds the figures of a checkpoint."""
        self.known[key] = {"row": row, "log": log}
        write_atomically(self.path, json.dumps(self.known))


def _is_played(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("row"), dict) and isinstance(one.get("log"), list)


def _contents(settings: Any) -> list[str]:
    """Digests of the files, and of the policies of the checkpoints, that settings name."""
    from rllib_llm_comm.policies.find_checkpoint import digests, find_checkpoint
    from rllib_llm_comm.policies.policy_folder import find_policy

    if isinstance(settings, Mapping):
        grows = settings.get("model") or settings.get("local")  # a recording of what this evaluation asks
        return _contents([value for name, value in settings.items() if not (name == "cassette" and grows)])
    if isinstance(settings, list | tuple):
        return [digest for value in settings for digest in _contents(value)]
    place = Path(settings.removeprefix("trained:")) if isinstance(settings, str) and settings else None
    with contextlib.suppress(OSError, ValueError):  # a text that names nothing here
        if place is not None and place.is_file():
            return [digest_of(place)]
        if place is not None and place.is_dir():
            return list(digests(find_policy(find_checkpoint(place))).values())
    return []


def run_evaluation(
    checkpoints: Sequence[str | Path],
    settings: EvaluationSettings,
    *,
    json_path: Path | None = None,
    log_path: Path | None = None,
    tell: bool = True,
) -> dict[str, Any]:
    """Evaluates checkpoints, prints tables and writes files.

    Args:
        checkpoints: Paths that `find_checkpoint` understands; with `curve` all that their runs kept are played, and
            their figures have a `training_iteration`. Killed among several, it goes on with those not yet played.
        settings: Settings of play that differ from training, and what is measured.
        json_path: File of the figures; `None` for none.
        log_path: File of all plans, attempts and reflections, a line of JSON per episode; `None` for none.
        tell: True to print what stands in before the episodes and below the table; a stage's run does it itself.

    Returns:
        The figures of the checkpoint; of several, a list of them under `checkpoints`.

    Raises:
        UserError: If a checkpoint cannot be loaded or played.
    """
    from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint
    from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
    from rllib_llm_comm.policies.policy_folder import find_policy
    from rllib_llm_comm.policies.policy_manifest import read_manifest

    rows: list[dict[str, Any]] = []
    log: list[str] = []
    if settings.curve:
        checkpoints = [kept for path in checkpoints for kept in kept_checkpoints(path)]
    played = _PlayedCheckpoints(json_path, settings) if json_path is not None else None
    several = len(checkpoints) > 1
    for path in checkpoints:
        key = played.key(find_checkpoint(path)) if played is not None and several else ""
        if played is not None and (known := played.known.get(key)) is not None:
            rows.append(known["row"])
            log += known["log"]
            say(
                f"{len(rows)} of {len(checkpoints)}: {known['row']['checkpoint']}, played before this evaluation was "
                f"killed; remove {short_path(played.path)} to play it anew"
            )
            continue
        with counting_bar(f"playing {settings.episodes} episodes") as progress:
            evaluated = evaluate_checkpoint(path, settings, progress=progress, tell=say_stand_ins if tell else None)
        row = {**evaluated.to_json(), "checkpoint": short_path(evaluated.checkpoint)}
        if settings.curve:
            row["training_iteration"] = read_manifest(find_policy(evaluated.checkpoint)).provenance.get(
                "training_iteration"
            )
        lines = []
        for episode in (one for one in evaluated.episodes if one.rounds):
            told = {name: getattr(episode, name) for name in _LOGGED}
            lines.append(json.dumps({"checkpoint": row["checkpoint"], **told}) + "\n")
        log += lines
        if evaluated.lacks_reference:
            say(
                f"The drift of the messages of {row['checkpoint']} is not measured: the checkpoint carries no "
                "reference. Give --reference, the checkpoint whose message adapter its training began with."
            )
        rows.append(row)
        if played is not None and several:
            played.keep(key, row, lines)
        if several:  # which may take long
            say(f"{len(rows)} of {len(checkpoints)}: {row['checkpoint']}, return {row['return_mean']:.2f}")
    print_figures(rows)
    if settings.communication:
        print_talk([row["checkpoint"] for row in rows], [row.get("communication") for row in rows])
    if tell:
        say_stand_ins(dict.fromkeys(phrase for row in rows for phrase in row["stand_ins"]))
    figures = rows[0] if len(rows) == 1 else {"checkpoints": rows}
    if json_path is not None:
        write_atomically(json_path, json.dumps(figures, separators=(",", ":")) + "\n")
        say(f"Written to {short_path(json_path)}")
    if log_path is not None and log:
        write_atomically(log_path, "".join(log))
        say(f"All plans are in {short_path(log_path)}")
    if played is not None:
        played.path.unlink(missing_ok=True)
    return figures


def kept_checkpoints(path: str | Path) -> list[Path]:
    """All checkpoints that the run behind a path (as of `find_checkpoint`) kept, from the earliest to the last.

    Raises:
        UserError: If nothing is there, or it kept one alone, which is no curve.
    """
    from rllib_llm_comm.policies.find_checkpoint import find_checkpoint, is_on_hub, is_shipped

    if is_shipped(path) or is_on_hub(path):
        raise UserError(f"`curve` is true but {str(path)!r} is one checkpoint; give the trial of a training.")
    found = find_checkpoint(path)
    trial = found if any(found.glob("checkpoint_*")) else found.parent
    kept = sorted(one for one in trial.glob("checkpoint_*") if one.is_dir())
    if len(kept) < 2:
        raise UserError(
            f"`curve` is true but {short_path(trial)!r} holds {len(kept)} checkpoints; train with "
            "`checkpoint_config: {checkpoint_frequency: N, num_to_keep: null}`, or omit `curve`."
        )
    return kept


_PAIR = 2


def run_cross_play(
    players: Sequence[str],
    settings: CrossPlaySettings,
    *,
    partners: Path | None = None,
    json_path: Path | None = None,
    html_path: Path | None = None,
    replay: str | None = None,
    replay_path: Path | None = None,
    sentences: Path | None = None,
) -> dict[str, Any]:
    """Plays policies with each other, prints tables and writes files.

    Args:
        players: Paths, or NAME=PATH.
        settings: Settings of play.
        partners: YAML or JSON file: a mapping from groups to lists of partners that were not seen in training.
        json_path: File of the figures; `None` for none.
        html_path: File of the page; `None` for none.
        replay: Names or numbers of those who hold the seats of a recorded episode, joined by commas; `None` for none.
        replay_path: File of the replay; `None` for `crossplay_replay.html` in this folder.
        sentences: File of the page of what players do with sentences of strangers; `None` for none.

    Returns:
        The figures.

    Raises:
        UserError: If something cannot be loaded or played.
    """
    from rllib_llm_comm.evaluation.cross_play import CrossPlay

    groups = None if partners is None else load_file(partners)
    if not settings.trust:
        refuse_code(f"`--partners` {str(partners)!r}", groups)
    cross = CrossPlay([_named(one) for one in players], groups, settings)
    seats = None if replay is None else _seats(replay, cross.names, len(cross.agents))
    told = play_crosswise(cross, json_path, html_path)
    if seats is not None:
        from rllib_llm_comm.evaluation.replay import write_replay

        page = write_replay(
            cross.record(seats),
            replay_path or Path("crossplay_replay.html"),
            title=" and ".join(seats),
            stand_ins=cross.stand_ins,
        )
        say(f"The replay of {' and '.join(seats)} is {short_path(page)}")
    if sentences is not None and ask_players(cross, settings, sentences) is None:
        say("Nobody who hears met a stranger that says something with a meaning, so there is no page of sentences.")
    return told


CROSS_PLAY, SENTENCES = "crossplay.json", "sentences.html"
"""Files of a cross-play in its stage's folder."""


def ask_players(cross: CrossPlay, settings: CrossPlaySettings, page: Path) -> Path | None:
    """Asks all players what they do with sentences of strangers, and writes the page and its JSON.

    Returns:
        The page; `None` if nobody speaks or nobody hears.
    """
    from rllib_llm_comm.evaluation.sentences import ask_players, write_sentences

    with counting_bar("asking what players do with sentences") as progress:
        told = ask_players(cross, settings, progress)
    if told is None:
        return None
    written = write_sentences(told, page)
    say(f"What players do with sentences of strangers is {short_path(written)}")
    return written


def play_crosswise(cross: CrossPlay, json_path: Path | None, html_path: Path | None) -> dict[str, Any]:
    """Plays all pairs, prints tables, writes figures and page where paths are given, and returns the figures."""
    from rllib_llm_comm.evaluation.cross_play import write_cross_play

    for note in cross.notes:
        say(f"Note: {note}")
    say_stand_ins(cross.stand_ins)
    with counting_bar("playing pairs") as progress:
        result = cross.play(progress)
    told = result.to_json()
    _print_cross_play(told)
    say_stand_ins(cross.stand_ins)
    if json_path is not None:
        write_atomically(json_path, json.dumps(told, separators=(",", ":")) + "\n")
        say(f"Written to {short_path(json_path)}")
    if html_path is not None:
        say(f"Open {short_path(write_cross_play(result, html_path))} in a browser.")
    return told


def ask_again(stage: Path) -> None:
    """Asks the players of a finished cross-play what they do with sentences of strangers; their checkpoints are loaded.

    Args:
        stage: Its folder, with `crossplay.json`; the page and its JSON are written there.

    Raises:
        UserError: If a checkpoint is gone or another training has its place, or the file names a function.
    """
    from rllib_llm_comm.evaluation.cross_play import CrossPlay
    from rllib_llm_comm.evaluation.play_settings import CrossPlaySettings

    told = read_json(stage / CROSS_PLAY, "remove its folder and type the command of the study again")
    refuse_code(short_path(stage / CROSS_PLAY), [told["players"].content, told["groups"].content])
    players = [_entrant(one) for one in told["players"].elements()]
    partners = {
        name: [_entrant(one) for one in group["partners"].elements()] for name, group in told["groups"].items().items()
    }
    own = {name: told[name].content for name in ("env", "env_config", "planning", "seed")}
    settings = CrossPlaySettings(**own, greedy=not told["sampled"].content, trust_own=True)
    ask_players(CrossPlay(players, partners, settings), settings, stage / SENTENCES)


def _entrant(told: JsonValue) -> dict[str, Any]:
    """The settings of a player or partner as `crossplay.json` tells them, if it still has the weights that played."""
    from rllib_llm_comm.policies.policy_folder import weights_digest

    settings = {name: one.content for name, one in told.items().items()}
    digest = settings.pop("digest", None)
    if digest is not None and digest != weights_digest(told["policy"].text()):
        raise UserError(
            f"{short_path(settings['policy'])!r} has other weights than when the cross-play of this study was played; "
            "remove the folder of that cross-play and type the command of the study again."
        )
    return settings


def refuse_code(where: str, value: Any) -> None:
    """Refuses settings that name code which the user has not imported."""
    for text in texts_in(value):
        if names_code(text):
            raise UserError(
                f"{where} names {text!r}, which may be code; import its module with `--import MODULE`, or say "
                "`--trust` if you know where the file comes from."
            )


def _named(player: str) -> str | dict[str, str]:
    """A player of the command line: a policy, or NAME=POLICY."""
    name, sign, policy = player.partition("=")
    return {"name": name, "policy": policy} if sign and not Path(player).exists() else player


def _seats(text: str, names: Sequence[str], count: int) -> list[str]:
    """The names in `--replay`; a number counts players from 0, then partners."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != count:
        raise UserError(
            f"`--replay` is {text!r} but must be {count} names or numbers with commas; names with commas by number."
        )
    found = []
    for part in parts:
        if part not in names and not (part.isdigit() and int(part) < len(names)):
            listed = ", ".join(f"{number} {name}" for number, name in enumerate(names))
            raise UserError(f"`--replay` has {part!r} but must have names or numbers of {listed}.")
        found.append(part if part in names else names[int(part)])
    return found


def _print_cross_play(told: Mapping[str, Any]) -> None:
    from rllib_llm_comm.evaluation.cross_play import estimate_text, others_text

    agents, names = told["agents"], [one["name"] for one in told["players"]]
    for agent in agents:
        lines = [[f"as {agent}", *names, "all others"]]
        for number, (name, row) in enumerate(zip(names, told["matrix"][agent], strict=True)):
            lines.append([name, *(f"{score:.4g}" for score in row), others_text(told, agent, number)])
        print_table(lines, "the row holds the seat, the column all others")
    lines = [["", "all seats", *(f"as {agent}" for agent in agents)]]
    blank = [""] * len(agents)
    lines.append(["self-play", estimate_text(told["self_play"]), *blank])
    for label, part in {"cross-play": told["cross_play"], **told["groups"]}.items():
        apart = [estimate_text(part["by_seat"][agent]) for agent in agents]
        # With two seats each game among players has a player in both, so that both means are the same.
        same = part is told["cross_play"] and len(agents) == _PAIR
        lines.append([label, estimate_text(part), *(blank if same else apart)])
    lines.append(["gap", estimate_text(told["gap"]), *blank])
    print_table(
        lines, f"mean ± standard error over {len(names)} players, {told['episodes']} episodes per pair and seat"
    )
