"""Trials that follow each other in one process: they come out as in a process of their own."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path

import numpy as np
import pytest
from toys import language_model, register

from rllib_llm_comm.experiments.algorithm_settings import find_algorithm
from rllib_llm_comm.rl.policy_checkpoints import with_policy_folder
from tests.cli.command import succeeds
from tests.refusal import refused
from tests.running import running

BATCH = {"train_batch_size_per_learner": 32, "minibatch_size": 16, "num_epochs": 1, "num_env_runners": 0}
TALK = {**BATCH, **language_model(), "messages": "student", "max_message_words": 3}
SYSTEMS = {
    "Verco": TALK,
    "SymbolicPPO": BATCH,
    "QMIX": {"train_batch_size_per_learner": 2, "buffer_episodes": 8, "min_sample_timesteps_per_iteration": 16},
}
TIMES = ("time", "sampling", "duration", "seconds", "throughput", "pid", "date", "trial_id", "tokens")


def figures(result: dict, name: str = "") -> dict[str, float]:
    """All numbers of a result, by path, but times and the tokens computed, some of which a process remembers."""
    found: dict[str, float] = {}
    for key, value in result.items():
        where = f"{name}/{key}"
        if key in ("config", "perf", "sample", "done") or any(word in key for word in TIMES):
            continue
        if isinstance(value, dict):
            found.update(figures(value, where))
        elif isinstance(value, int | float | np.number):
            found[where] = float(value)
    return found


def settings(run: str, seed: int) -> dict:
    return {**SYSTEMS[run], "env": register(), "seed": seed}


def alone(run: str, settings: dict) -> list[dict[str, float]]:
    """Figures of two iterations without another trial before."""
    with running(with_policy_folder(find_algorithm(run))(settings)) as algo:
        return [figures(algo.train()) for _ in range(2)]


@pytest.mark.usefixtures("small_ray")
@pytest.mark.parametrize("run", SYSTEMS)
def test_a_trial_behind_another_comes_out_as_alone(run, tmp_path):
    own = alone(run, settings(run, 1))
    with running(with_policy_folder(find_algorithm(run))(settings(run, 0))) as shared:
        other = figures(shared.train())
        gone = weakref.ref(shared.learner_group)
        assert shared.reset(settings(run, 1)) and shared.config.seed == 1 and shared.iteration == 0
        gc.collect()
        assert gone() is None, "what was trained before is kept in memory"
        again = [figures(shared.train()) for _ in range(2)]
        assert differing(again, own) == [] and differing([other], own) and len(own[0]) > 10
        assert Path(shared.save_to_path(tmp_path / "saved"), "policy").is_dir()


def differing(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> list[str]:
    """Names of figures that are not the same."""
    pairs = [
        (name, mine, other.get(name)) for one, other in zip(ours, theirs, strict=False) for name, mine in one.items()
    ]
    return [
        f"{name}: {mine} and {other}" for name, mine, other in pairs if not np.array_equal(mine, other, equal_nan=True)
    ]


@pytest.mark.usefixtures("small_ray")
def test_a_trial_with_a_wrong_setting_says_so_and_can_be_stopped():
    shared = with_policy_folder(find_algorithm("QMIX"))(settings("QMIX", 0))
    with refused("tau", "range"):
        shared.reset({**settings("QMIX", 1), "tau": 2})
    shared.stop()


@pytest.mark.usefixtures("small_ray")
def test_a_sweep_takes_one_process_for_all_its_trials(tmp_path):
    config = {"num_env_runners": 0, "num_epochs": 1, "train_batch_size_per_learner": 64, "minibatch_size": 64}
    swept = {**config, "seed": {"grid_search": [0, 1]}}
    spec = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 2}, "config": swept}
    (tmp_path / "seeds.json").write_text(json.dumps({"swept": spec}))
    done = succeeds("train", "file", "seeds.json", "--ray-num-cpus", "1", cwd=tmp_path)
    assert done.stderr == "", done.stderr
    results = sorted((tmp_path / "results/seeds/swept").glob("trial_*/result.json"))
    first, second = (json.loads(path.read_text().splitlines()[-1]) for path in results)
    assert first["pid"] == second["pid"]
    (*_, own) = alone("PPO", {**config, "env": "CartPole-v1", "seed": 1})
    assert differing([own], [figures(second)]) == []
    assert differing([own], [figures(first)])
