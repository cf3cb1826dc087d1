"""What a stage needs is missed before the first stage starts, in one sentence that names it."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.console import out
from rllib_llm_comm.experiments.experiment_file import parse_experiments
from rllib_llm_comm.experiments.prerequisites import tell_other_prompts
from rllib_llm_comm.experiments.ray_session import available_cpus
from rllib_llm_comm.language.base_model import embedded_model_path
from rllib_llm_comm.policies.find_checkpoint import CARD, shipped_policy
from rllib_llm_comm.verco.sft import check_rows
from rllib_llm_comm.verco.teachers import label_store
from tests import toys
from tests.cli.command import rllib
from tests.experiments import staged
from tests.experiments.staged import refused

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
ONIONS = "rllib_llm_comm/overcooked_ai-v0"
TALK = toys.register()
CHAT, SCRIPTED = {"name": "chat", "model": "m"}, {"policy": "scripted"}
LABELS = {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": 3}}


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"run": "Verco"}, ["`last.env` is missing"]),
        ({"run": "PPO"}, ["`last.env` is missing"]),
        ({"run": "Verco", "env": "CartPole-v1"}, ["'CartPole-v1'", "one agent", "Verco trains several"]),
        ({"run": "SymbolicPPO", "env": "CartPole-v1"}, ["one agent", "SymbolicPPO trains several"]),
        (
            {"run": "SymbolicPPO", "env": ONIONS, "config": {"env_config": {"observe": ["entities"]}}},
            ["`last.env`", "does not show what SymbolicPPO needs", "`entities`", "a Box `vector`"],
        ),
        (
            {"run": "collect_labels", "env": ONIONS, "config": {"env_config": {"observe": ["vector"]}}},
            ["`last.env`", "`text` and `candidates` are needed"],
        ),
        ({"run": "TWOSOME", "env": KITCHEN, "config": {"base_model": "/no/where"}}, ["'/no/where'", "no such folder"]),
        ({"run": "TWOSOME", "env": KITCHEN, "config": {"base_model": "./nope"}}, ["'./nope'", "no such folder"]),
        ({"run": "TWOSOME", "env": KITCHEN, "config": {"base_model": "{}"}}, ["has no configuration (config.json)"]),
        ({"run": "TWOSOME", "env": KITCHEN, "config": {"device": "banana"}}, ["`device` is 'banana'", "'cuda:0'"]),
        pytest.param(
            {"run": "TWOSOME", "env": KITCHEN, "config": {"quantization": "8bit"}},
            ["`quantization` is '8bit'", "pip install 'rllib_llm_comm[quantized]'"],
            marks=pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is there"),
        ),
        (
            {"run": "TWOSOME", "env": KITCHEN, "config": {"lora_target_modules": ["q_proj", "lm_head"]}},
            ["In `last.config`: `lora_target_modules` names 'lm_head'", "v_proj"],
        ),
        (
            {"run": "Verco", "env": KITCHEN, "config": {"prompt_date": "tomorrow"}},
            ["`prompt_date` is 'tomorrow'", "YYYY-MM-DD"],
        ),
        ({"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": "{}"}}, ["`policy/policy.json`"]),
        (
            {"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": "zoo:verco_sald"}},
            ["In `last.config.message_checkpoint`: there is no shipped policy 'zoo:verco_sald'", "'verco_salad'"],
        ),
        (
            {"run": "Verco", "env": KITCHEN, "config": {"message_checkpoint": "zoo:red_officer"}},
            ["In `last.config`: checkpoint 'zoo:red_officer' has no message adapter"],
        ),
        (
            {"run": "Verco", "env": KITCHEN, "config": {"messages": "other_fact"}},
            ["`messages` is 'other_fact'", "told the same in every episode", "use 'other_moments'"],
        ),
        (
            {"run": "Verco", "env": ONIONS, "config": {"messages": "other_fact"}},
            ["`messages` is 'other_fact'", "are told nothing", "use 'other_moments'"],
        ),
        (
            {"run": "Verco", "env": KITCHEN, "config": {"evaluation_config": {"messages": "other_fact"}}},
            ["`messages` is 'other_fact'", "told the same in every episode"],
        ),
        ({"run": "Verco", "env": KITCHEN, "config": {"messages": "shuffled"}}, ["'other_moments'", "'other_fact'"]),
        ({"run": "MessageSFT", "config": {"input": "{}"}}, ["holds no Parquet file"]),
        ({"run": "Verco", "env": KITCHEN, "config": {"num_envs_per_env_runner": 0}}, ["is 0 but must be at least 1"]),
        ({"run": "Verco", "env": KITCHEN, "config": {"rollout_fragment_length": 0}}, ["is 0 but must be at least 1"]),
        ({"run": "collect_labels", "env": KITCHEN, "config": {"num_envs": 0}}, ["`last.config.num_envs` is 0"]),
        ({"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": -1}}, ["`last.config.target_labels`"]),
        (
            {"run": "collect_labels", "env": KITCHEN, "config": {"base_model": "/no/where"}},
            ["In `last.config`: `base_model` is '/no/where'"],
        ),
        (
            {"run": "collect_labels", "env": KITCHEN, "config": {"device": "banana"}},
            ["In `last.config`: `device` is 'banana'"],
        ),
        ({"run": "collect_labels", "env": "CartPole-v1"}, ["`last.env` is 'CartPole-v1'", "no PettingZoo parallel"]),
        (
            {"run": "collect_labels", "env": KITCHEN, "config": {"teacher": {"name": "chat"}}},
            ["In `last.config.teacher`: `model` is ''"],
        ),
        (
            {"run": "collect_labels", "env": KITCHEN, "config": {"teacher": {**CHAT, "temperature": 9}}},
            ["In `last.config.teacher`: `temperature` is 9"],
        ),
        (
            {
                "run": "collect_demonstrations",
                "env": KITCHEN,
                "config": {"messages": "teacher", "teacher": {**CHAT, "timeout": 0}},
            },
            ["In `last.config.teacher`: `timeout` is 0"],
        ),
        (
            {"run": "collect_demonstrations", "env": TALK},
            ["In `last.config.player`: `policy` is 'scripted'", "no scripted player"],
        ),
        (
            {"run": "collect_demonstrations", "env": KITCHEN, "config": {"env_config": {"action_level": "primitive"}}},
            ["In `last.config.player`: `policy` is 'scripted'", "no scripted player"],
        ),
        (
            {"run": "collect_demonstrations", "env": KITCHEN, "config": {"player": {**SCRIPTED, "habit": "one_pot"}}},
            ["In `last.config.player`: `habit` is 'one_pot'"],
        ),
        (
            {"run": "collect_demonstrations", "env": TALK, "config": {"player": "stay"}},
            ["In `last.config.player`: `stay`"],
        ),
    ],
)
def test_the_last_stage_is_refused_before_the_first_runs(tmp_path, last, words):
    empty = tmp_path / "empty"
    empty.mkdir()
    if "config" in last:
        last = {**last, "config": {k: str(empty) if v == "{}" else v for k, v in last["config"].items()}}
    refused(tmp_path, {"labels": LABELS, "last": last}, *words)


def test_a_limit_of_nothing_is_refused(tmp_path):
    with pytest.raises(UserError, match="'training_iteration' is 0 but must be larger than 0"):
        parse_experiments({"a": {"run": "PPO", "stop": {"training_iteration": 0}}}, "f")


def test_more_runners_than_cores_are_refused_unless_ray_is_told(tmp_path):
    many = available_cpus() + 1
    specs = {"labels": LABELS, "last": {"run": "Verco", "env": KITCHEN, "config": {"num_env_runners": many}}}
    sentence = refused(tmp_path, specs)
    assert f"`last.config.num_env_runners` is {many}" in sentence and "`--ray-num-cpus`" in sentence
    # Told, the check is passed, and the next one speaks.
    specs["last"]["config"]["message_checkpoint"] = str(tmp_path)
    assert "policy.json" in refused(tmp_path, specs, ray_num_cpus=many + 1)


def test_the_longest_text_of_a_stage_has_to_fit_into_the_model(tmp_path):
    folder = tmp_path / "gpt2"
    shutil.copytree(embedded_model_path(), folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = GPT2Config(vocab_size=591, n_embd=32, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    for run, own, longest in (
        ("TWOSOME", {"max_prompt_tokens": 240}, 272),
        ("Verco", {"max_prompt_tokens": 240, "max_candidate_tokens": 16, "max_message_words": 8}, 272),
        ("Verco", {"max_prompt_tokens": 240, "max_candidate_tokens": 17, "messages": "none"}, 257),
    ):
        last = {"run": run, "env": KITCHEN, "config": {"base_model": str(folder), **own}}
        sentence = refused(tmp_path, {"labels": LABELS, "last": last})
        assert f"positions for 256 tokens, but a text may have {longest}" in sentence, sentence


def test_stages_that_hand_on_an_adapter_show_the_same_day(tmp_path):
    specs = {
        "labels": LABELS,
        "sft": {"run": "MessageSFT", "config": {"input": "${labels}", "prompt_format": "chat"}},
        "last": {
            "run": "Verco", "env": KITCHEN,
            "config": {"message_checkpoint": "${sft}", "prompt_format": "chat", "prompt_date": "2027-01-02"},
        },
    }  # fmt: skip
    sentence = refused(tmp_path, specs)
    assert "`last.config.prompt_date` is '2027-01-02'" in sentence and "'2024-07-26'" in sentence


def test_adapters_and_their_base_model_go_together(tmp_path):
    specs = {
        "labels": LABELS,
        "sft": {"run": "MessageSFT", "config": {"input": "${labels}"}},
        "last": {
            "run": "Verco", "env": KITCHEN,
            "config": {"message_checkpoint": "${sft}", "base_model": str(tmp_path / "other")},
        },
    }  # fmt: skip
    sentence = refused(tmp_path, specs)
    assert "takes over from `sft`" in sentence and "'embedded'" in sentence


def cut(path):
    path.write_bytes(path.read_bytes()[:-8])


def diverged(path):
    weights = load_file(path)
    next(iter(weights.values()))[:] = float("nan")
    save_file(weights, path)


@pytest.mark.parametrize(("damage", "words"), [(cut, "cannot be read as safetensors"), (diverged, "has NaN")])
@pytest.mark.parametrize("taken", ["adapter", "evaluated", "played", "demonstrated"])
def test_damaged_weights_are_missed_before_the_first_stage_runs(tmp_path, taken, damage, words):
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
    refused(tmp_path, {"labels": LABELS, "last": last}, "last.config", "adapter_model.safetensors", words)


@pytest.mark.parametrize(
    ("collects", "learns", "wanted"),
    [
        ("collect_labels", "ActionSFT", "ActionSFT learns from demonstrations; name a stage of collect_demonstrations"),
        ("collect_demonstrations", "MessageSFT", "MessageSFT learns from labels; name a stage of collect_labels"),
    ],
)
def test_rows_of_the_other_kind_are_missed_before_they_are_collected(tmp_path, collects, learns, wanted):
    specs = {"rows": {"run": collects, "env": KITCHEN}, "last": {"run": learns, "config": {"input_": "${rows}"}}}
    sentence = refused(tmp_path, specs)
    assert "`last.config.input_` is the result of `rows`" in sentence and wanted in sentence


def test_rows_of_the_other_kind_are_no_damaged_ones(tmp_path):
    rows = tmp_path / "rows"
    label_store.LabelStore(rows, {}, 3)
    parquet.write_table(pa.table({"prompt": ["a"], "message": ["b"]}), rows / "part-00000.parquet")
    with pytest.raises(UserError, match="holds labels of `collect_labels`, but demonstrations are learned") as caught:
        check_rows(rows, label_store.DEMONSTRATIONS)
    assert "remove" not in str(caught.value)


def test_damaged_labels_are_named(tmp_path):
    good = tmp_path / "part-00000.parquet"
    parquet.write_table(pa.table({"prompt": ["a"] * 500, "message": ["b"] * 500}), good)
    check_rows(tmp_path, label_store.LABELS)
    whole = good.read_bytes()
    bad = tmp_path / "part-00001.parquet"
    bad.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"part-00001.parquet' is damaged or no Parquet file"):
        check_rows(tmp_path, label_store.LABELS)
    parquet.write_table(pa.table({"text": ["a"]}), bad)
    with pytest.raises(UserError, match=r"part-00001.parquet' has no column message, prompt"):
        check_rows(tmp_path, label_store.LABELS)
    parquet.write_table(pa.table({"prompt": [1], "message": ["b"]}), bad)
    with pytest.raises(UserError, match=r"part-00001.parquet' has a column prompt of int64 instead of texts"):
        check_rows(tmp_path, label_store.LABELS)
    parquet.write_table(pa.table({"prompt": ["a", "a"], "message": ["b", None]}), bad)
    with pytest.raises(UserError, match=r"part-00001.parquet' has a column message with 1 empty cells"):
        check_rows(tmp_path, label_store.LABELS)
    bad.unlink()
    parquet.write_table(pa.table({"prompt": pa.array([], pa.string()), "message": pa.array([], pa.string())}), good)
    with pytest.raises(UserError, match="hold no label"):
        check_rows(tmp_path, label_store.LABELS)


@pytest.mark.parametrize("kind", ["damaged", "empty"])
def test_labels_that_cannot_be_read_end_with_a_sentence(tmp_path, kind):
    (tmp_path / "labels").mkdir()
    if kind == "damaged":
        (tmp_path / "labels/part-00000.parquet").write_bytes(b"PAR1 nothing PAR1")
    spec = {"run": "MessageSFT", "config": {"input": "labels"}, "stop": {"training_iteration": 1}}
    (tmp_path / "sft.json").write_text(json.dumps({"sft": spec}))
    done = rllib("train", "file", "sft.json", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("Error: In `sft.config`: `input_`"), done.stderr
    assert done.stderr.count("\n") == 1 and "bug" not in done.stderr


def test_a_damaged_stage_record_is_named(tmp_path):
    stage = tmp_path / "results/tiny/train"
    stage.mkdir(parents=True)
    (stage / "stage.json").write_text('{"stage": "train", "ru')
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 1}}
    (tmp_path / "tiny.json").write_text(json.dumps({"train": spec}))
    done = rllib("train", "file", "tiny.json", cwd=tmp_path)
    assert done.returncode == 1 and "stage.json' is damaged" in done.stderr and "`--no-resume`" in done.stderr
    judged = rllib("evaluate", str(stage), cwd=tmp_path)
    assert judged.returncode == 1 and "stage.json' is damaged" in judged.stderr, judged.stderr
    assert (stage / "stage.json").read_text() == '{"stage": "train", "ru'


def test_a_storage_path_that_takes_no_files_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 1}}
    (tmp_path / "tiny.json").write_text(json.dumps({"train": spec}))
    done = rllib("train", "file", "tiny.json", "--storage-path", "file/below", cwd=tmp_path)
    assert done.returncode == 1 and "`storage_path`" in done.stderr and "bug" not in done.stderr, done.stderr


@pytest.mark.parametrize(("prompts", "told"), [("default", False), ("twosome", True)])
def test_a_checkpoint_of_other_prompts_is_told_where_the_user_sees_it(capsys, tmp_path, prompts, told):
    out.file = None
    model = {"base_model": "embedded", "action_checkpoint": "zoo:told_salad", "lora_r": 8, "prompts": prompts}
    spec = {"f": {"run": "TWOSOME", "env": KITCHEN, "config": model}}
    staged.check(spec, tmp_path)
    assert ("other prompts" in capsys.readouterr().out) == told
    tell_other_prompts("zoo:told_salad", VercoConfig().language_model(prompts=prompts))  # as of `restore`
    assert ("the templates action, critic differ" in capsys.readouterr().out) == told
