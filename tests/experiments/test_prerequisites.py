"""What a stage needs is missed before the first stage starts, in one sentence that names it."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from safetensors.torch import load_file, save_file

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.console import out
from rllib_llm_comm.experiments.prerequisites import tell_other_prompts
from rllib_llm_comm.experiments.ray_session import available_cpus, demand
from rllib_llm_comm.experiments.tune_stage import cpus_needed
from rllib_llm_comm.language.base_model import embedded_model_path
from rllib_llm_comm.policies.find_checkpoint import CARD, find_checkpoint, shipped_policy
from rllib_llm_comm.sama.emma.emma import SymbolicPPO
from rllib_llm_comm.verco.sft import MessageSFT, check_rows
from rllib_llm_comm.verco.teachers import label_store
from rllib_llm_comm.verco.verco import Verco
from tests import toys
from tests.experiments import staged
from tests.experiments.staged import refused_file
from tests.refusal import refused

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
ONIONS = "rllib_llm_comm/overcooked_ai-v0"
TALK = toys.register()
CHAT, SCRIPTED = {"name": "chat", "model": "m"}, {"policy": "scripted"}
LABELS = {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": 3}}


WITHOUT_BITSANDBYTES = pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is there")


@pytest.mark.parametrize(
    ("run", "env", "config", "told"),
    [
        ("Verco", None, {}, "`last.env` is missing"),
        ("Verco", "CartPole-v1", {}, "Verco trains several"),
        ("SymbolicPPO", ONIONS, {"env_config": {"observe": ["entities"]}}, "does not show what SymbolicPPO needs"),
        ("collect_labels", ONIONS, {"env_config": {"observe": ["vector"]}}, "`text` and `candidates` are needed"),
        ("collect_labels", "CartPole-v1", {}, "`last.env` is 'CartPole-v1'"),
        ("collect_labels", KITCHEN, {"base_model": "/no/where"}, "In `last.config`: `base_model` is '/no/where'"),
        ("collect_labels", KITCHEN, {"teacher": {**CHAT, "temperature": 9}}, "`last.config.teacher.temperature`"),
        ("collect_demonstrations", TALK, {}, "In `last.config.player`: `policy` is 'scripted'"),
        ("collect_demonstrations", KITCHEN, {"player": {**SCRIPTED, "habit": "one_pot"}}, "`habit` is 'one_pot'"),
        ("TWOSOME", KITCHEN, {"base_model": "/no/where"}, "no such folder"),
        ("TWOSOME", KITCHEN, {"base_model": "{}"}, "has no configuration (config.json)"),
        ("TWOSOME", KITCHEN, {"device": "banana"}, "`device` is 'banana'"),
        ("TWOSOME", KITCHEN, {"lora_target_modules": ["lm_head"]}, "`lora_target_modules` names 'lm_head'"),
        pytest.param("TWOSOME", KITCHEN, {"quantization": "8bit"}, "`quantization`", marks=WITHOUT_BITSANDBYTES),
        ("MessageSFT", None, {"input": "{}"}, "In `last.config`: `input_`"),
        ("Verco", KITCHEN, {"message_checkpoint": "{}"}, "`policy/policy.json`"),
        ("Verco", KITCHEN, {"message_checkpoint": "zoo:verco_sald"}, "In `last.config.message_checkpoint`: "),
        ("Verco", KITCHEN, {"message_checkpoint": "zoo:red_officer"}, "'zoo:red_officer' has no message adapter"),
        ("Verco", KITCHEN, {"messages": "other_fact"}, "`messages` is 'other_fact'"),
        ("Verco", KITCHEN, {"evaluation_config": {"messages": "other_fact"}}, "`messages` is 'other_fact'"),
        ("Verco", KITCHEN, {"num_envs_per_env_runner": 0}, "is 0 but must be at least 1"),
    ],
)
def test_the_last_stage_is_refused_before_the_first_runs(tmp_path, run, env, config, told):
    empty = tmp_path / "empty"
    empty.mkdir()
    config = {key: str(empty) if value == "{}" else value for key, value in config.items()}
    last = {"run": run, "config": config, **({"env": env} if env else {})}
    refused_file(tmp_path, {"labels": LABELS, "last": last}, told)


def test_more_runners_than_cores_are_refused_unless_ray_is_told(tmp_path):
    many = available_cpus() + 1
    specs = {"labels": LABELS, "last": {"run": "Verco", "env": KITCHEN, "config": {"num_env_runners": many}}}
    sentence = refused_file(tmp_path, specs)
    assert f"`last.config.num_env_runners` is {many}" in sentence and "`--ray-num-cpus`" in sentence
    # Told, the check is passed, and the next one speaks.
    specs["last"]["config"]["message_checkpoint"] = str(tmp_path)
    assert "policy.json" in refused_file(tmp_path, specs, ray_num_cpus=many + 1)


def test_a_gpu_that_is_not_there_is_refused_before_the_first_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    specs = {"labels": LABELS, "last": {"run": "Verco", "env": KITCHEN, "config": {"device": "cuda"}}}
    refused_file(tmp_path, specs, "`last.config.device` is 'cuda'")
    specs["last"]["config"]["device"] = {"grid_search": ["cpu", "cuda"]}
    refused_file(tmp_path, specs, "`last.config.device` is 'cuda'")


def test_the_longest_text_of_a_stage_has_to_fit_into_the_model(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel  # seconds of imports

    folder = tmp_path / "gpt2"
    shutil.copytree(embedded_model_path(), folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = GPT2Config(vocab_size=591, n_embd=32, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    for run, own, longest in (
        ("TWOSOME", {"max_prompt_tokens": 240}, 272),
        ("Verco", {"max_prompt_tokens": 240, "max_candidate_tokens": 16, "max_message_words": 8}, 272),
        ("Verco", {"max_prompt_tokens": 240, "max_message_words": 9, "messages": "other_moments"}, 276),
        ("Verco", {"max_prompt_tokens": 240, "max_candidate_tokens": 17, "messages": "none"}, 257),
    ):
        last = {"run": run, "env": KITCHEN, "config": {"base_model": str(folder), **own}}
        sentence = refused_file(tmp_path, {"labels": LABELS, "last": last})
        assert f"positions for 256 tokens, but a text may have {longest}" in sentence, sentence


@pytest.mark.parametrize(
    ("taught", "takes", "words"),
    [
        ({"prompt_format": "chat"}, {"prompt_format": "chat", "prompt_date": "2027-01-02"}, ["'2024-07-26'"]),
        ({}, {"base_model": "embedded_soup"}, ["takes over from `sft`", "'embedded'"]),
    ],
)
def test_adapters_are_handed_on_with_their_base_model_and_its_day(tmp_path, taught, takes, words):
    specs = {
        "labels": LABELS,
        "sft": {"run": "MessageSFT", "config": {"input": "${labels}", **taught}},
        "last": {"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": "${sft}", **takes}},
    }
    setting = list(takes)[-1]
    refused_file(tmp_path, specs, f"`last.config.{setting}` is '{takes[setting]}'", *words)


def cut(path):
    path.write_bytes(path.read_bytes()[:-8])


def diverged(path):
    weights = load_file(path)
    next(iter(weights.values()))[:] = float("nan")
    save_file(weights, path)


@pytest.mark.parametrize(
    ("taken", "damage", "told"),
    [
        ("adapter", cut, "cannot be read"), ("adapter", diverged, "NaN"), ("evaluated", diverged, "NaN"),
        ("played", diverged, "NaN"), ("demonstrated", diverged, "NaN"),
    ],
)  # fmt: skip
def test_damaged_weights_are_missed_before_the_first_stage_runs(tmp_path, taken, damage, told):
    policy = tmp_path / "policy"
    shutil.copytree(shipped_policy("zoo:told_salad"), policy)
    (policy / CARD).unlink()
    last = {
        "adapter": {"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": str(policy)}},
        "evaluated": {"run": "evaluate", "config": {"checkpoint": str(policy)}},
        "played": {"run": "crossplay", "config": {"players": [str(policy)]}},
        "demonstrated": {"run": "collect_demonstrations", "env": KITCHEN, "config": {"player": str(policy)}},
    }[taken]
    staged.check({"labels": LABELS, "last": last}, tmp_path)
    damage(policy / "adapters/message/adapter_model.safetensors")
    refused_file(tmp_path, {"labels": LABELS, "last": last}, "last.config", "adapter_model.safetensors", told)


@pytest.mark.parametrize(
    ("collects", "learns", "wanted"),
    [
        ("collect_labels", "ActionSFT", "collect_demonstrations"),
        ("collect_demonstrations", "MessageSFT", "collect_labels"),
    ],
)
def test_rows_of_the_other_kind_are_missed_before_they_are_collected(tmp_path, collects, learns, wanted):
    specs = {"rows": {"run": collects, "env": KITCHEN}, "last": {"run": learns, "config": {"input_": "${rows}"}}}
    refused_file(tmp_path, specs, "`last.config.input_` is the result of `rows`", f"name a stage of {wanted}")


def test_rows_of_the_other_kind_are_no_damaged_ones(tmp_path):
    rows = tmp_path / "rows"
    label_store.LabelStore(rows, {}, 3)
    parquet.write_table(pa.table({"prompt": ["a"], "message": ["b"]}), rows / "part-00000.parquet")
    with pytest.raises(UserError, match="holds labels of `collect_labels`") as caught:
        check_rows(rows, label_store.DEMONSTRATIONS)
    assert "remove" not in str(caught.value)


def test_damaged_labels_are_named(tmp_path):
    good, bad = tmp_path / "part-00000.parquet", tmp_path / "part-00001.parquet"
    parquet.write_table(pa.table({"prompt": ["a"] * 500, "message": ["b"] * 500}), good)
    check_rows(tmp_path, label_store.LABELS)
    bad.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    with pytest.raises(UserError, match="part-00001.parquet' is damaged"):
        check_rows(tmp_path, label_store.LABELS)
    for table, told in (
        ({"text": ["a"]}, "no column message, prompt"),
        ({"prompt": [1], "message": ["b"]}, "a column prompt of int64"),
        ({"prompt": ["a", "a"], "message": ["b", None]}, "a column message with 1 empty"),
    ):
        parquet.write_table(pa.table(table), bad)
        with pytest.raises(UserError, match=f"part-00001.parquet' has {told}"):
            check_rows(tmp_path, label_store.LABELS)
    bad.unlink()
    parquet.write_table(pa.table({"prompt": pa.array([], pa.string()), "message": pa.array([], pa.string())}), good)
    with pytest.raises(UserError, match="no label"):
        check_rows(tmp_path, label_store.LABELS)


def test_a_damaged_stage_record_is_named(tmp_path):
    record = tmp_path / "f/train/stage.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"stage": "train", "ru')
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 1}}
    with pytest.raises(UserError, match="stage.json' is damaged.*`--no-resume`"):
        staged.run({"train": spec}, tmp_path)
    with pytest.raises(UserError, match="stage.json' is damaged"):
        find_checkpoint(record.parent)
    assert record.read_text() == '{"stage": "train", "ru'


def test_a_storage_path_that_takes_no_files_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with refused("storage_path"):
        staged.run({"train": {"run": "PPO", "env": "CartPole-v1"}}, tmp_path / "file" / "below")


@pytest.mark.parametrize(("prompts", "told"), [("default", False), ("twosome", True)])
def test_a_checkpoint_of_other_prompts_is_told_where_the_user_sees_it(capsys, tmp_path, prompts, told):
    out.file = None
    model = {"base_model": "embedded", "action_checkpoint": "zoo:told_salad", "lora_r": 8, "prompts": prompts}
    spec = {"f": {"run": "TWOSOME", "env": KITCHEN, "config": model}}
    staged.check(spec, tmp_path)
    assert ("other prompts" in capsys.readouterr().out) == told
    tell_other_prompts("zoo:told_salad", VercoConfig().language_model(prompts=prompts))  # as of `restore`
    assert ("the templates action, critic differ" in capsys.readouterr().out) == told


RUNNERS = {"num_env_runners": 1, "num_cpus_per_env_runner": 0.75, "num_learners": 2, "num_cpus_per_learner": 1}
DATA = {"env": None, "input_": "labels", "num_cpus_for_main_process": 1}


@pytest.mark.parametrize(
    ("algorithm", "config", "told"),
    [
        (SymbolicPPO, RUNNERS, "3.75 CPUs .*`num_env_runners` is 1 and `num_cpus_per_env_runner` is 0.75 .*-cpus 4`"),
        (MessageSFT, DATA, "3 CPUs .*`num_cpus_for_main_process` is 1 and reading its data takes 2.*-cpus 3`"),
        (Verco, {"num_gpus_per_learner": 1}, "1 GPUs .*`num_gpus_per_learner` is 1.*-gpus 1`"),
    ],
)
def test_a_trial_that_is_too_big_is_told_with_its_settings(algorithm, config, told):
    asked = demand(algorithm, {"env": KITCHEN, **config})
    with pytest.raises(UserError, match=f"`mine` needs {told}"):
        asked.require("mine", {"CPU": 2})
    asked.require("mine", {"CPU": 5, "GPU": 1})


def test_who_joined_a_cluster_is_told_of_larger_ones():
    """`--ray-num-cpus` is refused beside `--ray-address`."""
    with pytest.raises(UserError, match="join a larger cluster.$"):
        demand(Verco, {"env": KITCHEN, "num_env_runners": 4}).require("mine", {"CPU": 2}, "10.0.0.1:6379")


def test_too_few_cpus_are_told_before_the_first_stage_runs(tmp_path):
    sft = {"run": "MessageSFT", "config": {"input_": "${labels}", "num_cpus_for_main_process": 1}}
    with pytest.raises(UserError, match="`sft` needs 3 CPUs .*`--ray-num-cpus 3`"):
        staged.run({"labels": LABELS, "sft": sft}, tmp_path, ray_num_cpus=2)
    assert not list(tmp_path.rglob("*"))


RESPONSE = {"pool": [{"policy": "${partner}"}], "num_env_runners": 2}


@pytest.mark.parametrize(
    ("config", "options", "needs"),
    [
        (RESPONSE, {"ray_num_cpus": 2}, "needs 3 CPUs but Ray has 2"),
        ({**RESPONSE, "num_gpus_per_learner": 1}, {"ray_num_cpus": 8, "ray_num_gpus": 0}, "needs 1 GPUs but Ray has 0"),
    ],
)
def test_needs_of_a_stage_that_waits_for_another_are_told_before_that_runs(config, options, needs, tmp_path):
    """RLlib cannot validate such a stage, as the checkpoint is not there yet."""
    partner = {"run": "SelfPlayPPO", "env": ONIONS, "stop": {"training_iteration": 1}}
    stages = {"partner": partner, "response": {**partner, "run": "BestResponsePPO", "config": config}}
    with pytest.raises(UserError, match=f"A trial of `response` {needs}"):
        staged.run(stages, tmp_path, **options)
    assert not list(tmp_path.rglob("*"))


def test_needs_that_are_drawn_are_not_told_beforehand(tmp_path):
    def needed(runners):
        specs = {"sweep": {"run": "SymbolicPPO", "env": KITCHEN, "config": {"num_env_runners": runners}}}
        (stage,) = staged.stages_of(specs, tmp_path)
        return cpus_needed(stage, {"CPU": 2})

    assert 5 <= needed({"randint": [4, 6]}) <= 7
    with pytest.raises(UserError, match="needs 5 CPUs but Ray has 2"):
        needed({"grid_search": [4, 6]})
