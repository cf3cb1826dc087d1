"""The report of a study: tables, pictures, messages and plain sentences, as HTML and Markdown, with the JSON behind."""

from __future__ import annotations

import base64
import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import replace_files
from rllib_llm_comm.evaluation.figures import draw_curves, draw_returns, looks, render_page, to_png
from rllib_llm_comm.evaluation.statistics import (
    Interval,
    bootstrap,
    bootstrap_difference,
    holm,
    lastingly_reached,
    middle_of,
    permutation_test,
    probability_of_improvement,
)
from rllib_llm_comm.evaluation.study_results import (
    COLLISIONS,
    DRIFT,
    FIGURES,
    FIRST_CHOICE,
    MEASURES,
    OVER_TIME,
    RESULTS,
    RUN_COSTS,
    SAMPLED,
    SHUFFLED_SAME,
    TALK,
    Curve,
    StudyResults,
    SystemResults,
    cost_rows,
    read_results,
    to_plain,
)
from rllib_llm_comm.verco.settings import SHUFFLED

# Controls that draw messages, and the name that both had in earlier studies.
_SHUFFLED = (*SHUFFLED, "shuffled")
_LEVEL = 0.95
# The ends of a corrected interval lie far out.
_DRAWS = 20_000


def measures_talk(results: StudyResults) -> bool:
    """True if a study measures talk; others have none of this in their reports."""
    return bool(results.study["evaluation"].get(TALK))


def talk_of(system: SystemResults) -> dict[str, Any] | None:
    """The measures of talk of a system, with intervals over seeds.

    Returns:
        Measure -> value with its interval, `None` where there is none; `None` for a system without any. Of agents in
        silence only what the choice of those who are not told tells about the secret.
    """
    runs = [run[TALK] for run in system.evaluations.get(SAMPLED, []) if run.get(TALK)]
    shown = {**MEASURES, **DRIFT} if any(run.get("drift") for run in runs) else MEASURES
    told = shown if any(run["messages"] for run in runs) else [FIRST_CHOICE]
    found: dict[str, Any] = {}
    for name in shown:
        known = [value for run in runs if name in told and (value := _value(run, name)) is not None]
        found[name] = _interval(np.array(known)) if known else None
    return found if any(found.values()) else None


def columns_of(told: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Measures and their titles in the table of a scenario, by what `talk_of` gave of its systems as `talk`."""
    drifts = any(name in (part.get("talk") or {}) for part in told.values() for name in DRIFT)
    return {**MEASURES, **DRIFT} if drifts else dict(MEASURES)


OF_GAMES = {
    "score": "Score",
    "plan_questions": "Questions a game",
    "subgoals_given": "Subgoals a game",
    "subgoals_stuck": "Of these stuck",
    "subgoals_lost": "Stuck as no longer possible",
}
"""Metrics of games and their titles in the table of a scenario, where any evaluation has them: points where the return
is something else, questions that a planner asked a chat model, what it gave the agents to do, and how much of that was
not done in time or no longer possible, and of that what was no longer possible."""


def _of_games(told: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Those of `OF_GAMES` that tell something in a scenario."""
    every = [evaluation for system in told.values() for evaluation in system["evaluations"].values()]
    zero = {"value": 0.0, "low": 0.0, "high": 0.0}

    def tells(name: str) -> bool:
        known = [(one["metrics"][name], one["return_mean"]) for one in every if name in one["metrics"]]
        return any(found != zero and not (name == "score" and found == returns) for found, returns in known)

    return {name: title for name, title in OF_GAMES.items() if tells(name)}


def add_corrected(told: Mapping[str, Mapping[str, dict[str, Any]]], results: StudyResults) -> None:
    """Adds what holds after a correction for all comparisons of the study.

    Args:
        told: Scenario -> system -> its part of a report. `against_baseline` gets the `p_value` of a permutation test,
            and `p_corrected`, the same after Holm's correction. `corrected` gets the return with an interval after
            Bonferroni, and whether it overlaps that of its baseline (`None` if that was not judged in
            the scenario).
        results: The study.
    """
    compared = [
        (scenario, name) for scenario in told for name in told[scenario] if "against_baseline" in told[scenario][name]
    ]
    if not compared:
        return
    scores = {
        (scenario, name): results.scenarios[scenario][name].scores(SAMPLED, "return_mean")
        for scenario in told
        for name in told[scenario]
    }
    base_of = {pair: (pair[0], results.baseline_of(pair[1]) or pair[1]) for pair in scores}
    raw = [permutation_test(scores[pair], scores[base_of[pair]]) for pair in compared]
    for (scenario, name), plain, adjusted in zip(compared, raw, holm(raw), strict=True):
        told[scenario][name]["against_baseline"] |= {"p_value": round(plain, 5), "p_corrected": round(adjusted, 5)}
    level = 1 - (1 - _LEVEL) / len(compared)
    intervals = {
        pair: bootstrap(values, middle_of(len(values)), level=level, draws=_DRAWS)
        for pair, values in scores.items()
        if len(values) > 1
    }
    for (scenario, name), found in intervals.items():
        base = intervals.get(base_of[scenario, name])
        told[scenario][name]["corrected"] = {
            **found.rounded(),
            "overlaps_baseline": None if base is None else found.overlaps(base),
            "comparisons": len(compared),
        }


def _value(run: Mapping[str, Any], name: str) -> float | None:
    found: Any = run
    for key in name.split("."):
        found = None if found is None else found.get(key)  # earlier versions measured less
    value: float | None = found["corrected"] if isinstance(found, Mapping) else found
    return value


def summarise(results: StudyResults) -> dict[str, Any]:
    """All figures of a report as plain values.

    Args:
        results: Results of a study.

    Returns:
        `title`, `missing`, `stand_ins` (what stands in for what the papers use, if anything does), `over_scenarios`
        (returns of systems that were judged in all of several scenarios: runs are drawn within each, so that all count
        the same), and per scenario `settings`, `shuffled` (whether messages were, anywhere), `collisions` (whether the
        game counts them), `of_games` (metrics of its games that tell something, with their titles), `systems` (label,
        seeds, figures per evaluation, how it compares with the baseline, decisions until a return of 1 that lasts, most
        frequent messages, what a run took, figures beside strangers), `sentences`, `strangers` (their names and the
        seats that were played beside them) where there were any, `cost` where chat models were asked, and
        `said`: of trained messages and of members of populations the medians over seeds of
        `OVER_TIME` at three ages.
    """
    scenarios: dict[str, dict[str, Any]] = {}
    for scenario, systems in results.scenarios.items():
        bases = {name: systems.get(results.baseline_of(name) or name, one) for name, one in systems.items()}
        trained = results.study["systems"]
        shuffled = {name for name in systems if trained.get(name, {}).get("config", {}).get("messages") in _SHUFFLED}
        told = {
            name: _system(system, bases[name], name in shuffled)
            for name, system in systems.items()
            if system.evaluations
        }
        if measures_talk(results):
            for name in told:
                told[name]["talk"] = talk_of(systems[name])
        scenarios[scenario] = {
            "settings": results.study["scenarios"][scenario],
            "systems": told,
            "shuffled": any(SHUFFLED_SAME in f for system in told.values() for f in system["evaluations"].values()),
            "collisions": any(f[COLLISIONS] for system in told.values() for f in system["evaluations"].values()),
            "of_games": _of_games(told),
            "sentences": [_sentence(told[name]) for name in told if "against_baseline" in told[name]]
            + [
                f"{told[name]['label']} and {bases[name].label} are not compared: one run alone tells no difference."
                for name in told
                if _too_few(systems[name], bases[name])
            ]
            + [text for name in told for text in _listening(told[name])],
        }
        if measures_talk(results):
            scenarios[scenario]["measures"] = columns_of(told)
        if met := {
            stranger: list(seats) for one in told.values() for stranger, seats in one.get("strangers", {}).items()
        }:
            scenarios[scenario]["strangers"] = met
        if scenario in results.said:
            scenarios[scenario]["said"] = _over_time(_speakers(results, scenario))
        if scenario in results.cost:
            labels = {name: system.label for name, system in systems.items()}
            scenarios[scenario]["cost"] = cost_rows(results.cost[scenario], labels)
    if measures_talk(results):
        add_corrected({scenario: told["systems"] for scenario, told in scenarios.items()}, results)
    return {
        "title": results.study["title"],
        "env": results.study["env"],
        "baseline": results.baseline,
        "several_baselines": len({results.baseline_of(name) for name in results.study["systems"]} - {None}) > 1,
        "baseline_label": results.scenarios[next(iter(results.scenarios))][results.baseline].label,
        "episodes": results.study["evaluation"]["episodes"],
        "seeds": results.study["seeds"],
        "scenarios": scenarios,
        "over_scenarios": _over_scenarios(results),
        "missing": results.missing,
        "note": results.note,
        **({"stand_ins": results.stand_ins} if results.stand_ins else {}),
    }


def write_report(results: StudyResults, folder: Path) -> Path:
    """Writes `report.html` (needs nothing else), `report.md`, `report.json`, the pictures and `results.json`.

    The last holds what the others are made of: `read_results` reads it where the runs themselves are gone.

    Args:
        results: Results of a study.
        folder: Folder of the report; its files of these names are replaced, and appear at once or not at all.

    Returns:
        The page.

    Raises:
        UserError: If the folder is a link: a study from elsewhere could lead it to any place.
    """
    if folder.is_symlink():
        raise UserError(
            f"{str(folder)!r} is a link to {os.path.realpath(folder)!r}, where the report would replace files; remove "
            "it, or give that folder itself with `--out`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".report-") as scratch:
        place = Path(scratch)
        kept = json.dumps(to_plain(results), separators=(",", ":"))
        (place / RESULTS).write_text(kept + "\n", encoding="utf-8")
        results = read_results(place)  # with the digits that are kept, so that it can be made again
        summary = summarise(results)
        pictures = _pictures(results, summary)
        empty = [
            name
            for name, told in summary["scenarios"].items()
            if not told["systems"] and not {f"{name}_curves", f"{name}_messages"} & set(pictures)
        ]
        for name, png in pictures.items():
            (place / f"{name}.png").write_bytes(png)
        told = json.dumps(summary, separators=(",", ":"))
        (place / "report.json").write_text(told + "\n", encoding="utf-8")
        urls = {name: "data:image/png;base64," + base64.b64encode(png).decode() for name, png in pictures.items()}
        for kind in ("html", "md"):
            page = render_page(
                f"report.{kind}",
                {"reached": _reached_text, "shuffled_same": _shuffled_same_text},
                report=summary,
                over_time=OVER_TIME,
                empty=empty,
                pictures=urls if kind == "html" else {n: f"{n}.png" for n in pictures},
            )
            (place / f"report.{kind}").write_text(page, encoding="utf-8")
        replace_files(place, folder)
    return folder / "report.html"


def _speakers(results: StudyResults, scenario: str) -> dict[str, SystemResults]:
    """Those whose messages are told over time, by the label of their system or the name of their stage."""
    found = {}
    for who, curves in results.said[scenario].items():
        stage, colon, member = who.partition(": ")
        system = results.scenarios.get(scenario, {}).get(stage)
        label = f"{system.label if system else stage}{colon}{member}"
        found[who] = SystemResults(who, label, curves)
    return found


def _over_time(speakers: Mapping[str, SystemResults]) -> list[dict[str, Any]]:
    """Per speaker and age (the first, middle and last one of its seeds) medians of its figures."""
    rows = []
    for speaker in speakers.values():
        ages = sorted({age for curve in speaker.curves for age in curve.decisions})
        for age in dict.fromkeys((ages[0], ages[len(ages) // 2], ages[-1])):
            there = [(curve, curve.decisions.index(age)) for curve in speaker.curves if age in curve.decisions]
            known = {
                metric: [curve.values[metric][place] for curve, place in there if metric in curve.values]
                for metric in OVER_TIME
            }
            figures = {
                metric: round(float(np.median(finite)), 4)
                for metric, values in known.items()
                if len(finite := np.array(values)[np.isfinite(values)])
            }
            rows.append({"label": speaker.label, "seeds": len(there), "iteration": age, **figures})
    return rows


def _over_scenarios(results: StudyResults) -> dict[str, Any]:
    found: dict[str, Any] = {}
    scenarios = list(results.scenarios.values())
    for name, system in scenarios[0].items() if len(scenarios) > 1 else ():
        runs = [there[name].scores(SAMPLED, "return_mean") for there in scenarios if name in there]
        if len(runs) == len(scenarios) and len({len(scores) for scores in runs}) == 1 and len(runs[0]):
            found[name] = {"label": system.label, "return_mean": bootstrap(np.stack(runs, axis=1)).rounded()}
    return found


def _system(system: SystemResults, base: SystemResults, shuffled: bool) -> dict[str, Any]:
    seeds = [curve.seed for curve in system.curves] or list(system.recorded.get("seeds", []))
    told: dict[str, Any] = {"label": system.label, "seeds": seeds, "evaluations": {}}
    for suffix, runs in system.evaluations.items():
        told["evaluations"][suffix] = {
            "runs": [run["return_mean"] for run in runs],
            **{name: _figure(system, suffix, name) for name in FIGURES},
            "metrics": {
                name: _interval(np.array([run["metrics"][name] for run in runs]))
                for name in OF_GAMES
                if all(name in (run.get("metrics") or {}) for run in runs)
            },
            "quartiles": [
                round(float(q), 4) for q in np.percentile(system.scores(suffix, "return_mean"), [25, 50, 75])
            ],
        }
        if suffix.removeprefix("messages_") in _SHUFFLED or (shuffled and not suffix.startswith("messages_")):
            told["evaluations"][suffix][SHUFFLED_SAME] = _shuffled_same(system, suffix)
    sampled = system.evaluations.get(SAMPLED, [])
    if sampled:
        told["messages"] = sampled[0].get("common_messages") or list(system.recorded.get("messages", []))
    ours, other = system.scores(SAMPLED, "return_mean"), base.scores(SAMPLED, "return_mean")
    if system.name != base.name and min(len(ours), len(other)) > 1:
        told["against_baseline"] = {
            "label": base.label,
            "difference": bootstrap_difference(ours, other).rounded(),
            "overlap": bootstrap(ours).overlaps(bootstrap(other)),
            "probability_of_improvement": probability_of_improvement(ours, other).rounded(),
        }
    told.update(_reached(system))
    if took := _took(system):
        told["took"] = took
    if system.strangers:
        told["strangers"] = {
            stranger: {seat: _interval(np.array(found)) for seat, found in seats.items()}
            for stranger, seats in system.strangers.items()
        }
    return told


def _too_few(system: SystemResults, base: SystemResults) -> bool:
    """True if both were played and one of them has a single run, whose chance nothing measures."""
    runs = [len(one.scores(SAMPLED, "return_mean")) for one in (system, base)]
    return system.name != base.name and min(runs) == 1


def _reached(system: SystemResults) -> dict[str, Any]:
    """From how many decisions on the return while learning was at least 1 until the end.

    Returns:
        `decisions_to_return_1`, the median over seeds (`None` if half of the runs or more never get there), and
        `runs_to_return_1`: how many runs get there, and how many curves there are.
    """
    points = [lastingly_reached(curve.decisions, curve.values["return"], 1.0) for curve in system.curves]
    middle = float(np.median(points)) if points else float("inf")
    return {
        "decisions_to_return_1": middle if np.isfinite(middle) else None,
        "runs_to_return_1": [int(np.isfinite(points).sum()), len(points)],
    }


def _took(system: SystemResults) -> dict[str, float]:
    """What a run took in the mean over seeds, as far as all of them counted it."""
    names = [name for name in RUN_COSTS if system.curves and all(name in curve.cost for curve in system.curves)]
    return {name: round(float(np.mean([curve.cost[name] for curve in system.curves])), 2) for name in names}


def _reached_text(told: dict[str, Any]) -> str:
    there, runs = told["runs_to_return_1"]
    if not runs:
        return "no curves kept"
    if not there:
        return "never"
    middle = told["decisions_to_return_1"]
    return f"{middle:.0f} ({there} of {runs} runs)" if middle is not None else f"only {there} of {runs} runs"


def _shuffled_same(system: SystemResults, suffix: str) -> dict[str, Any] | None:
    """The share of shuffled messages that equal their speaker's own.

    If it was not counted it is estimated by the chance that two messages drawn by their frequencies agree, of which
    only the most frequent ones are known, so that it is a little too small.

    Returns:
        An interval and `estimated`; `None` where nothing is known.
    """
    counted = system.scores(suffix, SHUFFLED_SAME)
    if len(counted):
        return {**_interval(counted), "estimated": False}
    said = [run.get("common_messages") for run in system.evaluations[suffix]]
    if suffix == SAMPLED and system.recorded:
        said = [system.recorded["messages"]]
    if not all(said):
        return None
    chances = np.array([sum(share**2 for _, share in messages or ()) for messages in said])
    return {**_interval(chances), "estimated": True}


def _shuffled_same_text(figures: dict[str, Any]) -> str:
    if SHUFFLED_SAME not in figures:
        return ""
    found = figures[SHUFFLED_SAME]
    if found is None:
        return "not recorded"
    return f"{'about ' if found['estimated'] else ''}{100 * found['value']:.0f} %"


def _figure(system: SystemResults, suffix: str, name: str) -> dict[str, float] | None:
    """The interval of a figure; `None` if the game does not count it."""
    scores = system.scores(suffix, name)
    if len(scores):
        return _interval(scores)
    if not system.recorded:
        return None
    recorded: dict[str, float] = system.recorded["figures"][suffix][name]
    return recorded


def _interval(scores: np.ndarray) -> dict[str, float]:
    return bootstrap(scores, middle_of(len(scores))).rounded()


def _sentence(told: dict[str, Any]) -> str:
    baseline, found = told["against_baseline"]["label"], told["against_baseline"]["difference"]
    chance = told["against_baseline"]["probability_of_improvement"]["value"]
    by = f"{found['value']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"
    if found["low"] > 0:
        verdict = f"returns more than {baseline}"
    elif found["high"] < 0:
        verdict = f"returns less than {baseline}"
    else:
        verdict = f"cannot be told from {baseline} by its return"
    more = "" if told["against_baseline"]["overlap"] else "; the two intervals do not overlap"
    return f"{told['label']} {verdict}: {by}{more}. A run of it is the better one with probability {chance:.2f}."


def _listening(told: dict[str, Any]) -> list[str]:
    """Sentences about the returns of trained policies with changed messages."""
    sentences = []
    usual = told["evaluations"].get(SAMPLED)
    for suffix, figures in told["evaluations"].items():
        if suffix.startswith("messages_") and usual:
            mode = suffix.removeprefix("messages_")
            before, after = usual["return_mean"], figures["return_mean"]
            sentences.append(
                f"Trained {told['label']}, played with {mode!r} messages instead of its own: {after['value']:.2f} "
                f"[{after['low']:.2f}, {after['high']:.2f}] instead of {before['value']:.2f} [{before['low']:.2f}, "
                f"{before['high']:.2f}]{_equal_messages(figures)}."
            )
    return sentences


def _equal_messages(figures: dict[str, Any]) -> str:
    share = _shuffled_same_text(figures)
    if not share:
        return ""
    if figures["message_words_mean"]["high"] == 0:
        return " (there was nothing to draw: this is silence)"
    if figures[SHUFFLED_SAME] is None:
        return " (how many of them equal its own was not recorded)"
    return f" ({share} of them equal its own)"


def _pictures(results: StudyResults, summary: dict[str, Any]) -> dict[str, bytes]:
    paint = looks(list(results.study["systems"]))
    pictures = {}
    for scenario, systems in results.scenarios.items():
        told = summary["scenarios"][scenario]["systems"]
        if any(system.curves for system in systems.values()):
            pictures[f"{scenario}_curves"] = to_png(draw_curves(systems, paint))
        if scenario in results.said:
            speakers = _speakers(results, scenario)
            drawn = draw_curves(speakers, looks(list(speakers)), OVER_TIME, iterations=True)
            pictures[f"{scenario}_messages"] = to_png(drawn)
        if told:
            rows = [
                (system["label"], paint[name].colour, {
                    suffix.replace("messages_", "with "): Interval(**figures["return_mean"])
                    for suffix, figures in system["evaluations"].items()
                })
                for name, system in told.items()
            ]  # fmt: skip
            pictures[f"{scenario}_returns"] = to_png(draw_returns(rows))
    return pictures


MARL_METRICS = {"return": "return_mean", "success_rate": "success_rate"}
"""Metric in the file -> figure of an evaluation; both are also columns of the curves."""


def to_marl_eval(results: StudyResults) -> tuple[dict[str, Any], list[str]]:
    """The content of a marl-eval file: environment -> scenario -> system -> `seed_N` -> step -> metric -> values.

    marl-eval asks for the same systems in all scenarios, and for equally many runs and steps everywhere. So systems
    that were compared in some scenarios only are left out, and so are the iterations in which a run had no finished
    episode or had already stopped. The `absolute_metrics` are the figures of the evaluations with sampled actions.

    Args:
        results: A study.

    Returns:
        The document, and the names of the systems that were left out.

    Raises:
        UserError: If nothing is left to compare.
    """
    whole = [
        name
        for name in results.study["systems"]
        if all(_is_whole(systems.get(name)) for systems in results.scenarios.values())
    ]
    if not whole:
        raise UserError(
            f"No system of this study has curves and {SAMPLED!r} evaluations in all scenarios, which marl-eval asks "
            "for; let the study end first."
        )
    steps = min(
        len(_common_steps([curve for name in whole for curve in systems[name].curves]))
        for systems in results.scenarios.values()
    )
    tasks = {
        scenario: {name: _runs(systems, whole, name, steps) for name in whole}
        for scenario, systems in results.scenarios.items()
    }
    env = str(results.study["env"]).rpartition("/")[2]
    return {env: tasks}, [name for name in results.study["systems"] if name not in whole]


def _is_whole(system: SystemResults | None) -> bool:
    return system is not None and bool(system.curves) and len(system.evaluations.get(SAMPLED, [])) == len(system.curves)


def _common_steps(curves: list[Curve]) -> list[int]:
    """Iterations in which every run has a value of every metric."""
    shortest = min(len(curve.decisions) for curve in curves)
    return [
        index
        for index in range(shortest)
        if all(math.isfinite(curve.values[metric][index]) for curve in curves for metric in MARL_METRICS)
    ]


def _runs(systems: dict[str, SystemResults], whole: list[str], name: str, steps: int) -> dict[str, dict[str, Any]]:
    """The last `steps` common iterations of each run of a system, and its evaluation."""
    common = _common_steps([curve for other in whole for curve in systems[other].curves])
    taken = common[len(common) - steps :]
    found = {}
    for curve, told in zip(systems[name].curves, systems[name].evaluations[SAMPLED], strict=True):
        run: dict[str, Any] = {
            f"step_{position}": {
                "step_count": int(curve.decisions[index]),
                **{metric: [curve.values[metric][index]] for metric in MARL_METRICS},
            }
            for position, index in enumerate(taken)
        }
        run["absolute_metrics"] = {metric: [float(told[figure])] for metric, figure in MARL_METRICS.items()}
        found[f"seed_{curve.seed}"] = run
    return found
