"""`rllib runs` beside damaged runs: each is passed over with one sentence, bounded in size and time."""

from __future__ import annotations

import json
import os
import resource
import time

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.console import out, print_table, say, say_error
from tests.experiments.test_runs import command, row, write_stage

DEEP = "[" * 100_000
HUGE = "9" * 4000
FIRST = json.dumps(row(1, 0, 0.5))
ROWS = {
    "no JSON": FIRST[:-20],
    "binary": "\x00\udcff\udc80PK\x03\x04",
    "deep": DEEP,
    "deep settings": FIRST.replace('"seed": 0', '"seed": 0, "x": ' + '{"x": ' * 900 + "1" + "}" * 900),
    "a figure is a text": FIRST.replace("0.5", '"' + "x" * 1000 + '"'),
    "config is a list": json.dumps({**row(1, 0, 0.5), "config": [1]}),
    "iteration is huge": FIRST.replace('"training_iteration": 1', f'"training_iteration": {HUGE}'),
    "time is huge": FIRST.replace('"time_total_s": 30.0', f'"time_total_s": {HUGE}'),
    "date is far": FIRST.replace('"timestamp": 1700000060', '"timestamp": 1e300'),
    "returns are huge": FIRST.replace('{"a": 0.5, "b": 0.5}', f'{{"a": {HUGE}, "b": 1}}'),
    "a broken character": FIRST.replace(f'"env": "{row(1, 0, 1)["config"]["env"]}"', '"env": "\\ud800"'),
}
RECORDS = {
    "cut off": '{"stage": "x", "run": "Ver',
    "binary": "\udcff\udcfe\x00",
    "deep": '{"stage": ' + DEEP,
    "settings are a number": '{"stage": "x", "run": "V", "fingerprint": "f", "settings": 3}',
    "seconds are infinite": '{"stage": "x", "run": "V", "fingerprint": "f", "seconds": 1e999}',
    "summary is strange": '{"stage":"x","run":"V","fingerprint":"f","summary":{"checkpoints":5,"return_mean":1}}',
    "summary is huge": f'{{"stage":"x","run":"V","fingerprint":"f","summary":{{"return_mean": {HUGE}}}}}',
}
TABLES = {
    "binary": "\x00\udcff\x00\n\x00",
    "a huge field": "training_iteration,config/x\n1," + "y" * 200_000,
    "columns fight": "training_iteration,config,config/x\n1,5,6\n",
    "iteration is a strange digit": "training_iteration\n²\n",
}


PLACES = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "sparse": lambda path: (path.touch(), os.truncate(path, 1 << 34)),
    "folder": lambda path: path.mkdir(),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
}
TEXTS = {"result.json": ROWS, "stage.json": RECORDS, "progress.csv": TABLES, ".lock": {}}
CASES = {f"{file}: {name}": (file, one) for file, own in TEXTS.items() for name, one in (own | PLACES).items()}


@pytest.fixture(autouse=True)
def memory():
    """A damaged file may not fill the memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def run(arguments, monkeypatch, capsys):
    monkeypatch.setattr(out, "_width", 200)
    start = time.monotonic()
    told = command(monkeypatch, capsys, *arguments)
    assert time.monotonic() - start < 30
    return told


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_damaged_run_is_passed_over_with_a_sentence(case, tmp_path, monkeypatch, capsys):
    write_stage(tmp_path / "results/good/verco", [1.0, 2.0])
    do_damage(write_stage(tmp_path / "results/bad/verco", [3.0, 4.0]), *case)
    monkeypatch.chdir(tmp_path)
    code, told, errors = run(["--json"], monkeypatch, capsys)
    assert code == 0, errors
    listed = {one["name"]: one for one in json.loads(told)}
    assert listed["results/good/verco"]["figures"]["return"] == [1.0, 2.0]
    assert len(errors) < 2000 and "bug" not in errors and "Traceback" not in errors
    bad = listed.get("results/bad/verco")
    assert (bad and len(bad["iterations"]) == 2) or "Passed over" in errors


def test_the_page_and_the_table_are_made_beside_all_damages(tmp_path, monkeypatch, capsys):
    write_stage(tmp_path / "results/good/verco", [1.0, 2.0])
    for number, case in enumerate(CASES.values()):
        do_damage(write_stage(tmp_path / f"results/bad_{number}/verco", [3.0, 4.0]), *case)
    monkeypatch.chdir(tmp_path)
    code, told, errors = run(["--html", "page.html", "--all"], monkeypatch, capsys)
    assert code == 0 and "results/good/verco" in told, errors
    assert "results/good/verco" in (tmp_path / "page.html").read_text()
    assert "bug" not in errors and "Traceback" not in errors


def do_damage(bad, name, damage):
    path = {"stage.json": bad, ".lock": bad.parent}.get(name, bad / "trial_0") / name
    if name == "progress.csv":
        (path.parent / "result.json").unlink()
    path.unlink(missing_ok=True)
    if callable(damage):
        damage(path)
    else:
        path.write_bytes(damage.encode("utf-8", "surrogateescape"))


def test_links_that_lead_up_and_folders_with_other_names_are_no_runs(tmp_path, monkeypatch, capsys):
    write_stage(tmp_path / "results/good/verco", [1.0, 2.0])
    (tmp_path / "results/up").symlink_to(tmp_path / "results")
    (tmp_path / "results/root").symlink_to("/")
    strange = os.fsencode(tmp_path / "results") + b"/caf\xe9"
    os.mkdir(strange)
    monkeypatch.chdir(tmp_path)
    code, told, errors = run(["--json"], monkeypatch, capsys)
    assert code == 0 and [one["name"] for one in json.loads(told)] == ["results/good/verco"]
    assert errors.count("Passed over") == 1 and "UTF-8" in errors


def test_texts_of_strangers_do_not_steer_the_terminal(capsys):
    evil = "\x1b]52;c;cm0=\x07\x9b2J\u202etxt.exe\r[bold]ok"
    say(evil)
    say_error(UserError(evil))
    print_table([["name"], [evil]])
    told = "".join(capsys.readouterr())
    assert told.count("[bold]ok") == 3 and told.count("\\x1b]52") == 3
    assert not any(one in told for one in "\x1b\x07\x9b\u202e\r")
