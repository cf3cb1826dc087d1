"""The kitchen with subgoals by PettingZoo's names: `parallel_env`, and in the AEC form `env` and `raw_env`."""

from __future__ import annotations

from rllib_llm_comm.envs.games import in_turns
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env as parallel_env

env = raw_env = in_turns(parallel_env)

__all__ = ["env", "parallel_env", "raw_env"]
