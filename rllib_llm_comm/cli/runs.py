"""`rllib runs`: what was trained, two runs side by side, their curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from rllib_llm_comm.core.places import fetched
from rllib_llm_comm.experiments.pipeline import DEFAULT_STORAGE
from rllib_llm_comm.experiments.runs_view import is_figure, show_runs


def command(
    folders: Annotated[
        list[str] | None,
        Argument(help="A folder of results (./results by default) to list, or two runs to compare; s3://..., too."),
    ] = None,
    every: Annotated[bool, Option("--all", help="List stages that train nothing, too.")] = False,
    html: Annotated[
        Path | None, Option(metavar="FILE", help="Write a page with curves that needs nothing else.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List what was trained, or compare two runs; needs no tracker and no Ray.

    Examples:

        rllib runs

        rllib runs results/verco --html curves.html

        rllib runs results/verco/verco.old-1 results/verco/verco
    """
    places = [fetched(folder, "FOLDERS", is_figure) for folder in folders or [DEFAULT_STORAGE]]
    show_runs(places, every=every, html=html, as_json=as_json)
