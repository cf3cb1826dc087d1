"""Losses of VDN and QMIX on whole episodes, as plain torch; those of LDSA, ROMA and MASER add to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rllib_llm_comm.baselines.value.q_network import Unrolled, open_values
from rllib_llm_comm.baselines.value.q_team import QTeam
from rllib_llm_comm.baselines.value.team_episodes import (
    ACTIONS,
    ACTIVE,
    FILLED,
    MASK,
    REWARDS,
    SEEN,
    STATE,
    TERMINATED,
    last_actions,
)
from rllib_llm_comm.policies.narrow_linear import live_columns, take_columns

Batch = Mapping[str, torch.Tensor]


@dataclass
class Judged:
    """A batch, and what the live and the target team make of it.

    Attributes:
        batch: As of `team_episodes.joined`, as tensors.
        live: Of the live team, (B, T + 1, n, A).
        target: Of the target team, without gradients.
        best: (B, T + 1, n, 1), the actions that the live team likes best among the open ones.
        target_best: (B, T + 1, n), the target team's values of them.
        target_total: (B, T + 1, m), the target team's values of them together, without gradients.
        valid: (B, T + 1), 1 for observations that there are.
    """

    batch: Batch
    live: Unrolled
    target: Unrolled
    best: torch.Tensor
    target_best: torch.Tensor
    target_total: torch.Tensor
    valid: torch.Tensor


class TeamLoss:
    """Squared error of a team's values over whole episodes, unrolled from zero memories.

    y_t = r_t + gamma (1 - term_t) Q_tot^-(s_{t+1}, a*), a* = argmax of the live values (double Q-learning); with
    `td_lambda` the targets of later steps count, too. An episode cut by a time limit has no `term` and is bootstrapped.

    Args:
        gamma: Discount per step, in [0, 1].
        td_lambda: Weight of later targets, in [0, 1]: 0 for one step (PyMARL), 0.6 in PyMARL2.
    """

    def __init__(self, gamma: float = 0.99, td_lambda: float = 0.0) -> None:
        self.gamma, self.td_lambda = gamma, td_lambda

    def __call__(self, live: QTeam, target: QTeam, batch: Batch) -> tuple[torch.Tensor, dict[str, float]]:
        """The loss, and figures to report.

        Args:
            live: The team that learns.
            target: The team that targets are taken from.
            batch: As of `team_episodes.joined`, as tensors.
        """
        judged = judge(live, target, narrow(live, target, batch))
        rewards = self.rewards(live, target, judged)
        error, values, targets = self._temporal_difference(live, judged, rewards)
        more = self.more(live, target, judged, rewards)
        report = {
            "td_loss": float(error.detach()),
            "q_mean": float(values.detach().mean()),
            "target_mean": float(targets.mean()),
            **{name: float(term.detach()) for name, term in more.items()},
        }
        loss = torch.stack([error, *more.values()]).sum() if more else error
        return loss, report

    def rewards(self, live: QTeam, target: QTeam, judged: Judged) -> torch.Tensor:
        """Team rewards (B, T) that targets are made of: those of the game."""
        return judged.batch[REWARDS].float()

    def more(self, live: QTeam, target: QTeam, judged: Judged, rewards: torch.Tensor) -> dict[str, torch.Tensor]:
        """Weighted terms that are added to the loss, by name; none here.

        Args:
            live: The team that learns.
            target: The team that targets are taken from.
            judged: The batch, judged by both.
            rewards: As of `rewards`.
        """
        return {}

    def _temporal_difference(
        self, live: QTeam, judged: Judged, rewards: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, filled = judged.batch, judged.batch[FILLED].float()
        values = live.total(chosen(judged.live.values, batch[ACTIONS]), batch[STATE][:, :-1])
        with torch.no_grad():
            following = judged.target_total[:, 1:]
            going_on = 1.0 - batch[TERMINATED].float()
            targets = self._targets(rewards, going_on, following, filled)
        squared = (values - targets).square().mean(-1) * filled
        played = filled.bool()
        return squared.sum() / filled.sum(), values[played], targets[played]

    def _targets(
        self, rewards: torch.Tensor, going_on: torch.Tensor, following: torch.Tensor, filled: torch.Tensor
    ) -> torch.Tensor:
        """Targets (B, T, m) of rewards (B, T), values of next states (B, T, m) and whether they count (B, T)."""
        if not self.td_lambda:
            return rewards[..., None] + self.gamma * going_on[..., None] * following
        # A target is `now + later * (the next one)`, with all that is no target in `now`. Behind an episode's last step
        # there is nothing but the value of its last state.
        discount = self.gamma * going_on[..., None]
        goes_on = torch.cat([filled[:, 1:], torch.zeros_like(filled[:, :1])], 1)[..., None] > 0
        now = rewards[..., None] + discount * torch.where(goes_on, (1 - self.td_lambda) * following, following)
        later = torch.where(goes_on, self.td_lambda * discount, torch.zeros_like(discount))
        targets = [now[:, -1]]
        for here, weight in zip(reversed(now[:, :-1].unbind(1)), reversed(later[:, :-1].unbind(1)), strict=True):
            targets.append(torch.addcmul(here, weight, targets[-1]))
        return torch.stack(targets[::-1], 1)


def judge(live: QTeam, target: QTeam, batch: Batch) -> Judged:
    """Unrolls both teams over a batch.

    Args:
        live: The team that learns.
        target: The team that targets are taken from.
        batch: As of `team_episodes.joined`, as tensors.
    """
    filled = batch[FILLED].float()
    valid = torch.cat([torch.ones_like(filled[:, :1]), filled], 1)
    # Behind an episode's end nobody is asked, but that must not make the unrolling slow.
    active = torch.where(valid[..., None] > 0, batch[ACTIVE].float(), torch.ones_like(batch[ACTIVE], dtype=torch.float))
    before = last_actions(batch[ACTIONS], active)
    inputs: dict[str, Any] = {"seen": batch[SEEN], "last_actions": before, "active": active, "valid": valid}
    ours = live.unroll(**inputs)
    with torch.no_grad():
        theirs = target.unroll(**inputs)
        best = open_values(ours.values, batch[MASK]).argmax(-1, keepdim=True)
        target_best = theirs.values.gather(-1, best)[..., 0]
        target_total = target.total(target_best, batch[STATE])
    return Judged(batch, ours, theirs, best, target_best, target_total, valid)


def narrow(live: QTeam, target: QTeam, batch: Batch) -> Batch:
    """A batch without the columns of observations and states that are zero in all its steps.

    Losses and gradients stay as they are, up to rounding.

    Args:
        live: The team that learns.
        target: The team that targets are taken from.
        batch: As of `team_episodes.joined`, as tensors.
    """
    left = {name: live_columns(batch[name]) for name in (SEEN, STATE)}
    for team in (live, target):
        team.keep_columns(left[SEEN], left[STATE])
    cut = {name: take_columns(batch[name], columns) for name, columns in left.items() if columns is not None}
    return {**batch, **cut}


def chosen(values: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Values (B, T, n) of the actions that were played.

    Args:
        values: (B, T + 1, n, A).
        actions: (B, T, n).
    """
    return values[:, :-1].gather(-1, actions.long()[..., None])[..., 0]


def tensors(batch: Mapping[str, Any], device: Any = None) -> dict[str, torch.Tensor]:
    """A batch of arrays as tensors.

    Args:
        batch: As of `team_episodes.joined`.
        device: The place to put them.
    """
    return {name: torch.as_tensor(values, device=device) for name, values in batch.items()}
