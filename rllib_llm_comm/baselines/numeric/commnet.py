"""CommNet: agents that hear the mean of the others' hidden states (Sukhbaatar et al. 2016, arXiv 1605.07736)."""

from __future__ import annotations

from typing import ClassVar

from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPO, NumericPPOConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.numeric_network import NumericSettings
from rllib_llm_comm.rl.strict_config import select_fields


class CommNetConfig(NumericPPOConfig):
    """Settings of `CommNet`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import CommNetConfig

        algo = (
            CommNetConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .policy_network(hiddens=[64], communication_passes=2)
            .build_algo()
        )
    """

    network: ClassVar[str] = "commnet"
    settings_models = {
        **NumericPPOConfig.settings_models,
        "policy_network": select_fields(
            NumericSettings, "hiddens", "communication", "communication_passes", "share_passes"
        ),
    }

    @override(NumericPPOConfig)
    def validate(self) -> None:
        """Checks all settings; the network has room for learners alone."""
        if self.pool is not None:
            raise UserError(
                "`pool` is set but the agents of this algorithm exchange vectors inside of one network; train another "
                "algorithm with partners, such as MAPPO."
            )
        super().validate()


class CommNet(NumericPPO):
    """PPO over a CommNet; settings: `CommNetConfig`."""

    config_class = CommNetConfig
