"""Kitchens as planners see them, and the settings of planners that ask a server."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from chat_server import ChatServer

from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.sama.planning_game import PlanningGame, planning_game


def kitchen_env(layout: str | list[str] = "cramped_room", **settings: Any):
    """A kitchen in which cooks see symbols and go to cells, unless the settings say otherwise."""
    return parallel_env(layout=layout, **{"observe": ["entities"], "action_level": "goal_cell", **settings})


def kitchen(layout: str | list[str] = "cramped_room", seed: int | None = None, **settings: Any) -> PlanningGame:
    """Such a kitchen at its start, or in the random state of a seed."""
    env = kitchen_env(layout, **settings)
    env.reset(seed=0)
    if seed is not None:
        env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
    return planning_game(env)


def small_emma(env: str | None = None, **env_config: Any):
    """Settings of EMMA with a small network that learns from few steps."""
    from rllib_llm_comm import EMMAConfig

    config = EMMAConfig() if env is None else EMMAConfig().environment(env)
    return (
        config.environment(env_config=env_config)
        .policy_network(width=8, filters=8, hiddens=[16])
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
        .debugging(seed=0)
    )


def asking(server: ChatServer, name: str = "sama", **settings: Any) -> dict:
    """Settings of a planner that asks a server in few words, and never twice after an error."""
    return {"name": name, "chat": server.settings(max_retries=0), "objects": False, "examples": 0, **settings}


def team(alice: list[str], bob: list[str], goal: str = "make a soup") -> str:
    """A model's answer with the subgoals of both."""
    work = {"alice": alice, "bob": bob}
    agents = [{"agent": who, "subgoals": [{"subgoal": one} for one in said]} for who, said in work.items()]
    return json.dumps({"goal": goal, "agents": agents})


def prompts(server: ChatServer) -> list[str]:
    """What a server was asked."""
    return [request["messages"][-1]["content"] for request in server.requests]
