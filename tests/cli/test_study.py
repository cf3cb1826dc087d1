"""`rllib study` and `rllib report`: what a study file stands for, and a tiny one from start to report."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.study_results import read_results
from rllib_llm_comm.experiments import pipeline
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.experiments.pipeline import with_model
from rllib_llm_comm.experiments.run_experiments import run_experiments
from rllib_llm_comm.experiments.runs import run_report
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.experiments.study_file import expand, part_of, read_study
from tests.cli.command import rllib, succeeds
from tests.refusal import refused

SMOKE = Path(__file__).parents[1] / "data" / "study_smoke.yaml"


def check(file, folder):
    """The logical CPUs that the stages of a file want of Ray, once they are checked."""
    return pipeline.check_stages(make_stages(file.experiments, lambda name, _: folder / name), {})


def check_one(study, file, scenario, folder):
    """Checks the stages of a scenario, whose settings are those of the others, and the games of all."""
    for settings in study.scenarios.values():
        make_env(study.env, **settings).close()
    assert check(part_of(study, file, [scenario]), folder) >= 1


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
    check_one(study, file, "A_all_three", tmp_path)


def test_a_part_of_a_study_has_what_it_uses_and_nothing_else():
    study = read_study(examples()["study"])
    whole = expand(study, "study")
    talk = list(part_of(study, whole, ["B_all_three"], ["verco"]).experiments)
    assert talk[:3] == ["B_all_three.labels", "B_all_three.message_sft", "B_all_three.verco"]
    assert all(name.startswith("B_all_three.verco.") for name in talk[3:]) and len(talk) > 3
    numbers = part_of(study, whole, systems=["symbolic_ppo"]).experiments
    assert len(numbers) == len(study.scenarios) * 3 and not any("labels" in name for name in numbers)
    assert part_of(study, whole) == whole
    with pytest.raises(UserError, match="`--scenario` is 'B_all' .* 'B_all_three'"):
        part_of(study, whole, ["B_all"])
    for unknown in ("werco", "verco_?"):
        with refused("--system"):
            part_of(study, whole, systems=[unknown])


def test_shared_stages_run_where_a_system_uses_them():
    study = read_study(examples()["study_planner_told"])
    told = {name: set() for name in study.scenarios}
    for stage in expand(study, "study").experiments:
        scenario, _, rest = stage.partition(".")
        told[scenario] |= {rest} & set(study.shared)
    assert told["B_apart"] == told["B_apart_40"] == set(study.shared)
    assert told["B_central"] == told["B_central_40"] == {"references", "demonstrations", "clone"}
    part = part_of(study, expand(study, "study"), ["B_central"], ["cloned_ppo"]).experiments
    used = ("references", "demonstrations", "clone", "cloned_ppo")
    assert [stage for stage in part if stage.count(".") == 1] == [f"B_central.{name}" for name in used]


def test_a_part_of_a_study_may_be_named_by_a_pattern():
    study = read_study(examples()["study_salads"])
    file = with_model(expand(study, "study"))
    part = part_of(study, file, ["B_*"], ["*_embedded"]).experiments
    trained = {name for name, stage in part.items() if stage.run in ("Verco", "TWOSOME")}
    names = {f"{system}_embedded" for system in ("verco", "none", "twosome")}
    assert trained == {f"{scenario}.{name}" for scenario in ("B_tomato", "B_lettuce_tomato") for name in names}
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
    check_one(study, file, "B_one", tmp_path)


def strangers_smoke():
    study = yaml.safe_load(SMOKE.read_text())
    verco = study["systems"]["constant"]
    study |= {"seeds": [0], "scenarios": {"B": {"map_name": "B", "max_game_steps": 8}}}
    small = {**verco["config"], "messages": "student", "env_config": "${scenario}", "keep_policy_every": 1}
    config = {**small, "seed": 9}
    study["shared"]["stranger"] = {"run": "Verco", "env": "${env}", "stop": verco["stop"], "config": config}
    study["shared"]["message_sft"]["config"]["seed"] = 0
    own = {name: small[name] for name in ("num_envs_per_env_runner", "train_batch_size_per_learner", "num_epochs")}
    kinds = {"taught": {"message_checkpoint": "${message_sft}"}, "mute": {"messages": "none"}}
    population = {"population_size": 2, "member_iterations": 1, "member_keep_every": 1, "member_kinds": kinds}
    study["systems"] = {"fcp": {"run": "VercoFCP", "stop": {"training_iteration": 3}, "config": {**own, **population}}}
    reversed_cook = {"policy": "scripted", "speech": "scripted", "word_order": "reversed"}
    strangers = {"young": ["${stranger}/past/initial"], "old": "${stranger}", "scripted": [reversed_cook]}
    study["evaluation"] |= {"strangers": strangers, "stranger_episodes": 1, "communication": True}
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


@pytest.mark.parametrize(("strangers", "says"), [(["results/nowhere"], "nowhere"), ([], "at least one")])
def test_strangers_that_cannot_play_are_told_before_anything_runs(strangers, says, tmp_path):
    study = strangers_smoke()
    study["evaluation"]["strangers"] = {"a": strangers}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    with pytest.raises(UserError, match=says):
        check(expand(read_study(tmp_path / "study.yaml"), "study"), tmp_path)


def test_systems_may_be_compared_in_some_scenarios(tmp_path):
    study = yaml.safe_load(SMOKE.read_text())
    study["scenarios"]["A"] = {"map_name": "A"}
    study["systems"]["symbolic_ppo"] |= {"scenarios": ["A"], "checkpoint_config": {"num_to_keep": None}}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    read = read_study(path)
    names = expand(read, "study").experiments
    kept = names["A.symbolic_ppo"].checkpoint_config
    assert kept.checkpoint_frequency == 10 and kept.num_to_keep is None
    assert "A.symbolic_ppo" in names and not any(name.startswith("B.symbolic_ppo") for name in names)
    (tmp_path / "study.json").write_text(read.model_dump_json())
    results = read_results(tmp_path)
    assert set(results.scenarios["A"]) == {"constant", "symbolic_ppo"} and set(results.scenarios["B"]) == {"constant"}
    assert not any(stage.startswith("B.symbolic_ppo") for stage in results.missing)


GONE = object()
THIRD = {"run": "Verco", "stop": {"training_iteration": 1}, "scenarios": ["A"]}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"scenarois": {}}, ("study.yaml.scenarois", "unknown", "'scenarios'")),
        ({"baseline": "nobody"}, ("baseline", "choice")),
        ({"seeds": [0, 1, 0]}, ("study.yaml.seeds",)),
        ({"scenarios/a.b": {}}, ("scenarios.a.b",)),
        ({"shared/seeds": {"run": "MessageSFT"}}, ("shared.seeds",)),
        ({"shared/constant": {"run": "MessageSFT"}}, ("constant",)),
        ({"systems/constant/run": GONE}, ("study.yaml.systems.constant.run", "missing")),
        ({"systems/constant/label": "a | b"}, ("study.yaml.systems.constant.label",)),
        ({"systems/constant/interventions": ["silence"]}, ("study.yaml.systems.constant.interventions.0", "choice")),
        ({"systems/constant/interventions": ["none", "none"]}, ("study.yaml.systems.constant.interventions",)),
        (
            {"systems/constant/checkpoint_config": {"checkpoint_at_end": False}},
            ("study.yaml.systems.constant.checkpoint_config.checkpoint_at_end",),
        ),
        ({"systems/constant/config/env_config": {}}, ("study.yaml.systems.constant.config.env_config",)),
        ({"systems/constant/config/x": {"y": {"choice": [1, 2]}}}, ("study.yaml.systems.constant.config.x.y",)),
        ({"systems/constant/config/lr": "${seeds}"}, ("study.yaml.systems.constant.config.lr",)),
        ({"systems/constant/scenarios": ["b"]}, ("systems.constant.scenarios", "invalid", "names 'b'")),
        ({"scenarios/A": {}, "systems/constant/scenarios": ["B"]},
         ("systems.constant.scenarios", "invalid", "lacks 'A'")),
        ({"systems/symbolic_ppo/baseline": "constnt"}, ("systems.symbolic_ppo.baseline", "choice")),
        ({"systems/symbolic_ppo/baseline": "symbolic_ppo"}, ("systems.symbolic_ppo.baseline",)),
        ({"scenarios/A": {}, "systems/third": THIRD, "systems/symbolic_ppo/baseline": "third"},
         ("systems.third.scenarios", "invalid", "`systems.third.scenarios` lacks 'B'")),
        ({"shared/labels/config/env_config": "${scenaro}"},
         ("shared.labels.config.env_config", "unknown", "mean 'scenario'")),
        ({"shared/message_sft/config/seed": "${seds}"},
         ("shared.message_sft.config.seed", "unknown", "mean 'seeds'")),
        ({"systems/constant/config/message_checkpoint": "${mesage_sft}/x"},
         ("systems.constant.config.message_checkpoint", "unknown", "mean 'message_sft'")),
        ({"evaluation/strangers": {"a": ["${lables}"]}}, ("evaluation.strangers.a", "unknown", "mean 'labels'")),
        ({"evaluation/stranger_episodes": 3}, ("study.yaml.evaluation.stranger_episodes",)),
        ({"evaluation/strangers": {}}, ("study.yaml.evaluation.strangers",)),
    ],
)  # fmt: skip
def test_bad_studies(changes, wrong, tmp_path):
    study = yaml.safe_load(SMOKE.read_text())
    for place, value in changes.items():
        *outer, last = place.split("/")
        inner = functools.reduce(dict.__getitem__, outer, study)
        inner[last] = value
        if value is GONE:
            del inner[last]
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    with refused(*wrong):
        read_study(path)


def test_a_study_is_no_experiment_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where it would train if it were one
    with pytest.raises(UserError, match="`rllib study file"):
        run_experiments(SMOKE)


def test_an_experiment_file_is_no_study():
    with refused("", match="`rllib train file"):
        read_study(examples()["verco"])


@pytest.mark.parametrize(("name", "says"), [("no.yaml", "no file"), ("list.yaml", "keys"), ("x.txt", "must end in")])
def test_bad_files(name, says, tmp_path):
    (tmp_path / "list.yaml").write_text("[1]")
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(UserError, match=says):
        read_study(tmp_path / name)


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
    assert "constant message" in page and "http" not in page.replace("http-equiv", "")
    assert "| constant message | sampled |" in (folder / "report/report.md").read_text()
    succeeds("report", "results/smoke", "--out", "page", cwd=tmp_path)
    assert (tmp_path / "page/report.html").is_file()


def test_report_of_something_else(tmp_path):
    with pytest.raises(UserError, match="holds no study"):
        run_report([tmp_path])


TINY_NUMBERS = {
    "target_labels": 40, "target_demonstrations": 40, "num_envs": 2, "max_game_steps": 12, "training_iteration": 1,
    "num_envs_per_env_runner": 2, "train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1,
    "critic_warmup": 32, "decisions": 64, "episodes": 4, "anneal": 1,
}  # fmt: skip
LISTENING = Path(__file__).parents[2] / "tuned_examples/study_listening.yaml"
HEARD = ("none", "other_fact", "swapped")


def small(value: Any) -> Any:
    """Settings with small numbers, wherever they stand."""
    if isinstance(value, list):
        return [small(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: TINY_NUMBERS[key] if key in TINY_NUMBERS else small(one) for key, one in value.items()}


@pytest.mark.timeout(400)
def test_from_labels_and_demonstrations_to_a_report_of_who_listens_and_of_what_it_lacks(tmp_path):
    study = small(yaml.safe_load(LISTENING.read_text()))
    study |= {"seeds": [3], "model": {"base_model": "embedded"}, "baseline": "none"}
    study["scenarios"] = {"B_one": study["scenarios"]["B_one"]}
    study["systems"] = {name: study["systems"][name] for name in ("verco", "none")}
    study["shared"] = {name: stage for name, stage in study["shared"].items() if not name.endswith("_embedded")}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    command = ["study", "file", "small.yaml", "--ray-num-cpus", "4"]
    done = succeeds(*command, cwd=tmp_path, timeout=280)
    assert done.stderr == "" and "actions cloned from the scripted player" in " ".join(done.stdout.split())

    folder = tmp_path / "results/small"
    report = json.loads((folder / "report/report.json").read_text())
    assert report["missing"] == []
    assert any(one.startswith("actions cloned from the scripted player") for one in report["stand_ins"])
    page = (folder / "report/report.md").read_text()
    assert "actions cloned from the scripted player" in page and "Stands in: base model embedded" in page
    verco = report["scenarios"]["B_one"]["systems"]["verco"]
    assert set(verco["evaluations"]) == {"sampled", *(f"messages_{mode}" for mode in HEARD)}
    for name, trained in (("verco", "student"), ("none", "none")):
        (rows,) = (folder / f"B_one.{name}").glob("trial_*/result.json")
        told = [json.loads(line) for line in rows.read_text().splitlines()]
        assert len(told) == 2 and told[-1]["decisions"] >= 64  # whole rows, of both cooks
        assert {"seconds", "decisions", "tokens"} <= set(report["scenarios"]["B_one"]["systems"][name]["took"])
        policy = load_policy(folder / f"B_one.{name}")
        assert policy.manifest.provenance["cloned_from"] == ["scripted"]
        assert policy.manifest.model_config["base_model"] == "embedded" and policy.communication.messages == trained
    heard = load_policy(folder / "B_one.verco").manifest.provenance
    assert heard["taught_by"] == ["scripted"] and "B_one.message_sft" in heard["message_checkpoint"]
    assert "B_one.action_sft" in heard["action_checkpoint"]

    assert "data:image/png" in (folder / "report/report.html").read_text()
    assert read_study(folder / "study.json") == read_study(tmp_path / "small.yaml")  # it can be run again
    stages = len(list(folder.glob("*/stage.json")))
    shutil.rmtree(folder / "B_one.none.sampled")
    for weights in (folder / "B_one.none").rglob("policy/**/*.safetensors"):
        weights.write_bytes(b"broken")
    broken = rllib(*command, cwd=tmp_path)
    assert broken.returncode == 1 and broken.stdout.count("already there, skipped") == stages - 1, broken.stdout
    assert "B_one.none.sampled failed: " in broken.stdout
    assert "The report lacks B_one.none.sampled, which failed" in " ".join(broken.stderr.split())
    assert json.loads((folder / "report/report.json").read_text())["missing"] == ["B_one.none.sampled"]
