"""Callback that warns when a policy closes up before it has seen a reward."""

from __future__ import annotations

import logging
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core import ALL_MODULES
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, LEARNER_RESULTS

logger = logging.getLogger(__name__)

CLOSED = 0.1
"""Share of the first entropy below which a policy counts as closed."""


class WarnOfClosing(RLlibCallback):
    """Warns once when the entropy falls below a tenth of its start before any episode paid more than nothing.

    Such a policy has chosen among actions that all paid the same: it followed the noise of its critic, and explores no
    more.

    `Verco` and the systems that it is compared with add this callback by themselves.
    """

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._paid = False
        self._told = False

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Looks at one iteration."""
        best = result.get(ENV_RUNNER_RESULTS, {}).get("episode_return_max", float("nan"))
        self._paid = self._paid or best > 0.0
        if self._paid or self._told:
            return
        for module_id, learned in result.get(LEARNER_RESULTS, {}).items():
            if module_id == ALL_MODULES or "entropy" not in learned:
                continue
            entropy = float(learned["entropy"])
            first = self._first.setdefault(module_id, entropy)
            if entropy < CLOSED * first:
                self._told = True
                logger.warning(
                    "The entropy of %r fell from %.3g to %.3g before any episode had a return above 0: the policy "
                    "closes up on noise. %s",
                    module_id,
                    first,
                    entropy,
                    _remedy(algorithm.config),
                )


def _remedy(config: Any) -> str:
    entropy = f"`entropy_coeff` (now {config.entropy_coeff})"
    if not getattr(config, "has_critic", True):
        return f"Raise {entropy} or `group_size`, or begin with cloned actions."
    return (
        f"Raise `advantage_floor` (now {config.advantage_floor:g}; 0.02, for example) or {entropy}, let the critic "
        "learn alone at first (`critic_warmup`), or begin with cloned actions."
    )
