"""The tables of `partners_table.py` as Markdown, beside published figures, and the page of results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

KITCHENS = (
    "cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "counter_circuit",
)  # fmt: skip
METHODS = ("self_play", "pbt", "fcp", "cole")
EMMA, FCP_FINAL, SP_PAIRS = "emma", "fcp_final", "self_play_pairs"
LABELS = {
    EMMA: "EMMA, told", FCP_FINAL: "FCP, final", "self_play": "SP", "pbt": "PBT", "fcp": "FCP", "cole": "COLE",
}  # fmt: skip
HELD_OUT, HALF_TRAINED, PROXIES = "held-out seeds", "held-out seeds, half-trained", "scripted proxies"
OTHERS = "the other methods"
GROUPS = (HELD_OUT, HALF_TRAINED, "untrained", "random", "stay", PROXIES, OTHERS)
ERRORS = 2
"""Standard errors that a difference must exceed to count."""

# Mean score of 400 steps. Carroll et al. 2019: their released data files, 5 seeds, the method with itself, and with a
# clone of human players as player 0 / as player 1. ProAgent (Zhang et al. 2023), Table 1: COLE's released agents, the
# method with six methods (itself and ProAgent among them), 5 games per pair, as player 0 / as player 1.
PUBLISHED = {
    "cramped_room": {
        "SP + SP": "198.8 ± 4.1", "PBT + PBT": "216.9 ± 1.3", "SP + clone": "96.8 / 111.2",
        "PBT + clone": "84.2 / 113.6", "SP, six methods": "168.5 ± 15.2 / 172.8 ± 16.1",
        "PBT, six methods": "178.8 ± 16.5 / 179.8 ± 26.8", "FCP, six methods": "196.3 ± 16.8 / 196 ± 11.9",
        "COLE, six methods": "163.8 ± 24.1 / 169.2 ± 16.8",
    },
    "asymmetric_advantages": {
        "SP + SP": "167.2 ± 3.6", "PBT + PBT": "190.1 ± 8.6", "SP + clone": "37.5 / 103.2",
        "PBT + clone": "56.6 / 93.0", "SP, six methods": "183.3 ± 27.5 / 177.8 ± 24.6",
        "PBT, six methods": "182.2 ± 27.9 / 152.3 ± 64.5", "FCP, six methods": "185.7 ± 22.7 / 167.8 ± 21.3",
        "COLE, six methods": "201.3 ± 34.5 / 165.5 ± 33.3",
    },
    "coordination_ring": {
        "SP + SP": "190.8 ± 4.2", "PBT + PBT": "173.8 ± 18.3", "SP + clone": "66.9 / 72.8",
        "PBT + clone": "70.8 / 79.9", "SP, six methods": "122 ± 17.2 / 133.3 ± 23.7",
        "PBT, six methods": "141.3 ± 28 / 141.3 ± 27.5", "FCP, six methods": "148.8 ± 19.4 / 145.7 ± 17.1",
        "COLE, six methods": "168.8 ± 26.1 / 158.3 ± 27.1",
    },
    "forced_coordination": {
        "SP + SP": "151.9 ± 3.3", "PBT + PBT": "169.5 ± 10.1", "SP + clone": "23.2 / 37.9",
        "PBT + clone": "13.8 / 28.4", "SP, six methods": "6.7 ± 6.7 / 30.2 ± 21.9",
        "PBT, six methods": "15.3 ± 17.1 / 61.7 ± 46", "FCP, six methods": "44.7 ± 36.4 / 32.2 ± 30.2",
        "COLE, six methods": "24 ± 21.8 / 57.3 ± 36.4",
    },
    "counter_circuit": {
        "SP + SP": "122.3 ± 3.8", "PBT + PBT": "140.1 ± 13.9", "SP + clone": "31.0 / 32.0",
        "PBT + clone": "39.8 / 32.6", "SP, six methods": "64.7 ± 45.8 / 60.7 ± 40.8",
        "PBT, six methods": "64.7 ± 45.9 / 54.3 ± 49.1", "FCP, six methods": "58.3 ± 37.5 / 60 ± 38.3",
        "COLE, six methods": "95.5 ± 25.2 / 100.8 ± 31.1",
    },
}  # fmt: skip

FEW = 5
"""Seeds from which on pairs of seeds have an error: below it the jackknife's is one or two pairs' doing."""

_HEAD = """# Partners that nobody has met

Self-play (SP), [PBT](../algorithms/pbt.md), [FCP](../algorithms/fcp.md) and [COLE](../algorithms/cole.md) in the five
onion-soup kitchens, with partners that they never met while they learned. What follows from it, and why FCP is not
ahead everywhere: [results](../results.md#partners-that-nobody-has-met).

"""
_READ = """
## How to read it

The score is the sum of the rewards for soups, 20 each, in 400 steps. Actions are sampled. Every seed plays {episodes}
games with every partner in each of the two seats. Errors are standard errors over the seeds of the method, not over
games. Partners are held fixed: how much other held-out seeds would change is not in the errors. With three seeds errors
are rough.

| Partners | Are |
| --- | --- |
| same method | pairs of different seeds of the method; below five seeds the least and the most of them, not an error |
| held-out seeds | self-play with other seeds, which no method met |
| half-trained | the same, at half of their final score |
| untrained | one of them before its first update |
| scripted proxies | the scripted cook, alone or with noise, pauses or a habit; no models of humans |
| other methods | the seeds of the other three among SP, PBT, FCP and COLE: another set for each row |

* FCP's learner never plays with itself while it learns.
* FCP's learner goes over each batch 8 times and its critic is told the partner; SP goes over it 4 times. These settings
  were chosen after a look at held-out scores of one seed in the ring. Its learner has 4,096,000 game steps and its five
  members have 1,024,000 each.
* A kitchen with one pot has no cook with the habit `one pot` of its own: there it is the scripted one, counted twice.
* In forced coordination one cook has the pots and the other one the onions. Beside a cook who stays or walks at random
  nobody gets anything.
* Methods have had different numbers of game steps ([budget](#budget)). An agent of PBT has had about as many as SP.
"""
_TOLD = """
`EMMA, told`: [EMMA](../algorithms/emma.md) under the planner `{planner}`, which sees the whole kitchen and plans for
both cooks; the partner knows nothing of its plans. With itself both cooks are told. EMMA chooses cells of the map, its
partners single steps. The planner is asked whenever a subgoal has ended. In [EMMA's own figures](../algorithms/emma.md)
it is asked at each step, and scores are higher.
"""
_NO_EMMA = """
EMMA under a planner is not in these tables; `--emma` of the script adds it.
"""
_FINAL = """
`FCP, final`: the paper's ablation `past_checkpoints: false`, with the members of the FCP of the same seed. The paper,
in a kitchen of its own, has 10.6 soups with clones of people, and 4.7 without past checkpoints.
"""
_MADE = """
## How it was made

```console
$ rllib study file tuned_examples/study_partners.yaml
$ {made_by}
```

`benchmarks/fcp_learners.py` trained the learners in `--fcp` and `--fcp-final` on populations of the study's FCP.
{whole}
EMMA is `tuned_examples/emma.yaml`, in two runs per seed with other kitchens in each.
Figures: [`table.json`](partners/table.json). Every game's score is in the JSON file of its kitchen and method beside
it, with digests of the weights that played.

"""
_BUDGET = """\
Game steps count those of a method's population and, in PBT and COLE, those of the games that judge it. Minutes are of
the clock, with members' time, beside other work on two cores: they tell orders, not ratios.

"""
_LEARNED_WITH = """\
Scores of the last 20 iterations of FCP's learner with its own population, by the age of the partner. The members are
self-play of as many game steps as SP; what SP reaches with itself is beside it. One column is after a quarter of the
learner's iterations. Passes: how often the learner went over each batch. Critic: whether its critic is told who the
partner is (`critic_observation: partner`, ours).

"""
_PAIRS = """\
How strangers of self-play get on with each other: scores of all pairs of different seeds, SP's and the held-out ones.

"""
_PROXIES = """\
Means over the seeds and both seats.

"""
_OTHERS = """\
Means over all pairs of seeds and both seats; the row's method is judged.

"""
_PUBLISHED = """\
Others trained longer and met other partners: compare orders, not sizes. `+`: Carroll et al. 2019, their data files, 5
seeds; the clones are of human players. `six methods`: Table 1 of ProAgent (Zhang et al. 2023), COLE's released agents
with six methods, themselves and ProAgent among them, 5 games per pair, so most differences are within the errors.
`a / b`: as player 0 / as player 1.

"""


def page(table: Mapping[str, Any]) -> str:
    """The page of results.

    Args:
        table: Of `partners_table.table_of`.
    """
    kitchens = table["kitchens"]
    read = _READ.format(episodes=table["episodes"])
    read += _TOLD.format(planner=table["planner"]) if table["planner"] else _NO_EMMA
    if any(FCP_FINAL in found["methods"] for found in kitchens.values()):
        read += _FINAL
    made = _MADE.format(made_by=table["made_by"], whole=whole_runs(kitchens))
    return _HEAD + verdict(kitchens) + read + made + tables(table)


def whole_runs(kitchens: Mapping[str, Any]) -> str:
    """One sentence on the learners that were trained together with their population.

    Args:
        kitchens: Of the table.
    """
    seeds = {
        kitchen: [str(one["seed"]) for one in found["fcp_settings"] if not one["population_from_an_earlier_run"]]
        for kitchen, found in kitchens.items()
    }
    told = [f"{kitchen} (seed {', '.join(own)})" for kitchen, own in seeds.items() if own]
    return f"Trained with their population in one run of FCP: {'; '.join(told)}." if told else ""


def tables(table: Mapping[str, Any]) -> str:
    """All tables of the page but the first, with the kitchens that are missing.

    Args:
        table: Of `partners_table.table_of`.
    """
    kitchens = table["kitchens"]
    parts = ["## What is missing\n\n" + _missing(table["missing"])] if table["missing"] else []
    if kitchens:
        parts += [f"## {kitchen}\n\n" + _kitchen(found) for kitchen, found in kitchens.items()]
        parts.append("## Pairs of self-play\n\n" + _pairs(kitchens))
        parts.append("## FCP with the partners that it learned with\n\n" + _learned_with(kitchens))
        parts.append("## Each scripted proxy\n\n" + _each(kitchens, PROXIES, _PROXIES))
        parts.append("## Methods with each other\n\n" + _each(kitchens, OTHERS, _OTHERS))
        parts.append("## By seat\n\n" + _by_seat(kitchens))
        parts.append("## Budget\n\n" + _budget(kitchens))
    parts.append("## Published figures\n\n" + _published())
    return "\n".join(parts)


def estimate(found: Mapping[str, float | None]) -> str:
    """A mean with its standard error; a dash where there is none."""
    mean, error = found["mean"], found["standard_error"]
    if mean is None:
        return "-"
    return f"{mean:.1f}" if error is None else f"{mean:.1f} ± {error:.1f}"


def _missing(lacking: Mapping[str, list[str]]) -> str:
    rows = ([name, ", ".join(stages)] for name, stages in lacking.items())
    return _table(["Kitchen", "Stages that have not ended"], rows)


def verdict(kitchens: Mapping[str, Any]) -> str:
    """FCP beside self-play with held-out seeds, kitchen by kitchen.

    Args:
        kitchens: Of `partners_table.table_of`.
    """
    rows, won = [], 0
    for name, found in kitchens.items():
        less, others = found["fcp_less_self_play"], found["fcp_less_self_play_with_pbt_and_cole"]
        means = [estimate(found["methods"][one][HELD_OUT]) for one in ("fcp", "self_play")]
        won += beats(less) == "yes"
        chance = "-" if found["welch_p"] is None else f"{found['welch_p']:.2f}"
        rows.append([name, *means, estimate(less), beats(less), chance, estimate(others), beats(others)])
    told = f"FCP beats self-play with held-out seeds by {ERRORS} standard errors in {won} of {len(rows)} kitchens.\n"
    told += "`p` is two-sided, of Welch's t-test of the seeds: with three of them two errors are weak evidence.\n\n"
    head = [
        "Kitchen",
        "FCP",
        "SP",
        "FCP - SP",
        f"more than {ERRORS} errors",
        "p",
        "FCP - SP, with PBT and COLE",
        "more",
    ]
    return told + _table(head, rows)


def _learned_with(kitchens: Mapping[str, Any]) -> str:
    ages = {"initial": "untrained", "half_way": "half-trained", "final": "trained"}
    rows = []
    for name, found in kitchens.items():
        learned, settings = found["fcp_learned_with"], found["fcp_settings"]
        scores = [estimate(learned[age]) if age in learned else "-" for age in ages]
        passes = sorted({str(one["num_epochs"]) for one in settings})
        critics = sorted({"told" if one["critic_observation"] == "partner" else "not told" for one in settings})
        own, early = found["methods"]["self_play"]["self_play"], found["fcp_learned_with_early"].get("final")
        scores.append("-" if early is None else estimate(early))
        rows.append([name, ", ".join(passes), ", ".join(critics), *scores, estimate(own)])
    head = ["Kitchen", "passes", "critic", *ages.values(), "trained, after a quarter", "SP with itself"]
    return _LEARNED_WITH + _table(head, rows)


def _pairs(kitchens: Mapping[str, Any]) -> str:
    rows = []
    for name, found in kitchens.items():
        own = found[SP_PAIRS]
        points = [f"{point:.1f}" for point in (own["pairs"][0], statistics.median(own["pairs"]), own["pairs"][-1])]
        rows.append([name, estimate(own["self_play"]), *points, estimate(own), str(own["seeds"])])
    return _PAIRS + _table(["Kitchen", "with themselves", "least", "median", "most", "mean", "seeds"], rows)


def _each(kitchens: Mapping[str, Any], group: str, told: str) -> str:
    """A table per kitchen of the methods with each partner of a group."""
    parts = []
    for name, found in kitchens.items():
        each = {method: own[f"each of {group}"] for method, own in found["methods"].items()}
        columns = list(dict.fromkeys(one for scores in each.values() for one in scores))
        rows = (
            [LABELS[method], *(estimate(scores[one]) if one in scores else "-" for one in columns)]
            for method, scores in each.items()
        )
        parts.append(_table([name, *(LABELS.get(one, one) for one in columns)], rows))
    return told + "\n".join(parts)


def beats(less: Mapping[str, float | None]) -> str:
    """Tells by "yes" or "no" if a difference is larger than `ERRORS` standard errors; a dash if no error is known."""
    mean, error = less["mean"], less["standard_error"]
    if mean is None or error is None:
        return "-"
    return "yes" if mean > ERRORS * error and mean > 0 else "no"


def _kitchen(found: Mapping[str, Any]) -> str:
    columns = ("self_play", "cross_play", *GROUPS)
    head = ["", "itself", "same method", *(name.removeprefix("held-out seeds, ") for name in GROUPS)]
    rows = ([LABELS[name], *(_shown(own, one) for one in columns)] for name, own in found["methods"].items())
    return _table(head, rows)


def _shown(own: Mapping[str, Any], column: str) -> str:
    """A figure of a method; pairs of few seeds by their least and most."""
    if column == "cross_play" and own["pairs"] and own["seeds"] < FEW:
        return f"{own[column]['mean']:.1f} ({own['pairs'][0]:.1f} to {own['pairs'][-1]:.1f})"
    return estimate(own[column]) if column in own else "-"


def _by_seat(kitchens: Mapping[str, Any]) -> str:
    agents = list(next(iter(kitchens.values()))["methods"]["self_play"][HELD_OUT]["by_seat"])
    shown = [(group, agent) for group in (HELD_OUT, PROXIES) for agent in agents]
    rows = (
        [kitchen, LABELS[name], *(estimate(own[group]["by_seat"][agent]) for group, agent in shown)]
        for kitchen, found in kitchens.items()
        for name, own in found["methods"].items()
    )
    return _table(["Kitchen", "", *(f"{group}, as {agent}" for group, agent in shown)], rows)


def _budget(kitchens: Mapping[str, Any]) -> str:
    rows = (
        [
            kitchen,
            LABELS[name],
            str(found["methods"][name]["seeds"]),
            f"{spent['game_steps']:,}",
            f"{spent['minutes']:.1f}",
        ]
        for kitchen, found in kitchens.items()
        for name, spent in found["budget"].items()
    )
    return _BUDGET + _table(["Kitchen", "", "seeds", "game steps per seed", "minutes per seed"], rows)


def _published() -> str:
    columns = list(next(iter(PUBLISHED.values())))
    rows = ([name, *(found[column] for column in columns)] for name, found in PUBLISHED.items())
    return _PUBLISHED + _table(["Kitchen", *columns], rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
