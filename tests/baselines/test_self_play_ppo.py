"""Self-play PPO on arrays: the same games, values and advantages as one by one, and it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllib_llm_comm import SelfPlayPPOConfig, load_policy
from rllib_llm_comm.baselines.population.self_play_ppo import shaping_factor
from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import evaluate, record
from rllib_llm_comm.rl.train_batch import semi_markov_gae
from tests.refusal import refused
from tests.running import cooks, curve, running

pytestmark = pytest.mark.usefixtures("small_ray")


def config(**training):
    return cooks(SelfPlayPPOConfig, rows=2 * 3 * 40, **training)


@pytest.fixture(scope="module")
def trained(small_ray, tmp_path_factory):
    """An algorithm after two iterations, their results, and its checkpoint."""
    with running(config(shaping_horizon=480)) as algo:
        results = [algo.train() for _ in range(2)]
        yield algo, results, algo.save_to_path(str(tmp_path_factory.mktemp("trained") / "checkpoint"))


def test_a_roll_out_is_that_of_single_games():
    """Actions of a roll-out, played again in PettingZoo's form: same observations and rewards; GAE game by game."""
    with running(config()) as algo:
        runner = algo.env_runner
        columns = runner.roll_out(40, 0.5)
        network = runner.module["shared"].unwrapped().network
    seen = columns["obs"]["vector"].reshape(40, 3, 2, -1)
    actions = columns["actions"].reshape(40, 3, 2)
    values = columns["vf_preds"].reshape(40, 3, 2)
    targets = columns["value_targets"].reshape(40, 3, 2)
    with torch.no_grad():
        again = network.values({"vector": torch.from_numpy(columns["obs"]["vector"])}).numpy()
    np.testing.assert_allclose(again, columns["vf_preds"], rtol=1e-4, atol=1e-5)
    for game in range(3):
        env = parallel_env(horizon=30, observe=["vector"], vector="planes", shaping=0.5)
        observations, _ = env.reset()
        start, rewards = 0, []
        for t in range(40):
            for i, agent in enumerate(("alice", "bob")):
                np.testing.assert_array_equal(observations[agent]["vector"], seen[t, game, i])
            chosen = dict(zip(("alice", "bob"), actions[t, game].tolist(), strict=True))
            observations, paid, _, _, _ = env.step(chosen)
            rewards.append([paid["alice"], paid["bob"]])
            if not env.agents or t == 39:
                final = np.stack([observations[agent]["vector"] for agent in ("alice", "bob")])
                with torch.no_grad():
                    behind = network.values({"vector": torch.from_numpy(final)}).numpy()
                for i in range(2):
                    own = np.append(values[start : t + 1, game, i], behind[i])
                    run = np.array(rewards)[:, i]
                    _, target = semi_markov_gae(run, np.ones(len(run)), own, False, 0.99, 0.98)
                    np.testing.assert_allclose(targets[start : t + 1, game, i], target, rtol=1e-4, atol=1e-4)
                start, rewards = t + 1, []
                if not env.agents:
                    observations, _ = env.reset()


def require_learned(results):
    for iteration, told in enumerate(results, start=1):
        assert float(told["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
        assert told["env_runners"]["num_env_steps_sampled_lifetime"] == 120 * iteration
        assert {"score", "soups", "shaped"} <= set(told["env_runners"])


def test_trains_saves_and_plays(trained, tmp_path):
    algo, results, path = trained
    require_learned(results)
    first = algo.learner_group._learner.module["shared"].unwrapped().network.actor[0]
    assert len(first.columns) < first.in_features / 3  # most planes hold nothing in this kitchen
    policy = load_policy(path)
    assert policy.manifest.algorithm == "SelfPlayPPO"
    result = evaluate(policy, episodes=3)
    assert result.lengths == [30] * 3 and "score" in result.metrics
    page = write_replay(record(policy), tmp_path / "replay.html").read_text()
    assert "overcooked_ai" in page


@pytest.mark.slow
def test_trains_with_a_runner_and_a_learner_elsewhere(tmp_path):
    with running(config(shaping_horizon=360).env_runners(num_env_runners=1).learners(num_learners=1)) as algo:
        require_learned([algo.train() for _ in range(3)])
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    assert evaluate(load_policy(path), episodes=3).lengths == [30] * 3


@pytest.mark.slow
def test_two_learners_do_not_drift():
    with running(config().env_runners(num_env_runners=1).learners(num_learners=2)) as algo:
        assert np.isfinite(float(algo.train()["learners"]["shared"]["vf_loss"]))
        answers = algo.learner_group.foreach_learner(lambda learner: learner.module["shared"].get_state())
        first, second = (answer.get() for answer in answers)
    assert all(np.array_equal(value, second[name]) for name, value in first.items())


def require_runners_judge_as_the_learner(algo):
    learned = algo.learner_group._learner.module["shared"].get_state()
    used = algo.env_runner.module["shared"].get_state()
    assert any("critic" in name for name in learned)
    assert all(np.array_equal(value, used[name]) for name, value in learned.items())


def test_a_restored_run_goes_on_where_it_was(trained):
    """Shaped rewards fade by the steps of the whole life, not of the process."""
    algo, _, path = trained
    with running(type(algo).from_checkpoint(path)) as again:
        require_runners_judge_as_the_learner(again)
        assert again._game_steps() == 240 and shaping_factor(again._game_steps(), 480) == 0.5
        expected = algo.learner_group._learner.module["shared"].get_state()
        restored = again.learner_group._learner.module["shared"].get_state()
        assert all(np.array_equal(value, restored[name]) for name, value in expected.items())
        assert again.train()["env_runners"]["num_env_steps_sampled_lifetime"] == 360


def test_runners_judge_with_the_learners_critic_from_the_start_and_after_set_state_and_rllibs_evaluation_plays(trained):
    """Also without a seed; they compute the values of PPO."""
    own = {"evaluation_interval": 1, "evaluation_duration": 2, "evaluation_num_env_runners": 0}
    with running(config(shaping_horizon=480).debugging(seed=None).evaluation(**own)) as algo:
        require_runners_judge_as_the_learner(algo)
        algo.set_state(trained[0].get_state())
        assert algo.iteration == 2
        require_runners_judge_as_the_learner(algo)
        results = algo.train()["evaluation"]["env_runners"]
    assert results["num_episodes"] == 2 and results["episode_len_mean"] == 30


def test_same_seed_same_curve(trained):
    with running(config(shaping_horizon=480)) as algo:
        assert curve(algo) == [float(told["learners"]["shared"]["policy_loss"]) for told in trained[1]]


def test_shaping_fades_on_a_line():
    assert [shaping_factor(steps, 100) for steps in (0, 25, 100, 250)] == [1.0, 0.75, 0.0, 0.0]
    assert shaping_factor(10**9, None) == 1.0
    assert shaping_factor(0, 0) == shaping_factor(100, 0) == 0.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.environment("rllib_llm_comm/overcooked_text-v0"), ("env",)),
        (lambda c: c.environment(env_config={"vector": "features"}), ("env_config.vector",)),
        (lambda c: c.environment(env_config={"action_level": "goal"}), ("env_config.action_level",)),
        (lambda c: c.training(shaping_horizon=-1), ("shaping_horizon", "range")),
        (lambda c: c.training(train_batch_size_per_learner=100), ("train_batch_size_per_learner",)),
    ],
)
def test_bad_settings_are_named(change, why):
    with refused(*why):
        change(config()).validate()


def test_learns_to_fill_the_pot():
    """Shaped rewards of a small kitchen rise well above those of the first games."""
    with running(
        config(train_batch_size_per_learner=2 * 16 * 100, minibatch_size=800, lr=3e-3, shaping_horizon=None)
        .environment(env_config={"layout": "cramped_room", "horizon": 100})
        .policy_network(hiddens=[32])
        .env_runners(num_envs_per_env_runner=16)
        .reporting(metrics_num_episodes_for_smoothing=16)
    ) as algo:
        shaped = [float(algo.train()["env_runners"]["shaped"]) for _ in range(40)]
    assert np.mean(shaped[-5:]) > 2 * np.mean(shaped[:5]) + 5, shaped
