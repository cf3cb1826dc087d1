"""RLlib's spaces and episodes of a game in PettingZoo's form."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from pettingzoo import ParallelEnv
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode


def spaces(env: ParallelEnv) -> tuple[gym.spaces.Dict, gym.spaces.Dict]:
    """Spaces of observations and of actions, by agent."""
    return (
        gym.spaces.Dict({a: env.observation_space(a) for a in env.possible_agents}),
        gym.spaces.Dict({a: env.action_space(a) for a in env.possible_agents}),
    )


def episode_of(env: ParallelEnv, **more: Any) -> MultiAgentEpisode:
    """An episode that has not begun."""
    observed, chosen = spaces(env)
    return MultiAgentEpisode(observation_space=dict(observed), action_space=dict(chosen), **more)
