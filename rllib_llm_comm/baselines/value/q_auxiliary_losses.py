"""Losses of LDSA, ROMA and MASER: what they add to that of QMIX."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from rllib_llm_comm.baselines.value.q_losses import Judged, TeamLoss, chosen
from rllib_llm_comm.baselines.value.q_network import open_values
from rllib_llm_comm.baselines.value.q_roles import (
    INFERRED_MEANS,
    INFERRED_VARIANCES,
    ROLE_MEANS,
    ROLE_VARIANCES,
    ROLES,
)
from rllib_llm_comm.baselines.value.q_subtasks import SUBTASK_LOGITS
from rllib_llm_comm.baselines.value.q_team import QTeam
from rllib_llm_comm.baselines.value.team_episodes import ACTIONS, FILLED, MASK, REWARDS, SEEN, TERMINATED

_LOG_FLOOR = 13.9


class LDSALoss(TeamLoss):
    """QMIX's loss, less the distance of subtasks, plus the change of agents' chances of subtasks in time.

    Args:
        gamma: As of `TeamLoss`.
        td_lambda: As of `TeamLoss`.
        distance: Weight of mean_{i != j} ||x_i - sg(x_j)||^2, which is taken off. Authors: 1e-3.
        change: Weight of mean_{t, i} sum_j -sg(p_ij(t)) log p_ij(t + 1). Authors: 1e-3.
    """

    def __init__(
        self, gamma: float = 0.99, td_lambda: float = 0.0, distance: float = 1e-3, change: float = 1e-3
    ) -> None:
        super().__init__(gamma, td_lambda)
        self.distance, self.change = distance, change

    def more(self, live: QTeam, target: QTeam, judged: Judged, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both terms, weighted."""
        tasks = live.agents.subtasks()
        apart = (tasks.unsqueeze(1) - tasks.detach().unsqueeze(0)).square().sum(-1)
        count = len(tasks)
        logs = judged.live.more[SUBTASK_LOGITS].log_softmax(-1)
        moved = -(logs[:, :-1].exp().detach() * logs[:, 1:]).sum(-1).mean(-1)
        filled = judged.batch[FILLED].float()
        return {
            "subtask_distance": -self.distance * apart.sum() / (count * (count - 1)),
            "subtask_change": self.change * (moved * filled).sum() / filled.sum(),
        }


class ROMALoss(TeamLoss):
    """QMIX's loss, plus what makes roles identifiable and special; means over the steps that were played.

    Per agent log(1 + exp(min(2000, h_w H(p) + kl_w KL(p || q)))), with p the distribution of its role and q the one
    inferred from what it remembers; and per step dis_w / n (mean_i sum_j d_ij - mean_i sum_j min(1, m_ij + d_ij)), with
    m_ij = mean over dimensions of max(log p(rho_j | o_i) + 13.9, -13.9) and d_ij = |D([rho_i, rho_j])|, both scaled to
    [0, 1] over a step's pairs.

    Args:
        gamma: As of `TeamLoss`.
        td_lambda: As of `TeamLoss`.
        entropy: h_w. Authors: 1e-4; for other maps 5e-2.
        inference: kl_w. Authors: 1e-4.
        difference: dis_w. Authors: 1e-3.
        raw: True to leave both terms away: the ablation.
    """

    def __init__(
        self,
        gamma: float = 0.99,
        td_lambda: float = 0.0,
        entropy: float = 1e-4,
        inference: float = 1e-4,
        difference: float = 1e-3,
        raw: bool = False,
    ) -> None:
        super().__init__(gamma, td_lambda)
        self.entropy, self.inference, self.difference, self.raw = entropy, inference, difference, raw

    def more(self, live: QTeam, target: QTeam, judged: Judged, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both terms; none if `raw`."""
        if self.raw:
            return {}
        filled = judged.batch[FILLED].bool()
        told = {name: values[:, :-1][filled] for name, values in judged.live.more.items()}
        means, variances = told[ROLE_MEANS], told[ROLE_VARIANCES]
        own, inferred = (
            torch.distributions.Normal(told[mean], told[variance].sqrt())
            for mean, variance in ((ROLE_MEANS, ROLE_VARIANCES), (INFERRED_MEANS, INFERRED_VARIANCES))
        )
        entropy = own.entropy().sum(-1)
        divergence = torch.distributions.kl_divergence(own, inferred).sum(-1)
        known = functional.softplus((self.entropy * entropy + self.inference * divergence).clamp(max=2000.0))
        roles, agents = told[ROLES], means.shape[1]
        spread = variances.unsqueeze(2)
        logs = -0.5 * ((roles.unsqueeze(1) - means.unsqueeze(2)).square() / spread + (2 * math.pi * spread).log())
        alike = _scaled((logs + _LOG_FLOOR).clamp(min=-_LOG_FLOOR).mean(-1))
        pairs = torch.cat([roles.unsqueeze(2).expand(*logs.shape), roles.unsqueeze(1).expand(*logs.shape)], -1)
        apart = _scaled(live.agents.difference(pairs)[..., 0].abs())
        special = apart.sum(-1).mean(-1) - (alike + apart).clamp(max=1.0).sum(-1).mean(-1)
        return {"role_loss": known.mean(), "role_difference": self.difference / agents * special.mean()}


def _scaled(pairs: torch.Tensor) -> torch.Tensor:
    """Values (N, n, n) scaled to [0, 1] over the pairs of each row."""
    low, high = pairs.amin((1, 2), keepdim=True), pairs.amax((1, 2), keepdim=True)
    return (pairs - low) / (high - low + 1e-12)


@dataclass(frozen=True)
class MaserWeights:
    """MASER's weights.

    Attributes:
        reward: lam, of the agents' own rewards. Authors: 0.03.
        own_value: alpha in [0, 1], the share of an agent's own value in the choice of its subgoal. Authors: 0.5.
        total: Of all three terms together. Authors: 0.001.
        individual: Of the agents' own temporal differences. Authors: 0.8.
        mixed: Of the two terms below together. Authors: 0.2.
        exploring: Of the evenness of values behind the subgoal. Authors: 0.3.
        distance: Of the distance network's error. Authors: 0.7.
    """

    reward: float = 0.03
    own_value: float = 0.5
    total: float = 0.001
    individual: float = 0.8
    mixed: float = 0.2
    exploring: float = 0.3
    distance: float = 0.7


class MASERLoss(TeamLoss):
    """QMIX's loss with subgoals from the replay (Jeon et al. 2022, arXiv 2206.10607).

    An agent's subgoal in an episode is what it saw where its own and the team's target values are highest. It is paid
    for being near, as a distance network phi sees it, and the mean of what all are paid is added to the team's reward.

    Args:
        gamma: As of `TeamLoss`.
        td_lambda: As of `TeamLoss`.
        weights: The weights.
        faithful: True for what the released code does: phi is never trained, the evenness is that of target values and
            so trains nothing, the rewards of the agents' own targets hold the subgoals' rewards already, and steps
            behind an episode's end and closed actions count. False (default): phi is trained, the evenness is that of
            live values over open actions, and only steps that were played count.
    """

    def __init__(
        self,
        gamma: float = 0.99,
        td_lambda: float = 0.0,
        weights: MaserWeights | None = None,
        faithful: bool = False,
    ) -> None:
        super().__init__(gamma, td_lambda)
        self.weights, self.faithful = weights or MaserWeights(), faithful

    def rewards(self, live: QTeam, target: QTeam, judged: Judged) -> torch.Tensor:
        """The game's rewards (B, T) and `reward` times the mean of what the agents are paid for nearness."""
        if not self.weights.reward:
            return super().rewards(live, target, judged)
        with torch.no_grad():
            paid = -self._distances(live, judged)[0]
        return super().rewards(live, target, judged) + self.weights.reward * paid.mean(-1)

    def more(self, live: QTeam, target: QTeam, judged: Judged, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """The agents' own temporal differences, the evenness of their values and the distance network's error."""
        weights = self.weights
        distances, goals = self._distances(live, judged)
        distances = distances.detach() if self.faithful else distances
        filled = judged.batch[FILLED].float()
        played = torch.ones_like(filled) if self.faithful else filled
        # A term without weight is left away as a whole, so that it takes no part in the norm of gradients either.
        terms: dict[str, tuple[float, Callable[[], torch.Tensor]]] = {
            "individual_loss": (
                weights.individual,
                lambda: self._individual(judged, -distances.detach(), rewards, filled),
            ),
            "exploring_loss": (weights.mixed * weights.exploring, lambda: self._exploring(judged, goals, played)),
            "distance_loss": (
                weights.mixed * weights.distance,
                lambda: self._distance_error(judged, distances, goals, played),
            ),
        }
        return {name: weights.total * weight * term() for name, (weight, term) in terms.items() if weight}

    def _distances(self, live: QTeam, judged: Judged) -> tuple[torch.Tensor, torch.Tensor]:
        """Distances (B, T, n) from what agents see to their subgoals, and the subgoals' steps (B, n)."""
        own = judged.target_best[:, :-1]
        with torch.no_grad():
            total = judged.target_total[:, :-1]
            share = self.weights.own_value
            score = share * own + (1 - share) * total / own.shape[-1]
            if not self.faithful:
                score = score.masked_fill(judged.batch[FILLED][..., None] == 0, -torch.inf)
            goals = score.argmax(1)
        assert live.distance is not None
        here = live.distance(judged.batch[SEEN][:, :-1].float())
        apart = here - here.gather(1, goals[:, None, :, None].expand(-1, 1, -1, here.shape[-1]))
        return torch.linalg.vector_norm(apart, dim=-1), goals

    def _individual(
        self, judged: Judged, paid: torch.Tensor, rewards: torch.Tensor, filled: torch.Tensor
    ) -> torch.Tensor:
        batch, following = judged.batch, judged.target_best[:, 1:]
        earned = rewards if self.faithful else batch[REWARDS].float()
        going_on = (1.0 - batch[TERMINATED].float())[..., None]
        wanted = (
            following.softmax(-1) * earned[..., None] + self.weights.reward * paid + self.gamma * going_on * following
        )
        errors = (chosen(judged.live.values, batch[ACTIONS]) - wanted).square().sum(-1)
        return (errors * filled).sum() / filled.sum()

    def _exploring(self, judged: Judged, goals: torch.Tensor, played: torch.Tensor) -> torch.Tensor:
        """Mean over agents of the mean, over the steps from the subgoal on, of KL(softmax Q_i || uniform)."""
        of, masks = (judged.target if self.faithful else judged.live).values[:, :-1], judged.batch[MASK][:, :-1]
        logs = open_values(of, masks).log_softmax(-1)
        choices = torch.full_like(logs[..., 0], logs.shape[-1]) if self.faithful else (masks != 0).sum(-1).float()
        gap = (logs.exp() * logs).sum(-1) + choices.clamp(min=1.0).log()
        steps = torch.arange(gap.shape[1], device=gap.device)[None, :, None]
        counts = (steps >= goals[:, None]) * played[..., None]
        return ((gap * counts).sum(1) / counts.sum(1).clamp(min=1.0)).mean()

    def _distance_error(
        self, judged: Judged, distances: torch.Tensor, goals: torch.Tensor, played: torch.Tensor
    ) -> torch.Tensor:
        """Mean squared difference of distances and 1 - cos of the target values here and at the subgoal."""
        values, masks = judged.target.values[:, :-1], judged.batch[MASK][:, :-1]
        values = open_values(values, masks) if self.faithful else values.masked_fill(masks == 0, 0.0)
        there = values.gather(1, goals[:, None, :, None].expand(-1, 1, -1, values.shape[-1]))
        turned = 1.0 - functional.cosine_similarity(values, there, dim=-1)
        errors = (distances - turned).square().mean(-1)
        return (errors * played).sum() / played.sum()
