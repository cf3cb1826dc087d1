"""Supervised training of actions from Parquet demonstrations, and what is started from it."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from ray.rllib.core.columns import Columns

from rllib_llm_comm import ActionSFT, ActionSFTConfig, MessageSFTConfig, Verco, VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.collect_demonstrations import collect_demonstrations
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.language.adapters import ACTION
from rllib_llm_comm.verco.encoding import read_observation
from rllib_llm_comm.verco.policy import check_adapter_of
from rllib_llm_comm.verco.sft import check_rows, is_held_out, learned_terms, read_demonstration
from rllib_llm_comm.verco.teachers.label_store import DEMONSTRATIONS
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
ENV = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 60}
CLONED = "actions cloned from the scripted player"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demonstrations") / "rows"
    collect_demonstrations(KITCHEN, folder, env_config=ENV, target_demonstrations=300)
    return str(folder)


def config(rows, **training):
    return (
        ActionSFTConfig()
        .offline_data(input_=rows)
        .training(**{"train_batch_size_per_learner": 32, "held_out_share": 0.2, **training})
        .debugging(seed=0)
    )


def module_of(algo):
    return algo.learner_group._learner.module["shared"].unwrapped()


@pytest.fixture(scope="module")
def trained(rows, tmp_path_factory):
    with running(config(rows, anneal=5)) as algo:
        before = {name: p.clone() for name, p in module_of(algo).named_parameters()}
        results = [algo.train()["action_sft"] for _ in range(5)]
        after = {name: p.clone() for name, p in module_of(algo).named_parameters()}
        return results, before, after, algo.save_to_path(str(tmp_path_factory.mktemp("sft") / "checkpoint"))


def test_a_clone_chooses_as_the_cook_does_in_states_that_it_never_saw_and_its_action_adapter_alone_changed(trained):
    results, before, after, _ = trained
    assert results[-1]["top_1"] > 0.9 and results[-1]["held_out_prompts"] > 30
    assert results[-1]["log_loss"] < results[0]["log_loss"] / 2
    assert results[-1]["train_loss"] < results[0]["train_loss"]
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("action/" in name for name in changed)


def test_loss_and_gradient_are_those_of_plain_torch(rows):
    with running(config(rows).language_model(score_normalization="word", temperature=1.5)) as algo:
        module = module_of(algo)
        with torch.no_grad():
            for name, parameter in module.adapters.items():
                if name.startswith("action/") and "lora_B" in name:
                    parameter.normal_(std=0.05)
        part = {Columns.OBS: {k: torch.as_tensor(v[:6]) for k, v in algo.labels.train[Columns.OBS].items()}}
        part[Columns.ACTIONS] = torch.as_tensor(algo.labels.train[Columns.ACTIONS][:6])
        log_probs, _ = learned_terms(part, module._forward_train(part))
        own = -log_probs.mean()
        parameters = module.actor_parameters()
        gradient = torch.autograd.grad(own, parameters)
        scores = torch.full(part[Columns.OBS]["action_mask"].shape, -1e9)
        lm = module.network.lm
        for row, column in part[Columns.OBS]["action_mask"].nonzero().tolist():
            one = {name: values[row] for name, values in part[Columns.OBS].items()}
            prompt = one["prompt_ids"][one["prompt_ids"] >= 0].tolist()
            phrase = one["candidate_ids"][column]
            phrase = phrase[phrase >= 0].tolist()
            ids = torch.tensor([prompt + phrase])
            with lm.use(ACTION):
                hidden = lm.hidden_states(ids, torch.ones_like(ids))
            told = lm.token_logits(hidden[0, len(prompt) - 1 : -1]).log_softmax(-1)
            total = told[torch.arange(len(phrase)), torch.tensor(phrase)].sum()
            scores[row, column] = total / int(one["candidate_words"][column]) / 1.5
        plain = torch.nn.functional.cross_entropy(scores, part[Columns.ACTIONS])
        assert float(own) == pytest.approx(float(plain), abs=1e-5)
        for mine, theirs in zip(gradient, torch.autograd.grad(plain, parameters), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-3)


def test_it_restores_and_goes_on(trained):
    results, *_, path = trained
    with running(ActionSFT.from_checkpoint(path)) as algo:
        assert algo.judge_held_out()["log_loss"] == pytest.approx(results[-1]["log_loss"], abs=1e-6)
        result = algo.train()
        assert result["training_iteration"] == 6 and result["tokens"] > 1000


def verco(path, **model):
    return (
        VercoConfig()
        .environment(KITCHEN, env_config=ENV)
        .language_model(**{"action_checkpoint": path, **model})
        .communication(messages="none")
        .env_runners(num_envs_per_env_runner=1)
        .training(train_batch_size_per_learner=8, minibatch_size=8, num_epochs=1)
    )


def first_view(policy):
    """What both cooks see at the beginning of a game, as a batch."""
    observations, _ = policy.env().reset(seed=3)
    rows_of = [policy._encoder.encode(read_observation(seen), {}) for seen in observations.values()]
    return {Columns.OBS: {name: torch.as_tensor(np.stack([row[name] for row in rows_of])) for name in rows_of[0]}}


def test_verco_begins_with_the_clone_and_says_so(trained, rows):
    *_, path = trained
    policy = load_policy(path)
    assert policy.manifest.env == KITCHEN and policy.manifest.provenance["held_out"]["top_1"] > 0.9
    assert any(one.startswith(CLONED) for one in stand_ins(policy.manifest))
    batch = first_view(policy)
    expected = policy.network.remembered_logits(batch[Columns.OBS])
    with running(verco(path)) as algo:
        for module in (algo.env_runner.module["shared"], module_of(algo)):
            begun = module.forward_inference(batch)[Columns.ACTION_DIST_INPUTS]
            torch.testing.assert_close(begun, expected, atol=1e-4, rtol=1e-4)
        algo.train()
        again = algo.save_to_path()
    with running(Verco.from_checkpoint(again)) as restored:
        assert restored.config.action_checkpoint is None
        later = restored.save_to_path()
    for manifest in (load_policy(again).manifest, load_policy(later).manifest):
        assert manifest.provenance["action_checkpoint"] == path and manifest.provenance["cloned_from"] == ["scripted"]
    for told in (manifest, {"action_checkpoint": path}):
        assert any(one.startswith(CLONED) for one in stand_ins(told))


def test_group_baselines_begin_with_the_clone_and_one_update_moves_them(trained):
    *_, path = trained
    clone = load_policy(path)
    groups = {"advantages": "rloo", "group_size": 2, "lr": 1e-2}
    runners = {"num_envs_per_env_runner": 2, "batch_mode": "complete_episodes"}
    batch = first_view(clone)
    begun, allowed = clone.network.remembered_logits(batch[Columns.OBS]), batch[Columns.OBS]["action_mask"].bool()
    with running(verco(path).env_runners(**runners).training(**groups)) as algo:
        own = algo.env_runner.module["shared"].forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
        torch.testing.assert_close(own, begun, atol=1e-4, rtol=1e-4)
        algo.train()
        moved = module_of(algo).forward_inference(batch)[Columns.ACTION_DIST_INPUTS]
        assert (moved - begun)[allowed].abs().max() > 1e-3


def test_a_clone_of_another_game_and_other_scores_than_those_that_were_judged_are_told(trained, caplog):
    door = VercoConfig().environment("rllib_llm_comm/door-v0").communication(messages="none")
    door.language_model(action_checkpoint=trained[-1], temperature=2.0).build_algo().stop()
    (told,) = [record.getMessage() for record in caplog.records if "another game" in record.getMessage()]
    assert KITCHEN in told and "rllib_llm_comm/door-v0" in told
    assert "`temperature` 1.0" in caplog.text


@pytest.mark.parametrize(("setting", "value"), [("lora_r", 4), ("lora_layers", 1), ("base_model", "embedded_minirts")])
def test_an_adapter_that_does_not_fit_is_refused(trained, setting, value):
    with pytest.raises(UserError, match=setting):
        verco(trained[-1], **{setting: value}).build_algo()


def test_an_adapter_of_the_other_role_is_refused(trained, tmp_path):
    path = trained[-1]
    labels = {"prompt": ["you see red.", "you see blue."], "message": ["i see red", "i see blue"]}
    pq.write_table(pa.table(labels), tmp_path / "labels.parquet")
    sft = MessageSFTConfig().offline_data(input_=str(tmp_path)).training(held_out_share=0.0, judge_interval=0)
    with running(sft) as algo:
        said = algo.save_to_path(str(tmp_path / "said"))
    alone = f"{path}/policy/adapters"
    for checkpoint, role, word in (
        (said, "action", "MessageSFT"), (path, "message", "ActionSFT"), (f"{alone}/message", "action", "action"),
        (f"{alone}/action", "message", "message"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=word):
            check_adapter_of(checkpoint, "embedded", role=role)
    with pytest.raises(UserError, match="`action_checkpoint`.*MessageSFT"):
        verco(said).build_algo()
    check_adapter_of(f"{alone}/action", "embedded", role="action")
    rows = str(write(tmp_path / "rows"))
    with running(config(rows).communication(message_checkpoint=said, messages="student")) as both:
        taught = both.save_to_path(str(tmp_path / "both"))
    for role in ("message", "action"):
        check_adapter_of(taught, "embedded", role=role)
    assert load_policy(taught).communication.messages == "student"


def write(folder, **columns):
    """A file with a few rows; their columns may be other ones."""
    folder.mkdir(exist_ok=True)
    count = 6
    table: dict[str, Any] = {
        "text": [f"you are at door {n}." for n in range(count)],
        "subgoal": [""] * count,
        "heard": [json.dumps({"bob": f"open door {n % 2}"}) for n in range(count)],
        "candidates": [json.dumps(["wait", "open the door", "leave"][: 2 + n % 2]) for n in range(count)],
        "chosen": [n % 2 for n in range(count)],
    }
    table = {name: values for name, values in {**table, **columns}.items() if values is not None}
    pq.write_table(pa.table(table), folder / "rows.parquet")
    return folder


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("chosen", 5), ("chosen", -1), ("heard", "[]"), ("heard", '{"bob": 3}'), ("candidates", '{"wait": 1}'),
        ("candidates", "[" * 100_000), ("candidates", "[3]"), ("candidates", '["wait"]'),
        ("candidates", '["wait", "wait"]'), ("candidates", r'["\ud800", "go"]'),
    ],
)  # fmt: skip
def test_rows_that_no_collection_wrote_are_refused(column, value):
    row = {"text": "you are here.", "subgoal": "", "heard": "{}", "candidates": '["wait", "go"]', "chosen": 0}
    assert read_demonstration(**row)[2] == 0
    with pytest.raises(UserError, match=f"`{column}`") as caught:
        read_demonstration(**{**row, column: value})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"chosen": None}, "has no column chosen"),
        ({"chosen": ["1"] * 6}, "chosen of string"),
        ({"heard": [1] * 6}, "heard of int64"),
        ({"text": ["a"] * 5 + [None]}, "text with 1 empty cells"),
    ],
)
def test_other_columns_are_refused_before_anything_is_started(tmp_path, columns, words):
    folder = write(tmp_path / "rows")
    check_rows(folder, DEMONSTRATIONS)
    with pytest.raises(UserError, match=words):
        check_rows(write(tmp_path / "rows", **columns), DEMONSTRATIONS)


def test_rows_of_others_are_learned_with_what_was_heard(tmp_path):
    folder = write(tmp_path / "rows", player=["scripted", "Ann from next door"] * 3)
    shutil.copy(folder / "rows.parquet", folder / "again.parquet")
    with running(config(str(folder), held_out_share=0.5)) as algo:
        result = algo.train()["action_sft"]
        held = {prompt[0] for prompt in algo.labels.held_out_answers}
        assert held and all(is_held_out(text, 0.5) for text in held)
        assert result["demonstrations"] + len(algo.labels.held_out["actions"]) == 6
        assert algo.labels.authors == ["scripted"], "known names alone"
        ids = algo.labels.train[Columns.OBS]["prompt_ids"][0]
        told = module_of(algo).network.lm.base.tokenizer.decode(ids[ids >= 0].tolist())
        assert "open door" in told and "bob" in told


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("lora_dropout", 0.1, ("lora_dropout",)), ("num_epochs", 3, ("num_epochs",)),
        ("minibatch_size", 16, ("minibatch_size",)),
        ("messages", "student", ("messages", "invalid", "`message_checkpoint`")),
        ("held_out_share", 1.0, ("held_out_share", "range")), ("env", KITCHEN, ("env",)),
        ("input_", "sampler", ("input_",)),
    ],
)  # fmt: skip
def test_bad_settings(rows, setting, value, told):
    with refused(*told):
        config(rows).update_from_dict({setting: value}).validate()
