"""Figures of SAMA's stages on the frozen lake and in MiniRTS, from two runs, and games of scripted walkers.

    rllib train file tuned_examples/sama_frozen_lake.yaml --ray-num-cpus 2
    rllib train file tuned_examples/sama_minirts.yaml
    python benchmarks/sama_other_games.py results --json docs/results/planning/sama_other_games.json

The scripted walkers (`LakePlanning.player`) are in the place of trained ones: they play the games of the lake's run,
with its manual, its translator and its planner, so that the plans alone decide.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.policies.stage_record import StageRecord, read_record

COMMAND = "python benchmarks/sama_other_games.py results --json docs/results/planning/sama_other_games.json"
RUNS = {
    "frozen_lake": "rllib train file tuned_examples/sama_frozen_lake.yaml --ray-num-cpus 2",
    "minirts": "rllib train file tuned_examples/sama_minirts.yaml",
}
SHOWN = {
    "translation": (
        "states",
        "sentences_true",
        "sentences_false",
        "sentences_unclear",
        "actions_true",
        "actions_false",
    ),
    "subgoals": ("proposed", "distinct", "states", "subgoals", "library", "share", "refused", "failed"),
    "rewards": ("subgoals", "with_code", "never_done", "judgements", "share", "precision", "recall"),
}
BY_HAND = (
    "All answers but those of the manuals were written by hand (tools/sama_lake_sheet.py, "
    "tools/sama_minirts_sheet.py); no language model was asked for them."
)
POINTS = "Points are those of both walkers together, of 2."


def stage(folder: Path, name: str) -> StageRecord:
    """The record of a stage that has ended.

    Args:
        folder: Of a run.
        name: Of the stage.

    Raises:
        UserError: If it has not.
    """
    record = read_record(folder / name)
    if record is None or record.status != "finished":
        raise UserError(f"{str(folder / name)!r} holds no stage that has ended; run `{RUNS[folder.name[5:]]}` first.")
    return record


def preparation(folder: Path) -> dict[str, Any]:
    """Figures of the stages that prepare a game, and whose answers they had.

    Args:
        folder: Of the run.
    """
    found = {}
    for name, keys in SHOWN.items():
        told = stage(folder, name).summary
        found[name] = {**{key: told[key] for key in keys if key in told}, "answers": told["answers"]}
    return found


def trained(folder: Path) -> dict[str, Any]:
    """The games of trained walkers.

    Args:
        folder: Of the run.
    """
    follower = stage(folder, "follower").settings
    rows = []
    for name in ("random", "trials_0", "trials_1"):
        config, told = stage(folder, name).settings["config"], stage(folder, name).summary
        row = {
            "stage": name,
            **asked(config),
            "points": round(2 * told["return_mean"], 4),
            "both_arrived": told["success_rate"],
            "subgoals_share": round(told["metrics"]["subgoals_share"], 4),
            "collisions_per_game": told["collisions_mean"],
            "seconds_per_game": told["seconds_per_game"],
            "games": told["episodes"],
            "seeds_from": config["seed"],
            "returns": told["returns"],
        }
        rows.append(row)
    iterations = follower["stop"]["decisions"] // follower["config"]["train_batch_size_per_learner"]
    how = f"{follower['run']}, {iterations} iterations, seed {follower['config']['seed']}"
    return {"command": RUNS["frozen_lake"], "follower": how, "games": rows}


def scripted(folder: Path) -> dict[str, Any]:
    """The same games, played by scripted walkers.

    Args:
        folder: Of the run.
    """
    walkers = ScriptedExecutor(
        "rllib_llm_comm/frozen_lake-v0", stage(folder, "translation").settings["config"]["env_config"]
    )
    rows = []
    for name, trials in (("random", 0), ("random", 1), ("trials_0", 0), ("trials_1", 1)):
        config = stage(folder, name).settings["config"]
        setup = PlanningSetup(
            _with_paths(config["planner"], folder), replan="all", trials=trials, patience=config["patience"]
        )
        games = PlannedGames(walkers, {}, setup)
        played = [games.play(seed) for seed in range(config["seed"], config["seed"] + config["episodes"])]
        points = [2 * game["return"] for game in played]
        share = statistics.mean([game["metrics"]["subgoals_share"] for game in played])
        row = {**asked(config), "reflections": trials, "points": round(statistics.mean(points), 4)}
        rows.append({**row, "subgoals_share": round(share, 4), "games": len(played), "seeds_from": config["seed"]})
    return {"command": COMMAND, "games": rows}


def asked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The planner of a stage that plays, and its reflections."""
    planner = config["planner"]
    if not isinstance(planner, str):
        chat = planner["chat"]
        planner = next((f"model {chat[key]}" for key in ("model", "local") if key in chat), "recording")
    return {"planner": planner, "reflections": config["trials"]}


def notes(lake: Path, war: Path) -> list[str]:
    """Remarks for readers of the figures: whose answers they have, as the runs say.

    Args:
        lake: Folder of the run on the lake.
        war: Folder of the run in MiniRTS.
    """
    authors = {author for folder in (lake, war) for name in SHOWN for author in stage(folder, name).summary["answers"]}
    asked_by = f"Answers but those of the manuals are by: {', '.join(sorted(authors))}."
    return [BY_HAND if authors == {"written by hand"} else asked_by, POINTS]


def _with_paths(planner: Any, folder: Path) -> Any:
    """A planner's settings with paths for the results of stages."""
    if not isinstance(planner, Mapping):
        return planner
    paths = {f"${{{name}}}": str(folder / name / stage(folder, name).outputs[0]) for name in ("manual", "translation")}
    return {key: paths.get(value, value) if isinstance(value, str) else value for key, value in planner.items()}


def main() -> None:
    """Plays, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, help="folder above those of the two runs")
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    given = parser.parse_args()
    lake, war = (given.runs / f"sama_{game}" for game in RUNS)
    found = {
        "title": "SAMA's stages on the frozen lake and in MiniRTS",
        "command": COMMAND,
        "notes": notes(lake, war),
        "frozen_lake": {
            "command": RUNS["frozen_lake"],
            **preparation(lake),
            "games_of_scripted_walkers": scripted(lake),
            "games_of_trained_walkers": trained(lake),
        },
        "minirts": {"command": RUNS["minirts"], **preparation(war)},
    }
    write_atomically(given.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"Error: {error}") from None
