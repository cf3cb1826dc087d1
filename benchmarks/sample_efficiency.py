"""Return against game steps in the five kitchens, and whether a tenth of the samples is enough.

    rllib train file tuned_examples/sample_efficiency.yaml
    rllib study file tuned_examples/study_planner.yaml --system cloned_ppo --system cloned_ppo_long
    rllib study file tuned_examples/study_partners.yaml
    python benchmarks/sample_efficiency.py --collect results/sample_efficiency --planners results/study_planner
    python benchmarks/sample_efficiency.py --populations results/study_partners
    python benchmarks/sample_efficiency.py --write

Self-play learns with shaped rewards. EMMA learns on sampled subgoals; each checkpoint of its training plays 20 games
under the planner by rules. `--collect` keeps these curves, five seeds, and plays 20 games of each trained EMMA under
planners that were trained with cooks that walk by rules (seed by seed, the longer training where there are two), and
under the hand-written recording. Of QMIX, MASER, LDSA and ROMA there are curves (`study_value_decomposition`, shaped
rewards, five seeds), and of planners that learn, whose subgoals rules carry out (`study_planner`: PPO from clones of
the planner by rules, five seeds; demonstrations count, and a decision lasts as long as on average in their games).
`--populations` keeps the curves of PBT, FCP and COLE (`study_partners`, five seeds): what their agents score with
themselves, when PBT and COLE judge them and in 20 games of each second checkpoint of FCP's learner. The games of all
agents count, and those of the judging; FCP's curve begins when its population is done.

`steps_to` are the game steps to a share of self-play's final score; of an end (EMMA under other planners) they are at
most those of the training, with those of a planner that has learned, and `null` means not reached within it. `ratio` is
EMMA's over self-play's, `ratio_of_each` EMMA's to 90 % of a method's own final score over that method's; SAMA's claim
is judged by the ones to 90 %. Intervals are 95 % bootstraps over the seeds of both; a curve is the mean of the drawn
seeds, and its first crossing counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.policies.load_policy import load_policy
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.sama.recordings import recording

sys.path.insert(0, str(Path(__file__).parents[1]))  # `tools` is beside the package, not in it

from tools import sama_sheet  # noqa: E402

RESULTS = Path(__file__).parents[1] / "docs" / "results"
KITCHENS = ("cramped_room", "asymmetric_advantages", "coordination_ring", "forced_coordination", "counter_circuit")
CURVES = ("qmix", "maser", "ldsa", "roma")  # of `study_value_decomposition`
POPULATIONS = ("pbt", "fcp", "cole")  # of `study_partners`
JUDGED = {"pbt": "iterations", "cole": "generation"}  # counter of their judgements
UNDER = ("emma_trained", "emma_recorded")  # EMMA's ends under other planners
SHARES = (0.25, 0.5, 0.75, 0.9)
CLAIM = 0.1
REFERENCES = ("self_play", *POPULATIONS, *CURVES)  # with whose samples EMMA's are compared
SOUP = 20  # points: a method whose final score is less has not learned to cook
POINTS = 500  # of a curve
LAST = 10  # of these make its final score: the last fiftieth of a training
COOKS = 2  # decisions are counted per cook
HORIZON = 400  # game steps
GAMES = 20  # of an end
SEED = 1000  # of the first game
DEMONSTRATIONS = 2000  # decisions that a planner has seen before it learns
DRAWS = 10_000
NOT_MEASURED = [
    "EMMA that learns under a planner, as SAMA's does: here it learns on sampled subgoals",
    "EMMA under a recording in another kitchen than the cramped room: the sheet is of this one",
    "the authors' settings of MASER, LDSA and ROMA",
    "MiniRTS: the games of trained officers have no learning curves here",
]

COMMANDS = (
    "rllib train file tuned_examples/sample_efficiency.yaml",
    "rllib study file tuned_examples/study_planner.yaml --system cloned_ppo --system cloned_ppo_long",
    "python benchmarks/sample_efficiency.py --collect results/sample_efficiency --planners results/study_planner",
    "rllib study file tuned_examples/study_partners.yaml --system pbt --system fcp --system cole",
    "python benchmarks/sample_efficiency.py --populations results/study_partners",
)
CURVES_FILE = "planning/sample_curves"

Steps = np.ndarray
Curves = tuple[Steps, np.ndarray, np.ndarray]  # scores of seeds, and means of drawn ones


def read(path: str) -> Any:
    """JSON of the results."""
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def on_one_grid(known: Sequence[np.ndarray]) -> tuple[Steps, np.ndarray]:
    """Game steps (T,) and scores (seeds, T) of curves of (game step, score), interpolated where all are known."""
    low, high = max(one[0, 0] for one in known), min(one[-1, 0] for one in known)
    steps = np.linspace(low, high, POINTS)
    return steps, np.array([np.interp(steps, one[:, 0], one[:, 1]) for one in known])


def curves_of(system: Mapping[str, Any]) -> tuple[Steps, np.ndarray]:
    """`on_one_grid` of a system of a study."""
    known = []
    for curve in system["curves"]:
        pairs = zip(curve["decisions"], curve["values"]["score"], strict=True)
        known.append(np.array([(step / COOKS, score) for step, score in pairs if score is not None]))
    return on_one_grid(known)


def curves_of_planner(system: Mapping[str, Any]) -> tuple[Steps, np.ndarray]:
    """As `curves_of`, of planners whose seats take turns; their demonstrations come first."""
    played = [one["metrics"]["subgoals_given"] / one["length_mean"] for one in system["evaluations"]["sampled"]]
    steps, scores = curves_of(system)
    return (COOKS * steps + DEMONSTRATIONS) / np.mean(played), scores


def curves_in(name: str) -> dict[str, tuple[Steps, np.ndarray]]:
    """Method -> game steps and scores in a kitchen."""
    study = read("study_value_decomposition/results.json")["scenarios"][f"{name}_shaped"]
    planner = read("study_planner/results.json")["scenarios"][name]["cloned_ppo"]
    kept = read(f"{CURVES_FILE}.json")["kitchens"][name]
    return {
        **{
            method: on_one_grid([np.array(one["curve"]) for one in kept[method]])
            for method in ("self_play", "emma", *POPULATIONS)
            if method in kept
        },
        "planner": curves_of_planner(planner),
        **{method: curves_of(study[method]) for method in CURVES},
    }


def final(scores: np.ndarray) -> float:
    """The final score of some seeds."""
    return float(scores[:, -LAST:].mean())


def first(steps: Steps, scores: np.ndarray, level: float) -> float:
    """Game steps until the mean of some seeds is as high as a level; infinite if it never is."""
    reached = np.flatnonzero(scores.mean(0) >= level)
    return float(steps[reached[0]]) if len(reached) else np.inf


def drawn(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mean curves (DRAWS, T) of seeds that are drawn with replacement."""
    weights = rng.multinomial(len(scores), np.full(len(scores), 1 / len(scores)), size=DRAWS) / len(scores)
    return weights @ scores


def interval(values: np.ndarray) -> tuple[float, float]:
    """Ends of the middle 95 %, each one of the values."""
    low, high = np.percentile(values, [2.5, 97.5], method="nearest")
    return float(low), float(high)


def shown(value: float, digits: int = 0) -> float | None:
    """A number for JSON; `None` for an infinite one."""
    return None if np.isinf(value) else round(value, digits) if digits else round(value)


def first_of(steps: Steps, curves: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Game steps (N,) until curves (N, T) are as high as levels (N,); infinite where they never are."""
    reached = curves >= levels[:, None]
    return np.where(reached.any(-1), steps[reached.argmax(-1)], np.inf)


def with_interval(value: float, values: np.ndarray, digits: int = 0) -> dict[str, float | None]:
    """A figure as it stands in the JSON."""
    low, high = interval(values)
    return {"value": shown(value, digits), "low": shown(low, digits), "high": shown(high, digits)}


def _populations_missing(kept: Mapping[str, Any]) -> list[str]:
    missing = {method: [_words(name) for name in KITCHENS if method not in kept[name]] for method in POPULATIONS}
    return [
        f"the curve of {_label(method)} in {', '.join(names)}; its ends: partners.md"
        for method, names in missing.items()
        if names
    ]


def kitchen(name: str, kept: Mapping[str, Any]) -> Any:
    """The figures of one kitchen."""
    found = curves_in(name)
    # Each method's grid, mean scores' seeds, and mean curves of drawn seeds; its intervals know of no other method.
    curves = {
        method: (steps, scores, drawn(scores, np.random.default_rng(zlib.crc32(method.encode()))))
        for method, (steps, scores) in found.items()
    }
    _, reference, references = curves["self_play"]
    level, levels = final(reference), references[:, -LAST:].mean(1)
    methods: dict[str, Any] = {}
    for method, (own, scores, draws) in curves.items():
        methods[method] = {
            "known": "curve",
            "game_steps": round(float(own[-1])),
            "score": round(final(scores), 1),
            "steps_to": {
                str(share): with_interval(first(own, scores, share * level), first_of(own, draws, share * levels))
                for share in SHARES
            },
        }
    planners = read("study_planner/results.json")["scenarios"][name]
    for method in UNDER:
        if runs := kept.get(method, []):
            returns = [one["score"] for one in runs]
            error = float(np.std(returns, ddof=1) / len(returns) ** 0.5) if len(returns) > 1 else None
            steps = methods["emma"]["game_steps"]
            if "planner" in runs[0]:  # which has learned, too
                steps += round(float(curves_of_planner(planners[runs[0]["planner"]])[0][-1]))
            methods[method] = _end(steps, float(np.mean(returns)), error, level)
    others = [method for method, one in methods.items() if one.get("score", 0) >= SOUP and method in REFERENCES]
    return {
        "methods": methods,
        "ratio": {str(share): _ratio_of(curves["emma"], curves["self_play"], share) for share in SHARES},
        "ratio_of_each": {method: _ratio_of(curves["emma"], curves[method], SHARES[-1]) for method in others},
    }


def _ratio_of(emma: Curves, other: Curves, share: float) -> dict[str, float | None]:
    """EMMA's game steps to a share of another method's final score over those of that method."""
    (steps, scores, draws), (own, reference, references) = emma, other
    level, levels = share * final(reference), share * references[:, -LAST:].mean(1)
    values = first_of(steps, draws, levels) / first_of(own, references, levels)
    return with_interval(first(steps, scores, level) / first(own, reference, level), values, 3)


def verdict(ratio: Mapping[str, float | None]) -> str:
    """Whether a ratio is a tenth or less: "open" if its interval holds a tenth."""
    low, high = ratio["low"], ratio["high"]
    if high is not None and high <= CLAIM:
        return "yes"
    return "no" if low is None or low > CLAIM else "open"


def _end(budget: int, score: float, error: float | None, level: float) -> dict[str, Any]:
    """A method of which the game steps of its training and the score after it are known."""
    return {
        "known": "end",
        "game_steps": budget,
        "mean": round(score, 1),
        "standard_error": None if error is None else round(error, 1),
        "steps_to": {str(share): {"at_most": budget if score >= share * level else None} for share in SHARES},
    }


def measured() -> dict[str, Any]:
    """All figures."""
    kept = read(f"{CURVES_FILE}.json")["kitchens"]
    return {
        "command": "python benchmarks/sample_efficiency.py --write",
        "sources": [
            f"{CURVES_FILE}.json",
            "study_value_decomposition/results.json",
            "study_planner/results.json",
        ],
        "shares": list(SHARES),
        "kitchens": {name: kitchen(name, kept[name]) for name in KITCHENS},
        "not_measured": [*NOT_MEASURED, *_populations_missing(kept)],
    }


# ---- what was trained --------------------------------------------------------------------------------------


def collected(results: Path, studies: Sequence[Path]) -> dict[str, Any]:
    """The curves of `tuned_examples/sample_efficiency.yaml`, and games of its EMMAs under other planners."""
    kitchens: dict[str, Any] = {name: {} for name in KITCHENS}
    for stage, read_curve in (("self_play", _curve_of_self_play), ("emma", _curve_of_emma)):
        for trial in sorted((results / stage).glob("trial_*")):
            rows = [json.loads(line) for line in (trial / "result.json").read_text(encoding="utf-8").splitlines()]
            config = rows[0]["config"]
            curve = read_curve(rows, results)
            kitchens[config["env_config"]["layout"]].setdefault(stage, []).append(
                {"seed": config["seed"], "curve": curve, "checkpoint": _newest(trial)}
            )
    recorded = _recorded()
    for name, found in kitchens.items():
        for one in found["emma"]:
            trained = f"{name}.cloned_ppo*/trial_*_seed={one['seed']}"
            # The longer training, where there are two.
            for planner in sorted(path for study in studies for path in study.glob(trained))[-1:]:
                told = {"name": "trained", "policy": _newest(planner)}
                system = planner.parent.name.removeprefix(f"{name}.")
                played = _played(one, {"planner": told, "replan": "any"})
                found.setdefault("emma_trained", []).append({**played, "planner": system})
            if name == "cramped_room":
                found.setdefault("emma_recorded", []).append(_played(one, {"planner": recorded}, trials=3))
        for one in found["self_play"] + found["emma"]:
            del one["checkpoint"]
        for runs in found.values():
            runs.sort(key=lambda one: one["seed"])
    return {
        "commands": list(COMMANDS),
        "curve": "pairs of game steps and score",
        "kitchens": kitchens,
    }


def _newest(trial: Path) -> str:
    return str(max(trial.glob("checkpoint_*")))


THINNED = 4  # iterations of self-play between two points that are kept


def _curve_of_self_play(rows: Sequence[Mapping[str, Any]], _: Path) -> list[list[float]]:
    told = [(row["decisions"] / COOKS, row["env_runners"].get("score")) for row in rows]
    pairs = [(step, score) for step, score in told if score is not None and np.isfinite(score)]
    return [[round(step), round(score, 1)] for step, score in pairs[THINNED - 1 :: THINNED]]


def _curve_of_emma(rows: Sequence[Mapping[str, Any]], results: Path) -> list[list[float]]:
    """Scores of checkpoints. Games begin together, so that the ends of each round of them tell the game steps; between
    these they are interpolated."""
    config = rows[0]["config"]
    size = config["num_envs_per_env_runner"]
    games = [row["env_runners"].get("num_episodes_lifetime", 0) for row in rows]
    rounds = range(1, int(games[-1]) // size + 1)
    ends = [next(place for place, game in enumerate(games) if game >= size * number) for number in rounds]
    decisions = np.array([row["decisions"] for row in rows])
    known = np.array([0, *decisions[ends]]), HORIZON * size * np.arange(len(ends) + 1)
    slope = known[1][-1] / known[0][-1]
    played = json.loads((results / "curve" / "evaluation.json").read_text(encoding="utf-8"))["checkpoints"]
    layout, seed = config["env_config"]["layout"], config["seed"]
    curve = []
    for one in played:
        if f"layout={layout},seed={seed}/" in f"{one['checkpoint']}/":
            at = decisions[one["training_iteration"] - 1]
            steps = np.interp(at, *known) if at <= known[0][-1] else at * slope
            curve.append([round(float(steps)), round(one["return_mean"], 1)])
    return sorted(curve)


def of_populations(study: Path) -> dict[str, dict[str, Any]]:
    """Kitchen -> method -> curves of `tuned_examples/study_partners.yaml`: what agents score with themselves.

    Stages that have not ended are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, method in itertools.product(KITCHENS, POPULATIONS):
        stage = study / f"{name}.{method}"
        if not stage.exists() or json.loads((stage / "stage.json").read_text(encoding="utf-8"))["status"] != "finished":
            continue
        runs = []
        for trial in sorted(stage.glob("trial_*")):
            rows = [json.loads(line) for line in (trial / "result.json").read_text(encoding="utf-8").splitlines()]
            runs.append((trial, rows))
        found.setdefault(name, {})[method] = [
            {
                "seed": rows[0]["config"]["seed"],
                "curve": _curve_of_fcp(rows, trial) if method == "fcp" else _curve_of_judged(rows, JUDGED[method]),
            }
            for trial, rows in runs
        ]
    return found


def _curve_of_judged(rows: Sequence[Mapping[str, Any]], counter: str) -> list[list[float]]:
    # The first result of each judgement; those until the next one repeat its score.
    judged: dict[float, Mapping[str, float]] = {}
    for row in rows:
        if "score_self_play" in (one := row.get("population", {})):
            judged.setdefault(one[counter], one)
    return [[round(one["game_steps"]), round(one["score_self_play"], 1)] for one in judged.values()]


def _curve_of_fcp(rows: Sequence[Mapping[str, Any]], trial: Path) -> list[list[float]]:
    """Scores of the learner's checkpoints, from that in which the last member ends and the learner has not begun."""
    size = rows[0]["config"]["population_size"]
    steps = {
        row["training_iteration"]: row["game_steps_with_population"]
        for row in rows
        if row["population"]["members_done"] == size
    }
    curve = {}
    for one in sorted(trial.glob("checkpoint_*")):
        at = read_manifest(find_policy(one)).provenance["training_iteration"]
        if at in steps:
            curve[steps[at]] = one
    if len(curve) < 10:
        raise SystemExit(f"{trial} kept too few checkpoints of the learner for a curve; train it with all of them.")
    kept = [*list(curve.items())[:-1:2], list(curve.items())[-1]]
    how = {"episodes": GAMES, "num_envs": GAMES, "seed": SEED}
    return [[round(step), round(evaluate_checkpoint(one, **how).figures.return_mean, 1)] for step, one in kept]


def _recorded() -> dict[str, Any]:
    """The planner of `sama.yaml`; the sheet is of the cramped room."""
    folder = Path(tempfile.mkdtemp())
    manual, translation, tape = folder / "manual.md", folder / "translation.json", Cassette(recording("sama"))
    sama_sheet.write_files(tape, tape, manual, translation)
    files = {"manual": str(manual), "translation": str(translation)}
    return {**sama_sheet.HOW, **files, "ahead": sama_sheet.AHEAD, "chat": {"cassette": "sama"}}


def _played(emma: Mapping[str, Any], planning: Mapping[str, Any], trials: int | None = None) -> dict[str, Any]:
    settings = {"episodes": GAMES, "num_envs": GAMES, "seed": SEED, "env_config": {"commit": False}}
    games = play_planned(load_policy(emma["checkpoint"]), planning=planning, trials=trials, **settings)
    return {"seed": emma["seed"], "score": round(float(np.mean([game.metrics["score"] for game in games])), 1)}


# ---- page and picture --------------------------------------------------------------------------------------

NAMES = {
    "self_play": "self-play",
    "emma": "EMMA, rules plan",
    "emma_trained": "EMMA, trained planner (its steps count, too)",
    "emma_recorded": "EMMA, hand-written recording",
    "planner": "trained planner, rules walk",
}


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Draws score against game steps, a panel per kitchen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from rllib_llm_comm.evaluation.figures import looks, to_png

    paint = looks(["self_play", "emma", "planner", *CURVES, "pbt", "cole", "fcp", *UNDER])  # colours stay
    figure = Figure(figsize=(13, 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, name in zip(figure.subplots(1, len(KITCHENS)), KITCHENS, strict=True):
        for method, (steps, scores) in curves_in(name).items():
            style = {"color": paint[method].colour, "linestyle": paint[method].line, "linewidth": 1.2}
            axis.plot(steps, scores.mean(0), label=_label(method), **style)
        for method in UNDER:
            told = figures["kitchens"][name]["methods"].get(method)
            if told is None:
                continue
            point = {"color": paint[method].colour, "label": _label(method), "markersize": 4, "fmt": "o"}
            axis.errorbar(told["game_steps"], told["mean"], yerr=told["standard_error"], **point)
        axis.set_xscale("log")
        axis.set_title(_words(name), fontsize=9)
        axis.set_xlabel("game steps", fontsize=8)
        axis.tick_params(labelsize=7)
    figure.axes[0].set_ylabel("score", fontsize=8)
    handles, labels = figure.axes[0].get_legend_handles_labels()  # of the cramped room, where all were measured
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=7, frameon=False)
    path.write_bytes(to_png(figure, dpi=75))


HEAD = """# Return against game steps

`python benchmarks/sample_efficiency.py --write` makes this page, its [figures](sample_efficiency.json) and the picture
from other results; nothing is played. Curves, means of [five seeds](sample_curves.json): self-play in training with
shaped rewards; PBT and COLE when they are judged and FCP's learner at checkpoints, each agent with itself, games of all
agents counted; EMMA, whose checkpoints play under the planner by rules; QMIX, MASER, LDSA and ROMA in training, shaped
rewards; planners that learn, whose subgoals rules carry out (demonstrations count). Points: the ends of EMMA under
other planners, with standard errors.

What stands in: planners that learn begin as clones of the planner by rules, on `embedded_soup`, an embedded model that
has read what these rules do in made-up kitchens; the recording was written by hand. EMMA's planners are not asked
alike: rules at each step, a trained planner when a subgoal has ended (its answer is drawn), the recording once a round;
a round that fails is put back and played anew up to three times, without these steps being counted.

![score against game steps](sample_efficiency.png)

Does EMMA, told by a planner, need a tenth of the samples? Its game steps to a share of self-play's final score over
those of self-play, with 95 % intervals over seeds. "Never": the mean of its seeds does not get there. The last column
judges by 90 %; "open": the interval holds a tenth.

| Kitchen | EMMA's final score | Self-play's | To 50 % | To 75 % | To 90 % | A tenth or less? |
| --- | --- | --- | --- | --- | --- | --- |"""
EACH = f"""
The same against each method, to 90 % of the final score of that method. "-": it ends below {SOUP} points, one soup, or
was not measured (below).
EMMA's curve begins with its fourth iteration: where it is above from the beginning, the ratio is at most the figure.

| Kitchen | {" | ".join(f"Over {method.upper()}" for method in REFERENCES[1:])} |
| --- |{" --- |" * len(REFERENCES[1:])}"""
MIDDLE = """
The planner by rules knows the game, and EMMA does not pay for that.

Game steps to a share of self-play's final score, means over seeds; "<=": only the end is known; "-": not reached within
the training. EMMA's curve begins with its fourth iteration and a planner's with its 30th game, so that they may have
reached a share before:
"""


def page(figures: Mapping[str, Any]) -> str:
    """The page of the figures."""
    lines = [HEAD]
    for name, told in figures["kitchens"].items():
        emma, other = told["methods"]["emma"], told["methods"]["self_play"]
        ratios = " | ".join(_ratio(told["ratio"][str(share)]) for share in figures["shares"][1:])
        tenth = verdict(told["ratio"][str(SHARES[-1])])
        lines.append(f"| {_words(name)} | {emma['score']:.1f} | {other['score']:.1f} | {ratios} | {tenth} |")
    lines.append(EACH)
    for name, told in figures["kitchens"].items():
        cells = [_of_method(told, method) for method in REFERENCES[1:]]
        lines.append(f"| {_words(name)} | {' | '.join(cells)} |")
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


def _ratio(told: Mapping[str, Any]) -> str:
    value, low, high = (told[end] for end in ("value", "low", "high"))
    if low is None:
        return "never"
    return f"{'never' if value is None else f'{value:.3f}'} [{low:.3f}, {'never' if high is None else f'{high:.3f}'}]"


def _of_method(told: Mapping[str, Any], method: str) -> str:
    ratio = told["ratio_of_each"].get(method)
    return "-" if ratio is None else f"{_ratio(ratio)}, {verdict(ratio)}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _label(method: str) -> str:
    return NAMES.get(method, method.upper())


def _cell(told: Mapping[str, Any]) -> str:
    steps = told.get("value", told.get("at_most"))
    return "-" if steps is None else f"{'<= ' if 'at_most' in told else ''}{steps:,}"


def _keep(curves: Mapping[str, Any]) -> None:
    write_atomically(RESULTS / f"{CURVES_FILE}.json", json.dumps(curves, separators=(",", ":")) + "\n")


def main() -> None:
    """Prints the page, or writes it with its figures and its picture; or keeps what was trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write page, figures and picture into docs/results")
    parser.add_argument("--collect", type=Path, help="results of `sample_efficiency.yaml` to keep in docs/results")
    parser.add_argument("--planners", type=Path, nargs="*", default=[], help="results of `study_planner.yaml`")
    parser.add_argument("--populations", type=Path, help="results of `study_partners.yaml` to keep with them")
    given = parser.parse_args()
    if given.collect:
        for stage in ("self_play", "emma"):
            if not any((given.collect / stage).glob("trial_*")):
                parser.error(f"--collect is {given.collect}, which holds no {stage}/trial_*; give what the file left")
        _keep(collected(given.collect, given.planners))
    if given.populations:
        kept = {**read(f"{CURVES_FILE}.json"), "commands": list(COMMANDS)}
        for name, found in of_populations(given.populations).items():
            kept["kitchens"][name].update(found)
        _keep(kept)
    if given.collect or given.populations:
        return
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
