"""What planners make for training, as commands of `rllib planning`: reward code, and data sets of subgoals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from rllib_llm_comm.cli.check import import_modules
from rllib_llm_comm.cli.options import Imports
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import print_table, say, short_path
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.planner_comparison import (
    SCRIPTED,
    JsonFile,
    Layouts,
    MarkdownFile,
    named,
    read_planner,
    require_prompts,
)
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries
from rllib_llm_comm.files import write_atomically


def rewards(
    code: Annotated[
        Path | None,
        Option(help="Folder of reward code; what a model writes is kept there. Without it a recording is replayed."),
    ] = None,
    planner: Annotated[
        str | None, Option(metavar="JSON", help="Planner whose chat model writes the code of subgoals that have none.")
    ] = None,
    layouts: Layouts = None,
    steps: Annotated[int, Option(min=1, help="Steps of disturbed scripted cooks per kitchen.")] = 300,
    seed: Annotated[int, Option(min=0, help="Of these steps.")] = 0,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Rewards by hand or by a planner: how far reward code agrees with the exact tests, for all subgoals of a kitchen.

    The code of "put the onion into the pot" lies in CODE/KITCHEN/put_the_onion_into_the_pot.py or in CODE itself.
    Without --code it is what a large model wrote for the cramped room, from the recording that comes with the package.

    Examples:

        rllib planning rewards

        rllib planning rewards --code rewards --layouts cramped_room

        rllib planning rewards --code rewards --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    quiet_libraries(0)
    require_writable({"--json": json_file, "--markdown": markdown_file})
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
    from rllib_llm_comm.evaluation.planning_study import markdown
    from rllib_llm_comm.evaluation.reward_study import RewardStudy
    from rllib_llm_comm.planning.planners import planner_model

    asked = None if planner is None else read_planner(planner)
    if code is None:
        code, asked, layouts = _recorded_rewards(planner, layouts)
    if asked is not None:
        require_prompts(asked, "written rewards")
    elif not code.is_dir():
        raise UserError(f"--code is {str(code)!r}, which is no folder; give one, or a --planner that writes the code.")
    study = RewardStudy(code, None if asked is None else planner_model(asked), steps, seed)
    if json_file is not None and json_file.exists():
        study.take_over(json_file.read_text(encoding="utf-8"))
    kitchens = named(layouts) or LAYOUT_NAMES

    def keep(text: str) -> None:
        if json_file is not None:
            write_atomically(json_file, text)

    with counting_bar("comparing") as progress:
        study.measure(kitchens, keep, progress)
    summary = {layout: found for layout, found in study.summary().items() if layout in kitchens}
    columns = ["scenario", *next(iter(summary.values()))]
    rows = [[layout, *map(_figure, found.values())] for layout, found in summary.items()]
    names = [name.replace("_", " ") for name in columns]
    print_table([names, *rows])
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(names, rows))


def subgoals(
    layouts: Layouts = None,
    planner: Annotated[
        str, Option(metavar="NAME|JSON", help="Who is asked: a name, or settings as for the other commands.")
    ] = SCRIPTED,
    states: Annotated[int, Option(min=1, help="Different states per kitchen in which it is asked.")] = 200,
    seed: Annotated[int, Option(min=0, help="Of the states.")] = 0,
    folder: Annotated[
        Path, Option(help="Where the data sets go, one file per kitchen; what they hold is not asked for again.")
    ] = Path("results/subgoals"),
    markdown_file: MarkdownFile = None,
    modules: Imports = None,
) -> None:
    """A data set of subgoals: what a planner wants in many different states of a kitchen, without duplicates.

    The file FOLDER/KITCHEN.json is what the setting `subgoal_file` of the kitchens with subgoals takes, for training.

    Examples:

        rllib planning subgoals --layouts cramped_room --states 200

        rllib planning subgoals --planner '{"name": "chat", "chat": {"model": "gpt-4o"}}'
    """
    quiet_libraries(0)
    require_writable({"--markdown": markdown_file})
    import_modules(modules)
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
    from rllib_llm_comm.evaluation.planning_study import markdown
    from rllib_llm_comm.planning.kitchen.subgoal_dataset import SubgoalDataset
    from rllib_llm_comm.planning.planners import planner_model

    asked = read_planner(planner)
    model = planner_model(asked)
    rows = []
    for kitchen in [get_layout(name).name for name in named(layouts) or LAYOUT_NAMES]:
        data, path = SubgoalDataset(kitchen, asked, seed, model), folder / f"{kitchen}.json"
        if path.exists():
            data.take_over(path.read_text(encoding="utf-8"))
        with counting_bar(f"asking in {kitchen}") as progress:
            there = data.ask(states, partial(write_atomically, path), progress)
        if there < states:
            say(f"{kitchen} has only {there} states that differ to a planner, as far as was drawn.")
        rows.append([kitchen, *_counts(data.summary())])
    columns = ["scenario", "states", "subgoals", "of the library", "goals", "refused", "no answer"]
    columns += ["answered by", "assigned by"]
    print_table([columns, *rows])
    say(f"Data sets: {short_path(folder)}")
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(columns, rows))


def _counts(summary: Mapping[str, Any]) -> list[str]:
    """The figures of a data set as the table shows them."""
    of_library = f"{summary['share']:.0%} of {summary['library']}"
    rest = [str(summary[name]) for name in ("goals", "refused", "failed")]
    authors = [
        ", ".join(f"{who} {count}" for who, count in summary[name].items()) for name in ("answered_by", "assigned_by")
    ]
    return [str(summary["states"]), str(summary["subgoals"]), of_library, *rest, *authors]


def _recorded_rewards(planner: str | None, layouts: str | None) -> tuple[Path, dict[str, Any], str]:
    """Folder, planner and kitchen of the reward code that comes with the package.

    Raises:
        UserError: If another planner or kitchen is wanted.
    """
    recording, kitchen, folder = "claude_reward_code", "cramped_room", Path("results/reward_code")
    for option, value, allowed in (("--planner", planner, None), ("--layouts", layouts, kitchen)):
        if value not in (None, allowed):
            raise UserError(
                f"{option} is {value!r} but --code is not given, without which only the recording {recording!r} of "
                f"{kitchen!r} is replayed; give --code, a folder of reward code."
            )
    say(
        f"No --code is given: the recording {recording!r} that comes with the package is replayed for {kitchen!r}, and "
        f"its code kept in {folder}."
    )
    return folder, {"name": "cassette", "cassette": recording}, kitchen


def _figure(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
