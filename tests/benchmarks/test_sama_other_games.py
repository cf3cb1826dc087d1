"""Figures of SAMA in other games: of two runs, and of scripted walkers in the lake's games."""

import json
from pathlib import Path

import pytest
import yaml
from sama_other_games import BY_HAND, RUNS, SHOWN, asked, notes, scripted, trained

from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.pipeline import run_file
from rllib_llm_comm.experiments.stages import StageResult, make_stages
from tests import forked

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tuned_examples" / "sama_frozen_lake.yaml"
SCRIPT = ROOT / "benchmarks" / "sama_other_games.py"
FIGURES = ROOT / "docs" / "results" / "planning" / "sama_other_games.json"
PREPARE = ("manual", "translation", "subgoals", "rewards")


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A run whose preparation is real, with two games per row; nobody was trained."""
    folder = tmp_path_factory.mktemp("runs")
    specs = yaml.safe_load(FILE.read_text())
    prepared = {name: specs[name] for name in PREPARE}
    run_file(
        ExperimentFile("sama_frozen_lake", parse_experiments(prepared, "f")), TrainSettings(storage_path=str(folder))
    )
    games = ("follower", "random", "trials_0", "trials_1")
    for name in games[1:]:
        specs[name]["config"]["episodes"] = 2
    kept = {name: specs[name] for name in (*PREPARE, *games)}
    played = {"return_mean": 0.75, "success_rate": 0.5, "collisions_mean": 1.5, "seconds_per_game": 0.1, "episodes": 2}
    for stage in make_stages(parse_experiments(kept, "f"), lambda name, _: folder / "sama_frozen_lake" / name):
        if stage.name in games:
            summary = {**played, "returns": [0.5, 1.0], "metrics": {"subgoals_share": 0.5}}
            stage.write(StageResult([], summary=summary))
    return folder / "sama_frozen_lake"


def test_scripted_walkers_play_the_games_of_the_run(lake):
    rows = scripted(lake)["games"]
    assert [(row["planner"], row["reflections"]) for row in rows] == [
        ("random", 0), ("random", 1), ("recording", 0), ("recording", 1)
    ]  # fmt: skip
    assert [row["points"] for row in rows[2:]] == [0.0, 1.0] and all(row["games"] == 2 for row in rows)
    told = json.loads(FIGURES.read_text())["frozen_lake"]["games_of_scripted_walkers"]["games"]
    assert [row["points"] for row in told[2:]] == [0.0, 1.0]


def test_games_of_trained_walkers_are_those_of_the_stages(lake):
    told = trained(lake)
    assert told["follower"] == "SymbolicPPO, 30 iterations, seed 0" and told["command"] == RUNS["frozen_lake"]
    assert [row["points"] for row in told["games"]] == [1.5] * 3 and told["games"][2]["reflections"] == 1


@pytest.mark.parametrize(
    ("chat", "said"),
    [({"cassette": "sama"}, "recording"), ({"model": "m"}, "model m"), ({"local": "smollm2"}, "model smollm2")],
)
def test_a_row_says_whether_a_model_or_a_recording_planned(chat, said):
    assert asked({"planner": {"name": "sama", "chat": chat}, "trials": 1}) == {"planner": said, "reflections": 1}
    assert asked({"planner": "random", "trials": 0})["planner"] == "random"


def test_a_model_s_answers_are_not_said_to_be_written_by_hand(lake, tmp_path):
    assert notes(lake, lake)[0] == BY_HAND
    for name in SHOWN:
        record = json.loads((lake / name / "stage.json").read_text())
        record["summary"]["answers"] = {"m": 3}
        (tmp_path / name).mkdir()
        (tmp_path / name / "stage.json").write_text(json.dumps(record))
    assert notes(lake, tmp_path)[0] == "Answers but those of the manuals are by: m, written by hand."


def test_a_run_that_is_not_there_is_named_with_its_command(tmp_path):
    done = forked.run(SCRIPT, str(tmp_path), "--json", "f.json", cwd=tmp_path)
    assert done.returncode == 1 and "run `rllib train file tuned_examples/sama_frozen_lake.yaml" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "f.json").exists()
