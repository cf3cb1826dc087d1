"""LDSA: QMIX whose agents choose among learned subtasks by their ability (Yang et al. 2022, arXiv 2205.02561)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from rllib_llm_comm.baselines.value.joint_game import FILLED
from rllib_llm_comm.baselines.value.q_network import SUBTASK_LOGITS, QSettings, QTeam
from rllib_llm_comm.baselines.value.qmix import MIXER_SETTINGS, QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import (
    AGENT_SETTINGS,
    TeamLoss,
    UnrolledTeams,
    ValueDecomposition,
    ValueTraining,
)
from rllib_llm_comm.rl.strict_config import select_fields


class LDSATraining(ValueTraining):
    """The optimisation. The authors' epsilon falls in 500,000 steps on hard maps."""

    subtask_distance: float = Field(1e-3, ge=0)
    """Weight of the distance between subtasks, which is made large (authors)."""
    subtask_change: float = Field(1e-3, ge=0)
    """Weight of the change of an agent's chances of subtasks from step to step, which is made small (authors)."""


class LDSALoss(TeamLoss):
    """QMIX's loss, less the distance of subtasks, plus the change of agents' chances of subtasks in time.

    They are mean_{i != j} ||x_i - sg(x_j)||^2 and mean_{t, i} sum_j -sg(p_ij(t)) log p_ij(t + 1).
    """

    training = LDSATraining
    settings: LDSATraining

    def auxiliary_losses(self, live: QTeam, unrolled: UnrolledTeams, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """The distance and the change."""
        tasks = live.agents.subtasks()
        apart = (tasks.unsqueeze(1) - tasks.detach().unsqueeze(0)).square().sum(-1)
        count = len(tasks)
        logs = unrolled.live.more[SUBTASK_LOGITS].log_softmax(-1)
        moved = -(logs[:, :-1].exp().detach() * logs[:, 1:]).sum(-1).mean(-1)
        filled = unrolled.batch[FILLED].float()
        return {
            "subtask_distance": -self.settings.subtask_distance * apart.sum() / (count * (count - 1)),
            "subtask_change": self.settings.subtask_change * (moved * filled).sum() / filled.sum(),
        }


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

    settings_models = {
        "training": LDSATraining,
        "policy_network": select_fields(
            QSettings, *AGENT_SETTINGS, *MIXER_SETTINGS, "subtasks", "subtask_width", "random_subtasks"
        ),
    }
    kind: ClassVar[str] = "ldsa"
    loss_class = LDSALoss


class LDSA(ValueDecomposition):
    """QMIX whose agents choose among learned subtasks; settings: `LDSAConfig`."""

    config_class = LDSAConfig
