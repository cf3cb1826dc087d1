"""Restores Verco from the checkpoint given, prints what it does, and trains on: run in a process of its own."""

from __future__ import annotations

import json
import sys

import numpy as np
import ray
import torch
from toys import ColourTalk, register

from rllib_llm_comm import Verco
from rllib_llm_comm.verco.encoding import ObservationEncoder, read_observation

torch.set_num_threads(1)
ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
register()
algo = Verco.from_checkpoint(sys.argv[1])
network = algo.env_runner.module["shared"].network
encoder = ObservationEncoder(network.lm.base, network.settings)
observations, _ = ColourTalk().reset(seed=5)
rows = [encoder.encode(read_observation(o), {}) for o in observations.values()]
batch = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
optimizers = algo.learner_group._learner._named_optimizers.values()
report = {
    "messages": network.write_messages(["you see red. i say:"]),
    "probabilities": network.remembered_logits(batch).softmax(-1).tolist(),
    "iteration": algo.training_iteration,
    "nothing": algo.metrics.peek(("closing", "nothing")),
    "steps": [int(next(iter(optimizer.state.values()))["step"]) for optimizer in optimizers],
}
result = algo.train()
report["after"] = {
    "iteration": result["training_iteration"],
    "ratio": float(result["learners"]["shared"]["ratio_first_minibatch"]),
    "sampled": int(result["num_env_steps_sampled_lifetime"]),
    "rates": [optimizer.param_groups[0]["lr"] for optimizer in optimizers],
}
# Saving what was restored, and restoring that, must work as well.
again = algo.save_to_path(sys.argv[1] + "-again")
algo.stop()
algo = Verco.from_checkpoint(again)
report["again"] = algo.training_iteration
algo.stop()
print("RESULT" + json.dumps(report))
