"""Rewards for subgoals: exact tests, code in a sandbox, or a language model."""

from rllib_llm_comm.moved import renamed

__getattr__ = renamed(__name__)  # old names: a module was called so
