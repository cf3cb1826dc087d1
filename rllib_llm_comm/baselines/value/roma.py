"""ROMA: QMIX whose agents draw roles that make their heads (Wang et al. 2020, arXiv 2003.08039)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_auxiliary_losses import ROMALoss
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.q_settings import ROMA as ROLES
from rllib_llm_comm.baselines.value.qmix import QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import ValueDecomposition
from rllib_llm_comm.core.errors import require_choice, require_number

if TYPE_CHECKING:
    from typing_extensions import Self


class ROMAConfig(QMIXConfig):
    """Settings of `ROMA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import ROMAConfig

        algo = ROMAConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"}).build_algo()
    """

    kind: ClassVar[str] = ROLES

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: the authors', unless said otherwise in `training` and `policy_network`."""
        super().__init__(algo_class=algo_class or ROMA)
        self.role_size = 3
        self.role_width = 16
        self.role_variance_floor = 0.002
        self.role_entropy = 1e-4
        self.role_inference = 1e-4
        self.role_difference = 1e-3
        self.raw_roles = False

    @override(QMIXConfig)
    def policy_network(
        self,
        *,
        role_size: int = NotProvided,
        role_width: int = NotProvided,
        role_variance_floor: float = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the networks of agents and mixer.

        Args:
            role_size: Numbers of a role, 1 to 64. Default 3 (authors).
            role_width: Units of the roles' encoder and decoder, >= 1. Default 16 (authors).
            role_variance_floor: Smallest variance of a role, in (0, 1]. Default 0.002 (authors; 1e-4 on other maps).
            **kwargs: Settings of `QMIXConfig.policy_network`.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().policy_network(**kwargs)
        return self._assign(own)

    @override(QMIXConfig)
    def training(
        self,
        *,
        role_entropy: float = NotProvided,
        role_inference: float = NotProvided,
        role_difference: float = NotProvided,
        raw_roles: bool = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation.

        Args:
            role_entropy: Weight of the roles' entropy, >= 0. Default 1e-4 (authors; 5e-2 on other maps).
            role_inference: Weight of the gap between roles and what memories tell of them, >= 0. Default 1e-4
                (authors).
            role_difference: Weight of the roles' difference, >= 0. Default 1e-3 (authors).
            raw_roles: True to leave both losses of roles away: the ablation. Default no.
            **kwargs: Settings of `ValueDecompositionConfig.training`. The authors' epsilon falls within 50 steps, which
                leaves next to no exploration; here it takes 50,000 (ours).

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(QMIXConfig)
    def team_loss(self) -> TeamLoss:
        """The loss of a batch of episodes."""
        weights = (self.role_entropy, self.role_inference, self.role_difference)
        return ROMALoss(self.gamma, self.td_lambda, *weights, raw=self.raw_roles)

    @override(QMIXConfig)
    def _validate_training(self) -> None:
        super()._validate_training()
        require_choice("raw_roles", self.raw_roles, (False, True))
        for name in ("role_entropy", "role_inference", "role_difference"):
            require_number(name, getattr(self, name), 0.0)


class ROMA(ValueDecomposition):
    """QMIX whose agents draw roles; settings: `ROMAConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> ROMAConfig:
        """The default settings."""
        return ROMAConfig()
