"""Commands in words, and those who give them by rules."""

from rllib_llm_comm.moved import renamed

__getattr__ = renamed(__name__)  # old names: a module was called so
