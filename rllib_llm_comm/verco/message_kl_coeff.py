"""The weight of the drift of trained messages from those that were taught."""

from __future__ import annotations

from typing import Any

_WRITTEN = 0.1
_GAIN = 0.1
_LARGEST_ERROR = 0.2


def first_kl_coeff(config: Any) -> float:
    """The weight that a config sets: `message_kl_coeff`, or what its default means for the kind of its messages.

    Args:
        config: Of an algorithm whose messages are trained.
    """
    given = getattr(config, "message_kl_coeff", None)
    if given is None:
        return _WRITTEN if getattr(config, "messages", None) == "student" else 0.0
    return float(given)


def adapted_kl_coeff(coefficient: float, kl: float, target: float) -> float:
    """The next weight beta of a KL divergence that is held near a target (arXiv 1909.08593, section 2.2).

    With e the relative error (kl - target) / target, cut to [-0.2, 0.2], beta is multiplied by 1 + 0.1 e.

    Args:
        coefficient: The weight up to now, > 0.
        kl: The divergence measured with it.
        target: The divergence aimed at, > 0.
    """
    error = min(max(kl / target - 1.0, -_LARGEST_ERROR), _LARGEST_ERROR)
    return coefficient * (1.0 + _GAIN * error)
