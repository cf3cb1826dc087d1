"""Policies of earlier times: the choice of the half-way one, and what checkpoints of self-play keep."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from safetensors.torch import load

from rllib_llm_comm import SelfPlayPPOConfig, load_policy
from rllib_llm_comm.rl.past_policies import half_way, milestones
from tests.refusal import refused
from tests.running import cooks, running

NONE = math.nan


@pytest.mark.parametrize(
    ("scores", "place"),
    [
        ([NONE, 0, 40, 90, 130, 200], 3),
        ([NONE, 60, 140, 200], 1),  # as near as 140: the earlier
        ([NONE, 0, 150, 90, 200], 3),  # scores may fall in between
        ([NONE, 0, 0, 0], 1),
        ([NONE, 80], 1),
        ([10.0, 20.0], 0),
        ([NONE, 20, NONE], None),
        ([NONE], None),
        ([], None),
    ],
)
def test_the_half_way_policy_is_nearest_to_half_of_the_final_mean(scores, place):
    assert half_way(scores) == place


@pytest.fixture(scope="module")
def trained(small_ray, tmp_path_factory):
    """Three iterations, a policy kept after every second; its checkpoint and the weights before the first update."""
    with running(settings(keep_policy_every=2)) as algo:
        first = algo.learner_group._learner.module["shared"].get_state()
        for _ in range(3):
            algo.train()
        yield algo, first, algo.save_to_path(str(tmp_path_factory.mktemp("trained") / "checkpoint"))


def settings(**training):
    return cooks(SelfPlayPPOConfig, rows=120, horizon=10, num_epochs=1, **training)


def test_kept_from_before_the_first_update(trained):
    algo, first, path = trained
    past = algo.past_policies()
    assert [one.iteration for one in past] == [0, 2, 3]
    assert [one.game_steps for one in past] == [0, 120, 180]
    assert math.isnan(past[0].score) and [one.score for one in past[1:]] == [0.0, 0.0]
    kept = [load(one.policy.files["network.safetensors"]) for one in past]
    for name, value in kept[0].items():
        assert np.array_equal(value, first[name])
    assert not all(np.array_equal(value, kept[1][name]) for name, value in kept[0].items())
    assert list(milestones(past)) == ["initial", "half_way", "final"]
    for name, iteration in (("initial", 0), ("half_way", 2)):
        policy = load_policy(f"{path}/past/{name}")
        assert json.loads(json.dumps(policy.manifest.provenance))["training_iteration"] == iteration
    again = load_policy(f"{path}/past/initial").network.state_dict()
    assert all(np.array_equal(value, kept[0][name]) for name, value in again.items())


def test_a_restored_run_keeps_the_policies_of_its_whole_life(trained):
    algo, _, path = trained
    with running(type(algo).from_checkpoint(path)) as again:
        again.train()
        past = again.past_policies()
    assert [one.iteration for one in past] == [0, 2, 4]
    assert dict(past[0].policy.files) == dict(algo.past_policies()[0].policy.files)


def test_none_is_kept_unless_it_is_asked_for(small_ray, tmp_path):
    with running(settings()) as algo:
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    assert not (tmp_path / "checkpoint" / "past").exists() and load_policy(path)
    with refused("keep_policy_every", "range"):
        settings(keep_policy_every=0).validate()
