"""RED as an algorithm: both phases, ablations, checkpoints, won games, and RLlib's side of the masked distribution."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rllib_llm_comm import MAPPOConfig, REDConfig, load_policy
from rllib_llm_comm.baselines.red.officer_cloning import (
    SEEN,
    OfficerCloningSettings,
    OfficerDemonstrationSettings,
    clone_into,
    write_demonstrations,
)
from rllib_llm_comm.baselines.red.officer_network import OfficerSettings
from rllib_llm_comm.baselines.red.red import (
    CollectiveDistribution,
    KeepPairs,
    KeepWonGames,
    OfficerModule,
    RLPhase,
    WonGames,
)
from rllib_llm_comm.envs import minirts
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

SMALL = {"filters": 4, "width": 8, "words": 4, "keys": 4}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("red")
    write_demonstrations(root / "shown", OfficerDemonstrationSettings(games=3, max_tick=600))
    how = OfficerCloningSettings(network=OfficerSettings(**SMALL), epochs=1, batch_size=16)
    clone_into(root / "officer", root / "shown", how)
    return {"demonstrations": str(root / "shown"), "officer": str(root / "officer")}


def red(folders, **training):
    sizes = {"train_batch_size_per_learner": 40, "minibatch_size": 20, "num_epochs": 1, "lr": 1e-3}
    phases = {"rl_updates": 2, "critic_first": 1, "warm_up": 0, "clone_steps": 2, "clone_batch_size": 8}
    return (
        REDConfig()
        .environment(env_config={"opponent": "simple", "max_tick": 600})
        .policy_network(**SMALL)
        .training(**{**sizes, **phases, **folders, **training})
        .env_runners(num_envs_per_env_runner=2)
        .debugging(seed=0)
    )


def test_settings_of_a_file_are_filled_up_with_those_of_the_game():
    config = REDConfig().update_from_dict({"method": "rl", "env_config": {"opponent": "simple"}})
    config.validate()
    assert config.env_config == {**REDConfig.env_defaults, "opponent": "simple"}
    elsewhere, steps = "rllib_llm_comm/overcooked_text-v0", {"max_game_steps": 50}
    for other in (
        REDConfig().environment(elsewhere, env_config=steps),
        REDConfig().environment(env_config=steps).environment(elsewhere),
        REDConfig().update_from_dict({"env_config": steps, "env": elsewhere}),
        REDConfig().update_from_dict({"env": elsewhere, "env_config": steps}),
    ):
        assert other.env_config == steps


def weights(algo):
    return {k: v.clone() for k, v in learner(algo).module["shared"].unwrapped().network.state_dict().items()}


def learner(algo):
    return algo.learner_group._learner


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_both_phases_and_a_checkpoint_that_goes_on(folders, tmp_path):
    algo = red(folders).build_algo()
    first = load_policy(folders["officer"]).network.state_dict()
    assert same(first, weights(algo))
    results = algo.train()
    told = results["learners"]["shared"]
    assert float(told["ratio_first_minibatch"]) < 1e-5 and set(results["red"]) == {"won_share"}
    learned = weights(algo)
    changed = {name for name in first if not torch.equal(first[name], learned[name])}
    assert changed == {"value.weight", "value.bias"}  # the critic learns alone at first
    learner(algo)._won.add({k: v[:5] for k, v in learner(algo)._shown.columns.items() if k != "game"})
    results = algo.train()
    assert results["red"]["won_games"] == 1 and np.isfinite(results["red"]["held_out_nll"])
    near = results["red"]["held_out_nll"] <= 1.1 * learner(algo)._first_nll
    assert near and results["red"]["clone_steps"] == 2
    assert same(weights(algo), algo.env_runner.module["shared"].unwrapped().network.state_dict())
    learner(algo)._first_nll = 1e-3  # out of reach
    assert learner(algo).clone()["clone_steps"] == 6
    learner(algo)._first_nll = 5.0
    path = algo.save_to_path(str(tmp_path / "checkpoint"))
    kept, moments, phase = weights(algo), learner(algo)._cloner.state_dict(), learner(algo).phase.get_state()
    algo.stop()
    again = Algorithm.from_checkpoint(path)
    assert same(kept, weights(again)) and learner(again)._won.count == 5 and learner(again)._first_nll == 5.0
    assert learner(again).phase.get_state() == phase and phase == {"done": 0, "all": 2, "games": []}
    restored = learner(again)._cloner.state_dict()["state"]
    assert restored and all(torch.equal(restored[n]["exp_avg"], one["exp_avg"]) for n, one in moments["state"].items())
    again.train()
    again.stop()
    officer = minirts.parallel_env(executor=f"trained:{path}", max_tick=200, observe=["vector"])
    officer.reset(seed=0)
    while officer.agents:
        officer.step(dict.fromkeys(officer.agents, 1))  # mine
    assert load_policy(path).manifest.provenance["method"] == "red"


def test_an_rl_phase_ends_early_where_enough_games_are_won(folders):
    with running(red(folders, rl_updates=5, rl_window=2, rl_until=0.5)) as algo:
        algo.train()
        learner(algo).phase.set_state({"done": 1, "games": [(4, 10)]})
        lost = algo.train()["red"]  # nobody wins in 600 ticks
        assert set(lost) == {"won_share"} and 0.0 < lost["won_share"] < 0.4
        learner(algo).phase.set_state({"done": 1, "games": [(40, 40)]})
        won = algo.train()["red"]
        assert won["won_share"] == won["cloned_won_share"] > 0.5 and won["clone_steps"] == 2
        algo.train()
        assert learner(algo).phase.get_state()["done"] == 1  # a phase has `rl_window` updates at least


def test_every_game_of_training_has_a_start_of_its_own_and_is_kept_whole(folders, tmp_path):
    seeds, counts = [], []

    class Watch(RLlibCallback):
        def on_episode_start(self, *, env, env_index, **kwargs):
            start = env.envs[env_index].unwrapped._start
            if start is not None:
                seeds.append(start.seed)

        def on_sample_end(self, *, samples, **kwargs):
            counts.append([len(next(iter(one.agent_episodes.values()))) for one in samples])

    config = red(folders, method="rl", demonstrations=None, train_batch_size_per_learner=20).callbacks(Watch)
    with running(config.env_runners(num_envs_per_env_runner=3)) as algo:
        for _ in range(3):
            algo.train()
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    assert len(seeds) == len(set(seeds)) == 9
    assert counts == [[12] * 3] * 3  # 600 ticks; nothing is played that is not learned from
    with running(Algorithm.from_checkpoint(path)) as again:
        again.train()
        starts = [game.unwrapped._start for game in again.env_runner.env.envs]
    assert all(int(start.name.split("/")[1]) > 36 for start in starts)  # behind all that was played
    assert not {start.seed for start in starts} & set(seeds)


def test_ablations_clone_with_ppo_or_not_at_all(folders):
    with running(red(folders, method="joint", critic_first=0)) as joint:
        result = joint.train()
        assert np.isfinite(float(result["learners"]["shared"]["clone_loss"]))
        assert set(result["red"]) == {"won_share"}
    with running(red({**folders, "demonstrations": None}, method="rl", rl_updates=1)) as alone:
        assert set(alone.train()["red"]) == {"won_share"}


def test_mappo_takes_the_officers_module_by_hand(tmp_path):
    spec = RLModuleSpec(module_class=OfficerModule, model_config=SMALL)
    config = (
        MAPPOConfig()
        .environment("rllib_llm_comm/minirts-v0", env_config={**REDConfig.env_defaults, "max_tick": 400})
        .rl_module(rl_module_spec=spec)
        .training(train_batch_size_per_learner=16, num_epochs=1)
        .env_runners(num_envs_per_env_runner=1)
        .debugging(seed=0)
    )
    with running(config) as algo:
        before = weights(algo)
        told = algo.train()["learners"]["shared"]
        assert float(told["ratio_first_minibatch"]) < 1e-5 and np.isfinite(float(told["vf_loss"]))
        after = weights(algo)
        for name in ("value.weight", "kind.weight", "map.first.weight"):
            assert not torch.equal(before[name], after[name])
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    policy = load_policy(path)
    assert policy.manifest.kind == "officer" and same(policy.network.state_dict(), after)
    assert policy.network.settings.critic_observation == "own"


def test_red_reads_the_shared_view_with_its_critic_unless_told_otherwise(folders):
    assert REDConfig().network_settings().critic_observation == "team"
    config = red(folders).policy_network(critic_observation="own")
    config.validate()  # the officer's weights fit either
    assert config.get_default_rl_module_spec().model_config["critic_observation"] == "own"


def test_won_games_are_kept_whole_and_lost_ones_are_not():
    spaces = minirts.parallel_env(action_level="red", observe=["officer"]).observation_space("alice").spaces

    def game(paid):
        agents = {
            agent: SingleAgentEpisode(
                observations=[
                    {name: np.full(space.shape, at, space.dtype) for name, space in spaces.items() if name in SEEN}
                    for at in range(4)
                ],
                actions=[np.full(58, at) for at in range(3)],
                rewards=[0.0, 0.0, paid],
                terminated=True,
                len_lookback_buffer=0,
            )
            for agent in ("alice", "bob")
        }
        return SimpleNamespace(agent_episodes=agents)

    won = WonGames(100)
    phase = RLPhase(5, 1, None)
    KeepWonGames(won=won, phase=phase)(rl_module=None, batch={}, episodes=[game(1.0), game(-1.0), game(0.0)])
    assert phase.won_share == pytest.approx(1 / 3)
    assert len(won) == 1 and won.count == 6
    assert won.columns()["action"][:, 0].tolist() == won.columns()["ages"][:, 0].tolist() == [0, 1, 2, 0, 1, 2]


def test_officers_of_a_moment_stay_in_one_minibatch():
    env = minirts.parallel_env(action_level="red", observe=["officer"])
    moments = [env.reset(seed=seed)[0] for seed in range(2)]
    rows = [moments[moment][agent] for agent in ("alice", "bob") for moment in range(2)]
    seen = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0] if name != "head_mask"}
    batch = KeepPairs()(rl_module=None, batch={"shared": {Columns.OBS: seen}}, episodes=[])
    alice, later_alice, bob, later_bob = batch["shared"]["row_group"].tolist()
    assert alice == bob != later_alice == later_bob


@pytest.mark.parametrize("critic_observation", ["own", "team"])
def test_rllib_draws_and_judges_as_the_network_does(folders, critic_observation):
    network = load_policy(folders["officer"]).network
    env = minirts.parallel_env(action_level="red", observe=["officer"])
    seen, _ = env.reset(seed=0)
    batch = {
        name: torch.from_numpy(np.stack([seen[agent][name] for agent in env.agents]))
        for name in seen["alice"]
        if name != "head_mask"
    }
    with torch.no_grad():
        choice, _ = network(batch)
        distribution = CollectiveDistribution.from_logits(choice)
        actions = distribution.sample()
    assert torch.allclose(distribution.logp(actions), choice.logp(actions), atol=1e-5)
    many = {name: part.repeat(150, *[1] * (part.dim() - 1)) for name, part in batch.items()}
    spaces = {"observation_space": env.observation_space("alice"), "action_space": env.action_space("alice")}
    module = OfficerModule(**spaces, model_config={**SMALL, "critic_observation": critic_observation})
    with torch.no_grad():
        whole, pieces = module.network(many)[1], module.compute_values({"obs": many})
        shared = module.forward_train({"obs": many})[Columns.EMBEDDINGS]
    assert len(pieces) == 300 and torch.allclose(whole, pieces, atol=1e-5)
    assert torch.allclose(whole, module.compute_values({"obs": many}, embeddings=shared), atol=1e-5)
    assert torch.equal(distribution.to_deterministic().sample(), choice.sample(greedy=True))


LEVEL = {"env_config": {"action_level": "command"}}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda c: c.training(method="dagger"), ("method", "choice")),
        (lambda c: c.training(demonstrations=None), ("demonstrations",)),
        (lambda c: c.training(rl_until=0.5, rl_updates=5), ("rl_window",)),
        (lambda c: c.training(officer="/nowhere/officer"), ("", "invalid", "no checkpoint at '/nowhere/officer'")),
        (lambda c: c.training(officer="zoo:verco_salad"), ("", "invalid", "Verco.*`officer`")),
        (lambda c: c.policy_network(width=16), ("width",)),
        (lambda c: c.policy_network(critic_observation="auto"), ("critic_observation", "choice")),
        (lambda c: c.environment(**LEVEL), ("env_config.action_level",)),
        (
            lambda c: c.evaluation(evaluation_config=LEVEL).get_evaluation_config_object(),
            ("env_config.action_level",),
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(folders, change, wrong):
    with refused(*wrong):
        change(red(folders)).validate()
