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

An `--emma` may name several stages, joined by commas. With `--fcp` FCP's row is that of other learners for the
populations of the study, and with `--fcp-final` there is one for learners without past checkpoints; `fcp_learners.py`
trains both.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from partners_cells import HELD_OUT_STAGE, followers, kept_cell, missing, trained
from partners_page import (
    EMMA,
    FCP_FINAL,
    GROUPS,
    HELD_OUT,
    KITCHENS,
    METHODS,
    OTHERS,
    PROXIES,
    SP_PAIRS,
    page,
    tables,
    verdict,
)
from scipy.stats import ttest_ind

from rllib_llm_comm.baselines.population.self_play_ppo import SCORE_BY_PARTNER
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.rl.past_policies import AGES

LAST_RESULTS = 20  # iterations of a learner whose scores are averaged
EARLY = 0.25  # of a learner's iterations, to tell if more of them would help
HORIZON = 400  # steps of a game
STRANGERS = ("pbt", "cole")


def difference(one: Mapping[str, float | None], other: Mapping[str, float | None]) -> dict[str, float | None]:
    """A difference of two means and its standard error; the players of both are independent."""
    means, errors = ([row[name] for row in (one, other)] for name in ("mean", "standard_error"))
    known = None not in errors
    error = round(math.hypot(*errors), 2) if known else None  # type: ignore[arg-type]
    return {"mean": round(float(means[0] or 0) - float(means[1] or 0), 2), "standard_error": error}


def spent_by(policies: Sequence[Path], steps_of: Callable[[dict[str, Any]], float]) -> dict[str, float]:
    """Game steps and minutes of a seed of a method: means over its checkpoints, from the results beside them.

    Args:
        policies: Checkpoints of trials. Minutes of members that an earlier run has trained count, too.
        steps_of: Game steps of a result.
    """
    steps, minutes = [], []
    for one in policies:
        last, population = results_of(one.parent)[-1], setting_of(one, "population_from")
        members = 0.0 if population is None else members_seconds(Path(population))
        steps.append(steps_of(last))
        minutes.append((last["time_total_s"] + members) / 60)
    return {"game_steps": round(statistics.mean(steps)), "minutes": round(statistics.mean(minutes), 1)}


def results_of(trial: Path) -> list[dict[str, Any]]:
    """All results of a trial."""
    return [json.loads(line) for line in (trial / "result.json").read_text(encoding="utf-8").splitlines()]


def members_seconds(trial: Path) -> float:
    """Seconds of a run of FCP until its learner began."""
    seconds: float = max(row["time_total_s"] for row in results_of(trial) if "learners" not in row)
    return seconds


def setting_of(policy: Path, name: str) -> Any:
    """A setting of the trial to which a checkpoint belongs; `None` if its code did not have it."""
    return json.loads((policy.parent / "params.json").read_text(encoding="utf-8")).get(name)


def learned_with(policies: Sequence[Path], share: float = 1.0) -> dict[str, dict[str, float | None]]:
    """Scores that FCP's learners reach, while they learn, with partners of each age: means over seeds with errors.

    Args:
        policies: Checkpoints of its trials; the results beside them count.
        share: Share of the learner's iterations at whose end the scores are read; 1.0 for the last ones.
    """
    per_seed: dict[str, list[float]] = {}
    for one in policies:
        seen: dict[str, list[float]] = {}
        played = [
            row["env_runners"] for row in results_of(one.parent) if SCORE_BY_PARTNER in row.get("env_runners", {})
        ]
        end = round(share * len(played))
        for row in played[max(0, end - LAST_RESULTS) : end]:
            for name, score in row[SCORE_BY_PARTNER].items():
                age = next((age for age in AGES if name.endswith(age)), None)
                if age is not None and not math.isnan(score):
                    seen.setdefault(age, []).append(score)
        for age, scores in seen.items():
            per_seed.setdefault(age, []).append(statistics.mean(scores))
    return {age: over_seeds(means) for age, means in sorted(per_seed.items())}


def over_seeds(means: Sequence[float]) -> dict[str, float | None]:
    """Mean of the seeds' means and its standard error."""
    error = round(statistics.stdev(means) / math.sqrt(len(means)), 2) if len(means) > 1 else None
    return {"mean": round(statistics.mean(means), 2), "standard_error": error}


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
            "pairs": pair_scores(found),
            **{
                name: {key: found["groups"][name][key] for key in (*kept, "by_seat")}
                for name in GROUPS
                if name in found["groups"]
            },
            **{f"each of {name}": each_of(found["groups"].get(name)) for name in (PROXIES, OTHERS)},
        }
        for method, found in cells.items()
    }


def pair_scores(found: Mapping[str, Any]) -> list[float]:
    """Scores of a method's pairs of different seeds, each the mean of both seatings, from the least to the most."""
    table = np.asarray(next(iter(found["matrix"].values())))  # the other seat's is its transpose
    first, second = np.triu_indices(len(table), 1)
    scores: list[float] = sorted(np.round((table[first, second] + table[second, first]) / 2, 2).tolist())
    return scores


def each_of(group: Mapping[str, Any] | None) -> dict[str, Any]:
    """A method with each partner of a group; with seeds of a method together, which are numbered partners."""
    if group is None:
        return {}
    scores = np.mean(list(group["matrix"].values()), axis=0)  # (players, partners)
    columns: dict[str, list[int]] = {}
    for place, one in enumerate(group["partners"]):
        columns.setdefault(one["name"].rstrip("0123456789 "), []).append(place)
    return {name: over_seeds(scores[:, places].mean(axis=1).tolist()) for name, places in columns.items()}


def fcp_less_self_play(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """FCP with held-out seeds less self-play with them."""
    fcp, own = (cells[name]["groups"][HELD_OUT] for name in ("fcp", "self_play"))
    return difference(fcp, own)


def held_out_means(cell: Mapping[str, Any]) -> list[float]:
    """Per seed its mean with held-out seeds in both seats."""
    means: list[float] = np.mean(list(cell["groups"][HELD_OUT]["matrix"].values()), axis=(0, 2)).tolist()
    return means


def welch_p(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Two-sided p of Welch's t-test of two methods' seeds; `None` for single seeds."""
    if min(len(one), len(other)) < 2:  # noqa: PLR2004
        return None
    found = float(ttest_ind(one, other, equal_var=False).pvalue)
    return None if math.isnan(found) else round(found, 3)


def with_strangers(cell: Mapping[str, Any]) -> dict[str, float | None]:
    """A method with the seeds of PBT and COLE, which neither FCP nor self-play has met."""
    group = cell["groups"][OTHERS]
    scores = np.mean(list(group["matrix"].values()), axis=0)  # (players, partners)
    places = [place for place, one in enumerate(group["partners"]) if one["name"].startswith(STRANGERS)]
    return over_seeds(scores[:, places].mean(axis=1).tolist())


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
    pairs = kept_cell(kitchen, SP_PAIRS, trained(options, kitchen, SP_PAIRS), options)
    return {
        "methods": rows(cells),
        "fcp_less_self_play": fcp_less_self_play(cells),
        "welch_p": welch_p(*(held_out_means(cells[one]) for one in ("fcp", "self_play"))),
        "fcp_less_self_play_with_pbt_and_cole": difference(
            *(with_strangers(cells[one]) for one in ("fcp", "self_play"))
        ),
        SP_PAIRS: {
            "seeds": len(pairs["players"]),
            "self_play": pairs["self_play"],
            "pairs": pair_scores(pairs),
            **pairs["cross_play"],
        },
        "fcp_learned_with": learned_with(players["fcp"]),
        "fcp_learned_with_early": learned_with(players["fcp"], EARLY),
        "fcp_settings": [fcp_settings(one) for one in players["fcp"]],
        "budget": {name: spent_by(players[name], game_steps) for name in METHODS},
    }


def fcp_settings(policy: Path) -> dict[str, Any]:
    """Settings of one of FCP's learners that were not the same in all kitchens, as its trial has them."""
    taken = setting_of(policy, "population_from") is not None
    told = {name: setting_of(policy, name) for name in ("seed", "num_epochs", "critic_observation")}
    return {**told, "population_from_an_earlier_run": taken}


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
    told_by = options.planner if any(EMMA in found["methods"] for found in kitchens.values()) else None
    return {
        "made_by": " ".join(["python benchmarks/partners_table.py", *sys.argv[1:]]),
        "episodes": options.episodes, "planner": told_by, "missing": lacking, "kitchens": kitchens,
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
    write_atomically(options.json / "table.json", json.dumps(table, separators=(",", ":")) + "\n")
    print(verdict(table["kitchens"]) + "\n" + tables(table))
    if options.page is not None:
        write_atomically(options.page, page(table))


if __name__ == "__main__":
    main()
