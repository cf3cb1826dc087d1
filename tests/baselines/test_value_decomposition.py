"""VDN, QMIX, LDSA, ROMA and MASER under RLlib: runners, the learner, checkpoints, resuming, policies without Ray."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from pettingzoo import ParallelEnv
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from toys import ColourTalk, register

from rllib_llm_comm import LDSAConfig, MASERConfig, QMIXConfig, ROMAConfig, VDNConfig, load_policy
from rllib_llm_comm.baselines.value.joint_game import JointGame
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")
CONFIGS = (VDNConfig, QMIXConfig, LDSAConfig, ROMAConfig, MASERConfig)


class Echo(ParallelEnv):
    """Both are paid if both name the bit that they saw one step before; cut by a time limit after some steps."""

    metadata = {"name": "echo"}

    def __init__(self, length=6):
        self.possible_agents, self.agents, self.length = ["a", "b"], [], length
        self.rng = np.random.default_rng()

    def observation_space(self, agent):
        return gym.spaces.Discrete(2)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t, self.bits = list(self.possible_agents), 0, [0, int(self.rng.integers(2))]
        return dict.fromkeys(self.agents, self.bits[-1]), {agent: {} for agent in self.agents}

    def step(self, actions):
        agents, paid = self.agents, float(all(actions[agent] == self.bits[-2] for agent in self.agents))
        self.t += 1
        self.bits.append(int(self.rng.integers(2)))
        over = self.t >= self.length
        self.agents = [] if over else agents
        rewards, cuts = dict.fromkeys(agents, paid), dict.fromkeys(agents, over)
        ends, infos = dict.fromkeys(agents, False), {agent: {} for agent in agents}
        return dict.fromkeys(agents, self.bits[-1]), rewards, ends, cuts, infos


def echo(kind=QMIXConfig, **settings):
    register_parallel_env("toys/echo", entry=Echo)
    return (
        kind()
        .environment("toys/echo", env_config={"length": 6})
        .env_runners(num_envs_per_env_runner=2)
        .policy_network(width=8)
        .training(train_batch_size_per_learner=4, buffer_episodes=20, target_network_update_freq=40)
        .training(**settings)
        .reporting(min_sample_timesteps_per_iteration=100)
        .debugging(seed=0)
    )


def learned(algo):
    return algo.learner_group._learner.module["default_policy"].unwrapped()


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_learns_saves_and_acts_without_ray_as_in_rllib(kind, tmp_path):
    with running(echo(kind, optimizer_name="adam" if kind is QMIXConfig else "rmsprop")) as algo:
        results = algo.train()
        told = results["learners"]["default_policy"].items()
        figures = {name: float(value) for name, value in told if not isinstance(value, dict)}
        assert np.isfinite(list(figures.values())).all() and figures["num_target_updates"] >= 2
        assert results["env_runners"]["episode_len_mean"] == 6 and len(algo.local_replay_buffer) >= 16
        episode = algo.local_replay_buffer._episodes[0]
        assert episode["seen"].shape == (7, 2, 2) and not episode["terminated"].any()
        require_that_an_update_moves_all_weights_and_nothing_of_the_target(algo, kind)
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        module = learned(algo).team.eval()
    policy = load_policy(path)
    assert policy.manifest.kind == "valued" and policy.network.mixer is None
    assert policy.manifest.algorithm == kind.__name__.removesuffix("Config")
    torch.testing.assert_close(policy.network.agents.state_dict(), module.agents.state_dict())
    result = evaluate(policy, episodes=3)
    # Nothing but ROMA's roles is drawn, and draws of actions would move those.
    alone = evaluate(load_policy(path), episodes=3, num_envs=1, explore=kind is ROMAConfig)
    assert result.length_mean == 6 and result.returns == alone.returns
    assert not result.sampled, "the best action is taken, whatever was asked for"
    once = CrossPlaySettings(episodes=1)
    sampled = [CrossPlay([path], partners, once).play().sampled for partners in (None, {"r": ["random"]})]
    assert sampled == [False, True]
    if kind is not ROMAConfig:  # whose roles are drawn
        assert_acts_as(policy, module)


def assert_acts_as(policy, team):
    game, env = JointGame(Echo()), policy.env()
    seen, _ = game.reset(seed=3)
    observations, _ = env.reset(seed=3)
    memory, last = team.initial_memory(1), torch.full((1, 1, 2), -1)
    policy.reset(seed=0)
    while env.agents:
        with torch.no_grad():
            out = team.unroll(torch.tensor(seen["seen"])[None, None], last, memory, sample=False)
        memory, last = out.memory, out.values.argmax(-1)
        decisions = policy.act({"b": observations["b"]}), policy.act({"a": observations["a"]})  # each for itself
        actions = {agent: one.action for part in decisions for agent, one in part.items()}
        assert [actions["a"], actions["b"]] == last[0, 0].tolist()
        assert decisions[1]["a"].value == pytest.approx(float(out.values[0, 0, 0].max()), rel=1e-4)
        seen, *_ = game.step(last[0, 0].numpy())
        observations, *_ = env.step(actions)


@pytest.mark.parametrize(
    "config",
    [
        lambda: echo(MASERConfig, faithful=True),
        lambda: echo(ROMAConfig, raw_roles=True),
        lambda: echo(LDSAConfig).policy_network(random_subtasks=True),
        lambda: echo(VDNConfig, optimizer_name="adam", td_lambda=0.6, episodes_per_update=4),
        lambda: echo(MASERConfig, sequence_length=3),
    ],
    ids=["maser as released", "roma without its losses", "random subtasks", "pymarl2", "pieces"],
)
def test_ablations_and_other_settings_learn(config):
    with running(config()) as algo:
        assert np.isfinite(float(algo.train()["learners"]["default_policy"]["td_loss"]))


@pytest.mark.parametrize("stored", [True, False])
def test_a_restored_run_goes_on_equally(stored, tmp_path, caplog):
    with running(echo(store_buffer_in_checkpoints=stored)) as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        with running(type(algo).from_checkpoint(path)) as again:
            assert len(again.local_replay_buffer) == (len(algo.local_replay_buffer) if stored else 0)
            assert ("The replay begins empty" in caplog.text) != stored
            batch = algo.local_replay_buffer.sample(4)
            if stored:
                np.testing.assert_array_equal(again.local_replay_buffer.sample(4)["seen"], batch["seen"])
            for one in (algo, again):
                for _ in range(2):
                    update(one, batch)
            first, second = learned(algo).state_dict(), learned(again).state_dict()
            assert any(name.startswith("target.mixer") for name in first)
            assert all(torch.equal(value, second[name]) for name, value in first.items())
            assert again._game_steps() == algo._game_steps() >= 100
            results = again.train()
            assert np.isfinite(float(results["learners"]["default_policy"]["td_loss"]))
            played = results["env_runners"]
            decisions = sum(played["num_agent_steps_sampled_lifetime"].values())
            assert decisions == 2 * played["num_env_steps_sampled_lifetime"], "each agent makes one per step"


def test_runners_elsewhere_play_whole_episodes_of_their_own_with_masks_and_busy_agents():
    with running(
        QMIXConfig()
        .environment(register(), env_config={"busy": (1, 2), "length": 6})
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2)
        .policy_network(width=8)
        .training(train_batch_size_per_learner=4, epsilon=[(0, 1.0), (60, 0.0)])
        .reporting(min_sample_timesteps_per_iteration=60)
        .debugging(seed=0)
    ) as algo:
        first, second = algo.env_runner_group.foreach_env_runner(lambda runner: runner._seed, local_env_runner=False)
        assert abs(second - first) >= 2, "no game of one has the seed of another"
        assert np.isfinite(float(algo.train()["learners"]["default_policy"]["td_loss"]))
        episodes = list(algo.local_replay_buffer._episodes)
    for episode in episodes:
        assert episode["active"][:, 1].tolist()[:3] == [1, 0, 1]
        played = np.take_along_axis(episode["action_mask"][:-1], episode["actions"][..., None], -1)
        assert (played == 1).all()
        assert (episode["actions"][1::2, 1] == 0).all()
    game = JointGame(ColourTalk(busy=(1, 2), length=6))
    assert episodes[0]["seen"].shape[1:] == game.observation_space["seen"].shape


def update(algo, batch):
    rows = MultiAgentBatch({"default_policy": SampleBatch(copy.deepcopy(batch))}, env_steps=24)
    algo.learner_group.update(batch=rows, timesteps={"num_env_steps_sampled_lifetime": algo._game_steps()})


def require_that_an_update_moves_all_weights_and_nothing_of_the_target(algo, kind):
    module = learned(algo)
    before = copy.deepcopy(module.state_dict())
    update(algo, algo.local_replay_buffer.sample(4))
    weights = {name: one for name, one in module.team.named_parameters() if name.endswith("weight")}
    # Not all biases: those before a batch normalisation and those of the distance network's end cancel out.
    assert not [name for name, one in weights.items() if torch.equal(one, before[f"team.{name}"])]
    assert sum(name.startswith("mixer.") for name in weights) == (0 if kind is VDNConfig else 7)
    target = module.target.state_dict()
    assert all(torch.equal(values, before[f"target.{name}"]) for name, values in target.items())
    assert not module.target.training and any("running_mean" in name for name in target) == (kind is ROMAConfig)


def test_gradients_are_clipped_by_the_norm_of_all_weights_together(monkeypatch):
    with running(echo(grad_clip=None)) as algo:
        while len(algo.local_replay_buffer) < 4:
            algo.training_step()
        batch = algo.local_replay_buffer.sample(4)
        learner, team, seen = algo.learner_group._learner, learned(algo).team, []

        def look(gradients):  # and apply nothing, so that both updates have the same gradients
            seen.append({name: gradients[weights].clone() for name, weights in team.named_parameters()})

        monkeypatch.setattr(learner, "apply_gradients", look)
        update(algo, batch)
        most = float(torch.stack([gradient.norm() for gradient in seen[0].values()]).norm()) / 3
        for config in (learner.config, learner.config.get_config_for_module("default_policy")):
            monkeypatch.setitem(config.__dict__, "grad_clip", most)
        update(algo, batch)
        free, clipped = seen
        for name, gradient in free.items():
            torch.testing.assert_close(clipped[name], gradient / 3, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("episodes_per_update", [1, 3])
def test_there_is_one_update_for_so_many_episodes_and_epsilon_follows_the_game_steps(episodes_per_update, monkeypatch):
    # A batch of one episode, so that learning begins at once.
    with running(echo(episodes_per_update=episodes_per_update, train_batch_size_per_learner=1)) as algo:
        episodes, updates, asked = [], [], []
        module = algo.env_runner.module.unwrapped()
        epsilon_at = module.epsilon_at
        monkeypatch.setattr(module, "epsilon_at", lambda step: asked.append(int(step)) or epsilon_at(step))
        add, learn = algo.local_replay_buffer.add, algo.learner_group.update
        monkeypatch.setattr(algo.local_replay_buffer, "add", lambda played: episodes.extend(played) or add(played))
        monkeypatch.setattr(algo.learner_group, "update", lambda **told: updates.append(1) or learn(**told))
        for _ in range(7):
            algo.training_step()
            assert len(updates) == len(episodes) // episodes_per_update
        assert len(episodes) >= 7 * episodes_per_update
        assert asked[0] == 0 and asked == sorted(asked) and asked[-1] >= 0.8 * algo._game_steps() > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [VDNConfig, QMIXConfig])
def test_a_team_learns_to_echo(kind):
    config = echo(kind, epsilon=[(0, 1.0), (1500, 0.05)], lr=3e-3, gamma=0.5, train_batch_size_per_learner=16)
    with running(config.policy_network(width=16)) as algo:
        for _ in range(30):
            algo.train()
        assert evaluate_team(learned(algo).team.eval()) > 5.0  # of 6; chance: 1.5


def evaluate_team(team, games=40):
    game, returns = JointGame(Echo()), []
    for seed in range(games):
        seen, _ = game.reset(seed=seed)
        memory, last, over, earned = team.initial_memory(1), torch.full((1, 1, 2), -1), False, 0.0
        while not over:
            batch = {"seen": torch.as_tensor(seen["seen"][None, None])}
            with torch.no_grad():
                out = team.unroll(batch["seen"], last, memory, sample=False)
            memory, last = out.memory, out.values.argmax(-1)
            seen, reward, _, over, _ = game.step(last[0, 0].numpy())
            earned += reward
        returns.append(earned)
    return float(np.mean(returns))
