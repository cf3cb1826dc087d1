"""PettingZoo environments under RLlib: first the four faults of RLlib's own wrapper, then the rest."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo import ParallelEnv
from pettingzoo.env_registry import registration
from pettingzoo.utils.wrappers import BaseParallelWrapper
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter, register_parallel_env
from tests.refusal import refused


class Toy(ParallelEnv):
    """Agents with chosen ends, which earn 1, 10 and 100 per step and are busy at chosen steps."""

    metadata = {"name": "toy", "render_modes": ["ansi"]}

    def __init__(self, terminate=None, truncate=None, busy=None, names=("zoe", "ann", "mia")):
        self.possible_agents = list(names)
        self.agents = []
        self.terminate, self.truncate, self.busy = terminate or {}, truncate or {}, busy or {}
        self.render_mode = "ansi"
        self.spaces = {name: gym.spaces.Box(-1e9, 1e9, (2,), np.float32) for name in names}
        self.choices = {name: gym.spaces.Discrete(k + 2) for k, name in enumerate(names)}

    def observation_space(self, agent):
        return self.spaces[agent]

    def action_space(self, agent):
        return self.choices[agent]

    def _look(self):
        return {a: np.array([self.time, self.luck], np.float32) for a in self.agents}

    def _infos(self):
        shared = {"bumped": self.time == 1, "time": self.time}
        busy = {a: self.time in self.busy.get(a, ()) for a in self.agents}
        return {a: {**shared, "needs_action": not busy[a], "events": [f"{a}{self.time}"]} for a in self.agents}

    def reset(self, seed=None, options=None):
        self.luck = np.random.default_rng(seed).integers(1000)
        self.agents, self.time, self.acted = list(self.possible_agents), 0, []
        return self._look(), self._infos()

    def step(self, actions):
        self.time += 1
        self.acted.append(sorted(actions))
        alive = self.agents
        observations, infos = self._look(), self._infos()
        rewards = {a: 10.0 ** self.possible_agents.index(a) for a in alive}
        terminated = {a: self.time >= self.terminate.get(a, 99) for a in alive}
        truncated = {a: self.time >= self.truncate.get(a, 99) for a in alive}
        self.agents = [a for a in alive if not terminated[a] and not truncated[a]]
        return observations, rewards, terminated, truncated, infos

    def render(self):
        return f"time {self.time}"


def play(env, seed=3):
    """Runs an adapter as RLlib does: into a MultiAgentEpisode, which checks the protocol."""
    episode = MultiAgentEpisode(observation_space=env.observation_spaces, action_space=env.action_spaces)
    observations, infos = env.reset(seed=seed)
    episode.add_env_reset(observations=observations, infos=infos)
    results = []
    while not episode.is_done:
        actions = dict.fromkeys(episode.get_agents_to_act(), 0)
        results.append(env.step(actions))
        observations, rewards, terminateds, truncateds, infos = results[-1]
        episode.add_env_step(observations, actions, rewards, infos, terminateds=terminateds, truncateds=truncateds)
    return episode, results


# ---- the four faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terminate", "truncate", "terminated", "steps"),
    [
        ({"zoe": 3}, {"ann": 3, "mia": 3}, {"zoe"}, 3),
        ({}, {"zoe": 2, "ann": 2, "mia": 2}, set(), 2),
        ({"zoe": 1}, {"ann": 2, "mia": 4}, {"zoe"}, 4),
        ({"zoe": 1, "ann": 2, "mia": 2}, {"mia": 2}, {"zoe", "ann", "mia"}, 2),
    ],
)
def test_agents_end_as_the_game_says_and_the_episode_with_the_last(terminate, truncate, terminated, steps):
    """Those that ran into the time limit keep their right to a bootstrapped value."""
    episode, results = play(ParallelEnvAdapter(Toy(terminate=terminate, truncate=truncate)))
    assert [one[2]["__all__"] or one[3]["__all__"] for one in results] == [False] * (steps - 1) + [True]
    for name, single in episode.agent_episodes.items():
        assert single.is_terminated == (name in terminated)
        assert len(single) == {**truncate, **terminate}[name]
        if len(single) < steps or not terminated:  # with the last one the whole episode ends, too
            assert single.is_truncated == (name not in terminated)
    everyone = len(terminated) == 3
    assert (results[-1][2]["__all__"], results[-1][3]["__all__"]) == (everyone, not everyone)
    assert (episode.is_terminated, episode.is_truncated) == (everyone, not everyone)


def test_order_of_agents_is_that_of_the_environment():
    # A set of nine names has this order about once in 360,000 processes.
    names = [f"cook{k}" for k in range(9, 0, -1)]
    env = ParallelEnvAdapter(Toy(names=names, terminate={"cook8": 1}))
    observations, infos = env.reset()
    assert env.agents == env.possible_agents == list(env.observation_spaces) == names
    assert list(env.action_spaces) == list(observations) == list(infos) == names
    assert list(env.step(dict.fromkeys(names, 0))[0]) == names
    env.step(dict.fromkeys(names, 0))
    assert env.agents == [name for name in names if name != "cook8"]


@pytest.mark.parametrize("ends", [{"zoe": 1}, {"zoe": 1, "ann": 1, "mia": 1}], ids=["one", "all"])
def test_rllibs_check_bears_agents_that_end_in_the_first_step(ends):
    check_multiagent_environments(ParallelEnvAdapter(Toy(terminate=ends)))
    check_multiagent_environments(ParallelEnvAdapter(Toy(truncate=ends)))


# ---- agents that end and act at different times ------------------------------------------------------------


def test_busy_agents_are_not_asked_and_lose_nothing():
    env = ParallelEnvAdapter(Toy(busy={"ann": (1, 2)}, terminate={"zoe": 5, "ann": 5, "mia": 5}))
    episode, results = play(env)
    assert [sorted(r[0]) for r in results[:3]] == [["mia", "zoe"], ["mia", "zoe"], ["ann", "mia", "zoe"]]
    assert env.env.acted[1] == ["mia", "zoe"]
    assert results[2][1] == {"zoe": 1.0, "ann": 30.0, "mia": 100.0}
    info = results[2][4]["ann"]
    assert info["step_rewards"] == [10.0, 10.0, 10.0] and info["duration"] == 3
    assert info["events"] == ["ann1", "ann2", "ann3"]
    assert info["bumped"] is True and info["needs_action"] is True and info["time"] == 3
    assert results[2][4]["zoe"]["step_rewards"] == [1.0] and results[2][4]["zoe"]["bumped"] is False
    assert episode.agent_episodes["ann"].get_return() == 50.0
    assert len(episode.agent_episodes["ann"]) == 3


@pytest.mark.parametrize("end", ["terminate", "truncate"])
def test_a_busy_agent_gets_its_last_observation(end):
    env = ParallelEnvAdapter(Toy(busy={"ann": range(1, 9)}, **{end: {"zoe": 3, "ann": 3, "mia": 3}}))
    episode, results = play(env)
    assert results[-1][1]["ann"] == 30.0 and results[-1][4]["ann"]["duration"] == 3
    ann = episode.agent_episodes["ann"]
    assert len(ann) == 1 and ann.get_observations(-1)[0] == 3.0
    assert (ann.is_terminated, ann.is_truncated) == (end == "terminate", end == "truncate")


def test_step_rewards_of_the_environment_are_kept():
    class Summing(Toy):
        def step(self, actions):
            result = super().step(actions)
            for agent, info in result[4].items():
                info["step_rewards"] = [0.25 * result[1][agent], 0.75 * result[1][agent]]
            return result

    env = ParallelEnvAdapter(Summing(busy={"zoe": (1,)}))
    _, infos = env.reset(seed=0)
    assert infos["zoe"]["duration"] == 0 and infos["zoe"]["step_rewards"] == []
    env.step({"zoe": 0, "ann": 0, "mia": 0})
    _, rewards, _, _, infos = env.step({"ann": 0, "mia": 0})
    assert infos["zoe"]["step_rewards"] == [0.25, 0.75, 0.25, 0.75] and rewards["zoe"] == 2.0


def test_nothing_of_an_episode_leaks_into_the_next():
    env = ParallelEnvAdapter(Toy(busy={"ann": (1,)}))
    for rewards_of_ann in ([], [10.0]):
        env.reset(seed=0)
        rewards = env.step({"zoe": 0, "ann": 0, "mia": 0})[1]
        assert [rewards[agent] for agent in rewards if agent == "ann"] == rewards_of_ann
        env.env.busy = {}


# ---- seeds, spaces, registration ---------------------------------------------------------------------------


def test_episodes_differ_and_are_reproducible():
    def lucks(seed):
        env = ParallelEnvAdapter(Toy())
        return [int(env.reset(seed=seed if k == 0 else None)[0]["zoe"][1]) for k in range(6)]

    assert lucks(5) == lucks(5)
    assert len(set(lucks(5))) > 3
    assert lucks(5) != lucks(6)


def test_spaces_pictures_and_wrapping():
    env = ParallelEnvAdapter(Toy())
    assert env.get_action_space("mia") == gym.spaces.Discrete(4)
    assert env.get_observation_space("ann").shape == (2,)
    assert env.metadata is not Toy.metadata and env.render_mode == "ansi"
    env.reset()
    env.step({"zoe": 0, "ann": 0, "mia": 0})
    assert env.render() == "time 1"

    class Third(Toy):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.spaces = {a: gym.spaces.Box(-1, 1, (3,), np.float32) for a in self.possible_agents}

    inner = env.env
    env.wrap(Third)
    assert env.env.inner is inner and env.get_observation_space("ann").shape == (3,)


def test_refuses_what_is_no_parallel_environment():
    with pytest.raises(UserError, match="ParallelEnv"):
        ParallelEnvAdapter(gym.make("CartPole-v1"))


def test_registration_finds_environments_and_explains_typos(monkeypatch):
    from ray.tune.registry import ENV_CREATOR, _global_registry

    with pytest.raises(UserError, match="Did you mean 'rllib_llm_comm/overcooked_text-v0'"):
        register_parallel_env("rllib_llm_comm/overcooked_txt-v0")
    with pytest.raises(UserError, match="Did you mean 'rllib_llm_comm/door-v0'"):
        register_parallel_env("door")
    with refused("entry"):
        register_parallel_env("toy", "no_such_module:make")
    monkeypatch.setitem(registration.parallel_registry, "toy/toy-v0", registration.EnvSpec("toy/toy-v0", Toy))
    register_parallel_env("toy/toy-v0")
    register_parallel_env("rllib_llm_comm/overcooked_text-v0")
    toy = _global_registry.get(ENV_CREATOR, "toy/toy-v0")({"names": ("ann", "bo")})
    assert toy.possible_agents == ["ann", "bo"]
    game = _global_registry.get(ENV_CREATOR, "rllib_llm_comm/overcooked_text-v0")({"map_name": "A"})
    assert game.env.kitchen.map_name == "A"


@pytest.mark.parametrize("settings", [{"map_name": "B"}, {"map_name": "A", "legacy": True, "num_agents": 3}])
def test_busy_agents_are_not_observed_where_nobody_looks(settings):
    """A wrapper may look, so behind one all are observed; RLlib is told the same."""
    plain, wrapped = (ParallelEnvAdapter(parallel_env(max_game_steps=60, **settings)) for _ in range(2))
    plain.reset(seed=5)
    wrapped.wrap(BaseParallelWrapper)
    kitchen, behind = plain.env, wrapped.env.unwrapped
    made = []
    for game in (kitchen, behind):
        observe = game.observe
        game.observe = lambda agent, observe=observe, game=game: made.append(game) or observe(agent)
    rng = np.random.default_rng(0)
    for episode in range(3):
        told = [adapter.reset(seed=episode) for adapter in (plain, wrapped)]
        over = False
        while not over:
            (seen, *_), (again, *_) = told
            assert repr(told[0]) == repr(told[1])
            actions = {agent: int(rng.choice(np.flatnonzero(one["action_mask"]))) for agent, one in seen.items()}
            assert seen.keys() == again.keys()
            told = [adapter.step(actions) for adapter in (plain, wrapped)]
            over = any(told[0][2 + k]["__all__"] for k in range(2))
    assert 0 < made.count(kitchen) < made.count(behind)
    assert (kitchen.observes_busy, behind.observes_busy) == (False, True)
