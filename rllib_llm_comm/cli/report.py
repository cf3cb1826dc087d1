"""`rllib report`: tables and pictures of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import fetched, is_remote
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.report_run import run_report
from rllib_llm_comm.experiments.runs_view import is_figure


def command(
    folders: Annotated[
        list[str], typer.Argument(help="Folder that `rllib study` wrote, or that of a report; s3://..., too.")
    ],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; by default report/ in the first folder.")
    ] = None,
    marl_eval: Annotated[
        Path | None, typer.Option("--marl-eval", metavar="FILE", help="Write the study as a file of marl-eval, too.")
    ] = None,
) -> None:
    """Make the report of a study: HTML that needs nothing else, Markdown, JSON and pictures.

    Parts of a study that ran at different places become one report. A report keeps what it is made of (results.json),
    so it can be made again, or joined with more, where the runs themselves are gone.

    Examples:

        rllib report results/study
        rllib report results/study_here results/study_there --out results/both

        rllib report results/study --marl-eval study.json
    """
    if out_folder is None and is_remote(folders[0]):
        raise UserError(f"`--out` is missing, since the report of {folders[0]!r} is written to this machine; give it.")
    page = run_report([fetched(folder, "FOLDERS", is_figure) for folder in folders], out_folder, marl_eval)
    say(f"Open {short_path(page)} in a browser.")
