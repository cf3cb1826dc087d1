"""MAPPO: PPO with a central critic and normalised values (Yu et al. 2022, arXiv 2103.01955)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.mappo_learner import MAPPOLearner
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.policies.numeric_network import AUTO, BY_OWN, BY_STATE, BY_TEAM
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin

if TYPE_CHECKING:
    from ray.rllib.core.learner import Learner
    from typing_extensions import Self


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

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: those of the original code, sizes of batches excepted."""
        super().__init__(algo_class=algo_class or MAPPO)
        self.activation = "relu"
        self.layer_norm = True
        self.critic_observation = "auto"
        self.use_value_norm = True
        self.value_norm_beta = 0.99999
        self.huber_delta: float | None = 10.0
        self.lr = 5e-4
        self.critic_lr = 5e-4
        self.num_epochs = 15
        self.minibatch_size = None
        self.vf_loss_coeff = 1.0
        self.grad_clip = 10.0
        self.kl_target = None

    @override(NumericPPOConfig)
    def policy_network(
        self,
        *,
        hiddens: Sequence[int] = NotProvided,
        activation: str = NotProvided,
        layer_norm: bool = NotProvided,
        critic_observation: str = NotProvided,
    ) -> Self:
        """Sets the network.

        Args:
            hiddens: Widths of the hidden layers of actor and critic, each >= 1. Default 64, 64 (MAPPO).
            activation: `"relu"` (default; MAPPO) or `"tanh"`.
            layer_norm: True if LayerNorm stands on the inputs and behind every hidden layer. Default yes (MAPPO). It
                takes away an observation's mean and scale, so turn it off where an agent sees one or two numbers.
            critic_observation: Input of the critic. `"state"`: the observation's Box `state`. `"team"`: the vectors
                of all agents as they were seen last, the agent's own first. `"own"`: what the actor sees, which makes
                it IPPO, as a control. `"auto"` (default, ours): `"state"` where all agents have it, else `"team"`.

        Returns:
            This config.
        """
        return self._assign(locals())

    @override(NumericPPOConfig)
    def training(
        self,
        *,
        use_value_norm: bool = NotProvided,
        value_norm_beta: float = NotProvided,
        huber_delta: float | None = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. Defaults are those of the original code, unless marked (ours).

        Args:
            use_value_norm: True if the critic learns normalised returns. Default yes.
            value_norm_beta: Decay of their running mean and variance per minibatch, in [0, 1). Default 0.99999.
            huber_delta: Size of an error of the (normalised) value from which on its loss grows on a line, > 0, or
                `None` for the squared error. Default 10.
            **kwargs: Settings of `MultiAgentPPOConfig.training`. Defaults here: `lr` and
                `critic_lr` 5e-4, `num_epochs` 15, `minibatch_size` `None` (one minibatch), `clip_param` and
                `vf_clip_param` 0.2, `value_clip_mode` `"max"`, `vf_loss_coeff` 1, `entropy_coeff` 0.01, `grad_clip`
                10, `gamma` 0.99, `lambda_` 0.95, `kl_target` `None`, `train_batch_size_per_learner` 1024 (ours).

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(NumericPPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`MAPPOLearner`."""
        return MAPPOLearner

    @override(NumericPPOConfig)
    def _validate_training(self) -> None:
        super()._validate_training()
        require_choice("critic_observation", self.critic_observation, (AUTO, BY_STATE, BY_TEAM, BY_OWN))
        if self.huber_delta is not None:
            self.require_numbers(["huber_delta"])
            if not self.huber_delta > 0:
                raise UserError(f"`huber_delta` is {self.huber_delta!r} but must be larger than 0, or null.")


class MAPPO(PolicyCheckpointMixin, PPO):
    """Multi-agent PPO with a critic that sees the whole game; settings: `MAPPOConfig`."""

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> MAPPOConfig:
        """The default settings."""
        return MAPPOConfig()
