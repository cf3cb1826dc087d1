"""What the server of `tests.forked` imports; the garbage collectors of its forks do not look at it.

Beside the package and the libraries these are parts that commands, workers and agents of Ray would load when they first
need them.
"""

from __future__ import annotations

import gc
import pkgutil
from importlib import import_module

from numba.core.registry import cpu_target

import rllib_llm_comm

OTHERS = (
    "PIL.WebPImagePlugin",
    "matplotlib.figure",
    "openai",
    "peft",
    "pyarrow.json",
    "pyarrow.parquet",
    "pydantic.v1",
    "ray._private.runtime_env.agent.runtime_env_agent",
    "ray.air.integrations.mlflow",
    "ray.air.integrations.wandb",
    "ray.autoscaler.v2.utils",
    "ray.dag.compiled_dag_node",
    "ray.dashboard.agent",
    "ray.rllib.algorithms.ppo",
    "ray.tune",
    "ray.util.state.api",
    "starlette.datastructures",
    "tensorboardX",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)

gc.disable()
for module in (*(own.name for own in pkgutil.walk_packages(rllib_llm_comm.__path__, "rllib_llm_comm.")), *OTHERS):
    try:
        import_module(module)
    except ImportError as error:  # which the server would swallow
        print(f"tests.preloaded cannot import {module}: {error}", flush=True)
        raise
for context in (cpu_target.typing_context, cpu_target.target_context):
    context.refresh()  # what numba does when it first compiles
gc.freeze()
gc.enable()
