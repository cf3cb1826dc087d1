"""Table of self-play, PBT, FCP and COLE with partners that they have never met, from a finished part of a study.

    rllib study file tuned_examples/study_partners.yaml
    python benchmarks/partners_table.py results/study_partners --json docs/results/partners

Every seed of a method plays in both seats with itself, with the other seeds of its method, and with the groups of
partners below. A cell of kitchen and method is one JSON file; cells that are there are not played again. The table
holds the kitchens whose four methods are trained.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.checkpoints.stage_record import read_record
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.files import write_atomically

KITCHENS = (
    "cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "counter_circuit",
)  # fmt: skip
METHODS = ("self_play", "pbt", "fcp", "cole")
HELD_OUT, HALF_TRAINED, PROXIES = "held-out seeds", "held-out seeds, half-trained", "scripted proxies"
SCRIPTED = (
    {"policy": "scripted", "name": "scripted"},
    {"policy": "scripted", "noise": 0.3, "name": "noisy"},
    {"policy": "scripted", "pauses": 0.5, "name": "pausing"},
    {"policy": "scripted", "habit": "onions_only", "name": "onions only"},
    {"policy": "scripted", "habit": "dishes_only", "name": "dishes only"},
)


def checkpoints(stage: Path) -> list[Path]:
    """The checkpoints with which a stage ended; none if it has not ended."""
    record = read_record(stage)
    return [] if record is None or record.status != "finished" else [stage / one for one in record.outputs]


def named(prefix: str, folders: list[Path]) -> list[dict[str, str]]:
    """Checkpoints as entries of a pool, numbered in the order of their seeds."""
    return [{"policy": str(folder), "name": f"{prefix} {number}"} for number, folder in enumerate(folders)]


def groups(study: Path, kitchen: str, method: str) -> dict[str, list[Any]]:
    """The partners that a method has not met while it learned."""
    held_out = checkpoints(study / f"{kitchen}.held_out")
    others = [
        one for name in METHODS if name != method for one in named(name, checkpoints(study / f"{kitchen}.{name}"))
    ]
    return {
        HELD_OUT: named("held out", held_out),
        HALF_TRAINED: named("half-trained", [one / "past" / "half_way" for one in held_out]),
        "untrained": named("untrained", [one / "past" / "initial" for one in held_out[:1]]),
        "random": ["random"],
        "stay": ["stay"],
        PROXIES: list(SCRIPTED),
        "the other methods": others,
    }


def cell(study: Path, kitchen: str, method: str, episodes: int) -> dict[str, Any]:
    """Cross-play of one method in one kitchen."""
    players = named(method, checkpoints(study / f"{kitchen}.{method}"))
    settings = CrossPlaySettings(episodes=episodes, metric="score")
    return CrossPlay(players, groups(study, kitchen, method), settings).play().to_json()


def difference(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """A difference of two means and its standard error; the players of both are independent."""
    error = math.hypot(one["standard_error"], other["standard_error"])
    return {"mean": round(one["mean"] - other["mean"], 2), "standard_error": round(error, 2)}


def rows(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of a kitchen: per method its means, and FCP with held-out seeds less self-play's cross-play."""
    kept = ("mean", "standard_error")
    told = {
        method: {
            "self_play": {key: found["self_play"][key] for key in kept},
            "cross_play": {key: found["cross_play"][key] for key in kept},
            **{name: {key: group[key] for key in (*kept, "by_seat")} for name, group in found["groups"].items()},
        }
        for method, found in cells.items()
    }
    return {
        **told,
        "fcp_less_self_play": difference(told["fcp"][HELD_OUT], told["self_play"][HELD_OUT]),
    }


def main() -> None:
    """Plays what is missing, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--episodes", type=int, default=10, help="per pair and seat")
    options = parser.parse_args()
    table: dict[str, Any] = {}
    for kitchen in KITCHENS:
        if not all(checkpoints(options.study / f"{kitchen}.{name}") for name in ("held_out", *METHODS)):
            print(f"{kitchen}: not all methods are trained")
            continue
        cells = {}
        for method in METHODS:
            path = options.json / kitchen / f"{method}.json"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                found = cell(options.study, kitchen, method, options.episodes)
                write_atomically(path, json.dumps(found) + "\n")
            cells[method] = json.loads(path.read_text(encoding="utf-8"))
            print(f"{kitchen}, {method}: with held-out seeds {cells[method]['groups'][HELD_OUT]['mean']:.1f}")
        table[kitchen] = rows(cells)
    told = {"made_by": "python benchmarks/partners_table.py", "episodes": options.episodes, "kitchens": table}
    write_atomically(options.json / "table.json", json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
