"""Restores a checkpoint written before modules moved, and trains on: run in a process of its own.

Arguments: the checkpoint, and `algorithm` or the class to restore with.
"""

from __future__ import annotations

import json
import math
import sys

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm

import rllib_llm_comm

torch.set_num_threads(1)
ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
path, name = sys.argv[1:]
algo = (Algorithm if name == "algorithm" else getattr(rllib_llm_comm, name)).from_checkpoint(path)
learner = algo.learner_group._learner
module = learner.module["shared"].unwrapped()
report = {
    "algorithm": type(algo).__name__,
    "learner": type(learner).__name__,
    "module": type(module).__name__,
    "iteration": algo.training_iteration,
    "weights": sum(float(array.double().abs().sum()) for array in module.state_dict().values()),
}
results = algo.train()["learners"]["shared"]
report["finite"] = all(math.isfinite(float(results[key])) for key in ("policy_loss", "vf_loss", "entropy"))
report["after"] = algo.training_iteration
algo.stop()
print("RESULT" + json.dumps(report))
