"""NumericObservations: spaces, and what a busy agent's team sees of it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from toys import ColourTalk

from rllib_llm_comm.connectors.numeric_observations import NumericObservations
from rllib_llm_comm.errors import UserError

AGENTS = ("alice", "bob")


def spaces(env):
    return (
        gym.spaces.Dict({a: env.observation_space(a) for a in env.possible_agents}),
        gym.spaces.Dict({a: env.action_space(a) for a in env.possible_agents}),
    )


def test_spaces():
    observation, action = spaces(ColourTalk())
    alone = NumericObservations(observation, action).observation_space["alice"]
    assert set(alone.spaces) == {"vector", "action_mask"} and alone["vector"].shape == (3,)
    team = NumericObservations(observation, action, team=True).observation_space["bob"]
    assert set(team.spaces) == {"team_vectors", "action_mask"} and team["team_vectors"].shape == (2, 3)


@pytest.mark.parametrize(
    ("observation", "action", "says"),
    [
        (gym.spaces.Box(0, 1, (3,)), gym.spaces.Discrete(3), "Dict with a Box `vector`"),
        (gym.spaces.Dict({"vector": gym.spaces.Box(0, 1, (3,))}), gym.spaces.Box(0, 1, (1,)), "must be Discrete"),
    ],
)
def test_wrong_spaces(observation, action, says):
    with pytest.raises(UserError, match=says):
        NumericObservations(gym.spaces.Dict({"alice": observation}), gym.spaces.Dict({"alice": action}))


def vectors(episode, agent):
    return episode.agent_episodes[agent].get_observations(-1)["team_vectors"].tolist()


def test_a_busy_agent_is_seen_as_it_was_asked_last():
    env = ColourTalk()
    piece = NumericObservations(*spaces(env), team=True)
    seen, infos = env.reset(seed=0)
    first = {a: seen[a]["vector"].tolist() for a in AGENTS}
    episode = MultiAgentEpisode(
        observation_space={a: env.observation_space(a) for a in AGENTS},
        action_space={a: env.action_space(a) for a in AGENTS},
    )
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
