"""Games, settings, checkpoints and masks that value decomposition takes as they are, or refuses in a sentence."""

from __future__ import annotations

import pickle
import shutil

import gymnasium as gym
import numpy as np
import pytest
import torch
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper
from ray.tune.registry import register_env

from rllib_llm_comm import QMIXConfig, load_policy
from rllib_llm_comm.baselines.value.value_decomposition import facts_of_checkpoint
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter, register_parallel_env
from tests.refusal import refused
from tests.running import running

NAMES = ("ann", "ben")
ENV_ID = "toys/foraging"


class Foraging(ParallelEnv):
    """Two steps; each agent is paid 1 a step. `env` is a name of its own here, as of no wrapper."""

    metadata = {"name": "foraging"}

    def __init__(self, names=NAMES, numbers=3, actions=2, blind=False):
        self.possible_agents, self.agents, self.env = list(names), [], "what this game keeps under this name"
        self.numbers, self.actions, self.blind = numbers, actions, blind

    def observation_space(self, agent):
        box = gym.spaces.Box(-1, 1, (self.numbers,), np.float32)
        return gym.spaces.Dict({"state": box} if self.blind else {"vector": box})

    def action_space(self, agent):
        return gym.spaces.Discrete(self.actions)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def _seen(self, agents):
        name = "state" if self.blind else "vector"
        return {agent: {name: np.full(self.numbers, self.t / 2, np.float32)} for agent in agents}

    def step(self, actions):
        self.t += 1
        agents, over = self.agents, self.t == 2
        self.agents = [] if over else agents
        ends, cuts = dict.fromkeys(agents, over), dict.fromkeys(agents, False)
        return self._seen(agents), dict.fromkeys(agents, 1.0), ends, cuts, {agent: {} for agent in agents}


class Double(BaseParallelWrapper):
    """Pays twice."""

    def step(self, actions):
        seen, rewards, *rest = self.env.step(actions)
        return seen, {agent: 2 * reward for agent, reward in rewards.items()}, *rest


class InTurn(AECEnv):
    """A game in turn, of which nothing is played."""

    def __init__(self):
        self.possible_agents = self.agents = list(NAMES)

    def observation_space(self, agent):
        return gym.spaces.Discrete(2)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agent_selection = self.agents[0]


def config(env=ENV_ID, env_config=None, width=8, **settings):
    register_parallel_env(ENV_ID, Foraging)
    small = {"train_batch_size_per_learner": 2, "buffer_episodes": 4, **settings}
    return (
        QMIXConfig()
        .environment(env, env_config=env_config or {})
        .policy_network(width=width)
        .training(**small)
        .reporting(min_sample_timesteps_per_iteration=8)
        .debugging(seed=0)
    )


@pytest.fixture(scope="module")
def trained(small_ray, tmp_path_factory):
    """A checkpoint of `config()`."""
    with running(config()) as algo:
        algo.train()
        return algo.save_to_path(str(tmp_path_factory.mktemp("trained") / "checkpoint"))


@pytest.mark.parametrize(
    ("make", "earned"),
    [(lambda _: Foraging(), 2.0), (lambda _: ParallelEnvAdapter(Double(Foraging())), 4.0)],
    ids=["a game with an `env` of its own", "a wrapper in our adapter"],
)
def test_a_game_is_played_with_all_its_wrappers(make, earned, small_ray):
    register_env("toys/raw", make)
    with running(config("toys/raw")) as algo:
        assert algo.train()["env_runners"]["episode_return_mean"] == earned


@pytest.mark.parametrize(
    ("env", "env_config", "cause"),
    [
        ("CartPole-v1", {}, "`env` is 'CartPole-v1'.* one agent"),
        ("nobody/knows-v0", {}, "'nobody/knows-v0'.* not registered"),
        ("toys/in_turn", {}, "`env` is 'toys/in_turn'.*ParallelEnv"),
        (ENV_ID, {"blind": True}, "observation space of agent 'ann' is Dict.*nothing"),
    ],
)
def test_games_that_no_team_can_play_are_refused(env, env_config, cause):
    register_env("toys/in_turn", lambda _: InTurn())
    with pytest.raises(UserError, match=cause):
        config(env, env_config).validate()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adam_epsilon", 0), ("seed", "x"), ("num_learners", 2), ("num_env_runners", -1), ("td_lambda", 1.5),
        ("buffer_episodes", 1), ("lr", [[0, 1e-3]]), ("epsilon", -1), ("epsilon", [[10, 1.0], [20, 0.1]]),
        ("epsilon", [[0, 2.0], [20, 0.1]]), ("epsilon", [[0, 1.0], [0, 0.1]]),
        # Of stock DQN, without a meaning here:
        ("minibatch_size", 4), ("train_batch_size", 64), ("replay_buffer_config", {"capacity": 9}), ("num_epochs", 3),
        ("n_step", 3), ("noisy", True), ("double_q", False), ("observation_filter", "MeanStdFilter"),
        ("clip_rewards", 0.5),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(name, value):
    with refused(name, None):
        config().update_from_dict({name: value}).validate()


def test_several_policies_are_refused():
    with refused("policies"):
        config().multi_agent(policies={"a"}, policy_mapping_fn=lambda *_, **__: "a").validate()


def test_numbers_of_numpy_are_taken_as_tune_draws_them():
    drawn = config()
    drawn.update_from_dict({"seed": np.int64(7), "gamma": np.float64(0.9)})
    drawn.validate()
    assert drawn.network_settings().init_seed == 7 and type(drawn.seed) is int and type(drawn.gamma) is float


@pytest.mark.parametrize(
    ("env_config", "width", "wrong"),
    [
        ({"names": ("ben", "ann")}, 8, ("team",)),
        ({"numbers": 4}, 8, ("forms",)),
        ({"actions": 3}, 8, ("choices",)),
        ({}, 16, ("width",)),
    ],
)
def test_a_checkpoint_of_another_team_is_refused(trained, env_config, width, wrong):
    with running(config(env_config=env_config, width=width)) as algo:
        before = weights(algo)
        with refused(*wrong):
            algo.restore_from_path(trained)
        after = weights(algo)
        assert all(torch.equal(before[name], after[name]) for name in before)


def weights(algo):
    module = algo.learner_group._learner.module["default_policy"].unwrapped()
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_a_state_of_another_team_is_refused(trained):
    with running(config()) as algo, running(config(env_config={"names": ("cat", "dan")}, width=16)) as other:
        state = algo.get_state()
        algo.set_state(state)
        with refused("team"):
            other.set_state(state)
        module = other.learner_group._learner.module["default_policy"].unwrapped()
        with refused("team.agents.memory.encode.weight"):
            module.restore_from_path(f"{trained}/learner_group/learner/rl_module/default_policy")


def test_a_checkpoint_of_the_same_team_is_restored(trained, tmp_path):
    with running(config().debugging(seed=5)) as algo:  # of whose fresh weights nothing is left
        algo.restore_from_path(trained)
        assert algo.training_iteration == 1
        restored = weights(algo)
    with running(type(algo).from_checkpoint(trained)) as again:
        assert all(torch.equal(value, restored[name]) for name, value in weights(again).items())


def test_checkpoints_of_before_are_read_with_settings_that_they_lack_and_modules_that_have_moved(trained, tmp_path):
    facts = facts_of_checkpoint(trained)
    assert facts["team"] == list(NAMES) and facts["state_size"] == 6 and "init_seed" not in facts
    assert facts_of_checkpoint(tmp_path) is None
    inside = "learner_group/learner/rl_module/default_policy"
    (tmp_path / inside).mkdir(parents=True)
    with open(f"{trained}/{inside}/class_and_ctor_args.pkl", "rb") as file:
        stored = pickle.load(file)
    del stored["ctor_args_and_kwargs"][1]["model_config"]["distance_width"]
    (tmp_path / inside / "class_and_ctor_args.pkl").write_bytes(pickle.dumps(stored))
    assert facts_of_checkpoint(tmp_path) == facts
    moved = pickle.dumps(stored).replace(b"value.value_decomposition", b"value.where_it_once_stood")
    assert moved != pickle.dumps(stored)
    (tmp_path / inside / "class_and_ctor_args.pkl").write_bytes(moved)
    assert facts_of_checkpoint(tmp_path) == facts


@pytest.mark.parametrize("mask", [[0, 0], [1, 1, 1]], ids=["all closed", "too long"])
def test_a_policy_refuses_masks_that_are_not_of_its_actions(trained, mask):
    policy = load_policy(trained)
    policy.reset(seed=0)
    seen = {"vector": np.zeros(3, np.float32)}
    with pytest.raises(UserError, match="`action_mask` of agent 'ann'"):
        policy.act({"ann": {**seen, "action_mask": np.array(mask, np.int8)}})
    for only in (0, 1):
        open_one = (np.arange(2) == only).astype(np.int8)
        assert policy.act({"ann": {**seen, "action_mask": open_one}})["ann"].action == only
    assert set(policy.act({"ann": seen, "ben": seen})) == {"ann", "ben"}


@pytest.mark.parametrize("damage", [b"\x80\x04cut", pickle.dumps({"other": 1}), pickle.dumps([1])])
def test_damaged_checkpoints_are_named(trained, tmp_path, damage):
    copy = shutil.copytree(trained, tmp_path / "copy")
    file = next(copy.glob("learner_group/**/rl_module/default_policy/class_and_ctor_args.pkl"))
    file.write_bytes(damage)
    with pytest.raises(UserError, match=r"class_and_ctor_args.pkl' is damaged"):
        facts_of_checkpoint(copy)
