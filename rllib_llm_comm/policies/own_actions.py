"""Policies that keep the actions they were trained with in a game that is played with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.policies.decision import Decision, Request
from rllib_llm_comm.policies.policy import Policy


def own_actions(env: Any, agent: Any, manifest: Any, seed: int) -> Any:
    """An agent's own actions in an episode, as of `GameRecord.actions`; `None` if they are the game's.

    Args:
        env: The game, after its reset; `None` if nobody told it.
        agent: The agent.
        manifest: Of its policy.
        seed: Of the episode; draws what carrying them out needs, as an environment with these actions would.

    Raises:
        UserError: If the agent cannot play this game.
    """
    record = None if env is None else game_of(env.unwrapped)
    if record is None or not record.actions or manifest is None or manifest.env not in record.entry_points:
        return None
    return load(record.actions)(env.unwrapped, agent, manifest.env_config, np.random.default_rng(seed))


def decide(
    policy: Policy,
    episodes: Sequence[Request],
    own: Sequence[Mapping[Any, Any]],
    envs: Sequence[Any],
    explore: bool,
) -> list[dict[Any, Decision]]:
    """Decisions in the game's actions; agents with own actions are asked when they have no goal.

    Args:
        policy: The policy.
        episodes: Per episode the policy's memory and what its agents see.
        own: Per episode and agent its own actions, or `None`.
        envs: The games.
        explore: True if actions are drawn.
    """
    asked = []
    for (memory, observations), actions in zip(episodes, own, strict=True):
        free = {}
        for agent, seen in observations.items():
            if actions[agent] is None:
                free[agent] = seen
            elif actions[agent].free():
                free[agent] = {**seen, ACTION_MASK: actions[agent].mask()}
        asked.append(Request(memory, free))
    made = policy.act_together(asked, explore)
    return [
        {
            agent: decisions[agent] if one is None else _towards(one, decisions.get(agent), env, agent)
            for agent, one in actions.items()
        }
        for decisions, actions, env in zip(made, own, envs, strict=True)
    ]


def _towards(own: Any, decision: Decision | None, env: Any, agent: Any) -> Decision:
    """The game's action towards an agent's goal, whose chances are those of a draw that is over."""
    if decision is not None:
        own.choose(decision.action)
    count, action = int(env.action_space(agent).n), int(own.action())
    value = np.nan if decision is None else decision.value
    return Decision(action, "", {}, [str(one) for one in range(count)], np.eye(count)[action], value, "")
