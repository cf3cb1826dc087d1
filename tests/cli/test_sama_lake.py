"""SAMA's file on the frozen lake through the real command, offline, from the LaTeX source to the replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.command import succeeds

LAKE = Path(__file__).parents[2] / "tuned_examples" / "sama_frozen_lake.yaml"


@pytest.mark.slow
def test_all_stages_offline_name_the_author_of_the_plans_on_every_page(tmp_path):
    stages = yaml.safe_load(LAKE.read_text())
    stages["follower"]["stop"] = {"training_iteration": 1}
    stages["follower"]["config"] |= {"num_envs_per_env_runner": 4, "train_batch_size_per_learner": 256}
    for name in ("random", "trials_0", "trials_1"):
        stages[name]["config"]["episodes"] = 2
    (tmp_path / "lake.yaml").write_text(yaml.safe_dump(stages, sort_keys=False))
    succeeds("train", "file", "lake.yaml", "--ray-num-cpus", "2", cwd=tmp_path, timeout=600)
    results = tmp_path / "results/lake"
    for page in ("report/report.html", "replay/replay.html"):
        assert "written by hand" in (results / page).read_text(), page
    told = json.loads((results / "trials_1/stage.json").read_text())["summary"]
    assert told["answers_from"].startswith("recording sama_frozen_lake.jsonl.gz (written by hand")
    assert told["metrics"]["plans_by_cassette"] > 0 and not told["metrics"].get("plans_by_rules")
    assert "answers_from" not in json.loads((results / "random/stage.json").read_text())["summary"]
