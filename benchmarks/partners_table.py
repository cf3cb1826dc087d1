r"""Table of self-play, PBT, FCP and COLE with partners that they have never met, from a study, finished or not.

    rllib study file tuned_examples/study_partners.yaml
    python benchmarks/partners_table.py results/study_partners --json docs/results/partners \
        --page docs/results/partners.md

Every seed of a method plays in both seats with itself, with the other seeds of its method, and with the groups of
partners below. A cell of kitchen and method is one JSON file; cells that are there are not played again, unless other
checkpoints or another number of episodes are asked for. The table holds the kitchens whose stages have all ended; the
others are named as missing. A kitchen of an earlier table stays until the study has all of it, so that kitchens can be
trained one by one on several machines. With `--emma` EMMA plays, too, told by a planner that plans for both cooks:

    rllib train file tuned_examples/emma.yaml --seed 0 --experiment-name emma_0    # and so on
    ... --emma results/emma_0/emma results/emma_1/emma results/emma_2/emma

With `--fcp` FCP's row is that of other learners for the populations of the study, and with `--fcp-final` there is one
for learners without past checkpoints; `fcp_learners.py` trains both.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partners_page import (
    EMMA,
    FCP_FINAL,
    GROUPS,
    HALF_TRAINED,
    HELD_OUT,
    KITCHENS,
    METHODS,
    OTHERS,
    PROXIES,
    page,
    tables,
)

from rllib_llm_comm.agents.policy_folder import find_policy
from rllib_llm_comm.agents.policy_manifest import read_manifest
from rllib_llm_comm.algorithms.past_policies import FINAL, HALF_WAY, INITIAL
from rllib_llm_comm.checkpoints.stage_record import read_record
from rllib_llm_comm.env_runners.overcooked_ai import SCORE_BY_PARTNER
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.files import write_atomically

HELD_OUT_STAGE = "held_out"
AGES = (INITIAL, HALF_WAY, FINAL)
LAST_RESULTS = 20  # iterations of a learner whose scores are averaged
HORIZON = 400  # steps of a game
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


def trained(options: argparse.Namespace, kitchen: str, method: str) -> list[Path]:
    """The checkpoints of a method's seeds in a kitchen; none if its stage has not ended and no folder has them."""
    elsewhere = {"fcp": options.fcp, FCP_FINAL: options.fcp_final}.get(method)
    found = sorted(elsewhere.glob(f"{kitchen}/seed_*/checkpoint_*")) if elsewhere else []
    return found or checkpoints(options.study / f"{kitchen}.{method}")


def missing(options: argparse.Namespace, kitchen: str) -> list[str]:
    """The stages of a kitchen that have not ended."""
    return [name for name in (HELD_OUT_STAGE, *METHODS) if not trained(options, kitchen, name)]


def named(prefix: str, folders: list[Path]) -> list[dict[str, str]]:
    """Checkpoints as entries of a pool, numbered in the order of their seeds."""
    return [{"policy": str(folder), "name": f"{prefix} {number}"} for number, folder in enumerate(folders)]


def groups(options: argparse.Namespace, kitchen: str, method: str) -> dict[str, list[Any]]:
    """The partners that a method has not met while it learned."""
    held_out = trained(options, kitchen, HELD_OUT_STAGE)
    others = [one for name in METHODS if name != method for one in named(name, trained(options, kitchen, name))]
    return {
        HELD_OUT: named("held out", held_out),
        HALF_TRAINED: named("half-trained", [one / "past" / "half_way" for one in held_out]),
        "untrained": named("untrained", [one / "past" / "initial" for one in held_out[:1]]),
        "random": ["random"],
        "stay": ["stay"],
        PROXIES: list(SCRIPTED),
        **({OTHERS: others} if others else {}),
    }


def followers(places: Sequence[str], kitchen: str) -> list[Path]:
    """The checkpoints of EMMA's seeds for a kitchen; none unless all are there.

    Args:
        places: Per seed a stage of `tuned_examples/emma.yaml`, of whose checkpoints that of the kitchen counts, or a
            checkpoint's folder with `{kitchen}` in its name.
        kitchen: The layout.
    """
    found = []
    for place in places:
        path = Path(place.replace("{kitchen}", kitchen))
        trained = checkpoints(path)
        if trained:
            fitting = [one for one in trained if read_manifest(find_policy(one)).env_config.get("layout") == kitchen]
        else:
            fitting = [path] if path.exists() else []
        found += fitting[:1]
    return found if len(found) == len(places) else []


def planning_of(method: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """The planner of a method; `None` if nobody plans."""
    return {"planner": options.planner} if method == EMMA else None


def cell(kitchen: str, method: str, players: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    """Cross-play of one method in one kitchen."""
    planning = planning_of(method, options)
    steps = {"action_level": "primitive", "commit": False}  # as in emma.yaml's evaluation
    settings = CrossPlaySettings(
        episodes=options.episodes,
        metric="score",
        planning=planning,
        env_config=None if planning is None else steps,
    )
    return CrossPlay(named(method, players), groups(options, kitchen, method), settings).play().to_json()


def kept_cell(kitchen: str, method: str, players: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    """The cell of a file, played if the file is of other games; paths in it are none of this machine."""
    study = options.study
    path = options.json / kitchen / f"{method}.json"
    partners = [one for group in groups(options, kitchen, method).values() for one in group]
    everybody = [*map(str, players), *(one if isinstance(one, str) else str(one["policy"]) for one in partners)]
    wanted = (options.episodes, planning_of(method, options), [_short(one, study) for one in everybody])
    if path.exists():
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = [*told["players"], *(one for group in told["groups"].values() for one in group["partners"])]
        if (told["episodes"], told.get("planning"), [one["policy"] for one in found]) == wanted:
            return told
    told = cell(kitchen, method, players, options)
    for one in [*told["players"], *(one for group in told["groups"].values() for one in group["partners"])]:
        one["policy"] = _short(one["policy"], study)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(told) + "\n")
    return told


def _short(policy: str, study: Path) -> str:
    """A checkpoint's path from the study's folder on, or its last three parts; other policies as they are."""
    path = Path(policy)
    if path.is_relative_to(study):
        return str(Path(study.name) / path.relative_to(study))
    return str(Path(*path.parts[-3:])) if path.exists() else policy


def difference(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float | None]:
    """A difference of two means and its standard error; the players of both are independent."""
    means, errors = ([row[name] for row in (one, other)] for name in ("mean", "standard_error"))
    known = None not in errors
    error = round(math.hypot(*errors), 2) if known else None  # type: ignore[arg-type]
    return {"mean": round(float(means[0] or 0) - float(means[1] or 0), 2), "standard_error": error}


def spent_by(policies: Sequence[Path], steps_of: Callable[[dict[str, Any]], float]) -> dict[str, float]:
    """Game steps and minutes of a seed of a method: means over its checkpoints, from the last results beside them.

    Args:
        policies: Checkpoints of trials.
        steps_of: Game steps of a result.
    """
    told = [json.loads((one.parent / "result.json").read_text(encoding="utf-8").splitlines()[-1]) for one in policies]
    minutes = sum(row["time_total_s"] for row in told) / len(told) / 60
    return {"game_steps": round(sum(map(steps_of, told)) / len(told)), "minutes": round(minutes, 1)}


def setting_of(policies: Sequence[Path], name: str) -> Any:
    """A setting of the trials to which checkpoints belong; `None` if their code did not have it."""
    return json.loads((policies[0].parent / "params.json").read_text(encoding="utf-8")).get(name)


def learned_with(policies: Sequence[Path]) -> dict[str, dict[str, float | None]]:
    """Scores that FCP's learners reach, while they learn, with partners of each age: means over seeds with errors.

    Args:
        policies: Checkpoints of its trials; the last results beside them count.
    """
    per_seed: dict[str, list[float]] = {}
    for one in policies:
        lines = (one.parent / "result.json").read_text(encoding="utf-8").splitlines()[-LAST_RESULTS:]
        seen: dict[str, list[float]] = {}
        for line in lines:
            for name, score in json.loads(line).get("env_runners", {}).get(SCORE_BY_PARTNER, {}).items():
                age = next((age for age in AGES if name.endswith(age)), None)
                if age is not None and not math.isnan(score):
                    seen.setdefault(age, []).append(score)
        for age, scores in seen.items():
            per_seed.setdefault(age, []).append(statistics.mean(scores))
    return {
        age: {
            "mean": round(statistics.mean(means), 2),
            "standard_error": round(statistics.stdev(means) / math.sqrt(len(means)), 2) if len(means) > 1 else None,
        }
        for age, means in sorted(per_seed.items())
    }


def told_games(row: Mapping[str, Any]) -> float:
    """Game steps of a result of EMMA, which counts whole games."""
    steps: float = HORIZON * row["env_runners"]["num_episodes_lifetime"]
    return steps


def game_steps(row: Mapping[str, Any]) -> float:
    """Game steps of a result, with those of the method's population."""
    steps: float = (
        row.get("game_steps_with_population")
        or row.get("population", {}).get("game_steps")
        or row["num_env_steps_sampled_lifetime"]
    )
    return steps


def rows(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of a kitchen: per method its means."""
    kept = ("mean", "standard_error")
    return {
        method: {
            "seeds": len(found["players"]),
            "self_play": {key: found["self_play"][key] for key in kept},
            "cross_play": {key: found["cross_play"][key] for key in kept},
            **{
                name: {key: found["groups"][name][key] for key in (*kept, "by_seat")}
                for name in GROUPS
                if name in found["groups"]
            },
        }
        for method, found in cells.items()
    }


def fcp_less_self_play(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """FCP with held-out seeds less self-play with them."""
    fcp, own = (cells[name]["groups"][HELD_OUT] for name in ("fcp", "self_play"))
    return difference(fcp, own)


def earlier_kitchens(options: argparse.Namespace) -> dict[str, Any]:
    """The kitchens of the table that is there already; another machine may have trained them."""
    path = options.json / "table.json"
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["kitchens"] if path.exists() else {}
    return told


def figures_of(kitchen: str, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a kitchen whose stages have all ended."""
    players = {method: trained(options, kitchen, method) for method in METHODS}
    cells = {}
    for method in METHODS:
        cells[method] = kept_cell(kitchen, method, players[method], options)
        print(f"{kitchen}, {method}: with held-out seeds {cells[method]['groups'][HELD_OUT]['mean']:.1f}")
    spent = {name: spent_by(players[name], game_steps) for name in METHODS}
    return {
        "methods": rows(cells),
        "fcp_less_self_play": fcp_less_self_play(cells),
        "fcp_learned_with": learned_with(players["fcp"]),
        "fcp_num_epochs": setting_of(players["fcp"], "num_epochs"),
        "fcp_critic_observation": setting_of(players["fcp"], "critic_observation"),
        "fcp_took_its_population": setting_of(players["fcp"], "population_from") is not None,
        "budget": spent,
    }


def add_row(kitchen: str, method: str, found: dict[str, Any], options: argparse.Namespace) -> bool:
    """Adds a further method's row to a kitchen's figures; false if it is asked for and cannot be played."""
    asked = bool(getattr(options, method))
    players = followers(options.emma, kitchen) if method == EMMA else trained(options, kitchen, method)
    if players and trained(options, kitchen, HELD_OUT_STAGE):
        found["methods"].update(rows({method: kept_cell(kitchen, method, players, options)}))
        found["budget"][method] = spent_by(players, told_games if method == EMMA else game_steps)
    elif asked and method not in found["methods"]:
        print(f"{kitchen}: {method} is missing, not all of its folders are there, or the held-out partners are not")
        return False
    return True


def table_of(options: argparse.Namespace) -> dict[str, Any]:
    """All figures; plays the cells that are not there."""
    kitchens: dict[str, Any] = {}
    lacking: dict[str, list[str]] = {}
    earlier = earlier_kitchens(options)
    for kitchen in KITCHENS:
        absent = missing(options, kitchen)
        if not absent:
            kitchens[kitchen] = figures_of(kitchen, options)
        elif kitchen in earlier:
            kitchens[kitchen] = earlier[kitchen]
            print(f"{kitchen}: kept as it is in {options.json}, since it is not complete in {options.study}")
        else:
            lacking[kitchen] = absent
            print(f"{kitchen}: missing, these stages have not ended: {', '.join(absent)}")
            continue
        if absent := [name for name in (EMMA, FCP_FINAL) if not add_row(kitchen, name, kitchens[kitchen], options)]:
            lacking[kitchen] = absent
    made_by = f"python benchmarks/partners_table.py results/{options.study.name} --json docs/results/partners"
    told_by = options.planner if any(EMMA in found["methods"] for found in kitchens.values()) else None
    return {
        "made_by": made_by, "episodes": options.episodes, "planner": told_by, "missing": lacking, "kitchens": kitchens,
    }  # fmt: skip


def main() -> None:
    """Plays what is missing, writes the figures and shows their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--json", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--page", type=Path, help="Markdown page to write")
    parser.add_argument("--episodes", type=int, default=10, help="per pair and seat")
    parser.add_argument("--emma", nargs="+", default=[], help="stages or checkpoints of EMMA's seeds")
    parser.add_argument("--fcp", type=Path, help="folder of other learners of FCP than the study's")
    parser.add_argument("--fcp-final", type=Path, help="folder of FCP's learners without past checkpoints")
    parser.add_argument("--planner", default="scripted", help="who tells EMMA")
    options = parser.parse_args()
    table = table_of(options)
    options.json.mkdir(parents=True, exist_ok=True)
    write_atomically(options.json / "table.json", json.dumps(table, indent=1) + "\n")
    print(tables(table))
    if options.page is not None:
        write_atomically(options.page, page(table))


if __name__ == "__main__":
    main()
