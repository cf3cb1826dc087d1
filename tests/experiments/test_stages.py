"""Stages feed each other, are skipped when done, and run again when a setting changes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.pipeline import _make_room
from rllib_llm_comm.experiments.run_experiments import apply_settings
from rllib_llm_comm.experiments.stage_links import check_rows
from rllib_llm_comm.experiments.stages import StageResult, resolve
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from tests.experiments.staged import check, refused_file, run, stages_of
from tests.refusal import refused

KITCHEN = "rllib_llm_comm/overcooked_text-v0"


def three(lr=0.1, labels=10):
    return {
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": labels}},
        "sft": {"run": "MessageSFT", "config": {"input": "${labels}", "lr": lr}},
        "verco": {"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": "${sft}"}},
    }


def test_fingerprints_follow_references(tmp_path):
    before, same, changed = (stages_of(three(lr), tmp_path) for lr in (0.1, 0.1, 0.2))
    assert [stage.fingerprint for stage in before] == [stage.fingerprint for stage in same]
    assert [a.fingerprint == b.fingerprint for a, b in zip(before, changed, strict=True)] == [True, False, False]
    assert before[1].uses == ("labels",)


def test_words_of_prompts_change_the_fingerprint_and_their_place_does_not(tmp_path):
    found = []
    for place, words in (("a", "now i"), ("b", "now i"), ("b", "then i")):
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        (folder / "action.txt").write_text("{text}{subgoal}{heard} " + words)
        specs = {"one": {"run": "TWOSOME", "env": "e", "config": {"prompts": str(folder)}}}
        found.append(stages_of(specs, tmp_path)[0].fingerprint)
    assert found[0] == found[1] != found[2]


def test_keeping_results_differently_changes_no_fingerprint(tmp_path):
    specs = three()
    specs["sft"]["checkpoint_config"] = {"checkpoint_frequency": 7}
    specs["sft"]["storage_path"] = "elsewhere"
    assert stages_of(specs, tmp_path)[1].fingerprint == stages_of(three(), tmp_path)[1].fingerprint


def test_a_sweep_takes_results_of_its_own_seeds():
    outputs = {"sft": ["a", "b"], "labels": ["data"]}
    config = {"message_checkpoint": "${sft}", "input_": "${labels}"}
    resolved = resolve(config, outputs, same_seeds=["sft"])
    assert resolved == {"message_checkpoint": {"by_seed": ["a", "b"]}, "input_": "data"}
    with refused("${sft}"):
        resolve(config, outputs)
    assert resolve({"a": ["${labels}/b", 3]}, outputs) == {"a": ["data/b", 3]}
    assert resolve("${sft}", outputs, many=True) == ["a", "b"]


def test_a_reference_to_a_sweep_over_other_seeds_is_told_before_anything_runs(tmp_path):
    specs = three()
    specs["sft"]["config"]["seed"] = {"grid_search": [0, 1]}
    for seeds, fits in (([0, 1], True), ([1, 0], False), ([0], False)):
        specs["verco"]["config"]["seed"] = {"grid_search": seeds}
        with contextlib.nullcontext() if fits else refused("${sft}"):
            check(specs, tmp_path)


@pytest.mark.parametrize(
    ("references", "code", "told"),
    [
        ({"a": "${c}", "b": ""}, "unknown", r"`\$\{c\}`"),
        ({"a": "${labels}/x ${label}", "labels": ""}, "unknown", "mean 'labels'"),
        ({"a": "${b}", "b": ""}, "invalid", "comes later"),
        ({"a": "${b}", "b": "${a}"}, "invalid", "`a` uses `b` uses `a`"),
        ({"a": "${a}", "b": ""}, "invalid", "`a` uses `a`"),
    ],
)
def test_wrong_references(tmp_path, references, code, told):
    specs = {name: {"run": "PPO", "config": {"x": [{"y": text}]}} for name, text in references.items()}
    with refused("a.config.x.y", code, told):
        stages_of(specs, tmp_path)


def test_a_stage_is_finished_only_with_its_output_and_settings(tmp_path):
    (stage,) = stages_of({"a": {"run": "PPO"}}, tmp_path)
    (other,) = stages_of({"a": {"run": "PPO", "num_samples": 2}}, tmp_path)
    assert stage.finished() is None
    stage.write()
    assert stage.finished() is None
    output = tmp_path / "a" / "checkpoint_000000"
    output.mkdir()
    stage.write(StageResult([output], summary={"return": 1.0}), 2.0)
    assert stage.finished().outputs == ["checkpoint_000000"]
    assert other.finished() is None
    assert find_checkpoint(tmp_path / "a") == find_checkpoint(tmp_path) == output
    output.rmdir()
    assert stage.finished() is None


def test_find_checkpoint_says_what_is_wrong(tmp_path):
    (tmp_path / "verco").mkdir()
    with pytest.raises(UserError, match="mean 'verco'"):
        find_checkpoint(tmp_path / "verko")
    (stage,) = stages_of({"verco": {"run": "PPO"}}, tmp_path)
    stage.write()
    with pytest.raises(UserError, match="no finished checkpoint"):
        find_checkpoint(tmp_path / "verco")


def test_options_stand_above_the_file():
    page = {"page": {"run": "sama_report", "config": {"of": ["${verco}"]}}}  # draws nothing
    file = ExperimentFile("f", parse_experiments(three() | page, "f"))
    options = TrainSettings(stop={"training_iteration": 2}, seed=5, checkpoint_freq=9)
    with pytest.raises(UserError, match="--stage"):
        apply_settings(file, options, None)
    with pytest.raises(UserError, match="mean 'verco'"):
        apply_settings(file, options, "verko")
    changed = apply_settings(file, options, "verco").experiments
    assert changed["verco"].stop == {"training_iteration": 2} and changed["sft"].stop == {}
    assert [e.config.get("seed") for e in changed.values()] == [5, 5, 5, None]
    assert changed["sft"].checkpoint_config.checkpoint_frequency == 9


@pytest.mark.parametrize(("messages", "words"), [("student", True), ("none", False)])
def test_figures_that_nobody_counted_are_not_told(tmp_path, capsys, messages, words):
    config = {"checkpoint": "zoo:door", "episodes": 1, "messages": messages}
    run({"evaluation": {"run": "evaluate", "config": config}}, tmp_path)
    told = capsys.readouterr().out.partition("Everything lies here")[2]
    assert "length mean" in told and "collisions" not in told and ("vocabulary" in told) is words


def collect(folder, labels, capsys, config=None, **options):
    small = {"target_labels": labels, "policy": "random", "num_envs": 2, "env_config": {"max_game_steps": 20}}
    run({"labels": {"run": "collect_labels", "env": KITCHEN, "config": {**small, **(config or {})}}}, folder, **options)
    return capsys.readouterr().out


def test_labels_are_collected_skipped_and_collected_anew(tmp_path, capsys):
    folder = tmp_path / "f" / "labels"
    first = collect(tmp_path, 5, capsys)
    assert "labels of" in first and "Everything lies here" in first
    assert list((folder / "labels").glob("*.parquet"))
    assert "already there, skipped" in collect(tmp_path, 5, capsys)
    assert "All stages are done" in collect(tmp_path, 5, capsys, dry_run=True)
    assert "moved to" in collect(tmp_path, 6, capsys)
    assert json.loads((folder / "stage.json").read_text())["settings"]["config"]["target_labels"] == 6
    assert (tmp_path / "f" / "labels.old-1" / "stage.json").exists()
    assert "moved to" in collect(tmp_path, 6, capsys, resume=False)


def test_results_that_differ_in_stop_alone_say_how_to_go_on_from_them(tmp_path, capsys):
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 2}, "config": {"lr": 0.1}}
    (before,) = stages_of({"ppo": spec}, tmp_path)
    more, other = {**spec, "stop": {"training_iteration": 4}}, {**spec, "config": {"lr": 0.2}}
    for changed, told in ((more, True), (other, False), ({**other, "stop": more["stop"]}, False)):
        checkpoint = before.folder / "trial_0" / "checkpoint_000000"
        checkpoint.mkdir(parents=True)
        before.write(StageResult([checkpoint]))
        (stage,) = stages_of({"ppo": changed}, tmp_path)
        _make_room(stage, resume=True)
        said = " ".join(capsys.readouterr().out.split())
        assert "moved to" in said and ("Only `stop` differs" in said) == told
        assert not told or "ppo.old-1/trial_0/checkpoint_000000`" in said


def test_an_interrupted_stage_is_continued_in_its_folder_and_what_it_left_half_written_goes(tmp_path, capsys):
    collect(tmp_path, 5, capsys)
    marker = tmp_path / "f" / "labels" / "stage.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "status": "running", "outputs": []}))
    half = marker.with_name("labels") / "_chat_cache/answers/0a.json.1b.tmp"
    half.parent.mkdir(parents=True)
    half.write_text("{")
    assert "moved" not in collect(tmp_path, 5, capsys)
    assert json.loads(marker.read_text())["status"] == "finished" and not half.exists()


def test_a_collection_that_falls_short_is_unfinished_and_goes_on_with_more_decisions(tmp_path, capsys):
    folder = tmp_path / "f" / "labels"
    few = {"max_decisions": 10, "num_envs": 1}
    for _ in range(2):
        with pytest.raises(UserError, match="`labels` found only .*`config.max_decisions`"):
            collect(tmp_path, 60, capsys, few)
        assert json.loads((folder / "stage.json").read_text())["status"] == "running"
    first = (folder / "labels" / "part-00000.parquet").read_bytes()
    assert "moved to" not in collect(tmp_path, 60, capsys, {**few, "max_decisions": 10_000})
    assert (folder / "labels" / "part-00000.parquet").read_bytes() == first
    assert json.loads((folder / "stage.json").read_text())["summary"]["labels"] >= 60
    assert "already there, skipped" in collect(tmp_path, 60, capsys, few)


def test_a_collection_ends_when_the_game_shows_nothing_new_and_says_so(tmp_path, capsys):
    small = {"env_config": {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 1}, "max_stale_decisions": 40}
    told = " ".join(collect(tmp_path, 4000, capsys, small).split())
    assert "`labels` ends before its 4000 labels: 40 decisions in a row brought nothing new" in told
    record = json.loads((tmp_path / "f" / "labels" / "stage.json").read_text())
    assert record["status"] == "finished" and record["summary"]["exhausted"] and not record["summary"]["complete"]
    assert 0 < record["summary"]["labels"] < 4000 and record["summary"]["decisions"] < 400
    assert "already there, skipped" in collect(tmp_path, 4000, capsys, small)


def test_a_foreign_folder_is_left_alone(tmp_path, capsys):
    foreign = tmp_path / "f" / "labels" / "precious.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("x")
    with pytest.raises(UserError, match="not written by this command"):
        collect(tmp_path, 5, capsys)
    assert foreign.read_text() == "x"


def test_a_value_of_none_is_one_that_is_not_given():
    kind, none = STAGE_KINDS["collect_labels"], {"teacher": None, "base_model": None, "max_decisions": None}
    assert kind.config_identity(none) == kind.config_identity({}) and kind.loads(none) == kind.loads({})


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"target_label": 5}, "`labels.config.target_label`"),
        ({"teacher": "scriptet"}, "In `labels.config`: `teacher`"),
        ({"prompts": "nowhere"}, "`labels.config.prompts` is 'nowhere'"),
        ({"quantization": "5bit"}, "`labels.config.quantization` is '5bit'"),
        ({"target_labels": {"grid_search": [1, 2]}}, "`labels.config.target_labels` holds a search"),
        ({"env_config": {"layout": "ful"}}, "`layout` is 'ful'"),
        ({"random_share": 1.5}, "`labels.config.random_share` is 1.5"),
    ],
)
def test_wrong_settings_of_the_collection(tmp_path, config, told):
    refused_file(tmp_path, {"labels": {"run": "collect_labels", "env": KITCHEN, "config": config}}, told)


SFT = {"checkpoint": "${sft}"}


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({"run": "evaluate"}, "`last.config.checkpoint` is missing"),
        ({"run": "evaluate", "config": {**SFT, "trust": True}}, "`last.config.trust` is true"),
        ({"run": "evaluate", "config": {**SFT, "planner": "scripted", "recover": "replay"}}, "`recover` is 'replay'"),
        ({"run": "evaluate", "config": {**SFT, "reference": "gone", "communication": True}}, "`last.config.reference`"),
        ({"run": "evaluate", "config": {"checkpoint": "tests/data"}}, "has no `policy/"),
        ({"run": "replay", "config": {"checkpoint": "nowhere"}}, "'nowhere'"),
        ({"run": "replay", "config": {"checkpoint": ["${sft}", "zoo:told_sald"]}}, "`last.config.checkpoint`"),
        ({"run": "replay", "config": {**SFT, "communication": True}}, "`last.config.communication` is no known key"),
        ({"run": "replay", "config": SFT, "num_samples": 2}, "`last.num_samples`"),
        ({"run": "PPO", "env": KITCHEN, "scheduler": "fifoo"}, "`last.scheduler`"),
        ({"run": "PPO", "env": KITCHEN, "resources_per_trial": {"cpus": 1}}, "resources_per_trial.cpus"),
        ({"run": "PPO", "env": KITCHEN, "restore": "nowhere"}, "`last.restore`"),
    ],
)
def test_the_last_stage_is_checked_before_the_first_runs(tmp_path, last, told):
    labels = tmp_path / "labels.parquet"
    parquet.write_table(pa.table({"prompt": ["what you see"], "message": ["what to say"]}), labels)
    refused_file(tmp_path, {"sft": {"run": "MessageSFT", "config": {"input": str(labels)}}, "last": last}, told)


@pytest.mark.parametrize(
    ("setting", "source"),
    [("action_checkpoint", "rows"), ("action_checkpoint", "said"), ("message_checkpoint", "clone")],
)
def test_an_adapter_comes_from_a_stage_that_trains_it(tmp_path, setting, source):
    specs = {
        "rows": {"run": "collect_demonstrations", "env": KITCHEN},
        "labels": {"run": "collect_labels", "env": KITCHEN},
        "clone": {"run": "ActionSFT", "config": {"input_": "${rows}"}},
        "said": {"run": "MessageSFT", "config": {"input_": "${labels}"}},
    }
    fits = {"message_checkpoint": "${said}", "action_checkpoint": "${clone}"}

    def take(**taken):
        verco = {"run": "Verco", "env": KITCHEN, "config": {**fits, **taken}}
        check({**specs, "verco": verco}, tmp_path)

    take()
    with pytest.raises(UserError, match=f"`verco.config.{setting}` is the result of `{source}`"):
        take(**{setting: f"${{{source}}}"})


def test_labels_for_an_algorithm_without_messages_are_no_matter_of_words():
    labels = {"run": "collect_labels", "env": KITCHEN, "config": {"max_message_words": 12}}
    stages = stages_of(
        {"labels": labels, "bc": {"run": "BC", "env": KITCHEN, "config": {"input_": "${labels}"}}}, Path()
    )
    check_rows(stages)


@pytest.mark.parametrize("input_", ["input", "input_"])
def test_messages_are_not_cut_shorter_than_they_were_taught(tmp_path, input_):
    specs = {
        "labels": {"run": "collect_labels", "env": KITCHEN, "config": {"max_message_words": 12}},
        "said": {"run": "MessageSFT", "config": {input_: "${labels}"}},
        "verco": {"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": "${said}"}},
    }
    with pytest.raises(UserError, match="`said.config.max_message_words` is not set, .* cut after 10"):
        check(specs, tmp_path)
    said, verco = specs["said"]["config"], specs["verco"]["config"]
    said["max_message_words"] = 11
    for written in ("student", "other_moments"):
        specs["verco"]["config"] = {**verco, "messages": written}
        with pytest.raises(UserError, match="`verco.config.max_message_words` is 10, .* up to 11 words"):
            check(specs, tmp_path)
    for fits in ({"max_message_words": 11}, {"messages": "none"}):
        specs["verco"]["config"] = {**verco, **fits}
        check(specs, tmp_path)
    said["max_message_words"], specs["verco"]["config"] = 8, {**verco, "max_message_words": 8}
    check(specs, tmp_path)


@pytest.mark.parametrize(
    ("setting", "value"), [("lora_r", 4), ("lora_alpha", 8), ("lora_layers", 1), ("lora_target_modules", ["q_proj"])]
)
def test_adapters_of_another_shape_are_told_before_anything_runs(tmp_path, setting, value):
    specs = {
        "rows": {"run": "collect_demonstrations", "env": KITCHEN},
        "clone": {"run": "ActionSFT", "config": {"input_": "${rows}", setting: value}},
        "verco": {"run": "Verco", "env": KITCHEN, "config": {"messages": "none", "action_checkpoint": "${clone}"}},
    }
    with pytest.raises(UserError, match=rf"`verco.config.{setting}` is .* adapter that it takes over from `clone`"):
        check(specs, tmp_path)
    specs["verco"]["config"][setting] = value
    check(specs, tmp_path)


def test_a_setting_that_is_not_allowed_is_told_before_it_is_compared(tmp_path):
    specs = {
        "rows": {"run": "collect_demonstrations", "env": KITCHEN},
        "clone": {"run": "ActionSFT", "config": {"input_": "${rows}"}},
        "verco": {"run": "Verco", "env": KITCHEN, "config": {"lora_r": "yes", "action_checkpoint": "${clone}"}},
    }
    with refused("verco.config.lora_r", "type"):
        check(specs, tmp_path)
