"""SymbolicPPO: PPO on the game's numeric vector, without words and without messages."""

from __future__ import annotations

from typing import ClassVar

from ray.rllib.algorithms.ppo import PPO
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.sama.emma.new_subgoals_config import NewSubgoalsConfigMixin, NewSubgoalsMixin, SubgoalData


class SymbolicPPOConfig(NewSubgoalsConfigMixin, NumericPPOConfig):
    """Settings of `SymbolicPPO`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import SymbolicPPOConfig

        algo = (
            SymbolicPPOConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .training(lr=1e-3)
            .build_algo()
        )
    """

    network: ClassVar[str] = "mlp"
    settings_models = {**NumericPPOConfig.settings_models, "subgoal_data": SubgoalData}

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults (ours: the paper names PPO and gives no number)."""
        super().__init__(algo_class=algo_class or SymbolicPPO)

    @override(NumericPPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        super().validate()
        self._validate_new_subgoals()


class SymbolicPPO(NewSubgoalsMixin, PolicyCheckpointMixin, PPO):
    """The paper's "symbolic PPO": all agents share an MLP actor and an MLP critic; settings: `SymbolicPPOConfig`."""

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> SymbolicPPOConfig:
        """The default settings."""
        return SymbolicPPOConfig()
