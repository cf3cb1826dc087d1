"""What a training reports: returns are those of the game, and decisions are counted until the stop rule."""

from __future__ import annotations

import math

import pytest
from toys import ENV_ID, register

from rllib_llm_comm import SymbolicPPOConfig
from rllib_llm_comm.evaluation.study_results import read_rows
from tests.experiments.staged import run
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

LENGTH, TOLL = 40, -1.5


@pytest.mark.parametrize(
    ("runners", "gamma"), [(0, 0.5), *(pytest.param(n, 0.99, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_a_game_that_always_pays_the_same_reports_exactly_its_return(runners, gamma):
    register()
    algo = (
        SymbolicPPOConfig()
        .environment(ENV_ID, env_config={"length": LENGTH, "busy": (2, 5), "pay": 0.0, "pay_busy": TOLL})
        .policy_network(hiddens=[4])
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=24, minibatch_size=12, num_epochs=1, gamma=gamma)
        .reporting(metrics_num_episodes_for_smoothing=2)
        .debugging(seed=0)
        .build_algo()
    )
    seen = []
    with running(algo):
        for _ in range(12):
            told = algo.train()["env_runners"]
            # Not a number where no episode ended, and before the window is full.
            if math.isfinite(told["team_return_mean"]):
                seen.append([
                    told["team_return_mean"], *told["agent_episode_returns_mean"].values(),
                    told["episode_return_min"] / 2, told["episode_return_max"] / 2,
                ])  # fmt: skip
    # Episodes outlast roll-outs, so that most of their rewards have been learned from before they end.
    assert len(seen) >= 3 and {value for row in seen for value in row} == {LENGTH * TOLL}, seen


def test_a_run_ends_with_the_first_iteration_that_reaches_its_decisions(tmp_path):
    config = {"num_envs_per_env_runner": 1, "train_batch_size_per_learner": 32, "minibatch_size": 32, "num_epochs": 1}
    spec = {"run": "SymbolicPPO", "env": "rllib_llm_comm/door-v0", "stop": {"decisions": 64}, "config": config}
    run({"train": spec}, tmp_path)
    (path,) = (tmp_path / "f/train").glob("trial_*/result.json")
    counted = [row["decisions"] for row in read_rows(path)]
    assert counted[-2] < 64 <= counted[-1], counted
    assert all(later - sooner >= 32 for sooner, later in zip([0, *counted], counted, strict=False)), counted
    assert counted[-1] == sum(read_rows(path)[-1]["env_runners"]["num_agent_steps_sampled_lifetime"].values())
