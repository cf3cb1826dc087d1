"""The tables of `partners_table.py` as Markdown, beside published figures, and the page of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

KITCHENS = (
    "cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "counter_circuit",
)  # fmt: skip
METHODS = ("self_play", "pbt", "fcp", "cole")
EMMA, FCP_FINAL = "emma", "fcp_final"
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
        "PBT + clone": "84.2 / 113.6", "SP, six methods": "168.5 / 172.8", "PBT, six methods": "178.8 / 179.8",
        "FCP, six methods": "196.3 / 196", "COLE, six methods": "163.8 / 169.2",
    },
    "asymmetric_advantages": {
        "SP + SP": "167.2 ± 3.6", "PBT + PBT": "190.1 ± 8.6", "SP + clone": "37.5 / 103.2",
        "PBT + clone": "56.6 / 93.0", "SP, six methods": "183.3 / 177.8", "PBT, six methods": "182.2 / 152.3",
        "FCP, six methods": "185.7 / 167.8", "COLE, six methods": "201.3 / 165.5",
    },
    "coordination_ring": {
        "SP + SP": "190.8 ± 4.2", "PBT + PBT": "173.8 ± 18.3", "SP + clone": "66.9 / 72.8",
        "PBT + clone": "70.8 / 79.9", "SP, six methods": "122 / 133.3", "PBT, six methods": "141.3 / 141.3",
        "FCP, six methods": "148.8 / 145.7", "COLE, six methods": "168.8 / 158.3",
    },
    "forced_coordination": {
        "SP + SP": "151.9 ± 3.3", "PBT + PBT": "169.5 ± 10.1", "SP + clone": "23.2 / 37.9",
        "PBT + clone": "13.8 / 28.4", "SP, six methods": "6.7 / 30.2", "PBT, six methods": "15.3 / 61.7",
        "FCP, six methods": "44.7 / 32.2", "COLE, six methods": "24 / 57.3",
    },
    "counter_circuit": {
        "SP + SP": "122.3 ± 3.8", "PBT + PBT": "140.1 ± 13.9", "SP + clone": "31.0 / 32.0",
        "PBT + clone": "39.8 / 32.6", "SP, six methods": "64.7 / 60.7", "PBT, six methods": "64.7 / 54.3",
        "FCP, six methods": "58.3 / 60", "COLE, six methods": "95.5 / 100.8",
    },
}  # fmt: skip

_HEAD = """# Partners that nobody has met

Self-play (SP), PBT, FCP and COLE in the five onion-soup kitchens, with partners that they never met while they learned.
This page is made by `python benchmarks/partners_table.py` from the study `tuned_examples/study_partners.yaml`. Figures:
[`table.json`](partners/table.json); every game's score is in the JSON file of its kitchen and method beside it.

The score is the sum of the rewards for soups, 20 each, in 400 steps. Actions are sampled. Every seed plays {episodes}
games with every partner in each of the two seats. Errors are standard errors over the seeds of the method, not over
games; with so few seeds they are rough.

| Partners | Are |
| --- | --- |
| same method | the other seeds of the method |
| held-out seeds | self-play with other seeds, which no method met |
| half-trained | the same, at half of their final score |
| untrained | one of them before its first update |
| scripted proxies | the scripted cook; with 30 % noise; with 50 % pauses; onions only; dishes only |
| other methods | the seeds of the three others |

Scripted proxies are no models of humans.
"""
_TOLD = """
`EMMA, told`: [EMMA](../algorithms/emma.md) under the planner `{planner}`, which sees the whole kitchen and plans for
both cooks; the partner knows nothing of its plans. With itself both cooks are told. EMMA chooses cells of the map, its
partners single steps.
"""
_NO_EMMA = """
EMMA under a planner is not in these tables; `--emma` of the script adds it.
"""
_FINAL = """
`FCP, final`: the paper's ablation `past_checkpoints: false`, with the members of the FCP of the same seed.
"""
_BUDGET = """\
Game steps count those of a method's population and, in PBT and COLE, those of the games that judge it. Minutes are of
the clock, beside other work on the machine; `learner alone`: the members had been trained before.

"""
_LEARNED_WITH = """\
Scores of the last 20 iterations of FCP's learner with its own population, by the age of the partner. The members are
self-play of as many game steps as SP: what these reach with themselves is beside it. Passes: of the learner, over each
batch. Critic: told who the partner is, or not.

"""
_PUBLISHED = """\
Others trained longer and met other partners: compare orders, not sizes. `+`: Carroll et al. 2019, their data files, 5
seeds; the clones are of human players. `six methods`: Table 1 of ProAgent (Zhang et al. 2023), COLE's released agents
with six methods, themselves and ProAgent among them, 5 games per pair. `a / b`: as player 0 / as player 1.

"""


def page(table: Mapping[str, Any]) -> str:
    """The page of results.

    Args:
        table: Of `partners_table.table_of`.
    """
    told = _TOLD.format(planner=table["planner"]) if table["planner"] else _NO_EMMA
    if any(FCP_FINAL in found["methods"] for found in table["kitchens"].values()):
        told += _FINAL
    return _HEAD.format(episodes=table["episodes"]) + told + "\n" + tables(table)


def tables(table: Mapping[str, Any]) -> str:
    """All tables of the page, with the kitchens that are missing.

    Args:
        table: Of `partners_table.table_of`.
    """
    kitchens = table["kitchens"]
    parts = ["## What is missing\n\n" + _missing(table["missing"])] if table["missing"] else []
    if kitchens:
        parts.append("## FCP against self-play\n\n" + _verdict(kitchens))
        if any(found.get("fcp_learned_with") for found in kitchens.values()):
            parts.append("## FCP with the partners that it learned with\n\n" + _learned_with(kitchens))
        parts += [f"## {kitchen}\n\n" + _kitchen(found) for kitchen, found in kitchens.items()]
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


def _verdict(kitchens: Mapping[str, Any]) -> str:
    rows = []
    for name, found in kitchens.items():
        less, own = found["fcp_less_self_play"], found["methods"]
        means = [estimate(own[one][HELD_OUT]) for one in ("fcp", "self_play")]
        rows.append([name, *means, estimate(less), beats(less)])
    won = sum(row[-1] == "yes" for row in rows)
    told = f"FCP beats self-play with held-out seeds by {ERRORS} standard errors in {won} of {len(rows)} kitchens.\n\n"
    return told + _table(["Kitchen", "FCP", "SP", "FCP - SP", f"more than {ERRORS} errors"], rows)


def _learned_with(kitchens: Mapping[str, Any]) -> str:
    ages = {"initial": "untrained", "half_way": "half-trained", "final": "trained"}
    rows = []
    for name, found in kitchens.items():
        if learned := found.get("fcp_learned_with"):
            scores = [estimate(learned[age]) if age in learned else "-" for age in ages]
            critic = "told" if found.get("fcp_critic_observation") == "partner" else "not told"
            rows.append(
                [
                    name,
                    str(found["fcp_num_epochs"]),
                    critic,
                    *scores,
                    estimate(found["methods"]["self_play"]["self_play"]),
                ]
            )
    return _LEARNED_WITH + _table(["Kitchen", "passes", "critic", *ages.values(), "SP with itself"], rows)


def beats(less: Mapping[str, float | None]) -> str:
    """Tells by "yes" or "no" if a difference is larger than `ERRORS` standard errors; a dash if no error is known."""
    mean, error = less["mean"], less["standard_error"]
    if mean is None or error is None:
        return "-"
    return "yes" if mean > ERRORS * error and mean > 0 else "no"


def _kitchen(found: Mapping[str, Any]) -> str:
    columns = ("self_play", "cross_play", *GROUPS)
    head = ["", "itself", "same method", *(name.removeprefix("held-out seeds, ") for name in GROUPS)]
    rows = (
        [LABELS[name], *(estimate(own[one]) if one in own else "-" for one in columns)]
        for name, own in found["methods"].items()
    )
    return _table(head, rows)


def _by_seat(kitchens: Mapping[str, Any]) -> str:
    agents = list(next(iter(kitchens.values()))["methods"]["self_play"][HELD_OUT]["by_seat"])
    shown = [(group, agent) for group in (HELD_OUT, PROXIES) for agent in agents]
    rows = (
        [kitchen, LABELS[name], *(estimate(own[group]["by_seat"][agent]) for group, agent in shown)]
        for kitchen, found in kitchens.items()
        for name, own in found["methods"].items()
    )
    return _table(["Kitchen", "", *(f"{group}, as {agent}" for group, agent in shown)], rows)


def _took_its_population(found: Mapping[str, Any], method: str) -> bool:
    """True of FCP's learners whose members were trained before, which are not in their minutes."""
    return method == FCP_FINAL or (method == "fcp" and bool(found.get("fcp_took_its_population")))


def _budget(kitchens: Mapping[str, Any]) -> str:
    rows = (
        [
            kitchen,
            LABELS[name],
            str(found["methods"][name]["seeds"]),
            f"{spent['game_steps']:,}",
            f"{spent['minutes']:.1f}" + (", learner alone" if _took_its_population(found, name) else ""),
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
