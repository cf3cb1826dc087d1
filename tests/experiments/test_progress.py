"""The table shows what a result holds; errors are found below Ray's wrappers."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import console
from rllib_llm_comm.experiments.console import (
    TrainingTable,
    cause_of,
    columns_of,
    fraction_done,
    lookup,
    out,
    summary_of,
)  # fmt: skip
from rllib_llm_comm.experiments.pipeline import say_curves
from rllib_llm_comm.experiments.tune_callback import TableCallback
from rllib_llm_comm.rl.epoch_progress import with_progress


@pytest.fixture(autouse=True)
def captured():
    """The console writes to the stream that pytest captures."""
    out.file = None


ACTING = {
    "training_iteration": 2,
    "time_this_iter_s": 1.25,
    "env_runners": {
        "num_env_steps_sampled": 10,
        "num_agent_steps_sampled_lifetime": {"alice": 600, "bob": 424},
        "agent_episode_returns_mean": {"alice": 1.0, "bob": 0.5},
        "episode_return_mean": 1.5,
    },
    "learners": {"__all_modules__": {"entropy": 9.0}, "shared": {"entropy": 0.5, "kl": float("nan")}},
}
LEARNING = {"training_iteration": 1, "message_sft": {"train_loss": 2.0}, "time_this_iter_s": 1.0}


def test_lookup():
    assert lookup(ACTING, "learners/*/entropy") == 0.5
    assert lookup(ACTING, "env_runners/num_agent_steps_sampled_lifetime") == 1024
    assert lookup(ACTING, "env_runners/agent_episode_returns_mean", mean=True) == 0.75
    assert lookup(ACTING, "env_runners/nothing") is None
    assert lookup({"a": {}}, "a") is None and lookup({"a": "text"}, "a") is None


def test_columns_fit_the_algorithm():
    titles = [column.title for column in columns_of(ACTING)]
    assert titles == ["iter", "decisions", "episodes", "return", "length", "entropy", "KL", "seconds"]
    none_ended = {**ACTING, "env_runners": {**ACTING["env_runners"], "team_return_mean": float("nan")}}
    assert "success" in [column.title for column in columns_of(none_ended)]
    assert "same request" in [column.title for column in columns_of(LEARNING)]
    summary = {"iter": 2, "decisions": 1024, "return": 0.75, "entropy": 0.5, "seconds": 1.25}
    assert summary_of(ACTING) == summary


def test_fraction_done():
    assert fraction_done(ACTING, {"training_iteration": 8, "env_runners/episode_return_mean": 1.6}) == 0.25
    assert fraction_done(ACTING, {"env_runners/episode_return_mean": 3.0}) == 0.5
    assert fraction_done(ACTING, {}) == 0.0


def test_table_prints_one_line_per_result(capsys):
    with TrainingTable({"training_iteration": 4}, trials=2) as table:
        table.show("0_seed=1", ACTING)
        table.finish("0_seed=1")
    header, line = capsys.readouterr().out.strip("\n").split("\n")
    assert header.split()[:3] == ["iter", "decisions", "episodes"] and header.split()[-1] == "trial"
    assert line.split() == ["2", "1,024", "-", "0.750", "-", "0.500", "-", "1.2", "0_seed=1"]


def test_columns_of_supervised_stages_are_explained(capsys):
    with TrainingTable({"training_iteration": 4}) as table:
        for _ in range(2):
            table.show("0", LEARNING)
    legend, header, *lines = capsys.readouterr().out.splitlines()
    assert "never learned from" in legend and header.split()[:3] == ["iter", "train", "loss"] and len(lines) == 2


def test_warnings_of_a_result_are_told(capsys):
    with TrainingTable({"training_iteration": 4}) as table:
        table.show("0", {**ACTING, "warnings": "It is rigid.\nIt closes up."})
    assert capsys.readouterr().out.splitlines()[-2:] == ["Warning: It is rigid.", "Warning: It closes up."]


def test_a_trial_that_the_scheduler_stopped_is_told(capsys):
    with TrainingTable({"training_iteration": 4}, trials=2) as table:
        table.show("0_lr=1e-05", ACTING)
        table.finish("0_lr=1e-05", ACTING)
        table.finish("1_lr=0.1", {**ACTING, "training_iteration": 4})
    printed = capsys.readouterr().out
    assert "0_lr=1e-05 was stopped early by the scheduler, after iteration 2" in printed
    assert "1_lr=0.1 was" not in printed


@pytest.mark.parametrize(("seconds", "told"), [(20.0, ""), (600.0, "At this speed the stage takes 1 h 00 min more.")])
def test_a_long_stage_tells_how_long_it_takes(capsys, monkeypatch, seconds, told):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with TrainingTable({"training_iteration": 4}, trials=2) as table:
        for trial, iteration in (("0", 1), ("0", 2), ("1", 1)):
            table.show(trial, {**ACTING, "training_iteration": iteration})
            clock[0] += seconds
    lines = [line for line in capsys.readouterr().out.splitlines() if "speed" in line]
    assert lines == ([told] if told else [])


def test_the_bar_moves_within_an_iteration_and_never_back():
    with TrainingTable({"training_iteration": 4}, trials=2) as table:
        table.move("0", {}, 0.5)
        assert table._done == {"0": 0.125}
        table.show("0", {**LEARNING, "training_iteration": 2})
        table.move("0", LEARNING, 0.25)  # of an iteration that is done again
        assert table._done == {"0": 0.5}
        table.move("0", {**LEARNING, "training_iteration": 2}, 0.25)
        assert table._done == {"0": 0.5625}


def test_a_terminal_shows_a_bar_that_moves_within_an_iteration_and_the_time_that_remains(tmp_path, monkeypatch):
    """By the file in which a pass tells its share; that a training writes it is shown by `tests/cli` (slow)."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(console, "out", terminal)
    storage = SimpleNamespace(trial_working_directory=tmp_path)
    trial = SimpleNamespace(status="RUNNING", RUNNING="RUNNING", last_result=None, storage=storage)
    with TrainingTable({"training_iteration": 1}) as table:
        for _ in with_progress("abcd", 4, str(tmp_path), iteration=0, interval=0.0):
            TableCallback(table).on_step_end(0, [trial])
            time.sleep(0.2)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.file.getvalue())
    shares = [int(share) for share in re.findall(r"training.*?(\d+)%", shown)]
    assert {20, 40} <= set(shares) and shares == sorted(shares)
    assert re.search(r"training.*?\d+% \d:\d\d:\d\d \d:\d\d:\d\d", shown)


def test_cause_of_finds_the_users_sentence():
    error = UserError("`lr` is 3 but must be small.")
    try:
        raise RuntimeError("wrapped") from error
    except RuntimeError as wrapped:
        assert cause_of(wrapped) == ("UserError", "`lr` is 3 but must be small.")
    text = (
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
        'Traceback (most recent call last):\n  File "x.py", line 1\n'
        "rllib_llm_comm.core.errors.UserError: `lr` is 3.\n\nDuring handling ...\nValueError: something else"
    )
    assert cause_of(text) == ("UserError", "`lr` is 3.")
    assert cause_of(RuntimeError("plain\ntext")) == ("RuntimeError", "plain text")
    for error in (KeyError("x"), ValueError("Traceback\nKeyError: 'x'")):
        assert cause_of(error) == ("KeyError", "'x'")


def test_the_hint_stands_only_where_tensorboard_is_installed(tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    say_curves(Path("results"))
    assert capsys.readouterr().out == ""
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "__init__.py").write_text("")
    sys.path_importer_cache.pop(str(tmp_path), None)
    say_curves(Path("results"))
    assert capsys.readouterr().out == "Curves: tensorboard --logdir results\n"
