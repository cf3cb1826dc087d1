"""MAPPO: PPO with a central critic and normalised values (Yu et al. 2022, arXiv 2103.01955)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPO, NumericPPOConfig
from rllib_llm_comm.policies.numeric_network import NumericSettings, ValueNormSettings, moments
from rllib_llm_comm.rl.multi_agent_ppo import Minibatch, MultiAgentPPOLearner, PPOTraining
from rllib_llm_comm.rl.strict_config import select_fields, with_defaults

if TYPE_CHECKING:
    from ray.rllib.core.learner import Learner


@with_defaults(
    use_value_norm=True,
    lr=5e-4,
    critic_lr=5e-4,
    num_epochs=15,
    minibatch_size=None,  # one minibatch
    vf_loss_coeff=1.0,
    grad_clip=10.0,
    target_kl=None,
)
class MAPPOTraining(ValueNormSettings, PPOTraining):
    """The optimisation; defaults are those of the original code, sizes of batches excepted."""

    huber_delta: float | None = Field(10.0, gt=0)
    """Size of an error of the (normalised) value from which on its loss grows on a line (MAPPO); None: the
    squared error."""


class MAPPOConfig(NumericPPOConfig):
    """Settings of `MAPPO`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import MAPPOConfig

        algo = (
            MAPPOConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .policy_network(hiddens=[64, 64], critic_observation="team")
            .training(lr=5e-4, huber_delta=10.0)
            .build_algo()
        )
    """

    network: ClassVar[str] = "mlp"
    settings_models = {
        **NumericPPOConfig.settings_models,
        "training": MAPPOTraining,
        "policy_network": select_fields(
            NumericSettings,
            "hiddens",
            activation="relu",
            layer_norm=True,
            critic_observation="auto",
            narrowed={"critic_observation": Literal["auto", "state", "team", "own"]},
        ),
    }

    @override(NumericPPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`MAPPOLearner`."""
        return MAPPOLearner


def huber_loss(errors: torch.Tensor, delta: float) -> torch.Tensor:
    """What errors e (B,) count: e^2 / 2, and from the size d = `delta` on d (|e| - d / 2)."""
    size = errors.abs()
    return torch.where(size <= delta, 0.5 * errors**2, delta * (size - 0.5 * delta))


class MAPPOLearner(MultiAgentPPOLearner):
    """Trains `NumericModule`s, or own modules with `value_norm` and `critic_outputs`, as MAPPO does.

    The statistics of returns take in each minibatch just before its loss is computed, as in the original. They come
    from the returns of all Learners together and are therefore equal in all of them. Settings read from the config,
    beside those of `MultiAgentPPOLearner`: `huber_delta`.
    """

    @override(MultiAgentPPOLearner)
    def critic_terms(self, minibatch: Minibatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and targets in units of the returns so far, whose statistics take in the minibatch."""
        norm = minibatch.module.value_norm
        if norm is None:
            return super().critic_terms(minibatch)
        returns = minibatch.rows[Postprocessing.VALUE_TARGETS]
        norm.update(self._sum_over_learners(moments(returns)))
        # Copies: the statistics themselves change in place before the results are read.
        self.log_values(minibatch.module_id, value_norm_mean=norm.mean.clone(), value_norm_std=norm.std)
        return minibatch.module.critic_outputs(minibatch.rows), norm.normalize(returns)

    @override(MultiAgentPPOLearner)
    def critic_penalty(self, minibatch: Minibatch, errors: torch.Tensor) -> torch.Tensor:
        """Huber's loss of errors, unless `huber_delta` is None."""
        delta = minibatch.config.huber_delta
        return super().critic_penalty(minibatch, errors) if delta is None else huber_loss(errors, delta)


class MAPPO(NumericPPO):
    """Multi-agent PPO with a critic that sees the whole game; settings: `MAPPOConfig`."""

    config_class = MAPPOConfig
