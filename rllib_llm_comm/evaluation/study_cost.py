"""The cost of questions to chat models in a study: of its shared stages, its training runs and the games it played."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.chat_model import ChatCounters, cost_of
from rllib_llm_comm.core.json_file import JsonValue, damaged
from rllib_llm_comm.evaluation.curve_rows import read_rows
from rllib_llm_comm.policies.stage_record import read_record

COSTS = tuple(cost_of(ChatCounters()))
"""Names of the counts in summaries of stages and in results of training."""
RUN, GAME, STAGE = "run", "game", "stage"
_IN_TRAINING = (("env_runners", "chat"), ("evaluation", "env_runners", "chat"), ("new_subgoals",))
"""Places of the counts in a training result: of games, of games of the periodic evaluation, of a growing data set."""
_NUMBER, _PER, _SECONDS = "number", "per", "seconds_per_game"

Costs = dict[str, dict[str, dict[str, Any]]]
"""Scenario -> stage in it -> counts of all its questions, the `number` of runs or games behind them, and `per`."""


def asked_in_training(result: Mapping[str, Any]) -> dict[str, float]:
    """The counts of all questions to chat models while agents learned; empty if nobody was asked.

    Args:
        result: The last result of a trial.
    """
    total: dict[str, float] = {}
    for place in _IN_TRAINING:
        found: Any = result
        for key in place:
            found = found.get(key) or {}
        for name in COSTS:
            if name in found:
                total[name] = total.get(name, 0.0) + float(found[name])
    return total


def read_costs(folder: Path, study: Mapping[str, Any]) -> Costs:
    """The counts of all stages of a study that have asked a chat model or a recording of one.

    Args:
        folder: The study's folder.
        study: The study as its file says.
    """
    costs: Costs = {}
    for scenario in study["scenarios"]:
        found = {path.name.removeprefix(f"{scenario}."): _of_stage(path) for path in folder.glob(f"{scenario}.*")}
        asked = {name: cost for name, cost in sorted(found.items()) if cost.get("requests") or cost.get("kept_answers")}
        if asked:
            costs[scenario] = asked
    return costs


def kept_costs(kept: JsonValue) -> Costs:
    """The costs that a report kept, checked.

    Args:
        kept: `cost` of `results.json`.

    Raises:
        UserError: If they are damaged.
    """
    for stages in kept.items().values():
        for cost in stages.items().values():
            cost[_PER].text()
            for name in (*COSTS, _NUMBER):
                cost[name].number()
    return dict(kept.content)


def cost_rows(costs: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of a scenario's table of cost: means per run or game; shared stages first, then systems in their order.

    Args:
        costs: Stage -> its counts.
        labels: System -> its name in the report.

    Returns:
        Per row `label`, `part`, `per`, the means of the counts, and `seconds_per_game` of games.
    """
    order = list(labels)

    def place(stage: str) -> tuple[int, str]:
        system = stage.partition(".")[0]
        return (order.index(system) if system in order else -1, stage)

    rows = []
    for stage in sorted(costs, key=place):
        cost, (system, _, suffix) = costs[stage], stage.partition(".")
        means = {name: cost[name] / max(1, cost[_NUMBER]) for name in COSTS}
        label, part = labels.get(system, stage), suffix.replace("messages_", "with ") or "while learning"
        part = part if system in labels else "shared stage"
        rows.append({"label": label, "part": part, "per": cost[_PER], **means, _SECONDS: cost.get(_SECONDS)})
    return rows


def _of_stage(stage: Path) -> dict[str, Any]:
    """The counts of a stage; empty if it asks nobody or has not ended."""
    trials = [_last(path) for path in sorted(stage.glob("trial_*/result.json"))]
    if trials:
        return {**_sum([asked_in_training(result) for result in trials]), _NUMBER: len(trials), _PER: RUN}
    record = read_record(stage)
    if record is None or "requests" not in record.summary:
        return {}
    played = record.summary.get("checkpoints", [record.summary])
    games = sum(int(one.get("episodes", 0)) for one in played) if record.run == "evaluate" else 0
    seconds = [float(one[_SECONDS]) for one in played if _SECONDS in one]
    told = {_SECONDS: sum(seconds) / len(seconds)} if seconds else {}
    return {**_sum([record.summary]), _NUMBER: games or 1, _PER: GAME if games else STAGE, **told}


def _last(path: Path) -> dict[str, Any]:
    """The last result of a trial."""
    try:
        return next(reversed(read_rows(path)), {})
    except (OSError, ValueError, TypeError) as error:
        what = f"no results of a trial ({type(error).__name__}: {error})"
        raise damaged(path, what, f"remove {str(path.parents[1])!r} and type the command of the study again") from error


def _sum(counts: list[Any]) -> dict[str, float]:
    return {name: sum(float(one.get(name) or 0.0) for one in counts) for name in COSTS}
