""" "Tell me the door" by PettingZoo's names: `parallel_env`, and in the AEC form `env` and `raw_env`."""

from __future__ import annotations

from rllib_llm_comm.envs.door import aec_env, parallel_env

env = raw_env = aec_env

__all__ = ["env", "parallel_env", "raw_env"]
