"""The comparisons of `rllib planning`: planners by their scores, and the ablations of SAMA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.import_modules import import_modules
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.planner_comparison import (
    ComparisonSettings,
    PlannerSettings,
    Variant,
    comparison,
    have_skills,
    play_and_tell,
    require_different_prompts,
    require_prompts,
    with_settings,
)
from rllib_llm_comm.experiments.ray_session import quiet_libraries

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.planner_scores import PlannerScores

PROMPT_ABLATIONS: dict[str, tuple[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]] = {
    "objects": (
        "what it brings to name the things that matter",
        [({"objects": value}, {"objects": value}) for value in (True, False)],
    ),
    "examples": (
        "what worked examples bring",
        [({"examples": number}, {"examples": number}) for number in (0, 1, 3)],
    ),
    "irrelevant-examples": (
        "whether examples have to be of the game",
        [
            ({"examples": told}, {"examples": own, "irrelevant_examples": other})
            for told, own, other in (("of the game", 1, 0), ("of something else", 0, 1), ("none", 0, 0))
        ],
    ),
}
"""Name -> the measured effect, and per variant its labels and the planner's changed settings."""


def measure_reward(settings: ComparisonSettings) -> None:
    """Plays and tells the score of whole games under one planner.

    Args:
        settings: The planner, the executors, the scenarios and the files.
    """
    _begin(settings)
    variants: list[Variant] = [({}, settings.one_planner(), settings.trials)]
    play_and_tell(comparison("reward", "the score of whole games under a planner", variants, settings), settings)


def compare_planners(settings: ComparisonSettings) -> None:
    """Plays and tells the scores of the scripted, the plan4mc, the random and the given planners.

    Args:
        settings: Further planners, the executors, the scenarios and the files.
    """
    _begin(settings)
    given = [] if settings.planner is None else settings.planners()
    known: list[PlannerSettings] = ["scripted", "plan4mc", "random"]
    if not have_skills(settings):
        known.remove("plan4mc")
        say("plan4mc is left out, as this game has no skill graph.")
    wanted = [*known, *(one for one in given if one not in known)]
    variants: list[Variant] = [({"planner": _short(one)}, one, settings.trials) for one in wanted]
    measures = "which planner brings the most with the same executor"
    play_and_tell(comparison("planners", measures, variants, settings), settings)


def compare_trials(settings: ComparisonSettings, most: int = 3, share: float = 0.5) -> None:
    """Plays and tells the effect of 0 to `most` reflections per round.

    Args:
        settings: The planner, the executors, the scenarios and the files.
        most: Most reflections per round, >= 0.
        share: Share of subgoals that are replaced by random ones, so that some fail, in [0, 1].
    """
    _begin(settings)
    planner = settings.one_planner()
    asked = with_settings("disturbed", planner=planner, share=share) if share else planner
    variants: list[Variant] = [({"trials": number}, asked, number) for number in range(most + 1)]
    measures = f"what is gained by undoing failed rounds, with {share:.0%} of the subgoals replaced by random ones"
    play_and_tell(comparison("trials", measures, variants, settings, rounds=True), settings)


def compare_random_commands(settings: ComparisonSettings, shares: Sequence[float], figure: Path | None = None) -> None:
    """Plays and tells the scores with shares of the subgoals replaced by random possible ones (SAMA's Figure 14).

    Args:
        settings: The planner, the executors, the scenarios and the files.
        shares: Shares in [0, 1].
        figure: File of a picture of score against share (PNG); `None` for none.
    """
    _begin(settings)
    require_writable({"--figure": figure})
    planner = settings.one_planner()
    variants: list[Variant] = [
        ({"random": share}, with_settings("disturbed", planner=planner, share=share), settings.trials)
        for share in shares
    ]
    draw = None if figure is None else lambda scores: _draw(scores, figure)
    play_and_tell(
        comparison("random-commands", "whether agents do as they are told", variants, settings), settings, draw
    )


def compare_prompts(name: str, settings: ComparisonSettings) -> None:
    """Compares prompts of a planner that asks a language model.

    Args:
        name: One of `PROMPT_ABLATIONS`.
        settings: The planner, the executors, the scenarios and the files.

    Raises:
        UserError: If nobody reads the prompts, or all variants have the same.
    """
    _begin(settings)
    measures, variants = PROMPT_ABLATIONS[name]
    planner = settings.one_planner()
    require_prompts(planner, name.replace("-", " "))
    played: list[Variant] = [
        (labels, with_settings(planner, **changes), settings.trials) for labels, changes in variants
    ]
    require_different_prompts([(labels, planner) for labels, planner, _ in played], settings, name)
    play_and_tell(comparison(name, measures, played, settings), settings)


def _begin(settings: ComparisonSettings) -> None:
    quiet_libraries(0)
    require_writable({"--json": settings.json_file, "--markdown": settings.markdown_file})
    import_modules(settings.modules)


def _short(planner: PlannerSettings) -> str:
    """A planner's name for a table."""
    if isinstance(planner, str):
        return planner
    chat = planner["chat"] if isinstance(planner.get("chat"), Mapping) else {}
    source = chat.get("model") or planner.get("cassette") or chat.get("cassette") or chat.get("local")
    return f"{planner.get('name')} ({Path(str(source)).name})" if source else str(planner.get("name"))


def _draw(scores: PlannerScores, path: Path) -> None:
    from rllib_llm_comm.evaluation.figures import draw_shares, to_png

    lines: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for row in scores.figures():
        name = " ".join(str(value) for key, value in row["labels"].items() if key != "random")
        lines.setdefault(name, []).append((row["labels"]["random"], row["summary"]))
    with out.status("drawing"):
        picture = to_png(draw_shares(lines))
    write_atomically(path, picture)
    say(f"Figure: {short_path(path)}")
