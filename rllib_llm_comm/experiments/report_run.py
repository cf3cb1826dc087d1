"""The report of one or several studies, written with a status line on the console."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.files import disk_error

REPORT = "report"


def run_report(folders: Sequence[Path], target: Path | None = None) -> Path:
    """Writes the report of studies.

    Args:
        folders: Folders of studies or of earlier reports; several become one report.
        target: The report's folder; by default `report/` in the first folder.

    Returns:
        The page.

    Raises:
        UserError: If a folder holds no study, they cannot be joined, or the report cannot be written.
    """
    from rllib_llm_comm.evaluation.report import write_report
    from rllib_llm_comm.evaluation.study_results import join_results, read_results

    results = join_results([read_results(folder) for folder in folders])
    place = target or folders[0] / REPORT
    try:
        with out.status("computing intervals and drawing"):
            page = write_report(results, place)
    except OSError as error:
        doing = f"The report cannot be written to {short_path(place)}"
        raise disk_error(error, doing, "give another folder with `rllib report FOLDER --out OTHER`") from error
    if results.missing:
        are = "1 evaluation is" if len(results.missing) == 1 else f"{len(results.missing)} evaluations are"
        say(f"{are} not there yet; the report says so.")
    return page
