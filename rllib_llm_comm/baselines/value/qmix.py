"""VDN (Sunehag et al. 2017, arXiv 1706.05296): a team's value is the sum of its agents' values; and QMIX (Rashid et
al. 2018, arXiv 1803.11485): it grows with each of them, by weights of the state."""

from __future__ import annotations

from typing import ClassVar

from rllib_llm_comm.baselines.value.q_network import QSettings
from rllib_llm_comm.baselines.value.value_decomposition import (
    AGENT_SETTINGS,
    ValueDecomposition,
    ValueDecompositionConfig,
)
from rllib_llm_comm.rl.strict_config import select_fields

MIXER_SETTINGS = ("mixing_width", "hypernet_layers", "hypernet_width")


class VDNConfig(ValueDecompositionConfig):
    """Settings of `VDN`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VDNConfig

        algo = VDNConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"}).build_algo()
    """

    mixer: ClassVar[str] = "vdn"


class VDN(ValueDecomposition):
    """Q-learning of a team whose value is the sum of its agents' values; settings: `VDNConfig`."""

    config_class = VDNConfig


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

    settings_models = {
        **ValueDecompositionConfig.settings_models,
        "policy_network": select_fields(QSettings, *AGENT_SETTINGS, *MIXER_SETTINGS),
    }
    mixer: ClassVar[str] = "qmix"


class QMIX(ValueDecomposition):
    """Q-learning of a team whose value grows with each agent's value; settings: `QMIXConfig`."""

    config_class = QMIXConfig
