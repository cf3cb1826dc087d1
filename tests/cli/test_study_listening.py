"""`study_listening.yaml` from labels to report in small, with the embedded model in SmolLM2's place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rllib_llm_comm import load_policy
from tests.cli.command import succeeds

SMALL = {
    "target_labels": 40, "target_demonstrations": 40, "num_envs": 2, "max_game_steps": 12, "training_iteration": 1,
    "num_envs_per_env_runner": 2, "train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1,
    "critic_warmup": 32, "decisions": 64, "episodes": 4, "anneal": 1,
}  # fmt: skip
STUDY = Path(__file__).parents[2] / "tuned_examples/study_listening.yaml"
HEARD = ("none", "other_fact", "swapped")


def small(value: Any) -> Any:
    """Settings with small numbers, wherever they stand."""
    if isinstance(value, list):
        return [small(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: SMALL[key] if key in SMALL else small(one) for key, one in value.items()}


@pytest.mark.timeout(300)
def test_from_labels_and_demonstrations_to_a_report_of_who_listens(tmp_path):
    study = small(yaml.safe_load(STUDY.read_text()))
    study |= {"seeds": [3], "model": {"base_model": "embedded"}, "baseline": "none"}
    study["scenarios"] = {"B_one": study["scenarios"]["B_one"]}
    study["systems"] = {name: study["systems"][name] for name in ("verco", "none")}
    study["shared"] = {name: stage for name, stage in study["shared"].items() if not name.endswith("_embedded")}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    done = succeeds("study", "file", "small.yaml", "--ray-num-cpus", "4", cwd=tmp_path, timeout=280)
    assert "actions cloned from the scripted player" in " ".join(done.stdout.split())

    folder = tmp_path / "results/small"
    report = json.loads((folder / "report/report.json").read_text())
    assert report["missing"] == []
    assert any(one.startswith("actions cloned from the scripted player") for one in report["stand_ins"])
    assert "actions cloned from the scripted player" in (folder / "report/report.md").read_text()
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
