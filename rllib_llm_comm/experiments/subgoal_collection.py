"""Data sets of subgoals: a planner's plans in many states of kitchens, one file per kitchen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.experiments.console import print_table, say, say_stand_ins, short_path
from rllib_llm_comm.experiments.import_modules import import_modules
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.planner_comparison import SCRIPTED, PlannerSettings
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries

_COLUMNS = (
    "scenario", "states", "subgoals", "of the library", "goals", "refused", "no answer", "answered by", "assigned by"
)  # fmt: skip


def collect_subgoals(
    folder: Path,
    planner: PlannerSettings = SCRIPTED,
    layouts: Sequence[str] | None = None,
    *,
    states: int = 200,
    seed: int = 0,
    markdown_file: Path | None = None,
    modules: Sequence[str] | None = None,
) -> None:
    """Asks a planner in different states of kitchens and writes a data set of subgoals per kitchen.

    Args:
        folder: Folder of the data sets; what they hold is not asked for again.
        planner: The planner's name or settings.
        layouts: Kitchens; all by default.
        states: Different states per kitchen, >= 1.
        seed: Seed of the states.
        markdown_file: File of the table.
        modules: Modules that are imported first.

    Raises:
        UserError: If a setting is not allowed.
        ChatError: If a request failed for good.
    """
    quiet_libraries(0)
    require_writable({"--markdown": markdown_file})
    import_modules(modules)
    from rllib_llm_comm.envs.overcooked_ai.game import ENV_ID
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
    from rllib_llm_comm.evaluation.planner_scores import markdown
    from rllib_llm_comm.policies.stand_ins import stand_ins
    from rllib_llm_comm.sama.planners import planner_model
    from rllib_llm_comm.sama.preparation import open_game
    from rllib_llm_comm.sama.subgoals.dataset import SubgoalDataset

    model = planner_model(planner)
    standing = stand_ins({"planner": planner})
    say_stand_ins(standing)
    rows = []
    for kitchen in [get_layout(name).name for name in layouts or LAYOUT_NAMES]:
        game, path = open_game(ENV_ID, {"layout": kitchen}, seed), folder / f"{kitchen}.json"
        data = SubgoalDataset(game, planner, seed, model)
        if path.exists():
            data.take_over(read_text(path))
        with counting_bar(f"asking in {kitchen}") as progress:
            there = data.ask(states, partial(write_atomically, path), progress)
        if there < states:
            say(f"{kitchen} has only {there} states that differ to a planner, as far as was drawn.")
        rows.append([kitchen, *_counts(data.summary())])
    print_table([_COLUMNS, *rows])
    say_stand_ins(standing)
    say(f"Data sets: {short_path(folder)}")
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(_COLUMNS, rows, standing))


def _counts(summary: Mapping[str, Any]) -> list[str]:
    """The figures of a data set as cells of the table."""
    of_library = f"{summary['share']:.0%} of {summary['library']}"
    rest = [str(summary[name]) for name in ("goals", "refused", "failed")]
    authors = [
        ", ".join(f"{who} {count}" for who, count in summary[name].items()) for name in ("answered_by", "assigned_by")
    ]
    return [str(summary["states"]), str(summary["subgoals"]), of_library, *rest, *authors]
