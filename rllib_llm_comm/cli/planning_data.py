"""Commands of `rllib planning` that make material for training: reward code, and data sets of subgoals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from rllib_llm_comm.cli.comparison_options import JsonFile, Layouts, MarkdownFile, names
from rllib_llm_comm.cli.options import Imports, name_or_json
from rllib_llm_comm.experiments.planner_comparison import SCRIPTED
from rllib_llm_comm.experiments.reward_code_run import compare_reward_code
from rllib_llm_comm.experiments.subgoal_collection import collect_subgoals


def rewards(
    code: Annotated[
        Path | None,
        Option(help="Folder of reward code; what a model writes is kept there. Without it a recording is replayed."),
    ] = None,
    planner: Annotated[
        str | None,
        Option(
            metavar="JSON",
            help="Planner whose chat model writes the code of subgoals that have none.",
        ),
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
    asked = None if planner is None else name_or_json("--planner")(planner)
    kitchens = None if layouts is None else names(layouts)
    compare_reward_code(code, asked, kitchens, steps=steps, seed=seed, json_file=json_file, markdown_file=markdown_file)


def subgoals(
    layouts: Layouts = None,
    planner: Annotated[
        str,
        Option(
            metavar="NAME|JSON",
            help="Who is asked: a name, or settings as for the other commands.",
        ),
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
    asked, kitchens = name_or_json("--planner")(planner), None if layouts is None else names(layouts)
    collect_subgoals(folder, asked, kitchens, states=states, seed=seed, markdown_file=markdown_file, modules=modules)
