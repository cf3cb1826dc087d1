"""EmmaObservations: spaces, and frames that survive the cuts of an episode."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.sama.emma.emma import EmmaObservations
from rllib_llm_comm.sama.emma.network import EmmaSettings


def spaces(env):
    return (
        gym.spaces.Dict({a: env.observation_space(a) for a in env.possible_agents}),
        gym.spaces.Dict({a: env.action_space(a) for a in env.possible_agents}),
    )


def kitchen(**settings):
    return subgoal_env(**{"observe": ["entities", "state"], "action_level": "goal_cell", **settings})


def test_arrays_are_in_their_space_and_frames_survive_cuts():
    env = kitchen()
    piece = EmmaObservations(*spaces(env), settings=EmmaSettings(critic_observation="auto"))
    observations, infos = env.reset(seed=0)
    episode = MultiAgentEpisode(
        observation_space={a: env.observation_space(a) for a in env.possible_agents},
        action_space={a: env.action_space(a) for a in env.possible_agents},
        agent_to_module_mapping_fn=lambda *args, **kwargs: "shared",
    )
    episode.add_env_reset(observations=observations, infos=infos)
    rng = np.random.default_rng(0)
    maps = {agent: [seen["entities"]] for agent, seen in observations.items()}
    for step in range(8):
        piece(rl_module=None, batch={}, episodes=[episode])
        piece(rl_module=None, batch={}, episodes=[episode])  # a second look changes nothing
        for agent, single in episode.agent_episodes.items():
            arrays = single.get_observations(-1)
            assert piece.observation_space[agent].contains(arrays)
            expected = [np.zeros_like(maps[agent][0])] * 2 + maps[agent]
            np.testing.assert_array_equal(arrays["frames"], np.stack(expected[-3:]))
        if step == 4:
            episode = episode.cut()
        chosen = {a: int(rng.choice(np.flatnonzero(o["action_mask"]))) for a, o in observations.items()}
        observations, rewards, ended, cut, infos = env.step(chosen)
        for agent, seen in observations.items():
            maps[agent].append(seen["entities"])
        over = {"__all__": False}
        episode.add_env_step(
            observations, chosen, rewards, infos, terminateds={**ended, **over}, truncateds={**cut, **over}
        )


@pytest.mark.parametrize(
    ("observe", "critic", "says"),
    [
        (["vector"], "auto", "needs a Dict with a Box `entities`"),
        (["entities"], "state", "has no Box `state`"),
    ],
)
def test_wrong_observations_are_refused(observe, critic, says):
    with pytest.raises(UserError, match=says):
        EmmaObservations(*spaces(kitchen(observe=observe)), settings=EmmaSettings(critic_observation=critic))


def test_a_state_is_no_must():
    for critic in ("auto", "own"):
        piece = EmmaObservations(
            *spaces(kitchen(observe=["entities"])), settings=EmmaSettings(critic_observation=critic)
        )
        assert "critic_state" not in piece.observation_space["alice"].spaces


def test_an_environment_may_write_into_its_last_observation():
    env = kitchen()
    piece = EmmaObservations(*spaces(env), settings=EmmaSettings(frames=3, critic_observation="state"))
    observations, infos = env.reset(seed=0)
    seen = observations["alice"]
    episode = MultiAgentEpisode(
        observation_space={a: env.observation_space(a) for a in env.possible_agents},
        action_space={a: env.action_space(a) for a in env.possible_agents},
        agent_to_module_mapping_fn=lambda *args, **kwargs: "shared",
    )

    def look(number):
        for name in ("entities", "state", "action_mask"):
            seen[name].fill(number)
        return {"alice": dict(seen)}

    episode.add_env_reset(observations=look(0))
    piece(rl_module=None, batch={}, episodes=[episode])
    for number in (1, 2):
        episode.add_env_step(observations=look(number), actions={"alice": 0}, rewards={"alice": 0.0})
        piece(rl_module=None, batch={}, episodes=[episode])
    rows = episode.agent_episodes["alice"].get_observations()
    assert [frame.flat[0] for frame in rows[-1]["frames"]] == [0, 1, 2]
    assert [row["critic_state"][0] for row in rows] == [row["action_mask"][0] for row in rows] == [0, 1, 2]
