"""ROMA: QMIX whose agents draw roles that make their heads (Wang et al. 2020, arXiv 2003.08039)."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch.nn import functional

from rllib_llm_comm.baselines.value.joint_game import FILLED
from rllib_llm_comm.baselines.value.q_network import (
    INFERRED_MEANS,
    INFERRED_VARIANCES,
    ROLE_MEANS,
    ROLE_VARIANCES,
    ROLES,
    QSettings,
    QTeam,
)
from rllib_llm_comm.baselines.value.qmix import MIXER_SETTINGS, QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import (
    AGENT_SETTINGS,
    TeamLoss,
    UnrolledTeams,
    ValueDecomposition,
    ValueTraining,
)
from rllib_llm_comm.rl.strict_config import select_fields

_LOG_FLOOR = 13.9


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
    """True to omit both losses of roles: the ablation."""


class ROMALoss(TeamLoss):
    """QMIX's loss, plus what makes roles identifiable and special; means over the steps that were played.

    Per agent log(1 + exp(min(2000, h_w H(p) + kl_w KL(p || q)))), with p the distribution of its role and q the one
    inferred from what it remembers; and per step dis_w / n (mean_i sum_j d_ij - mean_i sum_j min(1, m_ij + d_ij)), with
    m_ij = mean over dimensions of max(log p(rho_j | o_i) + 13.9, -13.9) and d_ij = |D([rho_i, rho_j])|, both scaled to
    [0, 1] over a step's pairs. h_w is `role_entropy`, kl_w `role_inference`, and dis_w `role_difference`.
    """

    training = ROMATraining
    settings: ROMATraining

    def auxiliary_losses(self, live: QTeam, unrolled: UnrolledTeams, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both terms; none with `raw_roles`."""
        if self.settings.raw_roles:
            return {}
        filled = unrolled.batch[FILLED].bool()
        told = {name: values[:, :-1][filled] for name, values in unrolled.live.more.items()}
        means, variances = told[ROLE_MEANS], told[ROLE_VARIANCES]
        own, inferred = (
            torch.distributions.Normal(told[mean], told[variance].sqrt())
            for mean, variance in ((ROLE_MEANS, ROLE_VARIANCES), (INFERRED_MEANS, INFERRED_VARIANCES))
        )
        entropy = own.entropy().sum(-1)
        divergence = torch.distributions.kl_divergence(own, inferred).sum(-1)
        gap = self.settings.role_entropy * entropy + self.settings.role_inference * divergence
        known = functional.softplus(gap.clamp(max=2000.0))
        roles, agents = told[ROLES], means.shape[1]
        spread = variances.unsqueeze(2)
        logs = -0.5 * ((roles.unsqueeze(1) - means.unsqueeze(2)).square() / spread + (2 * math.pi * spread).log())
        alike = _scaled((logs + _LOG_FLOOR).clamp(min=-_LOG_FLOOR).mean(-1))
        pairs = torch.cat([roles.unsqueeze(2).expand(*logs.shape), roles.unsqueeze(1).expand(*logs.shape)], -1)
        apart = _scaled(live.agents.difference(pairs)[..., 0].abs())
        special = apart.sum(-1).mean(-1) - (alike + apart).clamp(max=1.0).sum(-1).mean(-1)
        return {"role_loss": known.mean(), "role_difference": self.settings.role_difference / agents * special.mean()}


def _scaled(pairs: torch.Tensor) -> torch.Tensor:
    """Values (N, n, n) scaled to [0, 1] over the pairs of each row."""
    low, high = pairs.amin((1, 2), keepdim=True), pairs.amax((1, 2), keepdim=True)
    return (pairs - low) / (high - low + 1e-12)


class ROMAConfig(QMIXConfig):
    """Settings of `ROMA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import ROMAConfig

        algo = ROMAConfig().environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"}).build_algo()
    """

    settings_models = {
        "training": ROMATraining,
        "policy_network": select_fields(
            QSettings, *AGENT_SETTINGS, *MIXER_SETTINGS, "role_size", "role_width", "role_variance_floor"
        ),
    }
    kind: ClassVar[str] = "roma"
    loss_class = ROMALoss


class ROMA(ValueDecomposition):
    """QMIX whose agents draw roles; settings: `ROMAConfig`."""

    config_class = ROMAConfig
