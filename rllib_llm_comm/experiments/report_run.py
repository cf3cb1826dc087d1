"""The report of one or several studies, written with a status line on the console."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rllib_llm_comm.core.files import disk_error, write_atomically
from rllib_llm_comm.experiments.console import out, say, short_path

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.study_results import StudyResults

REPORT, PAGE = "report", "report.html"


def run_report(folders: Sequence[Path], target: Path | None = None, marl_eval: Path | None = None) -> Path:
    """Writes the report of studies.

    Args:
        folders: Folders of studies or of earlier reports; several become one report.
        target: The report's folder; by default `report/` in the first folder.
        marl_eval: A file to write for marl-eval besides; `None` for none.

    Returns:
        The page.

    Raises:
        UserError: If a folder holds no study, they cannot be joined, no system is whole enough for marl-eval, or a
            file cannot be written.
    """
    from rllib_llm_comm.evaluation.report import write_report
    from rllib_llm_comm.evaluation.study_parts import join_results
    from rllib_llm_comm.evaluation.study_results import read_results

    results = join_results([read_results(folder) for folder in folders])
    if marl_eval is not None:
        _write_marl_eval(results, marl_eval)
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


def _write_marl_eval(results: StudyResults, file: Path) -> None:
    from rllib_llm_comm.evaluation.marl_eval import to_marl_eval

    document, left_out = to_marl_eval(results)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        doing = f"`--marl-eval`: {short_path(file)} cannot be written"
        raise disk_error(error, doing, "give another file with `--marl-eval OTHER`") from error
    say(f"Written to {short_path(file)}, for marl-eval.")
    if left_out:
        say(f"Left out there, since they were not compared in all scenarios to the end: {', '.join(left_out)}.")
