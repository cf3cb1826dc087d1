"""Early stop of policy updates on the KL divergence from the policy of the roll-out (TWOSOME; common PPO practice)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Mean of (ratio - 1) - log ratio over samples of the old policy: never negative, little variance."""
    return (log_ratio.exp() - 1.0 - log_ratio).mean()


class KLStop:
    """The policies that rest for the remainder of an update, since a minibatch showed too large a KL divergence.

    The critic, which stands on frozen features and costs next to nothing, goes on.
    """

    def __init__(self) -> None:
        self._stopped: set[Hashable] = set()

    def begin_update(self) -> None:
        """Lets all policies learn again."""
        self._stopped.clear()

    def stop(self, module_ids: Iterable[Hashable]) -> None:
        """Lets the policies of some modules rest until the next update."""
        self._stopped.update(module_ids)

    def stopped(self, module_id: Hashable) -> bool:
        """True if a module's policy rests until the next update."""
        return module_id in self._stopped

    def check(self, module_id: Hashable, kl: float, target: float | None) -> bool:
        """Stops a module's policy if its divergence is above the target.

        Args:
            module_id: The module.
            kl: Approximate KL divergence of a minibatch, equal in all Learners.
            target: `kl_target`, > 0; `None` never stops.

        Returns:
            True if the policy is stopped now, by this minibatch or an earlier one.
        """
        if target is not None and kl > target:
            self._stopped.add(module_id)
        return self.stopped(module_id)
