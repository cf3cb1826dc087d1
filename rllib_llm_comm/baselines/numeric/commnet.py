"""CommNet: agents that hear the mean of the others' hidden states (Sukhbaatar et al. 2016, arXiv 1605.07736)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin

if TYPE_CHECKING:
    from typing_extensions import Self


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

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults (ours, unless said otherwise in `policy_network`)."""
        super().__init__(algo_class=algo_class or CommNet)
        self.communication = "hidden"
        self.communication_passes = 2
        self.share_passes = False

    @override(NumericPPOConfig)
    def policy_network(
        self,
        *,
        hiddens: Sequence[int] = NotProvided,
        communication: str = NotProvided,
        communication_passes: int = NotProvided,
        share_passes: bool = NotProvided,
    ) -> Self:
        """Sets the network.

        Args:
            hiddens: The last is the width of the hidden states (with `communication="observations"`: widths of an
                MLP), each >= 1. Default 64, 64 (ours; IC3Net's code: 64).
            communication: `"hidden"` (default; CommNet): the mean of the others' hidden states, with gradients
                across agents. `"observations"` (the Verco paper's words): the mean of all agents' observations.
            communication_passes: Passes of hearing before agents act, >= 1. Default 2 (the original).
            share_passes: True if all passes have the same weights. Default no (the original).

        Returns:
            This config.
        """
        return self._assign(locals())


class CommNet(PolicyCheckpointMixin, PPO):
    """PPO over a CommNet; settings: `CommNetConfig`."""

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> CommNetConfig:
        """The default settings."""
        return CommNetConfig()
