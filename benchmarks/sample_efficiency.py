"""Return against game steps in the five kitchens, from what `docs/results` holds, and whether a tenth is enough.

    python benchmarks/sample_efficiency.py --write

Nothing is played. Of self-play, QMIX, MASER, LDSA and ROMA there are curves (`study_value_decomposition`, shaped
rewards, three seeds), and of planners that learn, whose subgoals rules carry out (`study_planner`: PPO from clones of
the planner by rules, five seeds; demonstrations count, and a decision lasts as long as on average in their games).
Of EMMA, which learns on sampled subgoals and then plays under the planner by rules, and of PBT, FCP and COLE there is
the end alone: the game steps of the training and the score after it.

`steps_to` are the game steps to a share of self-play's final score; of an end they are at most those of the training,
and `null` means not reached within it. `claim` is EMMA's game steps over those after which self-play scores as much.
Where it never does, the ratio is a bound: self-play's whole training stands in its place, and the lower end is 0.
Intervals are 95 % bootstraps over the seeds of both, all draws; a curve is the mean of the drawn seeds, and its first
crossing counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.files import write_atomically

RESULTS = Path(__file__).parents[1] / "docs" / "results"
KITCHENS = ("cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "counter_circuit")
CURVES = ("self_play", "qmix", "maser", "ldsa", "roma")
ENDS = ("emma", "pbt", "fcp", "cole")
SHARES = (0.25, 0.5, 0.75, 0.9)
CLAIM = 0.1
LAST = 5  # points of a curve that make its final score
COOKS = 2  # decisions are counted per cook
DEMONSTRATIONS = 2000  # decisions that a planner has seen before it learns
NOT_MEASURED = [
    "EMMA while it learns: only its score after training was kept, so that a share may have been reached earlier",
    "EMMA under a planner that was trained, but for the cramped room, or under recordings",
    "PBT, FCP and COLE while they learn",
    "more than three seeds; the authors' settings of MASER, LDSA and ROMA",
    "MiniRTS: the games of trained officers have no learning curves here",
]

Steps = np.ndarray


def read(path: str) -> Any:
    """JSON of the results."""
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def curves_of(system: Mapping[str, Any]) -> tuple[Steps, np.ndarray]:
    """Game steps (T,) and scores (seeds, T) of a system, on the steps of its first seed."""
    known = []
    for curve in system["curves"]:
        pairs = zip(curve["decisions"], curve["values"]["score"], strict=True)
        known.append(np.array([(step / COOKS, score) for step, score in pairs if score is not None]))
    steps = known[0][:, 0]
    return steps, np.array([np.interp(steps, one[:, 0], one[:, 1]) for one in known])


def curves_of_planner(system: Mapping[str, Any]) -> tuple[Steps, np.ndarray]:
    """As `curves_of`, of planners whose seats take turns; their demonstrations come first."""
    played = [one["metrics"]["subgoals_given"] / one["length_mean"] for one in system["evaluations"]["sampled"]]
    steps, scores = curves_of(system)
    return (COOKS * steps + DEMONSTRATIONS) / np.mean(played), scores


def curves_in(name: str) -> dict[str, tuple[Steps, np.ndarray]]:
    """Method -> `curves_of` it in a kitchen."""
    study = read("study_value_decomposition/results.json")["scenarios"][f"{name}_shaped"]
    planner = read("study_planner/results.json")["scenarios"][name]["cloned_ppo"]
    return {method: curves_of(study[method]) for method in CURVES} | {"planner": curves_of_planner(planner)}


def final(scores: np.ndarray) -> float:
    """The final score of some seeds."""
    return float(scores[:, -LAST:].mean())


def first(steps: Steps, scores: np.ndarray, level: float) -> float:
    """Game steps until the mean of some seeds is as high as a level; infinite if it never is."""
    reached = np.flatnonzero(scores.mean(0) >= level)
    return float(steps[reached[0]]) if len(reached) else np.inf


def draws(seeds: int) -> Iterator[list[int]]:
    """All draws of as many seeds with replacement."""
    return map(list, itertools.product(range(seeds), repeat=seeds))


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Ends of the middle 95 %, each one of the values."""
    low, high = np.percentile(values, [2.5, 97.5], method="nearest")
    return float(low), float(high)


def shown(value: float, digits: int = 0) -> float | None:
    """A number for JSON; `None` for an infinite one."""
    return None if np.isinf(value) else round(value, digits) if digits else round(value)


def steps_to(steps: Steps, scores: np.ndarray, reference: np.ndarray, share: float) -> Any:
    """Game steps to a share of self-play's final score, with an interval."""
    drawn = scores[list(draws(len(scores)))].mean(1)
    levels = share * np.array([final(reference[others]) for others in draws(len(reference))])
    reached = drawn[:, None] >= levels[:, None]  # (draws, draws of self-play, T)
    found = np.where(reached.any(-1), steps[reached.argmax(-1)], np.inf)
    value = first(steps, scores, share * final(reference))
    return {"value": shown(value), **dict(zip(("low", "high"), map(shown, interval(found.ravel())), strict=True))}


def claim(budget: float, returns: np.ndarray, steps: Steps, reference: np.ndarray) -> dict[str, Any]:
    """EMMA's game steps over those after which self-play scores as much."""

    def ratio(own: list[int], others: list[int]) -> float:
        needed = first(steps, reference[others], float(returns[own].mean()))
        return budget / needed if np.isfinite(needed) else -budget / float(steps[-1])  # negative: below this

    drawn = itertools.product(draws(len(returns)), draws(len(reference)))
    found = np.array([ratio(own, others) for own, others in drawn])
    value = ratio(list(range(len(returns))), list(range(len(reference))))
    low, high = interval(np.maximum(found, 0))[0], interval(np.abs(found))[1]
    return {
        "value": round(abs(value), 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "bound": value < 0,  # self-play never scores as much within its training
        "draws_with_bound": round(float(np.mean(found < 0)), 3),
        "a_tenth": "yes" if high <= CLAIM else "no" if low > CLAIM else "open",
    }


def kitchen(name: str, table: Mapping[str, Any], emma: Sequence[Mapping[str, Any]]) -> Any:
    """The figures of one kitchen."""
    found = curves_in(name)
    steps, reference = found["self_play"]
    methods: dict[str, Any] = {}
    for method, (own, scores) in found.items():
        methods[method] = {
            "known": "curve",
            "game_steps": round(float(own[-1])),
            "score": round(final(scores), 1),
            "steps_to": {str(share): steps_to(own, scores, reference, share) for share in SHARES},
        }
    returns = np.array([one["return_mean"] for one in emma])
    for method in ENDS:
        told, budget = table["methods"][method]["self_play"], table["budget"][method]["game_steps"]
        score = float(returns.mean()) if method == "emma" else told["mean"]
        error = float(returns.std(ddof=1) / len(returns) ** 0.5) if method == "emma" else told["standard_error"]
        level = final(reference)
        methods[method] = {
            "known": "end",
            "game_steps": budget,
            "mean": round(score, 1),
            "standard_error": round(error, 1),
            "steps_to": {str(share): {"at_most": budget if score >= share * level else None} for share in SHARES},
        }
    return {"methods": methods, "claim": claim(table["budget"]["emma"]["game_steps"], returns, steps, reference)}


def measured() -> dict[str, Any]:
    """All figures."""
    table = read("partners/table.json")["kitchens"]
    emma = [one for one in read("emma/evaluation.json") if one["text_encoder"] == "embedded"]
    return {
        "command": "python benchmarks/sample_efficiency.py --write",
        "sources": [
            "study_value_decomposition/results.json",
            "study_planner/results.json",
            "partners/table.json",
            "emma/evaluation.json",
        ],
        "shares": list(SHARES),
        "kitchens": {
            name: kitchen(name, table[name], [one for one in emma if one["layout"] == name]) for name in KITCHENS
        },
        "not_measured": NOT_MEASURED,
    }


NAMES = {"self_play": "self-play", "emma": "EMMA, rules plan", "planner": "trained planner, rules walk"}


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Draws score against game steps, a panel per kitchen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from rllib_llm_comm.evaluation.figures import looks, to_png

    paint = looks([*CURVES, "planner", *ENDS])
    figure = Figure(figsize=(13, 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, name in zip(figure.subplots(1, len(KITCHENS)), KITCHENS, strict=True):
        for method, (steps, scores) in curves_in(name).items():
            style = {"color": paint[method].colour, "linestyle": paint[method].line, "linewidth": 1.2}
            axis.plot(steps, scores.mean(0), label=_label(method), **style)
        for method in ENDS:
            told = figures["kitchens"][name]["methods"][method]
            point = {"color": paint[method].colour, "label": _label(method), "markersize": 4, "fmt": "o"}
            axis.errorbar(told["game_steps"], told["mean"], yerr=told["standard_error"], **point)
        axis.set_xscale("log")
        axis.set_title(_words(name), fontsize=9)
        axis.set_xlabel("game steps", fontsize=8)
        axis.tick_params(labelsize=7)
    figure.axes[0].set_ylabel("score", fontsize=8)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7, frameon=False)
    path.write_bytes(to_png(figure, dpi=75))


HEAD = """# Return against game steps

`python benchmarks/sample_efficiency.py --write` makes this page, its [figures](sample_efficiency.json) and the picture
from other results; nothing is played. Curves: self-play, QMIX, MASER, LDSA and ROMA in training, shaped rewards, means
of three seeds; planners that learn, whose subgoals rules carry out, means of five seeds (their demonstrations count).
Points: ends of EMMA under the planner by rules, PBT, FCP and COLE, with standard errors of three seeds.

![score against game steps](sample_efficiency.png)

Does EMMA, told by a planner, need a tenth of the samples? Its game steps over those after which self-play scores as
much, with a 95 % interval over seeds. "Below": self-play never scores as much within its training.

| Kitchen | EMMA's game steps | Its score | Ratio | A tenth or less? |
| --- | --- | --- | --- | --- |"""
MIDDLE = """
"Open": the interval holds a tenth. There self-play would have to be trained for longer to tell. The planner knows the
game, and EMMA does not pay for that; here it is asked at each step.

Game steps to a share of self-play's final score, means over seeds; "<=": only the end is known; "-": not reached within
the training. A planner's curve begins with its 30th game, so that it may have reached a share before:
"""


def page(figures: Mapping[str, Any]) -> str:
    """The page of the figures."""
    lines = [HEAD]
    for name, told in figures["kitchens"].items():
        emma, answer = told["methods"]["emma"], told["claim"]
        ratio = (
            f"{'below ' if answer['bound'] else ''}{answer['value']:.3f} [{answer['low']:.3f}, {answer['high']:.3f}]"
        )
        score = f"{emma['mean']:.1f} ± {emma['standard_error']:.1f}"
        lines.append(f"| {_words(name)} | {emma['game_steps']:,} | {score} | {ratio} | {answer['a_tenth']} |")
    lines += [
        MIDDLE,
        f"| Kitchen | Method | Final score | {' | '.join(f'{share:.0%}' for share in figures['shares'])} |",
        f"| --- | --- | --- |{' --- |' * len(figures['shares'])}",
    ]
    for name, told in figures["kitchens"].items():
        for method, one in told["methods"].items():
            cells = [_cell(one["steps_to"][str(share)]) for share in figures["shares"]]
            score = one["score"] if "score" in one else one["mean"]
            lines.append(f"| {_words(name)} | {_label(method)} | {score:.1f} | {' | '.join(cells)} |")
    lines += ["", "Not measured:", "", *(f"* {one}" for one in figures["not_measured"])]
    return "\n".join(lines) + "\n"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _label(method: str) -> str:
    return NAMES.get(method, method.upper())


def _cell(told: Mapping[str, Any]) -> str:
    steps = told.get("value", told.get("at_most"))
    return "-" if steps is None else f"{'<= ' if 'at_most' in told else ''}{steps:,}"


def main() -> None:
    """Prints the page, or writes it with its figures and its picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write page, figures and picture into docs/results")
    given = parser.parse_args()
    figures = measured()
    if given.write:
        place = RESULTS / "planning" / "sample_efficiency"
        write_atomically(place.with_suffix(".json"), json.dumps(figures, separators=(",", ":")) + "\n")
        write_atomically(place.with_suffix(".md"), page(figures))
        draw(figures, place.with_suffix(".png"))
    else:
        print(page(figures))


if __name__ == "__main__":
    main()
