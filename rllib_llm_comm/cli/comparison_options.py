"""The options of `rllib planning`: texts for the fields of `ComparisonSettings`, and options of its data commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from rllib_llm_comm.cli.options import Imports, TrustRecorded, json_of, name_or_json, takes_settings
from rllib_llm_comm.experiments.planner_comparison import ComparisonSettings


def names(text: str) -> list[str]:
    """The names of an option with commas between them.

    Args:
        text: The option's text.
    """
    return [name.strip() for name in text.split(",")]


JsonFile = Annotated[
    Path | None, Option("--json", help="Keep the figures in this file; what it holds already is not played again.")
]
MarkdownFile = Annotated[Path | None, Option("--markdown", help="Also write the table to this file.")]
Layouts = Annotated[
    str | None,
    Option(
        "--layouts",
        help="Kitchens, with commas between them; all five, or those that a checkpoint was trained on. In other games "
        "their scenarios, such as opponents.",
    ),
]

_OPTIONS: dict[str, Any] = {
    "executor": Annotated[
        list[str] | None,
        Option(help="Who carries out subgoals: 'scripted' (rules; default) or a checkpoint; may be given again."),
    ],
    "planner": Annotated[
        list[str] | None,
        Option(
            metavar="NAME|JSON",
            help='A name, or settings such as \'{"name": "cassette", "cassette": "plans.jsonl"}\'; scripted by '
            "default.",
        ),
    ],
    "layouts": Layouts,
    "env": Annotated[
        str | None,
        Option(help="Game of the scripted executor: an id in PettingZoo's registry; the kitchens by default."),
    ],
    "env_config": Annotated[str | None, Option(metavar="JSON", help="Settings of the game.")],
    "episodes": Annotated[int, Option("--episodes", "--seeds", min=1, help="Episodes per cell, a seed each.")],
    "seed": Annotated[int, Option(min=0, help="The first seed; the others count up.")],
    "trials": Annotated[int, Option(min=0, help="Most reflections per round.")],
    "replan": Annotated[
        str | None,
        Option(help="'any': plan when somebody's subgoal has ended; 'all': in rounds, which --trials needs."),
    ],
    "recover": Annotated[str, Option(help="How a failed round is put back: snapshot or replay.")],
    "patience": Annotated[int, Option(min=1, help="Game steps that a subgoal may take.")],
    "greedy": Annotated[bool, Option("--greedy", help="A checkpoint takes the most likely action.")],
    "json_file": JsonFile,
    "markdown_file": MarkdownFile,
    "modules": Imports,
    "trust": TrustRecorded,
}

_READ = {"planner": name_or_json("--planner"), "layouts": names, "env_config": json_of("--env-config")}

takes_comparison_settings = takes_settings(ComparisonSettings, _OPTIONS, _READ)
