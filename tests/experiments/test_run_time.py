"""How long what is left of a study takes: by runs that are there, and by a rehearsal in small."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from rllib_llm_comm.experiments.console import out
from rllib_llm_comm.experiments.experiment_file import (
    ExperimentFile,
    TrainSettings,
    parse_experiments,
    read_experiment_file,
)
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.experiments.pipeline import check_stages, with_model
from rllib_llm_comm.experiments.ray_session import available_cpus
from rllib_llm_comm.experiments.run_experiments import run_study
from rllib_llm_comm.experiments.run_time import in_small, left_of, measured, rehearse, trials_of
from rllib_llm_comm.experiments.stages import StageResult, make_stages
from rllib_llm_comm.experiments.study_file import expand, is_study, read_study

SMOKE = Path(__file__).parents[1] / "data" / "study_smoke.yaml"
KITCHEN = "rllib_llm_comm/overcooked_text-v0"
SEEDS = 2 * available_cpus()  # two trials one after the other on each core
STAGES = {
    f"{scenario}.{name}": spec
    for scenario in ("A", "B")
    for name, spec in {
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": 640}},
        "verco": {
            "run": "Verco", "env": KITCHEN, "stop": {"decisions": 1000},
            "config": {"messages": "none", "seed": {"grid_search": list(range(SEEDS))}},
        },
        "verco.sampled": {"run": "evaluate", "config": {"checkpoint": f"${{{scenario}.verco}}", "episodes": 80}},
        "verco.messages_none": {"run": "evaluate", "config": {"checkpoint": f"${{{scenario}.verco}}", "episodes": 80}},
    }.items()
}  # fmt: skip


@pytest.fixture
def stages(tmp_path):
    return {one.name: one for one in make_stages(parse_experiments(STAGES, "f"), lambda name, _: tmp_path / name)}


def ends(stage, seconds):
    (stage.folder / "result").mkdir(parents=True, exist_ok=True)
    stage.write(StageResult([stage.folder / "result"]), seconds)


def trains(stage, seed, decisions, seconds):
    stage.write()
    trial = stage.folder / f"trial_{seed}"
    trial.mkdir()
    row = {"training_iteration": 3, "decisions": decisions, "time_total_s": seconds}
    (trial / "result.json").write_text(json.dumps(row) + "\n")


def test_nothing_is_known_before_anything_ran(stages):
    left = left_of(list(stages.values()), [])
    assert left.seconds == 0 and left.unknown == tuple(stages) and "unknown time" in left.text()


def test_the_first_run_of_each_system_tells_those_of_the_others(stages):
    every = list(stages.values())
    ends(stages["A.labels"], 50.0)
    assert left_of(every, ["A.labels"]).seconds == 50.0  # those of the other scenario
    trains(stages["A.verco"], 0, 500, 30.0)  # half of a run: a whole one takes a minute, each core makes two
    assert measured(stages["A.verco"]) == (pytest.approx(120.0), pytest.approx(0.5 / SEEDS))
    left = left_of(every, ["A.labels"])
    assert left.seconds == pytest.approx(50 + 120 + 120 * (1 - 0.5 / SEEDS))
    assert left.unknown == tuple(name for name in stages if name.count(".") == 2) and "4 stages" in left.text()
    ends(stages["A.verco.sampled"], 7.0)
    left = left_of(every, ["A.labels", "A.verco.sampled"])
    assert left.seconds == pytest.approx(50 + 120 + 120 * (1 - 0.5 / SEEDS) + 3 * 7) and not left.unknown


def test_only_what_is_left_counts_and_results_of_other_settings_do_not(stages, tmp_path):
    for stage in stages.values():
        if stage.experiment.run == "Verco":
            for seed in range(SEEDS):
                trains(stage, seed, 1000, 60.0)
        ends(stage, 5.0)
    assert left_of(list(stages.values()), stages).seconds == 0
    assert left_of(list(stages.values()), set(stages) - {"B.verco.sampled"}).seconds == pytest.approx(5.0)
    changed = json.loads(json.dumps(STAGES))
    changed["A.verco"]["config"]["lr"] = 0.5
    other = make_stages(parse_experiments(changed, "f"), lambda name, _: tmp_path / name)
    unknown = [one.name for one in other if measured(one) is None]
    assert unknown == ["A.verco", "A.verco.sampled", "A.verco.messages_none"]


def test_a_damaged_result_is_passed_over(stages):
    trains(stages["A.verco"], 0, 500, 30.0)
    broken = stages["A.verco"].folder / "trial_1"
    broken.mkdir()
    (broken / "result.json").write_text("[1]\n")
    assert measured(stages["A.verco"])[0] == pytest.approx(120.0)


@pytest.mark.parametrize("path", [path for path in examples().values() if path.suffix == ".yaml"])
def test_a_rehearsal_of_every_packaged_file_is_small_and_changes_nothing_else(path):
    study = is_study(path)
    file = with_model(expand(read_study(path), path.stem) if study else read_experiment_file(path))
    for stage, experiment in file.experiments.items():
        small = in_small(experiment)
        assert small.run == experiment.run and small.env == experiment.env, stage
        assert trials_of(small) <= (1 if study else max(1, trials_of(experiment))), stage
        for key in {*experiment.config, *small.config} - {"seed"}:
            if study and small.config[key] != experiment.config.get(key):
                assert isinstance(small.config[key], int) and small.config[key] <= 128, (stage, key)


@pytest.mark.parametrize(("name", "unfit"), [("cole", "cole"), ("fcp", "fcp"), ("sama_rules", None)])
def test_what_refuses_small_settings_is_passed_over_without_an_error(tmp_path, name, unfit):
    experiments = read_experiment_file(examples()[name]).experiments
    small = {stage: in_small(experiment) for stage, experiment in experiments.items()}
    for stages, passed_over in ((small, [] if unfit is None else [unfit]), (experiments, [])):
        refused = []
        check_stages(make_stages(stages, lambda name, _: tmp_path / name), {}, refused=refused)
        assert refused == passed_over


@pytest.mark.parametrize("first", [9.0, 0.5])
def test_evaluations_are_scaled_by_seeds_and_cross_play_by_pairs(first, tmp_path):
    """One episode alone tells what is loaded: once, as a base model, or anew for the games of each policy."""
    met = {"players": "${verco}", "partners": {"new": "${other}"}, "episodes": 8}
    specs = {
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": {}},
        "verco": {"run": "Verco", "env": KITCHEN, "config": {"seed": {"grid_search": [0, 1, 2, 3]}}},
        "other": {"run": "Verco", "env": KITCHEN, "config": {"seed": {"grid_search": [0, 1]}}},
        "games": {"run": "evaluate", "config": {"checkpoint": "${verco}", "episodes": 80}},
        "pairs": {"run": "crossplay", "config": {"players": "${verco}", "episodes": 8}},
        "met": {"run": "crossplay", "config": met},
    }
    file = ExperimentFile("f", parse_experiments(specs, "f"))
    stages = make_stages(file.experiments, lambda name, _: tmp_path / "none" / name)

    def play(small, folder):
        for stage in make_stages(small.experiments, lambda name, _: folder / "rehearsal" / name):
            assert not stage.name.endswith(".begun") or 1 in stage.experiment.config.values()
            ends(stage, first if stage.name.endswith(".begun") else 2.0)

    told = rehearse(file, stages, play)
    sizes = {
        "labels": (4000 / 64, 1),  # the default, which nobody wrote down
        "games": (80 / 8, 4),
        "pairs": (1, 4 * 4),
        "met": (1, (4 * 4 + 2 * 4 * 2) / (1 + 2)),
    }
    for name, (larger, policies) in sizes.items():
        whole = 9.0 + 2.0 * larger * policies if first > 2.0 else policies * (first + (2.0 - first) * larger)
        assert told[name] == pytest.approx(whole), name


def test_what_would_ask_a_chat_model_is_not_rehearsed(tmp_path):
    specs = {
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": {"teacher": {"name": "chat", "model": "x"}}},
        "sft": {"run": "MessageSFT", "stop": {"training_iteration": 1}, "config": {"input_": "${labels}"}},
    }
    file, played = ExperimentFile("f", parse_experiments(specs, "f")), []
    stages = make_stages(file.experiments, lambda name, _: tmp_path / name)
    assert rehearse(file, stages, lambda *told: played.append(told)) == {} and not played


@pytest.mark.timeout(400)
def test_a_dry_run_says_what_would_run_and_for_how_long_and_leaves_nothing(tmp_path, capsys):
    study = yaml.safe_load(SMOKE.read_text())
    study["systems"]["symbolic_ppo"]["stop"] = {"decisions": 10_000_000}
    study["evaluation"]["episodes"] = 4
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study))
    out.file = None  # the stream that pytest captures
    settings = TrainSettings(dry_run=True, storage_path=str(tmp_path / "results"), ray_num_cpus=4)
    folder, failed = run_study(tmp_path / "small.yaml", settings, systems=["symbolic_ppo"])
    told = " ".join(capsys.readouterr().out.split())
    assert not folder.exists() and not failed
    assert re.search(r"2 of 2 stages are left: about (\d+ h )?\d+ min more on this machine", told), told
    assert all(word in told for word in ("B.symbolic_ppo", "SymbolicPPO", "to do", "Measuring 2 stages in small"))
