"""Experiment files given as mappings: their stages are made, checked, run and read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.pipeline import check_stages, run_file
from rllib_llm_comm.experiments.stages import Stage, make_stages


class BegunError(Exception):
    """All settings were right."""


def run(specs: dict[str, Any], folder: Path, name: str = "f", **settings: Any) -> list[str]:
    """Runs the stages; `settings` are those of the run."""
    file = ExperimentFile(name, parse_experiments(specs, "f"))
    return run_file(file, TrainSettings(storage_path=str(folder), **settings))


def refused_file(folder: Path, specs: dict[str, Any], *words: str, **settings: Any) -> str:
    """The sentence with which a file is refused, which has these words or patterns; nothing may have been written."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(UserError) as caught:
        run(specs, folder, **settings)
    sentence = str(caught.value)
    assert all(word in sentence or re.search(word, sentence) for word in words), sentence
    assert sorted(folder.rglob("*")) == before
    return sentence


def begin(specs: dict[str, Any], folder: Path, **settings: Any) -> None:
    """Checks the stages as `run` does; raises a `BegunError` where it would begin to run them."""

    def begun() -> None:
        raise BegunError

    file = ExperimentFile("f", parse_experiments(specs, "f"))
    run_file(file, TrainSettings(storage_path=str(folder), **settings), before=begun)


def stages_of(specs: dict[str, Any], folder: Path, digest: str = "") -> list[Stage]:
    """The stages, which have not run."""
    return make_stages(parse_experiments(specs, "f"), lambda name, _: folder / name, digest)


def check(specs: dict[str, Any], folder: Path) -> int:
    """The logical CPUs that checked stages want of Ray."""
    return check_stages(stages_of(specs, folder), {})


def record(folder: Path, stage: str, name: str = "f") -> dict[str, Any]:
    """The `stage.json` of a stage."""
    told: dict[str, Any] = json.loads((folder / name / stage / "stage.json").read_text())
    return told
