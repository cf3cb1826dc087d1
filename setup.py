"""The packages: those of rllib_llm_comm/, and of the top-level folders that are imported as parts of it (setup.cfg)."""

from setuptools import find_packages, setup

beside = find_packages(include=["envs*", "examples", "tuned_examples"])
setup(packages=sorted({*find_packages(include=["rllib_llm_comm*"]), *(f"rllib_llm_comm.{name}" for name in beside)}))
