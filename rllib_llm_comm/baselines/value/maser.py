"""MASER: QMIX whose agents are paid for nearing subgoals of the replay (Jeon et al. 2022, arXiv 2206.10607)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch.nn import functional

from rllib_llm_comm.baselines.value.joint_game import ACTIONS, FILLED, MASK, REWARDS, SEEN, TERMINATED
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam, open_values
from rllib_llm_comm.baselines.value.qmix import MIXER_SETTINGS, QMIXConfig
from rllib_llm_comm.baselines.value.value_decomposition import (
    AGENT_SETTINGS,
    TeamLoss,
    UnrolledTeams,
    ValueDecomposition,
    ValueTraining,
    chosen,
)
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.numeric_network import MOST_WIDTH
from rllib_llm_comm.rl.strict_config import select_fields


class MASERTraining(ValueTraining):
    """The optimisation. Weights are of the authors' qmix.yaml; the run in their README sets the last four to 1."""

    faithful: bool = False
    """True for what the released code does, its faults included: the distance network is never trained, the evenness is
    that of target values and so trains nothing, the rewards of the agents' own targets hold the subgoals' rewards
    already, and steps behind an episode's end and closed actions count. False (ours): it is trained, the evenness is
    that of live values over open actions, and only steps that were played count."""
    subgoal_reward: float = Field(0.03, ge=0)
    """lam, the weight of the rewards for nearness (authors)."""
    own_value_share: float = Field(0.5, ge=0, le=1)
    """alpha, the share of an agent's own value in the choice of its subgoal (authors)."""
    maser_weight: float = Field(0.001, ge=0)
    """Weight of all three terms together (authors)."""
    individual_weight: float = Field(0.8, ge=0)
    """Weight of the agents' own temporal differences (authors' file; the run in their README: 1)."""
    mixed_weight: float = Field(0.2, ge=0)
    """Weight of the two terms below together (authors' file; their README: 1)."""
    exploring_weight: float = Field(0.3, ge=0)
    """Weight of the evenness of values behind the subgoal (authors' file; their README: 1)."""
    distance_weight: float = Field(0.7, ge=0)
    """Weight of the distance network's error (authors' file; their README: 1)."""


class MASERNetwork(Settings):
    """The network of distances, beside those of QMIX."""

    distance_width: int = Field(128, ge=1, le=MOST_WIDTH)
    """Units of the network of distances (authors)."""


class MASERLoss(TeamLoss):
    """QMIX's loss with subgoals from the replay (Jeon et al. 2022, arXiv 2206.10607).

    An agent's subgoal in an episode is what it saw where its own and the team's target values are highest. It is paid
    for being near, as a distance network phi sees it, and the mean of what all are paid is added to the team's reward.
    """

    training = MASERTraining
    settings: MASERTraining

    def rewards(self, live: QTeam, unrolled: UnrolledTeams) -> torch.Tensor:
        """The game's rewards (B, T) and `subgoal_reward` times the mean of what the agents are paid for nearness."""
        if not self.settings.subgoal_reward:
            return super().rewards(live, unrolled)
        with torch.no_grad():
            paid = -self._distances(live, unrolled)[0]
        return super().rewards(live, unrolled) + self.settings.subgoal_reward * paid.mean(-1)

    def auxiliary_losses(self, live: QTeam, unrolled: UnrolledTeams, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """The agents' own temporal differences, the evenness of their values and the distance network's error."""
        weights = self.settings
        distances, goals = self._distances(live, unrolled)
        distances = distances.detach() if self.settings.faithful else distances
        filled = unrolled.batch[FILLED].float()
        played = torch.ones_like(filled) if self.settings.faithful else filled
        # A term without weight is left out as a whole, so that it takes no part in the norm of gradients either.
        terms: dict[str, tuple[float, Callable[[], torch.Tensor]]] = {
            "individual_loss": (
                weights.individual_weight,
                lambda: self._individual(unrolled, -distances.detach(), rewards, filled),
            ),
            "exploring_loss": (
                weights.mixed_weight * weights.exploring_weight,
                lambda: self._exploring(unrolled, goals, played),
            ),
            "distance_loss": (
                weights.mixed_weight * weights.distance_weight,
                lambda: self._distance_error(unrolled, distances, goals, played),
            ),
        }
        return {name: weights.maser_weight * weight * term() for name, (weight, term) in terms.items() if weight}

    def _distances(self, live: QTeam, unrolled: UnrolledTeams) -> tuple[torch.Tensor, torch.Tensor]:
        """Distances (B, T, n) from what agents see to their subgoals, and the subgoals' steps (B, n)."""
        own = unrolled.target_best[:, :-1]
        with torch.no_grad():
            total = unrolled.target_total[:, :-1]
            share = self.settings.own_value_share
            score = share * own + (1 - share) * total / own.shape[-1]
            if not self.settings.faithful:
                score = score.masked_fill(unrolled.batch[FILLED][..., None] == 0, -torch.inf)
            goals = score.argmax(1)
        assert live.distance is not None
        here = live.distance(unrolled.batch[SEEN][:, :-1].float())
        apart = here - here.gather(1, goals[:, None, :, None].expand(-1, 1, -1, here.shape[-1]))
        return torch.linalg.vector_norm(apart, dim=-1), goals

    def _individual(
        self, unrolled: UnrolledTeams, paid: torch.Tensor, rewards: torch.Tensor, filled: torch.Tensor
    ) -> torch.Tensor:
        batch, following = unrolled.batch, unrolled.target_best[:, 1:]
        earned = rewards if self.settings.faithful else batch[REWARDS].float()
        going_on = (1.0 - batch[TERMINATED].float())[..., None]
        wanted = (
            following.softmax(-1) * earned[..., None]
            + self.settings.subgoal_reward * paid
            + self.settings.gamma * going_on * following
        )
        errors = (chosen(unrolled.live.values, batch[ACTIONS]) - wanted).square().sum(-1)
        return (errors * filled).sum() / filled.sum()

    def _exploring(self, unrolled: UnrolledTeams, goals: torch.Tensor, played: torch.Tensor) -> torch.Tensor:
        """Mean over agents of the mean, over the steps from the subgoal on, of KL(softmax Q_i || uniform)."""
        of, masks = (
            (unrolled.target if self.settings.faithful else unrolled.live).values[:, :-1],
            unrolled.batch[MASK][:, :-1],
        )
        logs = open_values(of, masks).log_softmax(-1)
        choices = (
            torch.full_like(logs[..., 0], logs.shape[-1]) if self.settings.faithful else (masks != 0).sum(-1).float()
        )
        gap = (logs.exp() * logs).sum(-1) + choices.clamp(min=1.0).log()
        steps = torch.arange(gap.shape[1], device=gap.device)[None, :, None]
        counts = (steps >= goals[:, None]) * played[..., None]
        return ((gap * counts).sum(1) / counts.sum(1).clamp(min=1.0)).mean()

    def _distance_error(
        self, unrolled: UnrolledTeams, distances: torch.Tensor, goals: torch.Tensor, played: torch.Tensor
    ) -> torch.Tensor:
        """Mean squared difference of distances and 1 - cos of the target values here and at the subgoal."""
        values, masks = unrolled.target.values[:, :-1], unrolled.batch[MASK][:, :-1]
        values = open_values(values, masks) if self.settings.faithful else values.masked_fill(masks == 0, 0.0)
        there = values.gather(1, goals[:, None, :, None].expand(-1, 1, -1, values.shape[-1]))
        turned = 1.0 - functional.cosine_similarity(values, there, dim=-1)
        errors = (distances - turned).square().mean(-1)
        return (errors * played).sum() / played.sum()


class MASERConfig(QMIXConfig):
    """Settings of `MASER`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import MASERConfig

        algo = (
            MASERConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .training(faithful=False)
            .build_algo()
        )
    """

    settings_models = {
        "training": MASERTraining,
        "policy_network": select_fields(QSettings, *AGENT_SETTINGS, *MIXER_SETTINGS, base=MASERNetwork),
    }
    loss_class = MASERLoss


class MASER(ValueDecomposition):
    """QMIX whose agents are paid for nearing subgoals of the replay; settings: `MASERConfig`."""

    config_class = MASERConfig
