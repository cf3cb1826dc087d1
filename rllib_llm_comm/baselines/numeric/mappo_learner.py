"""MAPPO's learner: `MultiAgentPPOLearner` whose critic learns normalised returns."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import ModuleID, TensorType

from rllib_llm_comm.policies.value_norm import moments
from rllib_llm_comm.rl.multi_agent_ppo_learner import MultiAgentPPOLearner


class MAPPOLearner(MultiAgentPPOLearner):
    """Trains `NumericModule`s, or own modules with `value_norm` and `critic_outputs`, as MAPPO does.

    The statistics of returns take in each minibatch just before its loss is computed, as in the original. They come
    from the returns of all Learners together and are therefore equal in all of them. Settings read from the config,
    beside those of `MultiAgentPPOLearner`: `huber_delta`.
    """

    @override(MultiAgentPPOLearner)
    def _critic_terms(
        self, module_id: ModuleID, module: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if module.value_norm is None:
            return super()._critic_terms(module_id, module, batch, fwd_out)
        returns = batch[Postprocessing.VALUE_TARGETS]
        norm = module.value_norm
        norm.update(self._sum_over_learners(moments(returns)))
        # Copies: the statistics themselves change in place before the results are read.
        self._log(module_id, value_norm_mean=norm.mean.clone(), value_norm_std=norm.std)
        return module.critic_outputs(batch), norm.normalize(returns)
