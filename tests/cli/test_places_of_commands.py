"""A current folder that is gone, paths that are not UTF-8, links: one sentence, and nothing elsewhere is touched."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import replace_folder, write_atomically
from rllib_llm_comm.experiments.runs import run_report
from tests.cli.command import COMMAND, environment, rllib
from tests.evaluation.test_report import folder  # noqa: F401

COMMANDS = [["runs"], ["train", "file", "x.yaml"]]


def ended(done):
    assert done.returncode == 1 and "Traceback" not in done.stderr and "bug" not in done.stderr, done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_current_folder_that_is_gone_is_one_sentence(command, tmp_path):
    (tmp_path / "gone").mkdir()
    remove = f"import os; os.rmdir(os.getcwd()); os.execv({sys.executable!r}, {[*COMMAND, *command]!r})"
    command = [sys.executable, "-c", remove]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tmp_path / "gone")
    assert "current folder is gone" in ended(done)


@pytest.mark.parametrize(
    "where", [["runs", b"caf\xe9"], ["train", "file", b"\xff.yaml"], ["evaluate", b"\xc3"], ["example", "get", b"\xe9"]]
)
def test_arguments_that_are_not_utf_8_are_one_sentence(where, tmp_path):
    assert "not UTF-8" in ended(rllib(*map(os.fsdecode, where), cwd=tmp_path))


def test_a_current_folder_and_a_home_that_are_not_utf_8_are_one_sentence(tmp_path):
    strange = tmp_path / os.fsdecode(b"caf\xe9")
    strange.mkdir()
    assert "not UTF-8" in ended(rllib("runs", cwd=strange))
    assert "not UTF-8" in ended(rllib("runs", cwd=tmp_path, HOME=str(strange)))


def test_a_report_does_not_follow_a_link(folder, tmp_path):  # noqa: F811
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "report.json").write_text("mine")
    (folder / "report").symlink_to(elsewhere)
    for target in (None, folder / "report"):
        with pytest.raises(UserError, match="is a link"):
            run_report([folder], target)
    assert [path.name for path in elsewhere.iterdir()] == ["report.json"]
    assert (elsewhere / "report.json").read_text() == "mine"

    (folder / "report").unlink()
    (folder / "report").mkdir()
    (folder / "report/report.html").symlink_to(elsewhere / "report.json")
    run_report([folder])
    assert (elsewhere / "report.json").read_text() == "mine" and not (folder / "report/report.html").is_symlink()


@pytest.mark.parametrize("leads", ["somewhere", "nowhere"])
def test_files_and_folders_take_the_place_of_links_and_not_of_what_they_lead_to(tmp_path, leads):
    if leads == "somewhere":
        (tmp_path / leads).mkdir()
        (tmp_path / leads / "kept").write_text("kept")
    (tmp_path / "new").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / leads)
    replace_folder(tmp_path / "new", tmp_path / "link")
    assert (tmp_path / "link").is_dir() and not (tmp_path / "link").is_symlink()
    (tmp_path / "file").symlink_to(tmp_path / leads)
    write_atomically(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text" and not (tmp_path / "file").is_symlink()
    there = {"somewhere": ["file", "link", "somewhere"], "nowhere": ["file", "link"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == there[leads]
    assert leads == "nowhere" or (tmp_path / leads / "kept").read_text() == "kept"
