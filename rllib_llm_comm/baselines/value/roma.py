"""ROMA: QMIX whose agents draw roles that make their heads (Wang et al. 2020, arXiv 2003.08039)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.value.q_auxiliary_losses import ROMALoss
from rllib_llm_comm.baselines.value.q_losses import TeamLoss
from rllib_llm_comm.baselines.value.q_settings import ROMA as ROLES
from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.baselines.value.qmix import MIXER_SETTINGS, QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import AGENT_SETTINGS, ValueDecomposition, ValueTraining
from rllib_llm_comm.rl.strict_config import part


class ROMATraining(ValueTraining):
    """The optimisation.

    The authors' epsilon falls within 50 steps, which leaves next to no exploration; here it takes 50,000 (ours).
    """

    role_entropy: float = Field(1e-4, ge=0)
    """Weight of the roles' entropy (authors; 5e-2 on other maps)."""
    role_inference: float = Field(1e-4, ge=0)
    """Weight of the gap between roles and what memories tell of them (authors)."""
    role_difference: float = Field(1e-3, ge=0)
    """Weight of the roles' difference (authors)."""
    raw_roles: bool = False
    """True to leave both losses of roles away: the ablation."""


class ROMAConfig(QMIXConfig):
    """Settings of `ROMA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import ROMAConfig

        algo = ROMAConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"}).build_algo()
    """

    settings_models = {
        "training": ROMATraining,
        "policy_network": part(
            QSettings, *AGENT_SETTINGS, *MIXER_SETTINGS, "role_size", "role_width", "role_variance_floor"
        ),
    }
    kind: ClassVar[str] = ROLES

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: the authors', unless marked otherwise in the models."""
        super().__init__(algo_class=algo_class or ROMA)

    @override(QMIXConfig)
    def team_loss(self) -> TeamLoss:
        """The loss of a batch of episodes."""
        weights = (self.role_entropy, self.role_inference, self.role_difference)
        return ROMALoss(self.gamma, self.td_lambda, *weights, raw=self.raw_roles)


class ROMA(ValueDecomposition):
    """QMIX whose agents draw roles; settings: `ROMAConfig`."""

    @classmethod
    @override(DQN)
    def get_default_config(cls) -> ROMAConfig:
        """The default settings."""
        return ROMAConfig()
