"""The distribution of RED's collective command: go on or not, who goes along, and one command for all of them.

Drawn in this order. The parts of the command depend on the drawn flags: their logits are those of the mean of the
flagged units' vectors. All heads behind that mean are linear, so each unit's share of the logits is computed before
anything is drawn, and the whole distribution is a set of arrays. Masked parts have next to no probability.

The log-probability counts the parts that an action uses and no others: of "go on" only that, of "train" no cell. (The
original counts all parts of the command. The policy is the same, with less noise.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.nn import functional

from rllib_llm_comm.envs.minirts.collective_command import (
    ATTACK,
    BUILD,
    BUILD_AT,
    CELL_AT,
    ENEMY_AT,
    GATHER,
    GO_ON,
    GO_ON_AT,
    HEADS,
    KIND_AT,
    MOVE,
    RESOURCE_AT,
    SITE_AT,
    SIZES,
    TRAIN,
    TRAIN_AT,
)
from rllib_llm_comm.policies.numeric_network import FORBIDDEN

PARTS: Mapping[int, tuple[int, ...]] = {
    KIND_AT: (GATHER, ATTACK, BUILD, TRAIN, MOVE),
    RESOURCE_AT: (GATHER,),
    ENEMY_AT: (ATTACK,),
    TRAIN_AT: (TRAIN,),
    BUILD_AT: (BUILD,),
    SITE_AT: (BUILD,),
    CELL_AT: (MOVE,),
}
"""Parts of the command, in the order of the action, and the kinds of commands that use each; all use the first."""
_KEYS_OF = {RESOURCE_AT: "resource_keys", ENEMY_AT: "enemy_keys", SITE_AT: "cell_keys", CELL_AT: "cell_keys"}
_VOTES = {KIND_AT: "kind", TRAIN_AT: "train", BUILD_AT: "build"}
_QUERIES = {RESOURCE_AT: "resource", ENEMY_AT: "enemy", SITE_AT: "site", CELL_AT: "cell"}


@dataclass
class CollectiveChoice:
    """A batch of distributions over RED's actions, of B rows with room for U units.

    Attributes:
        go_on: (B,) logit of "go on".
        flags: (B, U) logits of the flags; `FORBIDDEN` for rows that are no own unit.
        kind: (B, U, 7) each unit's share of the logits of the kind.
        train: (B, U, 16) the same of the type to train.
        build: (B, U, 16) the same of the type to build.
        resource: (B, U, K) its share of the vector that the resources' keys are multiplied with.
        enemy: (B, U, K) the same for enemies.
        site: (B, U, K) the same for building sites.
        cell: (B, U, K) the same for cells to go to.
        resource_keys: (B, U, K).
        enemy_keys: (B, U, K).
        cell_keys: (B, 1024, K), or what gives (R, 1024, K) for some rows, in brackets: few actions have a cell,
            and maps are large.
        allowed: (B, 139) whether each value of the first five parts is possible.
    """

    go_on: torch.Tensor
    flags: torch.Tensor
    kind: torch.Tensor
    train: torch.Tensor
    build: torch.Tensor
    resource: torch.Tensor
    enemy: torch.Tensor
    site: torch.Tensor
    cell: torch.Tensor
    resource_keys: torch.Tensor
    enemy_keys: torch.Tensor
    cell_keys: Any
    allowed: torch.Tensor

    def logp(self, actions: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (B,) of actions (B, 58)."""
        actions = actions.long()
        goes_on = actions[:, GO_ON_AT].bool()
        flags = actions[:, len(HEADS) : len(HEADS) + self.flags.shape[1]].float()
        logp = -functional.softplus(torch.where(goes_on, -self.go_on, self.go_on))
        means, kind = self._weights(flags), actions[:, KIND_AT]
        of_flags = -functional.binary_cross_entropy_with_logits(self.flags, flags, reduction="none").sum(1)
        of_command = of_flags
        for part, kinds in PARTS.items():
            used = torch.ones_like(goes_on) if part == KIND_AT else _is_one_of(kind, kinds)
            rows = (used & ~goes_on).nonzero()[:, 0]
            if len(rows):
                chosen = self._logits(part, means, rows).log_softmax(-1).gather(1, actions[rows, part, None])[:, 0]
                of_command = of_command.index_add(0, rows, chosen)
        return torch.where(goes_on, logp, logp + of_command)

    def sample(
        self, generator: torch.Generator | None = None, greedy: bool = False, uniform: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Actions (B, 58), int64; parts that are not used are 0, but the kind of "go on" is "go on", too.

        Each part has a number of its own, used or not. So what a row draws does not depend on the other rows.

        Args:
            generator: Draws; `None` for torch's own.
            greedy: True for the most likely value of each part in turn.
            uniform: Numbers in [0, 1) of each row's parts (B, 58), instead of `generator`, as of
                `uniform_numbers`.
        """
        if uniform is None:
            uniform = uniform_numbers(len(self.go_on), generator, self.go_on.device)
        actions = torch.zeros(len(self.go_on), len(SIZES), dtype=torch.int64, device=self.go_on.device)
        goes_on = _decided(self.go_on, uniform[:, GO_ON_AT], greedy)
        actions[:, GO_ON_AT], actions[:, KIND_AT] = goes_on, GO_ON * goes_on
        places = slice(len(HEADS), len(HEADS) + self.flags.shape[1])
        flags = _decided(self.flags, uniform[:, places], greedy) * (1 - goes_on[:, None])
        actions[:, places] = flags
        means, rows = self._weights(flags.float()), (goes_on == 0).nonzero()[:, 0]
        for part, kinds in PARTS.items():
            using = rows if part == KIND_AT else rows[_is_one_of(actions[rows, KIND_AT], kinds)]
            if len(using):
                logits = self._logits(part, means, using)
                actions[using, part] = logits.argmax(-1) if greedy else _chosen(logits, uniform[using, part])
        return actions

    def entropy(self) -> torch.Tensor:
        """Entropies (B,) of "go on", the flags and the kind, the latter at the flags' mean (ours).

        The entropy of the whole would need a sum over all sets of units.
        """
        chance = self.go_on.sigmoid()
        first, flags = _bernoulli_entropy(self.go_on), _bernoulli_entropy(self.flags).sum(1)
        logits = self._kinds_at_mean()
        kinds = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
        entropy: torch.Tensor = first + (1 - chance) * (flags + kinds)
        return entropy

    def kind_chances(self) -> torch.Tensor:
        """Probabilities (B, 7) of the kinds at the flags' mean; the last one is that of "go on"."""
        chance = self.go_on.sigmoid()[:, None]
        kinds = (1 - chance) * self._kinds_at_mean().softmax(-1)
        return torch.cat([kinds[:, :GO_ON], kinds[:, GO_ON:] + chance], 1)

    def row(self, number: int) -> CollectiveChoice:
        """The distribution of one row, as a batch of one."""
        return CollectiveChoice(**{one.name: getattr(self, one.name)[number : number + 1] for one in fields(self)})

    def _kinds_at_mean(self) -> torch.Tensor:
        """Logits (B, 7) of the kinds where each unit counts by the chance of its flag."""
        chances = self.flags.sigmoid()
        weights = chances / chances.sum(1, keepdim=True).clamp(min=1e-6)
        return self._logits(KIND_AT, weights, torch.arange(len(chances), device=chances.device))

    def _weights(self, flags: torch.Tensor) -> torch.Tensor:
        """(B, U): what each unit adds to the mean of the flagged ones."""
        return flags / flags.sum(1, keepdim=True).clamp(min=1.0)

    def _logits(self, part: int, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Logits (R, size of the part) for some rows."""
        name = _VOTES.get(part) or _QUERIES[part]
        mean = torch.einsum("ru,ruk->rk", weights[rows], getattr(self, name)[rows])
        if part in _VOTES:
            return mean.masked_fill(~self._may(part, rows), FORBIDDEN)
        logits = torch.einsum("rk,rnk->rn", mean, getattr(self, _KEYS_OF[part])[rows]) * mean.shape[-1] ** -0.5
        if part in (RESOURCE_AT, ENEMY_AT):
            logits = logits.masked_fill(~self._may(part, rows)[:, : logits.shape[1]], FORBIDDEN)
        return logits

    def _may(self, part: int, rows: torch.Tensor) -> torch.Tensor:
        first = sum(HEADS[:part])
        return self.allowed[rows, first : first + HEADS[part]].bool()


def _is_one_of(kind: torch.Tensor, kinds: tuple[int, ...]) -> torch.Tensor:
    return torch.isin(kind, torch.tensor(kinds, device=kind.device))


def uniform_numbers(
    rows: int, generator: torch.Generator | None = None, device: torch.device | None = None
) -> torch.Tensor:
    """Numbers in [0, 1) for the parts of actions (rows, 58), as `CollectiveChoice.sample` takes them.

    Args:
        generator: Draws; `None` for torch's own.
    """
    return torch.rand(rows, len(SIZES), generator=generator, device=device)


def _decided(logits: torch.Tensor, uniform: torch.Tensor, greedy: bool) -> torch.Tensor:
    return (logits > 0).long() if greedy else (uniform < logits.sigmoid()).long()


def _chosen(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The first value whose share of the sum exceeds the number: never one without probability, as sums are doubles."""
    sums = logits.softmax(-1).double().cumsum(-1)
    return (sums <= uniform[:, None] * sums[:, -1:]).sum(-1)


def _bernoulli_entropy(logits: torch.Tensor) -> torch.Tensor:
    return functional.softplus(logits) - logits * logits.sigmoid()
