"""`rllib report`: tables and pictures of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rllib_llm_comm.cli.console import out, say, short_path

REPORT = "report"


def write_report(folder: Path, target: Path | None = None) -> Path:
    """Writes the report of a study's folder.

    Args:
        folder: Where `rllib study` wrote.
        target: Where the report goes; by default `report/` in that folder.

    Returns:
        The page.

    Raises:
        UserError: If the folder holds no study.
    """
    from rllib_llm_comm.evaluation.report import write_report as write
    from rllib_llm_comm.evaluation.study_results import read_results

    results = read_results(folder)
    with out.status("computing intervals and drawing"):
        page = write(results, target or folder / REPORT)
    if results.missing:
        say(f"{len(results.missing)} evaluations are not there yet; the report says so.")
    return page


def command(
    folder: Annotated[Path, typer.Argument(help="Folder that `rllib study` wrote.")],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; by default report/ in the study's folder.")
    ] = None,
) -> None:
    """Make the report of a study: HTML that needs nothing else, Markdown, JSON and pictures.

    Examples:

        rllib report results/study
    """
    page = write_report(folder, out_folder)
    say(f"Open {short_path(page)} in a browser.")
