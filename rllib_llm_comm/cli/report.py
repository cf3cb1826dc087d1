"""`rllib report`: tables and pictures of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.files import disk_error

REPORT = "report"


def write_report(folders: Sequence[Path], target: Path | None = None) -> Path:
    """Writes the report of a study.

    Args:
        folders: Where `rllib study` wrote, or an earlier report lies; of several, one report of all.
        target: Where the report goes; by default `report/` in the first folder.

    Returns:
        The page.

    Raises:
        UserError: If a folder holds no study, they cannot be joined, or the report cannot be written.
    """
    from rllib_llm_comm.evaluation.report import write_report as write
    from rllib_llm_comm.evaluation.study_results import join_results, read_results

    results = join_results([read_results(folder) for folder in folders])
    place = target or folders[0] / REPORT
    try:
        with out.status("computing intervals and drawing"):
            page = write(results, place)
    except OSError as error:
        doing = f"The report cannot be written to {short_path(place)}"
        raise disk_error(error, doing, "give another folder with `rllib report FOLDER --out OTHER`") from error
    if results.missing:
        are = "1 evaluation is" if len(results.missing) == 1 else f"{len(results.missing)} evaluations are"
        say(f"{are} not there yet; the report says so.")
    return page


def command(
    folders: Annotated[list[Path], typer.Argument(help="Folder that `rllib study` wrote, or that of a report.")],
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the report; by default report/ in the first folder.")
    ] = None,
) -> None:
    """Make the report of a study: HTML that needs nothing else, Markdown, JSON and pictures.

    Parts of a study that ran at different places become one report. A report keeps what it is made of (results.json),
    so it can be made again, or joined with more, where the runs themselves are gone.

    Examples:

        rllib report results/study
        rllib report results/study_here results/study_there --out results/both
    """
    page = write_report(folders, out_folder)
    say(f"Open {short_path(page)} in a browser.")
