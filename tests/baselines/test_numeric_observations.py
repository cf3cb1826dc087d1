"""NumericObservations: spaces, and what a busy agent's team sees of it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from toys import ColourTalk, Luck

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericObservations
from rllib_llm_comm.core.errors import UserError
from tests.episodes import episode_of, spaces

AGENTS = ("alice", "bob")


@pytest.mark.parametrize(
    ("critic", "told", "extra"),
    [
        ("own", True, {}),
        ("team", True, {"team_vectors": (2, 4)}),
        ("state", True, {"critic_state": (8,)}),
        ("auto", True, {"critic_state": (8,)}),
        ("auto", False, {"team_vectors": (2, 4)}),
    ],
)
def test_what_a_central_critic_sees(critic, told, extra):
    env = Luck(state=told)
    piece = NumericObservations(*spaces(env), critic=critic)
    space = piece.observation_space["bob"]
    assert {name: box.shape for name, box in space.spaces.items()} == {"vector": (4,), "action_mask": (3,), **extra}
    seen, infos = env.reset(seed=0)
    episode = episode_of(env)
    episode.add_env_reset(observations=seen, infos=infos)
    for _ in range(2):  # once is enough
        piece(rl_module=None, batch={}, episodes=[episode])
    left = episode.agent_episodes["bob"].get_observations(-1)
    assert space.contains(left) and left["vector"].tolist() == seen["bob"]["vector"].tolist()
    if "critic_state" in extra:
        np.testing.assert_array_equal(left["critic_state"], seen["bob"]["state"].reshape(-1).astype(np.float32))
    if "team_vectors" in extra:
        np.testing.assert_array_equal(left["team_vectors"], [seen[a]["vector"] for a in ("bob", "alice")])


def test_absent_agents_are_zeros_and_gone_ones_as_they_were_seen_last():
    box = gym.spaces.Dict({"vector": gym.spaces.Box(0, 9, (1,), np.float32)})
    agents = ("a", "b", "c")
    piece = NumericObservations(
        gym.spaces.Dict(dict.fromkeys(agents, box)),
        gym.spaces.Dict(dict.fromkeys(agents, gym.spaces.Discrete(2))),
        critic="team",
    )
    episode = MultiAgentEpisode(
        observation_space=dict.fromkeys(agents, box), action_space=dict.fromkeys(agents, gym.spaces.Discrete(2))
    )

    def look(values):
        return {agent: {"vector": np.array([value], np.float32)} for agent, value in values.items()}

    episode.add_env_reset(observations=look({"a": 1, "b": 2}))  # c has not joined yet
    piece(rl_module=None, batch={}, episodes=[episode])
    assert vectors(episode, "b") == [[2], [1], [0]]
    episode.add_env_step(
        observations=look({"a": 3, "b": 4, "c": 5}), actions={"a": 0, "b": 0}, rewards={"a": 0.0, "b": 0.0},
        terminateds={"a": True},
    )  # fmt: skip
    piece(rl_module=None, batch={}, episodes=[episode])
    episode.add_env_step(
        observations=look({"b": 6, "c": 7}), actions={"b": 0, "c": 0}, rewards={"b": 0.0, "c": 0.0}
    )  # a is out of the game
    piece(rl_module=None, batch={}, episodes=[episode])
    assert vectors(episode, "c") == [[7], [3], [6]]


def test_who_sees_no_numbers_is_refused():
    observation, action = gym.spaces.Box(0, 1, (3,)), gym.spaces.Discrete(3)
    with pytest.raises(UserError, match="Dict with a Box `vector`"):
        NumericObservations(gym.spaces.Dict({"alice": observation}), gym.spaces.Dict({"alice": action}))


def test_what_a_central_critic_misses():
    observation, action = spaces(Luck(state=False))
    with pytest.raises(UserError, match="agent 'alice' has no Box `state`"):
        NumericObservations(observation, action, critic="state")
    longer = gym.spaces.Dict({"vector": gym.spaces.Box(0, 1, (5,))})
    observation = gym.spaces.Dict({"alice": observation["alice"], "bob": longer})
    with pytest.raises(UserError, match=r"'alice': \(4,\), 'bob': \(5,\)"):
        NumericObservations(observation, action, critic="team")
    assert NumericObservations(observation, action, critic="own").observation_space["bob"]["vector"].shape == (5,)


def vectors(episode, agent):
    return episode.agent_episodes[agent].get_observations(-1)["team_vectors"].tolist()


def test_a_busy_agent_is_seen_as_it_was_asked_last():
    env = ColourTalk()
    piece = NumericObservations(*spaces(env), team=True)
    seen, infos = env.reset(seed=0)
    first = {a: seen[a]["vector"].tolist() for a in AGENTS}
    episode = episode_of(env)
    episode.add_env_reset(observations=seen, infos=infos)
    piece(rl_module=None, batch={}, episodes=[episode])
    assert vectors(episode, "alice") == [first["alice"], first["bob"]]
    assert vectors(episode, "bob") == [first["bob"], first["alice"]]
    seen, rewards, *_, infos = env.step({"alice": 0, "bob": 0})
    assert not np.array_equal(seen["bob"]["vector"], first["bob"]) or not np.array_equal(
        seen["alice"]["vector"], first["alice"]
    )
    # Bob is busy: the runner sees alice's observation only.
    episode.add_env_step(
        observations={"alice": seen["alice"]}, actions={"alice": 0, "bob": 0}, rewards={"alice": 0.0},
        infos={"alice": {}},
    )  # fmt: skip
    piece(rl_module=None, batch={}, episodes=[episode])
    assert vectors(episode, "alice") == [seen["alice"]["vector"].tolist(), first["bob"]]
    piece(rl_module=None, batch={}, episodes=[episode])  # once is enough
    assert vectors(episode, "alice") == [seen["alice"]["vector"].tolist(), first["bob"]]


def test_an_environment_may_write_into_its_last_observation():
    env = Luck()
    piece = NumericObservations(*spaces(env), critic="state")
    buffers = {
        agent: {"vector": np.zeros(4, np.float32), "action_mask": np.ones(3, np.int8), "state": np.zeros(8, np.float32)}
        for agent in AGENTS
    }

    def look(number):
        for seen in buffers.values():
            seen["vector"].fill(number)
            seen["state"].fill(number)
            seen["action_mask"][:] = [1, number % 2, 1]
        return {agent: dict(seen) for agent, seen in buffers.items()}

    episode = episode_of(env)
    episode.add_env_reset(observations=look(0))
    piece(rl_module=None, batch={}, episodes=[episode])
    for number in (1, 2):
        nothing = dict.fromkeys(AGENTS, 0)
        episode.add_env_step(observations=look(number), actions=nothing, rewards=nothing)
        piece(rl_module=None, batch={}, episodes=[episode])
    rows = episode.agent_episodes["bob"].get_observations()
    assert [row["vector"][0] for row in rows] == [row["critic_state"][0] for row in rows] == [0, 1, 2]
    assert [row["action_mask"][1] for row in rows] == [0, 1, 0]
