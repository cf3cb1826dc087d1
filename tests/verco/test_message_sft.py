"""Supervised training of messages from Parquet labels."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from toys import COLOURS, ENV_ID, language_model, register

from rllib_llm_comm import MessageSFT, MessageSFTConfig, VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl import epoch_progress
from rllib_llm_comm.verco.sft import SFTLearner, is_held_out
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")


def write_labels(folder, rows=240, columns=("prompt", "message", "env", "teacher")):
    rng = np.random.default_rng(0)
    colours = [COLOURS[rng.integers(3)] for _ in range(rows)]
    table = {
        "prompt": [f"you are alice. you see {c}. it is step {n // 2}." for n, c in enumerate(colours)],
        "message": [f"i see {c}" for c in colours],
        "env": [json.dumps({"id": ENV_ID, "settings": {"length": 4}})] * rows,
        "teacher": [("scripted", "chat", "Ann from next door")[n % 3] for n in range(rows)],
    }
    for part in range(2):  # several files, as a resumed collection leaves them
        half = {name: table[name][part::2] + table[name][:5] for name in columns}
        pq.write_table(pa.table(half), folder / f"part-{part}.parquet")
    return str(folder)


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    return write_labels(tmp_path_factory.mktemp("labels"))


def config(labels, **training):
    return (
        MessageSFTConfig()
        .offline_data(input_=labels)
        .language_model(**language_model())
        .training(**{"lr": 1e-2, "judge_interval": 3, "train_batch_size_per_learner": 32, **training})
        .debugging(seed=0)
    )


@pytest.fixture(scope="module")
def trained(labels, tmp_path_factory):
    with running(config(labels)) as algo:
        module = algo.learner_group._learner.module["shared"].unwrapped()
        before = {name: p.clone() for name, p in module.named_parameters()}
        results = [algo.train() for _ in range(6)]
        after = {name: p.clone() for name, p in module.named_parameters()}
        return results, before, after, algo.save_to_path(str(tmp_path_factory.mktemp("sft") / "checkpoint"))


def test_the_message_adapter_alone_learns_what_the_teacher_says(trained):
    results, before, after, _ = trained
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all("message/" in name for name in changed)
    first, last = results[0]["message_sft"], results[-1]["message_sft"]
    assert last["train_loss"] < first["train_loss"] and last["held_out_loss"] < first["held_out_loss"]
    assert last["held_out_token_accuracy"] > 0.95
    assert last["exact_match"] > 0.9 and last["same_request"] >= last["exact_match"]
    assert "exact_match" not in first  # judged every third iteration
    assert all({"prompt", "teacher", "student"} == set(sample) for sample in results[-1]["message_samples"])


def test_the_user_is_told_where_nothing_is_learned(labels):
    with running(config(labels, lr=1e-9)) as algo:
        told = [algo.train().get("warnings", "") for _ in range(10)]
    assert "next to nothing is learned" in told[-1] and "next to nothing" not in "".join(told[:-1])


def test_a_seed_fixes_what_is_learned_in_whatever_order_files_are_read(labels, trained, tmp_path):
    for name, other in (("part-0", "part-1"), ("part-1", "part-0")):
        shutil.copy(Path(labels) / f"{name}.parquet", tmp_path / f"{other}.parquet")
    with running(config(str(tmp_path))) as algo:
        loss = algo.train()["message_sft"]["held_out_loss"]
    assert loss == trained[0][0]["message_sft"]["held_out_loss"]


def test_checkpoint_serves_a_policy_and_verco(trained):
    *_, path = trained
    register()
    policy = load_policy(path)
    assert policy.manifest.env == ENV_ID and policy.env().length == 4
    observations, _ = policy.env().reset(seed=0)
    said = {agent: decision.said for agent, decision in policy.act(observations).items()}
    provenance = policy.manifest.provenance
    assert provenance["held_out"]["exact_match"] > 0.9 and provenance["samples"]
    with running(
        VercoConfig()
        .environment(ENV_ID)
        .language_model(**language_model())
        .communication(message_checkpoint=path)
        .env_runners(num_envs_per_env_runner=1)
        .training(train_batch_size_per_learner=8)
    ) as algo:
        texts = {agent: f"{o['text']} i say:" for agent, o in observations.items()}
        written = algo.env_runner.module["shared"].write_messages(list(texts.values()))
        spoken = dict(zip(texts, written, strict=True))
        assert spoken == said


def test_restores_and_goes_on(trained):
    *_, path = trained
    with running(MessageSFT.from_checkpoint(path)) as algo:
        result = algo.train()
        assert result["training_iteration"] == 7
        assert result["message_sft"]["held_out_token_accuracy"] > 0.95


class Lenient(SFTLearner):
    """A learner of one's own that judges in its own way."""

    def judge(self, columns):
        terms, hits = super().judge(columns)
        return np.zeros_like(terms), hits


def test_a_learner_of_ones_own_judges_and_a_pass_that_is_followed_tells_its_share(labels, tmp_path, monkeypatch):
    """The clock goes on by a second at each look, so that every part is told."""
    monkeypatch.setattr(epoch_progress, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    with running(config(labels).learners(num_learners=0).training(learner_class=Lenient)) as algo:
        algo.learner_group._learner.follow(str(tmp_path), 0)
        assert algo.train()["message_sft"]["held_out_loss"] == 0
    assert 0 < epoch_progress.read_progress(tmp_path, 0) < 1


def test_remote_learner_learns_the_same(labels, trained):
    with running(config(labels).learners(num_learners=1)) as algo:
        result = algo.train()["message_sft"]
        assert result["train_loss"] == pytest.approx(trained[0][0]["message_sft"]["train_loss"], rel=0.1)


def test_split_is_by_prompt_and_rows_are_distinct_and_few_labels_are_read_by_few_processes(labels):
    from ray._private.state import actors

    before = set(actors())
    with running(config(labels, held_out_share=0.3)) as algo:
        started = [actor["ActorClassName"] for name, actor in actors().items() if name not in before]
        assert started.count("FooterReader") == 1, started
        answers = algo.labels.held_out_answers
        assert algo.labels.authors == ["chat", "scripted"], "names of teachers alone"
        assert all(is_held_out(prompt, 0.3) for prompt in answers)
        rows = len(algo.labels.train["label_ids"]) + len(algo.labels.held_out["label_ids"])
        table = pq.read_table(labels).to_pydict()
        assert rows == len(set(zip(table["prompt"], table["message"], strict=True)))
        distinct = len(np.unique(algo.labels.train["label_ids"], axis=0))
        assert distinct == len(algo.labels.train["label_ids"])
        assert 0.15 < len(algo.labels.held_out["label_ids"]) / rows < 0.45


def test_files_without_the_columns_are_refused(tmp_path):
    with pytest.raises(UserError, match="has no column message"):
        config(write_labels(tmp_path, rows=4, columns=("prompt",))).build_algo()
