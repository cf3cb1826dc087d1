"""PBT as an algorithm: agents train side by side as Ray tasks, state in the middle of an iteration, the kept policy."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm import PBTConfig, load_policy
from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO
from rllib_llm_comm.baselines.population.pbt import PBT, MemberRun, go_on_from, run_member
from rllib_llm_comm.evaluation.rollout import evaluate
from tests.refusal import refused
from tests.running import cooks, running

pytestmark = pytest.mark.usefixtures("small_ray")


def config(**population):
    small = {"size": 2, "run_batches": 1, "selection_games": 2, "members_at_once": 0}
    made = cooks(PBTConfig, rows=2 * 60, horizon=60, width=8, games=2, shaping_horizon=10_000)
    return made.population(**{**small, **population})


def weights(algo):
    return [agent.state["policy"]["policy"]["files"] for agent in algo._population.agents]


def test_rounds_and_iterations_and_a_restored_run_goes_on_as_the_other(tmp_path):
    with running(config()) as algo:
        first = algo.train()
        assert first["env_runners"]["num_env_steps_sampled_lifetime"] == 2 * 120
        assert first["decisions"] == 2 * 120, "of the agents that learn, as `train_batch_size_per_learner` counts"
        assert first["population"]["iterations"] == 0 and first["population"]["game_steps"] == 240
        shown = first["env_runners"]
        assert shown["agent_episode_returns_mean"] == {"alice": shown["score"], "bob": shown["score"]}
        path = algo.save_to_path(str(tmp_path / "middle"))
        second = algo.train()
        ends = weights(algo)
        settings = [agent.settings for agent in algo._population.agents]
        assert [agent.runs for agent in algo._population.agents] == [2, 2]
    assert second["population"]["iterations"] == 1
    assert second["population"]["game_steps"] == 480 + 4 * 60, "the games for the fitness count, too"
    found = second["population"]
    assert {"score_self_play", "score_cross_play"} <= set(found) and found["worst"] != found["best"]
    assert ends[int(found["worst"])] == ends[int(found["best"])]
    with running(PBT.from_checkpoint(path)) as again:
        assert len(again._population.rounds) == 1
        assert again.train()["population"]["game_steps"] == 720
        assert weights(again) == ends and [agent.settings for agent in again._population.agents] == settings
        assert again.train()["population"]["worst"] == second["population"]["worst"], "until the next one is told"
        last = weights(again)[0]
        kept = load_policy(again.save_to_path(str(tmp_path / "end")))
    assert kept.manifest.algorithm == "PBT" and evaluate(kept, episodes=2).lengths == [60, 60]
    own = load_weights(last)
    assert all(np.array_equal(tensor, own[name]) for name, tensor in kept.network.state_dict().items())


@pytest.mark.slow
def test_tasks_side_by_side_give_what_one_process_gives():
    found = []
    for at_once in (0, 2):
        with running(config(members_at_once=at_once)) as algo:
            algo.train()
            found.append(weights(algo))
    assert found[0] == found[1]


def load_weights(files):
    from safetensors.torch import load

    (content,) = files.values()
    return load(content)


@pytest.fixture(scope="module")
def first(small_ray):
    """The first run of an agent."""
    return run_member(MemberRun(BestResponsePPO, config().training(lr=3e-3).debugging(seed=5), 0))


def test_a_run_goes_on_with_its_optimizer_and_takes_the_new_rate(first):
    settings = config().training(lr=3e-3)
    second = run_member(MemberRun(BestResponsePPO, settings, 1, first.state["learner"], first.state["policy"]))
    slow = settings.copy().training(lr=1e-9, critic_lr=1e-9)
    third = run_member(MemberRun(BestResponsePPO, slow, 1, *second.state.values()))
    before, after = (load_weights(result.state["policy"]["policy"]["files"]) for result in (second, third))
    moved = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert 0 < moved < 1e-6, "the restored optimizer moves at the rate of its new settings"
    optimizers = third.state["learner"]["optimizer"]
    assert {int(np.max(p["step"])) for one in optimizers.values() for p in one["state"]["state"].values()} == {8}


def test_a_run_acts_and_judges_with_what_it_goes_on_from_and_rewards_fade_over_all_runs(first):
    state = first.state["learner"]
    with running(BestResponsePPO(config=config())) as algo:
        go_on_from(algo, state)
        held = algo.env_runner.module["shared"].get_state()
        algo.steps_before = 120
        assert algo._game_steps() == 120
    expected = state["rl_module"]["shared"]
    assert set(held) == set(expected) and all(np.array_equal(held[name], expected[name]) for name in held)


def test_kept_policies():
    class Kept(PBT):
        def __init__(self, kept):
            self.config = config(kept=kept)

    class Population:
        agents = [type("Agent", (), {"state": {"policy": "last of agent 0"}})]
        best = [(3.0, "best of agent 0"), (5.0, "best of agent 1")]

    assert Kept("last")._kept_policy(Population()) == "last of agent 0"
    assert Kept("best")._kept_policy(Population()) == "best of agent 1"


def test_tune_reserves_cpus_for_the_agents():
    bundles = PBT.default_resource_request(config(members_at_once=2).to_dict()).bundles
    assert bundles[1:] == [{"CPU": 1.0}] * 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.population(size=1), ("size", "range")),
        (lambda c: c.population(selection_games=3), ("selection_games",)),
        (lambda c: c.population(mutate=["gamma"]), ("mutate.0", "choice")),
        (lambda c: c.partners(pool=["random"]), ("pool",)),
        (lambda c: c.env_runners(num_env_runners=1), ("num_env_runners",)),
        (lambda c: c.training(lr=[[0, 1e-3], [100, 1e-4]]), ("lr",)),
    ],
)
def test_bad_settings_are_named(change, why):
    with refused(*why):
        change(config()).validate()
