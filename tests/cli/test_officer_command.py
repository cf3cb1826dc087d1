"""`rllib officer`: from demonstrations over an officer to its win rates."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from tests.refusal import refused


def officer(*words):
    return CliRunner().invoke(cli, ["officer", *map(str, words)], catch_exceptions=False)


def test_an_officer_is_demonstrated_cloned_and_judged(tmp_path):
    shown, policy, figures = tmp_path / "demonstrations", tmp_path / "officer", tmp_path / "figures.json"
    told = officer("demonstrations", shown, "--games", 3, "--max-tick", 800, "--seed", 2)
    assert told.exit_code == 0 and "3 games, 96 decisions, nothing ordered at " in told.output
    small = ("--epochs", 1, "--filters", 4, "--width", 8)
    told = officer("clone", shown, policy, *small)
    assert told.exit_code == 0 and "64 decisions learned, 32 held out, 1 passes: held-out loss " in told.output
    judged = ("--games", 2, "--max-tick", 300, "--commanders", "oracle,random:0.5", "--json", figures)
    told = officer("play", f"trained:{policy}", *judged)
    assert told.exit_code == 0 and "random:0.5" in told.output
    kept = json.loads(figures.read_text())
    assert kept["settings"]["executor"] == f"trained:{policy}"
    assert {name: one["games"] for name, one in kept["summary"].items()} == {"oracle": 2, "random:0.5": 2}
    assert kept["summary"]["oracle"]["drawn"] == 1.0  # nobody has won at tick 300
    again = officer("play", f"trained:{policy}", *judged)
    assert again.exit_code == 0 and json.loads(figures.read_text()) == kept
    told = officer("play", f"switch:{policy}:{policy}", *judged[:-1], tmp_path / "switch.json")
    assert told.exit_code == 0 and "oracle" in told.output
    task = ("--units", "spearman", "--games", 1, "--json", tmp_path / "build.json")
    told = officer("build", *task)
    assert told.exit_code == 0 and "untold" in told.output
    assert json.loads((tmp_path / "build.json").read_text())["units"]["spearman"]["told"] == 1.0
    with refused("units", "choice"):
        officer("build", "--units", "hall")
    with refused("executor"):
        officer("play", "switch:nowhere", *judged)
    with pytest.raises(UserError, match="holds games of other settings"):
        officer("play", "scripted", *judged)
    with pytest.raises(UserError, match="is there and is no policy folder"):
        officer("clone", shown, shown, *small)
