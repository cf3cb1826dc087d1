"""The experiment files that come with the package can be run, and explain each of their keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments import pipeline
from rllib_llm_comm.experiments.algorithm_settings import default_config
from rllib_llm_comm.experiments.experiment_file import read_experiment_file
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.experiments.study_file import expand, read_study
from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig
from tests.cli.command import succeeds

FILES = [path for path in examples().values() if path.suffix == ".yaml"]
STUDIES = [path for path in FILES if "\nscenarios:" in path.read_text()]  # `is_study` takes seconds for all of them
SMOKE = Path(__file__).parents[1] / "data" / "verco_smoke.yaml"


@pytest.mark.parametrize("path", [*(path for path in FILES if path not in STUDIES), SMOKE], ids=lambda path: path.stem)
def test_everything_in_the_file_is_known(path, tmp_path):
    file = read_experiment_file(path)
    hub_ids = {
        str(found) for stage in file.experiments.values() if "/" in (found := str(stage.config.get("base_model")))
    }
    if hub_ids:  # no hub is reached from a test: the check says so, and the rest is checked with the model at hand
        with pytest.raises(UserError, match=f"`base_model` '{hub_ids.pop()}' could not be loaded"):
            pipeline.check_stages(make_stages(file.experiments, lambda name, _: tmp_path / name), {})
        for stage in file.experiments.values():
            if "base_model" in stage.config:
                stage.config["base_model"] = "embedded"
    if "base_model" in file.model:  # which is not installed everywhere; the rest is checked with the model at hand
        for stage in file.experiments.values():
            stage.config.pop("lora_layers", None)
    stages = make_stages(file.experiments, lambda name, _: tmp_path / name)
    assert pipeline.check_stages(stages, {}) >= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_key_is_commented(path):
    bare = [line for line in path.read_text().splitlines() if line.strip() and "#" not in line]
    assert not bare


IN_ROUNDS = {"RED", "PBT", "FCP", "COLE", "VercoPBT", "VercoFCP", "VercoCOLE"}
CLOCKS = {"time_total_s", "time_this_iter_s", "time_budget_s", "time_since_restore"}


def keys(value):
    """All keys of nested settings, the last parts of paths among them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key).split("/")[-1]
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize("path", [*FILES, SMOKE, SMOKE.with_name("study_smoke.yaml")], ids=lambda path: path.stem)
def test_no_run_is_ended_by_the_clock(path):
    assert not CLOCKS & set(keys(yaml.safe_load(path.read_text())))


def experiments_of(path):
    return (expand(read_study(path), path.stem) if path in STUDIES else read_experiment_file(path)).experiments


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rates_fall_to_0_where_the_run_ends(path):
    for name, experiment in experiments_of(path).items():
        if anneal := experiment.config.get("anneal"):  # passes of supervised training, decisions elsewhere
            until = "training_iteration" if experiment.run.endswith("SFT") else "decisions"
            assert experiment.run == "RED" or experiment.stop.get(until) == anneal, name
        for rate in ("lr", "critic_lr", "message_lr"):
            if isinstance(schedule := experiment.config.get(rate), list):
                assert min(value for _, value in schedule) > 0, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ppo_is_paid_in_decisions(path):
    """Populations count rounds, RED updates between phases of cloning; all else that learns by PPO, decisions."""
    for name, experiment in experiments_of(path).items():
        if experiment.run in STAGE_KINDS or experiment.run in IN_ROUNDS:
            continue
        if isinstance(default_config(experiment.run), MultiAgentPPOConfig):
            assert experiment.stop and "training_iteration" not in experiment.stop, name
            assert experiment.scheduler_config.get("time_attr", "decisions") == "decisions", name


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_main_job_learns(seed, tmp_path):
    succeeds("train", "file", str(examples()["verco"]), "--seed", str(seed), cwd=tmp_path, timeout=1700)
    learned = json.loads((tmp_path / "results/verco/message_sft/stage.json").read_text())["summary"]
    assert learned["same request"] >= 0.8
    figures = json.loads((tmp_path / "results/verco/evaluation/evaluation.json").read_text())
    assert figures["episodes"] == 50 and figures["sampled"]
    assert figures["return_mean"] >= 1.0
    assert (tmp_path / "results/verco/replay/replay.html").stat().st_size > 50_000
