r"""Table of self-play, PBT, FCP and COLE with partners that they have never met, from a study, finished or not.

    rllib study file tuned_examples/study_partners.yaml
    python benchmarks/partners_table.py results/study_partners --json docs/results/partners \
        --page docs/results/partners.md

Every seed of a method plays in both seats with itself, with the other seeds of its method, and with the groups of
partners below. A cell of kitchen and method is one JSON file; cells that are there are not played again, unless other
checkpoints or another number of episodes are asked for. The table holds the kitchens whose stages have all ended; the
others are named as missing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from partners_page import GROUPS, HALF_TRAINED, HELD_OUT, KITCHENS, METHODS, OTHERS, PROXIES, page, tables

from rllib_llm_comm.checkpoints.stage_record import read_record
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.files import write_atomically

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


def missing(study: Path, kitchen: str) -> list[str]:
    """The stages of a kitchen that have not ended."""
    return [name for name in ("held_out", *METHODS) if not checkpoints(study / f"{kitchen}.{name}")]


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
        OTHERS: others,
    }


def cell(study: Path, kitchen: str, method: str, episodes: int) -> dict[str, Any]:
    """Cross-play of one method in one kitchen."""
    players = named(method, checkpoints(study / f"{kitchen}.{method}"))
    settings = CrossPlaySettings(episodes=episodes, metric="score")
    return CrossPlay(players, groups(study, kitchen, method), settings).play().to_json()


def kept_cell(path: Path, study: Path, kitchen: str, method: str, episodes: int) -> dict[str, Any]:
    """The cell of a file, played if the file is of other games; its paths begin with the study's name."""
    players = [_within(one["policy"], study) for one in named("", checkpoints(study / f"{kitchen}.{method}"))]
    if path.exists():
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if told["episodes"] == episodes and [one["policy"] for one in told["players"]] == players:
            return told
    told = cell(study, kitchen, method, episodes)
    for one in [*told["players"], *(one for group in told["groups"].values() for one in group["partners"])]:
        one["policy"] = _within(one["policy"], study)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(told) + "\n")
    return told


def _within(policy: str, study: Path) -> str:
    """A checkpoint's path from the study's folder on; other policies as they are."""
    path = Path(policy)
    return str(Path(study.name) / path.relative_to(study)) if path.is_relative_to(study) else policy


def difference(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float | None]:
    """A difference of two means and its standard error; the players of both are independent."""
    means, errors = ([row[name] for row in (one, other)] for name in ("mean", "standard_error"))
    known = None not in errors
    error = round(math.hypot(*errors), 2) if known else None  # type: ignore[arg-type]
    return {"mean": round(float(means[0] or 0) - float(means[1] or 0), 2), "standard_error": error}


def budget(stage: Path) -> dict[str, float]:
    """Game steps, with those of its population, and minutes of a seed of a stage: means over its trials."""
    rows = [
        json.loads((one.parent / "result.json").read_text(encoding="utf-8").splitlines()[-1])
        for one in checkpoints(stage)
    ]
    steps = [
        row.get("game_steps_with_population")
        or row.get("population", {}).get("game_steps")
        or row["num_env_steps_sampled_lifetime"]
        for row in rows
    ]
    minutes = sum(row["time_total_s"] for row in rows) / len(rows) / 60
    return {"game_steps": round(sum(steps) / len(rows)), "minutes": round(minutes, 1)}


def rows(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of a kitchen: per method its means, and FCP with held-out seeds less self-play's cross-play."""
    kept = ("mean", "standard_error")
    told: dict[str, Any] = {
        method: {
            "seeds": len(found["players"]),
            "self_play": {key: found["self_play"][key] for key in kept},
            "cross_play": {key: found["cross_play"][key] for key in kept},
            **{name: {key: found["groups"][name][key] for key in (*kept, "by_seat")} for name in GROUPS},
        }
        for method, found in cells.items()
    }
    fcp, own = told["fcp"][HELD_OUT], told["self_play"][HELD_OUT]
    return {**told, "fcp_less_self_play": difference(fcp, own)}


def table_of(study: Path, folder: Path, episodes: int) -> dict[str, Any]:
    """All figures; plays the cells that are not there."""
    kitchens: dict[str, Any] = {}
    lacking: dict[str, list[str]] = {}
    for kitchen in KITCHENS:
        if absent := missing(study, kitchen):
            lacking[kitchen] = absent
            print(f"{kitchen}: missing, these stages have not ended: {', '.join(absent)}")
            continue
        cells = {}
        for method in METHODS:
            cells[method] = kept_cell(folder / kitchen / f"{method}.json", study, kitchen, method, episodes)
            print(f"{kitchen}, {method}: with held-out seeds {cells[method]['groups'][HELD_OUT]['mean']:.1f}")
        spent = {name: budget(study / f"{kitchen}.{name}") for name in METHODS}
        kitchens[kitchen] = {**rows(cells), "budget": spent}
    made_by = f"python benchmarks/partners_table.py results/{study.name} --json docs/results/partners"
    return {"made_by": made_by, "episodes": episodes, "missing": lacking, "kitchens": kitchens}


def main() -> None:
    """Plays what is missing, writes the figures and shows their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--page", type=Path, help="Markdown page to write")
    parser.add_argument("--episodes", type=int, default=10, help="per pair and seat")
    options = parser.parse_args()
    table = table_of(options.study, options.json, options.episodes)
    options.json.mkdir(parents=True, exist_ok=True)
    write_atomically(options.json / "table.json", json.dumps(table, indent=1) + "\n")
    print(tables(table))
    if options.page is not None:
        write_atomically(options.page, page(table))


if __name__ == "__main__":
    main()
