"""Loss terms of Verco and MAPPO as plain functions."""

from __future__ import annotations

import torch


def policy_loss(ratio: torch.Tensor, advantages: torch.Tensor, clip_param: float) -> torch.Tensor:
    """The negated clipped surrogate objective (Verco Eq. 4): to be minimised.

    Args:
        ratio: (B,) new over old probability of the action taken.
        advantages: (B,).
        clip_param: Largest deviation of the ratio from 1 that pays.

    Returns:
        Mean over the batch.
    """
    clipped = ratio.clamp(1.0 - clip_param, 1.0 + clip_param)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def value_loss(
    values: torch.Tensor,
    old_values: torch.Tensor,
    targets: torch.Tensor,
    clip_param: float | None,
    mode: str = "max",
    huber_delta: float | None = None,
) -> torch.Tensor:
    """Squared error of the value or of its clipped change (Verco Eq. 5), or their Huber losses (MAPPO).

    Args:
        values: (B,) predictions.
        old_values: (B,) predictions of the roll-out's critic.
        targets: (B,) advantage + old value.
        clip_param: Largest change from the old value; `None` for the plain squared error.
        mode: `"max"`: the larger of both errors, which keeps the critic near the old one (TWOSOME, PPO
            practice). `"min"`: the smaller one, as the paper's text says.
        huber_delta: Size d of an error e from which on it counts d (|e| - d / 2) instead of e^2 / 2; `None` for e^2.

    Returns:
        Mean over the batch.
    """
    plain = _penalty(values - targets, huber_delta)
    if clip_param is None:
        return plain.mean()
    near = old_values + (values - old_values).clamp(-clip_param, clip_param)
    clipped = _penalty(near - targets, huber_delta)
    return (torch.max(plain, clipped) if mode == "max" else torch.min(plain, clipped)).mean()


def _penalty(errors: torch.Tensor, huber_delta: float | None) -> torch.Tensor:
    if huber_delta is None:
        return errors**2
    size = errors.abs()
    return torch.where(size <= huber_delta, 0.5 * errors**2, huber_delta * (size - 0.5 * huber_delta))


def explained_variance(targets: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """1 - Var(targets - values) / Var(targets); 1 is perfect, 0 no better than a constant."""
    spread = targets.var(unbiased=False)
    return 1.0 - (targets - values).var(unbiased=False) / spread.clamp(min=1e-8)
