"""RLlib's spaces and episodes of a game in PettingZoo's form, and what is decided in a game that policies play."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
from pettingzoo import ParallelEnv
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from rllib_llm_comm.policies.play_loop import Observer


class Noting(Observer):
    """Hands the decisions of every moment to a function."""

    def __init__(self, note: Callable[[Mapping[str, Any]], object]) -> None:
        self.note = note

    def on_decisions(self, game: Any, decisions: Mapping[str, Any]) -> None:
        self.note(decisions)


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
