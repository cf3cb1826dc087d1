"""A PettingZoo team as one agent: what it sees, masks, ends, states, and games that it refuses."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo import ParallelEnv
from toys import ColourTalk

from rllib_llm_comm import make_env
from rllib_llm_comm.baselines.value.joint_game import JointGame
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.array_policy import flat, form_of, size_of
from tests.refusal import refused


class Uneven(ParallelEnv):
    """Three agents with other views and numbers of actions; the last one leaves after two steps."""

    metadata = {"name": "uneven"}

    def __init__(self, terminate=False, length=3, spaces=None):
        self.possible_agents, self.agents = ["a", "b", "c"], []
        self.terminate, self.length, self.spaces, self.seeds = terminate, length, spaces or {}, []

    def observation_space(self, agent):
        if agent in self.spaces:
            return self.spaces[agent]
        box = gym.spaces.Box(-9, 9, (2,), np.float32)
        mask = gym.spaces.MultiBinary(3)
        return {"a": box, "b": gym.spaces.Discrete(4)}.get(
            agent, gym.spaces.Dict({"observation": box, "action_mask": mask})
        )

    def action_space(self, agent):
        return gym.spaces.Discrete({"a": 2, "b": 5, "c": 3}[agent])

    def _seen(self, agents):
        told = {"observation": np.full(2, 7.0), "action_mask": np.array([0, 1, 1], np.int8)}
        seen = {"a": np.full(2, self.t + 1.0), "b": self.t, "c": told}
        return {agent: seen[agent] for agent in agents}

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.played = list(self.possible_agents), 0, []
        self.seeds.append(seed)
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        self.played.append(dict(actions))
        agents, over = list(self.agents), self.t >= self.length
        ends = {agent: (over and self.terminate) or (agent == "c" and self.t == 2) for agent in agents}
        cuts = {agent: over and not self.terminate and not ends[agent] for agent in agents}
        rewards = {agent: {"a": 3.0, "b": 0.0, "c": 6.0}[agent] for agent in agents}
        self.agents = [agent for agent in agents if not ends[agent] and not cuts[agent]]
        return self._seen(agents), rewards, ends, cuts, {agent: {"game_step": self.t} for agent in agents}


def test_shorter_views_and_lists_of_actions_are_filled_up():
    game = JointGame(Uneven())
    seen, _ = game.reset(seed=0)
    assert game.observation_space.contains(seen) and game.source == "team"
    assert seen["seen"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [7, 7, 0, 0]]
    assert seen["action_mask"].tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]
    assert seen["active"].tolist() == [1, 1, 1] and seen["state"].tolist() == seen["seen"].reshape(-1).tolist()
    assert game.action_space == gym.spaces.MultiDiscrete([5, 5, 5])
    assert game.told()["choices"] == {"a": 2, "b": 5, "c": 3}


@pytest.mark.parametrize("terminate", [True, False])
def test_ends_and_agents_that_leave(terminate):
    env = Uneven(terminate)
    game = JointGame(env)
    game.reset(seed=0)
    _, reward, *_ = game.step(np.array([1, 4, 2]))
    assert reward == 3.0 and env.played[-1] == {"a": 1, "b": 4, "c": 2}
    seen, *_ = game.step(np.array([0, 0, 1]))
    assert seen["active"].tolist() == [1, 1, 0] and seen["seen"][2].tolist() == [0] * 4
    assert seen["action_mask"][2].tolist() == [1, 0, 0, 0, 0]
    seen, reward, terminated, truncated, info = game.step(np.array([1, 1, 0]))
    assert env.played[-1] == {"a": 1, "b": 1} and reward == 1.0 and info == {"game_step": 3}
    assert (terminated, truncated) == (terminate, not terminate)
    # What a time limit stops would have gone on: its last state has the masks of those who would choose.
    assert seen["active"].tolist() == ([0, 0, 0] if terminate else [1, 1, 0])
    assert seen["action_mask"][1].sum() == (1 if terminate else 5)


def test_an_agent_that_ended_has_to_leave():
    class Stays(Uneven):
        def step(self, actions):
            agents = list(self.agents)
            told = super().step(actions)
            self.agents = agents
            return told

    game = JointGame(Stays())
    game.reset(seed=0)
    game.step(np.array([1, 4, 2]))
    with pytest.raises(UserError, match="agent 'c' has ended .*`agents`"):
        game.step(np.array([0, 0, 1]))


def test_the_sum_of_rewards_and_seeds():
    env = Uneven()
    game = JointGame(env, team_reward="sum")
    game.reset(seed=5)
    assert game.step(np.zeros(3, int))[1] == 9.0
    game.reset()
    game.reset()
    again = Uneven()
    other = JointGame(again)
    for seed in (5, None, None):
        other.reset(seed=seed)
    assert env.seeds == again.seeds and len(set(env.seeds[-3:])) == 3


def test_an_agent_that_is_busy_is_not_asked():
    game = JointGame(ColourTalk(busy=(1, 3)))
    seen, _ = game.reset(seed=0)
    asked = []
    for _ in range(4):
        asked.append(seen["active"].tolist())
        seen, *_ = game.step(np.array([1, 1]))
    assert asked == [[1, 1], [1, 0], [1, 0], [1, 1]]


def test_the_state_is_the_games_own_where_it_has_one():
    kitchen = {"observe": ["vector", "state"], "vector": "planes"}
    for wanted, source in (("auto", "game"), ("observation", "observation"), ("team", "team")):
        game = JointGame(make_env("rllib_llm_comm/overcooked_ai-v0", **kitchen), wanted)
        seen, _ = game.reset(seed=0)
        assert game.source == source and game.observation_space.contains(seen)
        if source != "team":
            own = game.game.state()
            np.testing.assert_array_equal(seen["state"], np.asarray(own, np.float32).reshape(-1))
    with refused("mixer_state"):
        JointGame(Uneven(), "game")


def test_views_of_words_are_refused():
    words = gym.spaces.Dict({"text": gym.spaces.Text(5)})
    with pytest.raises(UserError, match="observation space of agent 'a' holds .*Text"):
        JointGame(Uneven(spaces={"a": words}))


class Told(Uneven):
    """Tells what a function makes of its agents as the state."""

    def __init__(self, told):
        super().__init__()
        self.state = lambda: told(self.agents)


@pytest.mark.parametrize(("told", "source"), [(None, "team"), ([], "team"), ([0.0, 1.0], "game")])
def test_a_state_of_nothing_is_none(told, source):
    assert JointGame(Told(lambda agents: told)).source == source


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        (lambda agents: {}["q"], r"`state\(\)` .*KeyError: 'q'"),
        (lambda agents: ["x"], r"`state\(\)` .*ValueError"),
        (lambda agents: [0.0, float("nan")], r"state .*\[0.0, nan\].*finite"),
        (lambda agents: np.ones(len(agents)), "state .* 2 numbers but had 3"),
    ],
)
def test_a_state_that_fails_or_is_no_row_of_numbers_is_refused_unless_another_one_is_wanted(told, cause):
    def play(wanted):
        game = JointGame(Told(told), wanted)
        game.reset(seed=0)
        game.step(np.array([1, 4, 2]))
        game.step(np.array([0, 0, 1]))

    with pytest.raises(UserError, match=cause):
        play("auto")
    play("team")


def test_spaces_as_vectors():
    spaces = gym.spaces
    parts = {"b": spaces.Discrete(3, start=2), "a": spaces.MultiDiscrete([2, 3]), "c": spaces.MultiBinary(2)}
    not_seen = {"state": spaces.Box(0, 1, (9,)), "action_mask": spaces.MultiBinary(4)}
    form = form_of(spaces.Dict({**parts, "d": spaces.Box(0, 1, (1, 2)), **not_seen}))
    seen = {"a": np.array([1, 2]), "b": 3, "c": np.array([0, 1]), "d": np.array([[0.25, 0.5]])}
    assert size_of(form) == 5 + 3 + 2 + 2
    assert flat(form, seen).tolist() == [0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0.25, 0.5]
    for wrong in ({"a": 1}, None, {**seen, "d": np.zeros(5)}):
        with pytest.raises(UserError, match="the observation of 'x'"):
            flat(form, wrong, "x")
