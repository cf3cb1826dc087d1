"""VDN: a team's value is the sum of its agents' values (Sunehag et al. 2017, arXiv 1706.05296)."""

from __future__ import annotations

from typing import ClassVar

from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_settings import VDN as VDN_MIXER
from rllib_llm_comm.baselines.value.value_decomposition import ValueDecomposition, ValueDecompositionConfig


class VDNConfig(ValueDecompositionConfig):
    """Settings of `VDN`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VDNConfig

        algo = VDNConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"}).build_algo()
    """

    mixer: ClassVar[str] = VDN_MIXER

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: PyMARL's, unless marked otherwise in `ValueTraining` and `QSettings`."""
        super().__init__(algo_class=algo_class or VDN)


class VDN(ValueDecomposition):
    """Q-learning of a team whose value is the sum of its agents' values; settings: `VDNConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> VDNConfig:
        """The default settings."""
        return VDNConfig()
