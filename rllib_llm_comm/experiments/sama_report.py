"""The report of a SAMA run: a page of all its stages, whose answers they have, what they cost and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json, read_text, write_atomically
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.evaluation.study_results import COSTS, asked_in_training, read_rows
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.planning_run import planner_label
from rllib_llm_comm.experiments.stages import PAGE, Stage, StageKind, StageResult, as_list
from rllib_llm_comm.policies.stage_record import StageRecord, read_record
from rllib_llm_comm.sama.planners import trained_policy
from rllib_llm_comm.sama.plans import OWN, RANDOM, RULES, authors_in

_PLAYED = (
    "soups", "subgoals_share", "subgoals_stuck", "plans", "plans_kept", "plans_failed", "reflections",
    "subgoals_refused", "plan_questions", "plan_requests", "plan_tokens", "plan_cost", "plan_seconds",
)  # fmt: skip
_SHOWN_TEXT = 6000
_MOST_BYTES = 2**28
_NO_MODEL = {RULES: "rules", RANDOM: "random draws", OWN: "a planner of one's own"}


class SamaReportSettings(Settings):
    """`config:` of `run: sama_report`."""

    of: list[Any] = Field(min_length=1, examples=["of: [${manual}, ${planned}]"])
    """Results of the stages that are reported, usually `${stage}` each."""
    title: str = "SAMA"
    """Heading of the page."""


class SamaReport(StageKind):
    """`run: sama_report`: one page about the stages of a SAMA run."""

    name = "sama_report"
    gives = {"": PAGE}
    settings_class = SamaReportSettings

    def check_config(self, stage: Stage) -> None:
        """Checks keys, and that each result is that of a stage, where it should be there by now."""
        for path in _paths(self.settings(stage).of):
            if path not in stage.to_come:
                _stage_of(path, stage.name)

    def run(self, stage: Stage) -> StageResult:
        """Writes `report.html` and `report.json`."""
        from rllib_llm_comm.evaluation.figures import render_page

        settings = self.settings(stage)
        found = [_stage_of(path, stage.name) for path in _paths(settings.of)]
        report = summarise(settings.title, found)
        page, data = stage.folder / "report.html", stage.folder / "report.json"
        write_atomically(data, json.dumps(report, indent=1) + "\n")
        write_atomically(page, render_page("sama_report.html", {}, report=report))
        say(f"Open {short_path(page)} in a browser.")
        return StageResult([page], {"figures": data})


def summarise(title: str, stages: Sequence[tuple[StageRecord, Path]]) -> dict[str, Any]:
    """All that the page shows, as plain values.

    Args:
        title: Its heading.
        stages: The records of the stages, and their folders.
    """
    records = [record for record, _ in stages]
    evaluations = [row for record in records if record.run == "evaluate" for row in _evaluations(record)]
    played = [name for name in _PLAYED if any(name in row["metrics"] for row in evaluations)]
    for row in evaluations:
        row["metrics"] = {name: _figure(row["metrics"].get(name, "")) for name in played}
    sources = [f"{record.stage}: {_answers_from(record)}" for record in records if _answers_from(record)]
    return {
        "title": title,
        "sources": sources or ["No language model and no recording was asked."],
        "notes": list(dict.fromkeys(str(one.summary.get("note", "")) for one in records if one.summary.get("note"))),
        "stages": [_row(record, folder) for record, folder in stages],
        "evaluations": evaluations,
        "figures": played,
        "parts": [_PARTS[record.run](record, folder) for record, folder in stages if record.run in _PARTS],
    }


def _paths(of: Sequence[Any]) -> list[str]:
    """The paths of references, each of which may stand for one or several results."""
    return [str(path) for one in of for path in as_list(one)]


def _stage_of(path: str, stage: str) -> tuple[StageRecord, Path]:
    """The record of the stage that left a result, and its folder."""
    place = Path(path)
    for folder in (place, *place.parents):
        record = read_record(folder)
        if record is not None:
            return record, folder
    raise UserError(
        f"`{stage}.config.of` has {path!r}, which is no result of a stage; give the `${{NAME}}` of stages above."
    )


def _told(record: StageRecord) -> list[Mapping[str, Any]]:
    """The figures of a stage: one mapping, or one for each checkpoint of a learning curve."""
    found: list[Mapping[str, Any]] = record.summary.get("checkpoints", [record.summary])
    return found


def _answers_from(record: StageRecord) -> str:
    told = [str(one.get("answers_from") or "") for one in _told(record)]
    found = told if any(told) else [_name_of(chat) for chat in _chats_in_training(record)]
    return ", ".join(dict.fromkeys(name for name in found if name))


def _name_of(chat: Mapping[str, Any]) -> str:
    """A chat model or a recording by its settings."""
    recording = f"recording {chat['cassette']}" if chat.get("cassette") else ""
    return str(chat.get("model") or chat.get("local") or recording)


def _chats_in_training(record: StageRecord) -> list[Mapping[str, Any]]:
    """The settings of all chat models that are asked while agents learn: by planners and by judges of subgoals."""
    config = record.settings.get("config", {})
    games = [config, config.get("evaluation_config") or {}]
    asking = [one.get(key) for one in games for key in ("planner", "subgoal_rewards")]
    asking.append((record.settings.get("config", {}).get("new_subgoals") or {}).get("planner"))
    return [one["chat"] for one in asking if isinstance(one, Mapping) and isinstance(one.get("chat"), Mapping)]


def _row(record: StageRecord, folder: Path) -> dict[str, Any]:
    told = {**record.summary, **_asked_in_training(record, folder)}
    counts = {name: _figure(told.get(name, "")) for name in COSTS}
    answers = [_answers_from(record), *_without_model(record, folder)]
    return {
        "name": record.stage,
        "run": record.run,
        "seconds": record.seconds,
        **counts,
        "answers_from": ", ".join(filter(None, answers)),
    }


def _without_model(record: StageRecord, folder: Path) -> list[str]:
    """Authors of a stage's plans beside language models and their recordings, which `answers_from` names."""
    told = [{**authors_in(one.get("metrics", {}), "plans"), **(one.get("plans") or {})} for one in _told(record)]
    for result in _last_results(record, folder):
        games = [result.get("env_runners") or {}, (result.get("evaluation") or {}).get("env_runners") or {}]
        told += [authors_in(one, "plans") for one in games]
    return [words for who, words in _NO_MODEL.items() if any(one.get(who) for one in told)]


def _last_results(record: StageRecord, folder: Path) -> list[dict[str, Any]]:
    """The last result of each trial of a stage that trains; none of one that does not."""
    one = record.files.get("metrics")
    files = [folder / one] if one else sorted(folder.glob("trial_*/result.json"))
    return [rows[-1] for path in files if (rows := read_rows(path))]


def _asked_in_training(record: StageRecord, folder: Path) -> dict[str, float]:
    """The cost of all that was asked while agents learned, as the last result tells it; empty if nobody was."""
    total: dict[str, float] = {}
    for result in _last_results(record, folder):
        for name, amount in asked_in_training(result).items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _evaluations(record: StageRecord) -> list[dict[str, Any]]:
    """The rows of a stage: one, or one for each checkpoint of a learning curve."""
    config = record.settings.get("config", {})
    planner = config.get("planner") or "as in training"
    same = {
        "planner": _planner(planner),
        "trials": "no rounds" if config.get("trials") is None else config["trials"],
    }
    rows = []
    for told in _told(record):
        iteration = told.get("training_iteration")
        name = record.stage if iteration is None else f"{record.stage}, iteration {iteration}"
        figures = {key: told.get(key, 0) for key in ("episodes", "return_mean", "return_std")}
        figures["seconds_per_game"] = _figure(told.get("seconds_per_game", ""))
        rows.append({"name": name, **same, **figures, "metrics": dict(told.get("metrics", {}))})
    return rows


def _planner(planner: str | Mapping[str, Any]) -> str:
    """A planner in the table: one that was trained with its checkpoint, others by name; and what it sees."""
    if isinstance(planner, str) or trained_policy(planner) is not None:
        return planner_label(planner)
    sees = f", sees {planner['view']}" if "view" in planner else ""
    return f"{planner.get('name')}{sees}"


def _manual(record: StageRecord, folder: Path) -> dict[str, Any]:
    told = record.summary
    sentence = f"{told['relevant']} of {told['paragraphs']} paragraphs were relevant; {told['facts']} facts."
    text = read_text(folder / record.outputs[0], _MOST_BYTES)
    return {"title": "Manual", "sentence": sentence, "text": text[:_SHOWN_TEXT]}


def _translation(record: StageRecord, folder: Path) -> dict[str, Any]:
    told, file = record.summary, read_foreign_json(folder / record.outputs[0], _MOST_BYTES)
    sentence = (
        f"In {told['states']} random states {told['sentences_true']} sentences were true, {told['sentences_false']} "
        f"false and {told['sentences_unclear']} not understood. Of the effects of actions {told['actions_true']} were "
        f"true, {told['actions_false']} false and {told['actions_unclear']} not understood."
    )
    rows = [["State", "In the translator's words"]]
    rows += [[json.dumps(one["state"]), one["words"]] for one in file["examples"]]
    return {"title": "Translation", "sentence": sentence, "table": rows, "text": file["source"]}


def _subgoals(record: StageRecord, folder: Path) -> dict[str, Any]:
    told, file = record.summary, read_foreign_json(folder / record.outputs[0], _MOST_BYTES)
    sentence = (
        f"{told['proposed']} states, {told['distinct']} distinct: {told['subgoals']} subgoals of the "
        f"{told['library']} that the game has, {told['goals']} goals, {told['refused']} refusals, "
        f"{told['failed']} states without an answer."
    )
    rows = [["Subgoal", "Given"], *([one["subgoal"], one["given"]] for one in file["subgoals"])]
    rows += [["Goal", "Given"], *([one["goal"], one["given"]] for one in file["goals"])]
    return {"title": "Data set of subgoals", "sentence": sentence, "table": rows}


def _rewards(record: StageRecord, folder: Path) -> dict[str, Any]:
    told, place = record.summary, folder / record.outputs[0]
    file = read_foreign_json(place / "agreement.json", _MOST_BYTES)
    sentence = (
        f"{told['with_code']} of {told['subgoals']} subgoals have reward code; {told['refused']} got none that can be "
        f"used, {told['disagree']} disagreed too much. The code agrees with the exact tests in {told['share']:.2%} of "
        f"{told['judgements']} judgements (precision {told['precision']:.3f}, recall {told['recall']:.3f})."
    )
    rows: list[list[Any]] = [["Subgoal", "Kept", "Agreement", "Why not"]]
    rows += [[one["subgoal"], one["kept"], one.get("share", ""), one["why"]] for one in file["by_subgoal"]]
    return {"title": "Reward code", "sentence": sentence, "table": rows}


_PARTS: dict[str, Callable[[StageRecord, Path], dict[str, Any]]] = {
    "make_manual": _manual,
    "translate": _translation,
    "collect_subgoals": _subgoals,
    "write_rewards": _rewards,
}


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
