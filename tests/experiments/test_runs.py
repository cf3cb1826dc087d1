"""`rllib runs`: the list, the comparison and the page, from result files and stage records alone."""

from __future__ import annotations

import csv
import fcntl
import json
import sys

import pytest

from rllib_llm_comm.cli.main import app
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.console import out
from rllib_llm_comm.experiments.runs import compare, curves_of, duration, find_run, find_runs, last_row, spans, spread

KITCHEN = "rllib_llm_comm/overcooked_text-v0"


def row(iteration, seed, value, **config):
    return {
        "training_iteration": iteration, "time_total_s": 30.0 * iteration, "time_this_iter_s": 30.0,
        "timestamp": 1_700_000_000 + 60 * iteration, "config": {"seed": seed, "env": KITCHEN, **config},
        "env_runners": {
            "num_env_steps_sampled": 100,
            "num_agent_steps_sampled_lifetime": {"a": 100 * iteration, "b": 100 * iteration},
            "num_episodes_lifetime": 20 * iteration,
            "agent_episode_returns_mean": {"a": value, "b": value},
            "success_rate": 0.5,
        },
        "learners": {"__all_modules__": {}, "shared": {"entropy": 1.0 / iteration}},
    }  # fmt: skip


def write_stage(folder, values, iterations=4, status="finished", search=None, **settings):
    """A stage with one trial per value, whose last return that is."""
    searched = {} if search is None else {"lr": {"grid_search": search}}
    seeds = {"seed": {"grid_search": list(range(len(values)))}} if search is None else {"seed": 3}
    folder.mkdir(parents=True)
    record = {
        "stage": folder.name, "run": "Verco", "status": status, "fingerprint": f"digest of {folder.name}",
        "seconds": 70.0, "settings": {"run": "Verco", "env": KITCHEN, "config": {**settings, **searched, **seeds}},
    }  # fmt: skip
    (folder / "stage.json").write_text(json.dumps(record))
    for place, value in enumerate(values):
        trial = folder / f"trial_{place}"
        trial.mkdir()
        own = {"lr": search[place]} if search else {}
        seed = 3 if search else place
        rows = [row(k, seed, value * k / iterations, **settings, **own) for k in range(1, iterations + 1)]
        (trial / "result.json").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return folder


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The stream that pytest captures, and room for all columns; `out.file` would stay bound to this test.
    monkeypatch.setattr(out, "_file", None)
    monkeypatch.setattr(out, "_width", 180)
    folder = tmp_path / "results"
    write_stage(folder / "first" / "verco", [0.5, 0.6, 0.7, 0.8], lr=0.001)
    write_stage(folder / "second" / "verco", [1.0, 1.1, 1.2, 1.3], lr=0.01, messages="none")
    return folder


def command(monkeypatch, capsys, *arguments):
    """Exit code, output and errors of `rllib runs`."""
    monkeypatch.setattr(sys, "argv", ["rllib", "runs", *arguments])
    code = 0
    try:
        app()
    except SystemExit as error:
        code = error.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_list_has_what_was_written(results):
    first, second = find_runs(results)
    assert [first.name, first.algorithm, first.env] == ["results/first/verco", "Verco", KITCHEN]
    assert first.status == "finished" and first.seeds == [0, 1, 2, 3] and first.iterations == [4] * 4
    assert first.figures["return"] == [0.5, 0.6, 0.7, 0.8] and first.seconds == 120.0
    assert second.changed == 1_700_000_240 and second.settings["config.messages"] == "none"


def test_the_command_lists_compares_and_draws(results, monkeypatch, capsys, tmp_path):
    code, said, _ = command(monkeypatch, capsys, "--html", "runs.html")
    (line,) = [line for line in said.splitlines() if "first/verco" in line]
    assert code == 0
    for cell in ("Verco", "overcooked_text-v0", "0-3", "0.65 [0.5, 0.8]", "2 min 00 s", "finished", "2023-11-1"):
        assert cell in line
    page = (tmp_path / "runs.html").read_text()
    assert "data:image/png;base64," in page and "http" not in page.replace("http-equiv", "")
    code, said, _ = command(monkeypatch, capsys, "results/first", "results/second/verco", "--html", "two.html")
    assert code == 0 and "config.messages" in said and "config.seed" not in said
    (line,) = [line for line in said.splitlines() if " return " in line]
    assert "0.65 [" in line and "1.15 [" in line and " 0.5 [" in line
    page = (tmp_path / "two.html").read_text()
    assert "results/first/verco and results/second/verco" in page and "config.messages" in page


def test_json_has_the_same(results, monkeypatch, capsys):
    _, said, _ = command(monkeypatch, capsys, "--json")
    assert [run["figures"]["return"] for run in json.loads(said)] == [[0.5, 0.6, 0.7, 0.8], [1.0, 1.1, 1.2, 1.3]]
    _, said, _ = command(monkeypatch, capsys, "results/first", "results/second", "--json")
    told = json.loads(said)
    assert told["settings"] == {"config.lr": [0.001, 0.01], "config.messages": [None, "none"]}
    assert told["figures"]["return"]["difference"]["value"] == pytest.approx(0.5)
    assert told["figures"]["return"]["difference"]["low"] > 0.2


def test_a_single_seed_has_no_interval(results):
    write_stage(results / "third" / "verco", [2.0], lr=0.001)
    told = compare(find_run(results / "first"), find_run(results / "third"))
    assert told["figures"]["return"]["difference"] == {"value": 1.35, "low": None, "high": None}
    assert told["figures"]["return"]["values"][0]["low"] is not None


def test_the_same_settings_after_other_stages_are_told(results):
    write_stage(results / "third" / "again", [0.5, 0.6, 0.7, 0.8], lr=0.001)
    told = compare(find_run(results / "first"), find_run(results / "third"))
    assert not told["settings"] and told["earlier"]
    told = compare(find_run(results / "first"), find_run(results / "first"))
    assert not told["settings"] and not told["earlier"]


def test_trials_that_differ_in_more_than_the_seed_are_runs_of_their_own(results):
    write_stage(results / "search" / "lr", [0.1, 0.2], search=[1e-4, 1e-3])
    runs = find_runs(results / "search")
    assert [run.settings["config.lr"] for run in runs] == [1e-4, 1e-3]
    assert [run.figures["return"] for run in runs] == [[0.1], [0.2]]
    assert find_run(results / "search" / "lr" / "trial_1").settings["config.lr"] == 1e-3


def test_members_of_a_population_are_no_runs(results):
    member = results / "first" / "verco" / "trial_0" / "member_1"
    member.mkdir()
    (member / "result.json").write_text(json.dumps(row(1, 0, 1.0)) + "\n")
    assert [run.name for run in find_runs(results)] == ["results/first/verco", "results/second/verco"]
    assert len(find_runs(results / "first")) == 1


def test_running_stopped_and_failed_are_told_apart(results):
    stage = write_stage(results / "third" / "verco", [0.1], status="running")
    assert find_run(stage).status == "stopped"
    with (stage.parent / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert find_run(stage).status == "running"
    assert find_run(stage).status == "stopped"
    (stage / "trial_0" / "error.txt").write_text("")
    assert find_run(stage).status == "failed"


def test_results_of_a_script_without_a_record(tmp_path):
    """Ray Tune's own folders: no stage.json; the table stands for a lost result.json."""
    stage = write_stage(tmp_path / "tuned" / "PPO", [0.5, 0.7])
    (stage / "stage.json").unlink()
    flat = {"training_iteration": 4, "env_runners/agent_episode_returns_mean/a": 0.7, "config/seed": 1}
    flat |= {"env_runners/num_env_steps_sampled": 100, "config/env": KITCHEN, "time_total_s": 60.5}
    (stage / "trial_1" / "result.json").unlink()
    with (stage / "trial_1" / "progress.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, flat)
        writer.writeheader()
        writer.writerows([{**flat, "training_iteration": 3}, flat])
    (run,) = find_runs(tmp_path)
    assert (run.algorithm, run.env, run.status) == ("-", KITCHEN, "-")
    assert run.seeds == [0, 1] and run.iterations == [4, 4] and run.figures["return"] == [0.5, 0.7]


def test_stages_that_train_nothing_stand_in_the_whole_list_only(results):
    stage = results / "first" / "evaluation"
    stage.mkdir()
    summary = {"checkpoints": [{"return_mean": 1.0, "success_rate": 0.5}, {"return_mean": 2.0, "success_rate": 1.0}]}
    record = {"stage": "evaluation", "run": "evaluate", "status": "finished", "fingerprint": "x", "summary": summary}
    (stage / "stage.json").write_text(json.dumps(record))
    assert len(find_runs(results)) == 2
    (told,) = [run for run in find_runs(results, every=True) if run.algorithm == "evaluate"]
    assert told.figures["return"] == [1.0, 2.0]


@pytest.mark.parametrize("tail", ['{"training_iteration": 5, "env_', "\n\n", "[1, 2]\n"])
def test_the_last_whole_row_counts(tmp_path, tail):
    rows = [{"training_iteration": k, "text": "x" * 50_000} for k in range(1, 5)]
    (tmp_path / "result.json").write_text("".join(json.dumps(one) + "\n" for one in rows) + tail)
    assert last_row(tmp_path)["training_iteration"] == 4
    (tmp_path / "result.json").write_text("")
    assert last_row(tmp_path) is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "no folder 'nowhere'"),
        (["results", "empty"], "2 runs in 'results'; give one of results/first/verco, results/second/verco."),
        (["a", "b", "c"], "3 runs"),
        (["--html", "empty"], "`--html` is 'empty'"),
    ],
)
def test_mistakes_are_one_sentence(arguments, told, results, monkeypatch, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, errors = command(monkeypatch, capsys, *arguments)
    assert code == 1 and told in " ".join(errors.split()) and errors.startswith("Error: ")


def test_a_damaged_file_is_named(results):
    damaged = '{"training_iteration": 1, "env_runners": 3}\n'
    (results / "first" / "verco" / "trial_2" / "result.json").write_text(damaged)
    with pytest.raises(UserError, match=r"trial_2' cannot be read"):
        curves_of(find_run(results / "first"))


def test_forms():
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8" and spans([]) == ""
    assert spread([]) == "-" and spread([1.0]) == "1" and spread([1.0, 2.0]) == "1.5 [1, 2]"
    assert [duration(s) for s in (0, 7, 65, 3700)] == ["-", "7 s", "1 min 05 s", "1 h 01 min"]
