"""QMIX: a team's value grows with each agent's, by weights of the state (Rashid et al. 2018, arXiv 1803.11485)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_settings import QMIX as QMIX_MIXER
from rllib_llm_comm.baselines.value.value_decomposition import ValueDecomposition, ValueDecompositionConfig

if TYPE_CHECKING:
    from typing_extensions import Self


class QMIXConfig(ValueDecompositionConfig):
    """Settings of `QMIX`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import QMIXConfig

        algo = (
            QMIXConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .policy_network(width=64, mixing_width=32)
            .training(lr=5e-4, buffer_episodes=1000)
            .build_algo()
        )
    """

    mixer: ClassVar[str] = QMIX_MIXER

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: PyMARL's, unless said otherwise in `training` and `policy_network`."""
        super().__init__(algo_class=algo_class or QMIX)
        self.mixing_width = 32
        self.hypernet_layers = 2
        self.hypernet_width = 64

    @override(ValueDecompositionConfig)
    def policy_network(
        self,
        *,
        mixing_width: int = NotProvided,
        hypernet_layers: int = NotProvided,
        hypernet_width: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the networks of agents and mixer.

        Args:
            mixing_width: Units of the mixing network, >= 1. Default 32 (PyMARL).
            hypernet_layers: Layers of the hypernetworks that make its weights, 1 or 2. Default 2 (PyMARL's qmix.yaml).
            hypernet_width: Units between two such layers, >= 1. Default 64 (PyMARL).
            **kwargs: Settings of `ValueDecompositionConfig.policy_network`.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().policy_network(**kwargs)
        return self._assign(own)


class QMIX(ValueDecomposition):
    """Q-learning of a team whose value grows with each agent's value; settings: `QMIXConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> QMIXConfig:
        """The default settings."""
        return QMIXConfig()
