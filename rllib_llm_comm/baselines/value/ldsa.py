"""LDSA: QMIX whose agents choose among learned subtasks by their ability (Yang et al. 2022, arXiv 2205.02561)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_auxiliary_losses import LDSALoss
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.q_settings import LDSA as SUBTASKS
from rllib_llm_comm.baselines.value.qmix import QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import ValueDecomposition
from rllib_llm_comm.core.errors import require_number

if TYPE_CHECKING:
    from typing_extensions import Self


class LDSAConfig(QMIXConfig):
    """Settings of `LDSA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import LDSAConfig

        algo = (
            LDSAConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .policy_network(subtasks=4)
            .build_algo()
        )
    """

    kind: ClassVar[str] = SUBTASKS

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: the authors', unless said otherwise in `training` and `policy_network`."""
        super().__init__(algo_class=algo_class or LDSA)
        self.subtasks = 4
        self.subtask_width = 64
        self.random_subtasks = False
        self.subtask_distance = 1e-3
        self.subtask_change = 1e-3

    @override(QMIXConfig)
    def policy_network(
        self,
        *,
        subtasks: int = NotProvided,
        subtask_width: int = NotProvided,
        random_subtasks: bool = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the networks of agents and mixer.

        Args:
            subtasks: Number of subtasks, 2 to 64. Default 4 (authors).
            subtask_width: Length of subtasks and abilities, >= 1. Default 64 (authors).
            random_subtasks: True if an agent's subtask is drawn at random: the ablation. Default no.
            **kwargs: Settings of `QMIXConfig.policy_network`.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().policy_network(**kwargs)
        return self._assign(own)

    @override(QMIXConfig)
    def training(
        self, *, subtask_distance: float = NotProvided, subtask_change: float = NotProvided, **kwargs: Any
    ) -> Self:
        """Sets the optimisation.

        Args:
            subtask_distance: Weight of the distance between subtasks, which is made large, >= 0. Default 1e-3
                (authors).
            subtask_change: Weight of the change of an agent's chances of subtasks from step to step, which is made
                small, >= 0. Default 1e-3 (authors).
            **kwargs: Settings of `ValueDecompositionConfig.training`. The authors' epsilon falls in 500,000 steps on
                hard maps.

        Returns:
            This config.
        """
        super().training(**kwargs)
        return self._assign({"subtask_distance": subtask_distance, "subtask_change": subtask_change})

    @override(QMIXConfig)
    def team_loss(self) -> TeamLoss:
        """The loss of a batch of episodes."""
        return LDSALoss(self.gamma, self.td_lambda, self.subtask_distance, self.subtask_change)

    @override(QMIXConfig)
    def _validate_training(self) -> None:
        super()._validate_training()
        for name in ("subtask_distance", "subtask_change"):
            require_number(name, getattr(self, name), 0.0)


class LDSA(ValueDecomposition):
    """QMIX whose agents choose among learned subtasks; settings: `LDSAConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> LDSAConfig:
        """The default settings."""
        return LDSAConfig()
