"""`rllib study` and `rllib report`: what a study file stands for, and a tiny one from start to report."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path

import pytest
import yaml

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.study_results import read_results
from rllib_llm_comm.experiments import pipeline
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.experiments.pipeline import with_model
from rllib_llm_comm.experiments.run_experiments import run_experiments
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.experiments.study_file import expand, part_of, read_study
from tests.cli.command import rllib, succeeds

SMOKE = Path(__file__).parents[1] / "data" / "study_smoke.yaml"


def test_stages_of_the_study_that_comes_along(tmp_path):
    study = read_study(examples()["study"])
    file = expand(study, "study")
    names = list(file.experiments)
    assert len(study.scenarios) == 4 and names[0] == "B_lettuce_tomato.labels"
    labels = file.experiments["A_all_three.labels"]
    assert labels.env == study.env and labels.config["env_config"] == study.scenarios["A_all_three"]
    assert file.experiments["A_all_three.message_sft"].config["input_"] == "${A_all_three.labels}"
    verco = file.experiments["B_all_three.verco"]
    assert verco.config["message_checkpoint"] == "${B_all_three.message_sft}"
    assert verco.config["seed"] == {"grid_search": [0, 1, 2, 3]} and verco.config["messages"] == "student"
    assert file.experiments["B_all_three.none"].config["message_checkpoint"] is None
    heard = file.experiments["B_all_three.verco.messages_other_moments"].config
    assert heard["messages"] == "other_moments" and not heard["greedy"]
    assert heard["checkpoint"] == "${B_all_three.verco}"
    assert file.experiments["B_all_three.symbolic_ppo.greedy"].config["greedy"]
    for settings in study.scenarios.values():
        make_env(study.env, **settings).close()
    one = part_of(study, file, ["A_all_three"])  # its settings are those of the others
    stages = make_stages(one.experiments, lambda name, _: tmp_path / name)
    assert pipeline.check_stages(stages, {}) >= 1


def test_a_part_of_a_study_has_what_it_uses_and_nothing_else():
    study = read_study(examples()["study"])
    whole = expand(study, "study")
    talk = list(part_of(study, whole, ["B_all_three"], ["verco"]).experiments)
    assert talk[:3] == ["B_all_three.labels", "B_all_three.message_sft", "B_all_three.verco"]
    assert all(name.startswith("B_all_three.verco.") for name in talk[3:]) and len(talk) > 3
    numbers = part_of(study, whole, systems=["symbolic_ppo"]).experiments
    assert len(numbers) == len(study.scenarios) * 3 and not any("labels" in name for name in numbers)
    assert part_of(study, whole) == whole
    with pytest.raises(UserError, match="`--scenario` is 'B_all' but must be one .* Did you mean 'B_all_three'"):
        part_of(study, whole, ["B_all"])
    for unknown in ("werco", "verco_?"):
        with pytest.raises(UserError, match="`--system` is"):
            part_of(study, whole, systems=[unknown])


def test_a_part_of_a_study_may_be_named_by_a_pattern():
    study = read_study(examples()["study_salads"])
    file = with_model(expand(study, "study"))
    part = part_of(study, file, ["B_*"], ["*_embedded"]).experiments
    trained = {name for name, stage in part.items() if stage.run in ("Verco", "TWOSOME")}
    assert trained == {
        f"{scenario}.{system}_embedded"
        for scenario in ("B_tomato", "B_lettuce_tomato")
        for system in ("verco", "none", "twosome")
    }
    assert {stage.config["base_model"] for stage in part.values() if stage.run != "evaluate"} == {"embedded"}


def test_games_may_be_judged_by_other_settings_than_those_of_training():
    file = expand(read_study(examples()["study_minirts"]), "study")
    assert file.experiments["told.verco"].config["env_config"]["shaping"] == 1.0
    for judged in ("told.verco.sampled", "told.verco.messages_none", "medium.numbers.sampled"):
        assert file.experiments[judged].config["env_config"] == {"shaping": 0.0}


def test_seeds_meet_strangers_that_shared_stages_have_trained(tmp_path):
    study = read_study(examples()["study_talkers"])
    file = expand(study, "study_talkers")
    met = file.experiments["B_one.fcp.strangers"]
    assert met.run == "crossplay" and met.config["players"] == "${B_one.fcp}"
    assert met.config["partners"]["half-trained"] == ["${B_one.stranger}/past/half_way"]
    assert met.config["partners"]["mute"][0]["policy"] == "${B_one.stranger}"
    assert {"B_one_told_all.pbt.strangers", "B_one.self_trained.strangers"} <= set(file.experiments)
    one = part_of(study, file, ["B_one"], ["one_partner"]).experiments
    assert {"B_one.partner", "B_one.stranger_menu", "B_one.one_partner.strangers"} <= set(one)
    assert "B_one.population" not in one
    stages = make_stages(file.experiments, lambda name, _: tmp_path / name)
    assert pipeline.check_stages(stages, {}) >= 1


def strangers_smoke(change=lambda study: None):
    study = yaml.safe_load(SMOKE.read_text())
    verco = study["systems"]["constant"]
    study |= {"seeds": [0], "scenarios": {"B": {"map_name": "B", "max_game_steps": 8}}}
    small = {**verco["config"], "messages": "student", "env_config": "${scenario}", "keep_policy_every": 1}
    study["shared"]["stranger"] = {
        "run": "Verco",
        "env": "${env}",
        "stop": verco["stop"],
        "config": {**small, "seed": 9},
    }
    study["shared"]["message_sft"]["config"]["seed"] = 0
    own = {name: small[name] for name in ("num_envs_per_env_runner", "train_batch_size_per_learner", "num_epochs")}
    kinds = {"taught": {"message_checkpoint": "${message_sft}"}, "mute": {"messages": "none"}}
    population = {"population_size": 2, "member_iterations": 1, "member_keep_every": 1, "member_kinds": kinds}
    study["systems"] = {"fcp": {"run": "VercoFCP", "stop": {"training_iteration": 3}, "config": {**own, **population}}}
    reversed_cook = {"policy": "scripted", "speech": "scripted", "word_order": "reversed"}
    strangers = {"young": ["${stranger}/past/initial"], "old": "${stranger}", "scripted": [reversed_cook]}
    study["evaluation"] |= {"strangers": strangers, "stranger_episodes": 1, "communication": True}
    change(study)
    return study


@pytest.mark.slow
def test_a_population_of_talkers_meets_strangers_by_one_command(tmp_path):
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(strangers_smoke()))
    command = ["study", "file", "small.yaml", "--ray-num-cpus", "4"]
    succeeds(*command, cwd=tmp_path, timeout=480)
    folder = tmp_path / "results/small/B.fcp.strangers"
    told = json.loads((folder / "crossplay.json").read_text())
    assert set(told["groups"]) == {"young", "old", "scripted"} and set(told["matrix"]) == {"alice", "bob"}
    assert all(group["mean"] is not None for group in told["groups"].values())
    assert (folder / "crossplay.html").is_file()
    asked = json.loads((folder / "sentences.json").read_text())
    assert {"scripted"} <= {one["group"] for one in asked["situations"]} and (folder / "sentences.html").is_file()
    joined = json.loads((tmp_path / "results/small/report/B_sentences.json").read_text())
    assert {cook["method"] for cook in joined["cooks"]} == {"fcp"}
    shutil.rmtree(folder)
    succeeds(*command, cwd=tmp_path, timeout=480)
    assert json.loads((folder / "crossplay.json").read_text()) == told


@pytest.mark.parametrize(
    ("strangers", "says"),
    [
        ({"a": [{"policy": "random", "nois": 1}]}, "crossplay|strangers|nois"),
        ({"a": ["results/nowhere"]}, "nowhere"),
        ({"a": []}, "at least one"),
    ],
)
def test_strangers_that_cannot_play_are_told_before_anything_runs(strangers, says, tmp_path):
    (tmp_path / "study.yaml").write_text(
        yaml.safe_dump(strangers_smoke(lambda s: s["evaluation"].update(strangers=strangers)))
    )
    file = expand(read_study(tmp_path / "study.yaml"), "study")
    with pytest.raises(UserError, match=says):
        pipeline.check_stages(make_stages(file.experiments, lambda name, _: tmp_path / name), {})


def test_systems_may_be_compared_in_some_scenarios(tmp_path):
    study = copy.deepcopy(yaml.safe_load(SMOKE.read_text()))
    study["scenarios"]["A"] = {"map_name": "A"}
    study["systems"]["symbolic_ppo"]["scenarios"] = ["A"]
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    read = read_study(path)
    names = set(expand(read, "study").experiments)
    assert "A.symbolic_ppo" in names and not any(name.startswith("B.symbolic_ppo") for name in names)
    (tmp_path / "study.json").write_text(read.model_dump_json())
    results = read_results(tmp_path)
    assert set(results.scenarios["A"]) == {"constant", "symbolic_ppo"} and set(results.scenarios["B"]) == {"constant"}
    assert not any(stage.startswith("B.symbolic_ppo") for stage in results.missing)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.update(scenarois={}), "`study.yaml.scenarois` is no known key; .* Did you mean 'scenarios'"),
        (lambda s: s.pop("env"), "`study.yaml.env` is missing"),
        (
            lambda s: s["systems"]["constant"].update(stopp={}),
            "`study.yaml.systems.constant.stopp` is no known key; known are run, .* Did you mean 'stop'",
        ),
        (
            lambda s: s["systems"]["constant"].pop("run"),
            "`study.yaml.systems.constant.run` is missing; .* `run: Verco`",
        ),
        (lambda s: s["systems"]["constant"].pop("stop"), "`study.yaml.systems.constant.stop` is missing"),
        (lambda s: s["systems"]["constant"].update(stop={}), "`study.yaml.systems.constant.stop` is {} .* not empty"),
        (
            lambda s: s["systems"].update(constant="Verco"),
            "constant` is 'Verco' but must be a mapping with keys such as",
        ),
        (lambda s: s["systems"].update({7: {}}), "the key '7' is no text; write it in quotes"),
        (lambda s: s.update(systems=[]), r"`study.yaml.systems` is \[\]"),
        (
            lambda s: s["systems"]["constant"].update(interventions=["silence"]),
            "^In `study.yaml.systems.constant.interventions`: .*'silence'",
        ),
        (
            lambda s: s["systems"]["constant"].update(interventions=["shuffled"]),
            "'shuffled', the earlier name of two controls; use 'other_moments' .* or 'other_fact'",
        ),
        (lambda s: s["systems"]["constant"].update(interventions=["none", "none"]), "'none' is given twice"),
        (
            lambda s: s["systems"]["constant"]["config"].update(env_config={}),
            "constant.config`: `env_config` is given by the study",
        ),
        (lambda s: s["systems"]["constant"]["config"].update(seed=3), "constant.config`: `seed` is given by the study"),
        (
            lambda s: s["systems"]["constant"]["config"].update(lr={"grid_search": [0.1, 0.2]}),
            "constant.config`: `lr` is searched through, but every trial of a system counts as a seed",
        ),
        (
            lambda s: s["systems"]["constant"]["config"].update(env_runners={"x": {"choice": [1, 2]}}),
            "constant.config`: `env_runners.x` is searched through",
        ),
        (
            lambda s: s["systems"]["constant"]["config"].update(lr="${seeds}"),
            "constant.config`: `lr` is searched through",
        ),
        (
            lambda s: s["shared"].update(seeds=s["shared"]["labels"]),
            r"`shared.seeds` cannot be referred to, as `\$\{seeds\}` is given",
        ),
        (lambda s: s.update(baseline="nobody"), "`baseline` is 'nobody'"),
        (
            lambda s: s["systems"]["symbolic_ppo"].update(baseline="constnt"),
            "`systems.symbolic_ppo.baseline` is 'constnt' .* Did you mean 'constant'",
        ),
        (
            lambda s: s["systems"]["symbolic_ppo"].update(baseline="symbolic_ppo"),
            "`systems.symbolic_ppo.baseline` is the system itself",
        ),
        (
            lambda s: (
                s["scenarios"].update(A={}),
                s["systems"].update(third={**s["systems"]["constant"], "scenarios": ["A"]}),
                s["systems"]["symbolic_ppo"].update(baseline="third"),
            ),
            "`systems.third.scenarios` lacks 'B', in which 'symbolic_ppo' is compared with 'third'",
        ),
        (
            lambda s: s.update(shared={"constant": {"run": "MessageSFT"}}),
            "`constant` is among `shared` and among `systems`",
        ),
        (lambda s: s["scenarios"].update({"a.b": {}}), "`scenarios.a.b` cannot name a folder"),
        (lambda s: s["evaluation"].update(episodes=0), "`study.yaml.evaluation.episodes` is 0"),
        (lambda s: s["evaluation"].update(seed=10**30), "`study.yaml.evaluation.seed` is 1000"),
        (lambda s: s["evaluation"].update(modes=["best"]), "modes.0` is 'best'"),
        (lambda s: s["evaluation"].update(stranger_episodes=3), "study.yaml.evaluation`: `stranger_episodes` is 3"),
        (lambda s: s["evaluation"].update(strangers={}), "study.yaml.evaluation`: `strangers` is empty"),
        (lambda s: s["systems"]["constant"].update(scenarios=["b"]), "`systems.constant.scenarios` names 'b'"),
        (
            lambda s: (s["scenarios"].update(A={}), s["systems"]["constant"].update(scenarios=["B"])),
            "`systems.constant.scenarios` lacks 'A', but 'constant' is the baseline",
        ),
        (lambda s: s.update(seeds=[]), r"`study.yaml.seeds` is \[\]"),
        (lambda s: s.update(seeds=["one"]), "`study.yaml.seeds.0` is 'one'"),
        (lambda s: s.update(seeds=[0, -1]), "`study.yaml.seeds.1` is -1"),
        (lambda s: s.update(seeds=[0, 1, 0]), "In `study.yaml.seeds`: 0 is given twice"),
    ],
)
def test_bad_studies(change, says, tmp_path):
    study = copy.deepcopy(yaml.safe_load(SMOKE.read_text()))
    change(study)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    with pytest.raises(UserError, match=says):
        read_study(path)


def test_a_study_is_no_experiment_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where it would train if it were one
    with pytest.raises(UserError, match="run it with `rllib study file"):
        run_experiments(SMOKE)


def test_bad_files(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        read_study(tmp_path / "no.yaml")
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(UserError, match="must hold the keys of a study"):
        read_study(tmp_path / "list.yaml")
    (tmp_path / "study.txt").write_text("")
    with pytest.raises(UserError, match="must end in .yaml, .yml or .json"):
        read_study(tmp_path / "study.txt")


@pytest.mark.timeout(300)
def test_a_study_is_skipped_where_done_and_its_report_says_what_it_lacks(tmp_path):
    study = yaml.safe_load(SMOKE.read_text())
    del study["shared"], study["systems"]["constant"]
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study))
    command = ["study", "file", "small.yaml", "--ray-num-cpus", "4"]
    done = succeeds(*command, cwd=tmp_path)
    assert done.stderr == "", done.stderr + done.stdout
    folder = tmp_path / "results/small"
    report = json.loads((folder / "report/report.json").read_text())
    system = report["scenarios"]["B"]["systems"]["symbolic_ppo"]
    assert "stand_ins" not in report
    assert report["missing"] == [] and system["seeds"] == [0, 1] and len(system["evaluations"]["sampled"]["runs"]) == 2
    assert "data:image/png" in (folder / "report/report.html").read_text()
    assert read_study(folder / "study.json") == read_study(tmp_path / "small.yaml")  # it can be run again

    shutil.rmtree(folder / "B.symbolic_ppo.sampled")
    for weights in (folder / "B.symbolic_ppo").rglob("policy/**/*.safetensors"):
        weights.write_bytes(b"broken")
    broken = rllib(*command, cwd=tmp_path)
    assert broken.returncode == 1 and broken.stdout.count("already there, skipped") == 1, broken.stdout
    assert "B.symbolic_ppo.sampled failed: " in broken.stdout
    assert "The report lacks B.symbolic_ppo.sampled, which failed" in " ".join(broken.stderr.split())
    assert json.loads((folder / "report/report.json").read_text())["missing"] == ["B.symbolic_ppo.sampled"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_from_file_to_report(tmp_path):
    command = ["study", "file", str(SMOKE), "-n", "smoke", "--ray-num-cpus", "6"]
    done = succeeds(*command, cwd=tmp_path, timeout=280)
    assert done.stderr == "", done.stderr + done.stdout
    folder = tmp_path / "results/smoke"
    report = json.loads((folder / "report/report.json").read_text())
    systems = report["scenarios"]["B"]["systems"]
    assert [phrase.split(":")[0] for phrase in report["stand_ins"]] == ["base model embedded", "teacher scripted"]
    assert "Stands in: base model embedded" in (folder / "report/report.md").read_text()
    assert report["missing"] == [] and set(systems) == {"constant", "symbolic_ppo"}
    sampled = systems["constant"]["evaluations"]["sampled"]
    assert len(sampled["runs"]) == 2 and systems["constant"]["seeds"] == [0, 1]
    assert systems["constant"]["messages"][0] == ["hello", 1.0] and systems["symbolic_ppo"]["messages"] == []
    assert set(systems["constant"]["evaluations"]) == {"sampled", "messages_none"}
    for seed in (0, 1):  # each trial took the adapter of its own seed
        (rows,) = (folder / "B.constant").glob(f"trial_*seed={seed}/result.json")
        config = json.loads(rows.read_text().splitlines()[0])["config"]
        (adapter,) = (folder / "B.message_sft").glob(f"trial_*seed={seed}/checkpoint_*")
        assert config["seed"] == seed and Path(config["message_checkpoint"]) == adapter.absolute()
    page = (folder / "report/report.html").read_text()
    assert "data:image/png" in page and "constant message" in page and "http" not in page.replace("http-equiv", "")
    assert "| constant message | sampled |" in (folder / "report/report.md").read_text()

    again = succeeds(*command, cwd=tmp_path)
    assert again.stdout.count("already there, skipped") == 7

    for stage in ("constant.sampled", "symbolic_ppo.sampled"):
        shutil.rmtree(folder / f"B.{stage}")
    for weights in (folder / "B.constant").rglob("policy/**/*.safetensors"):
        weights.write_bytes(b"broken")
    broken = rllib(*command, cwd=tmp_path)
    told = " ".join(broken.stderr.split())
    assert broken.returncode == 1 and "The report lacks B.constant.sampled, which failed" in told, broken.stdout
    assert (
        "B.constant.sampled failed: " in broken.stdout and (folder / "B.symbolic_ppo.sampled/evaluation.json").is_file()
    )
    assert json.loads((folder / "report/report.json").read_text())["missing"] == ["B.constant.sampled"]

    succeeds("report", "results/smoke", "--out", "page", cwd=tmp_path)
    assert (tmp_path / "page/report.html").is_file()


def test_report_of_something_else(tmp_path):
    done = rllib("report", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1 and "holds no study" in done.stderr and done.stderr.count("\n") <= 3
