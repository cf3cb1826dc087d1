"""Minibatches that use every row exactly once per epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import tree
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

ROW_GROUP = "row_group"


class WholeEpochs:
    """Splits a multi-agent batch into minibatches of nearly equal size, anew in every epoch.

    Rows with an equal number in the column `row_group` stay together: a language model computes a text once
    per minibatch however many rows show it, so a game in which half of the decisions meet a text again costs
    half.

    RLlib's own iterator goes round the batch in steps of `minibatch_size`: rows at the seam are used twice,
    and without `minibatch_size` it takes the number of environment steps for the number of rows.

    Args:
        batch: Rows by module, as tensors.
        num_epochs: Passes over the batch.
        minibatch_size: Upper bound on the rows per module and minibatch; `None` for the whole batch.
        shuffle: True if rows are put in random order before each pass.
        num_total_minibatches: If > 0, exactly so many are made (several Learners must agree on it).
    """

    def __init__(
        self,
        batch: MultiAgentBatch,
        *,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle: bool = True,
        num_total_minibatches: int = 0,
    ) -> None:
        self._rows = {module_id: dict(rows) for module_id, rows in batch.policy_batches.items() if len(rows)}
        self._groups = {module_id: _groups(rows) for module_id, rows in self._rows.items()}
        self._counts = {module_id: len(groups) for module_id, groups in self._groups.items()}
        self._epochs = num_epochs
        largest = max(self._counts.values(), default=0)
        self._parts = math.ceil(largest / minibatch_size) if minibatch_size else min(1, largest)
        self._shuffle = shuffle and self._parts > 1
        self._total = num_total_minibatches
        self._first: dict[str, list[torch.Tensor]] | None = None

    def first_epoch(self) -> Iterator[tuple[str, torch.Tensor, SampleBatch]]:
        """Draws the minibatches of the first epoch now; iteration then begins with the same ones.

        Yields:
            Module, row numbers and rows of each of its minibatches.
        """
        self._first = {module_id: self._split(groups) for module_id, groups in self._groups.items()}
        for module_id, parts in self._first.items():
            for rows in parts:
                if len(rows):
                    yield module_id, rows, self._take(module_id, rows)

    def columns(self, module_id: str) -> dict[str, Any]:
        """The columns of a module, to be changed in place."""
        return self._rows[module_id]

    @property
    def rows(self) -> int:
        """Rows of all modules in an epoch."""
        return sum(map(len, self._groups.values()))

    def __len__(self) -> int:
        """Number of minibatches."""
        return self._total or self._parts * self._epochs

    def __iter__(self) -> Iterator[MultiAgentBatch]:
        made, epoch = 0, 0
        while self._parts and (made < self._total if self._total else epoch < self._epochs):
            for part in self._epoch():
                if self._total and made >= self._total:
                    return
                yield part
                made += 1
            epoch += 1

    def _epoch(self) -> Iterator[MultiAgentBatch]:
        splits, self._first = self._first, None
        if splits is None:
            splits = {module_id: self._split(groups) for module_id, groups in self._groups.items()}
        for part in range(self._parts):
            chosen = {}
            for module_id, rows_of_part in splits.items():
                if len(rows_of_part[part]):
                    chosen[module_id] = self._take(module_id, rows_of_part[part])
            if chosen:
                yield MultiAgentBatch(chosen, env_steps=max(len(rows) for rows in chosen.values()))

    def _split(self, groups: np.ndarray) -> list[torch.Tensor]:
        # Groups in random order, rows in the order of their groups, cut at the ends of groups where a part is
        # full.
        if self._parts == 1:
            return [torch.arange(len(groups))]
        count = int(groups.max()) + 1
        rank = torch.randperm(count).numpy() if self._shuffle else np.arange(count)
        order = np.argsort(rank[groups], kind="stable")
        ends = np.cumsum(np.bincount(rank[groups], minlength=count))
        targets = [part * len(groups) / self._parts for part in range(1, self._parts)]
        cuts = [int(ends[np.abs(ends - target).argmin()]) for target in targets]
        return [torch.from_numpy(rows) for rows in np.split(order, cuts)]

    def _take(self, module_id: str, rows: torch.Tensor) -> SampleBatch:
        columns = self._rows[module_id]
        if self._parts == 1:
            return SampleBatch(columns)
        return SampleBatch(tree.map_structure(lambda column: column[rows.to(column.device)], columns))


def _groups(rows: dict[str, Any]) -> np.ndarray:
    groups = rows.pop(ROW_GROUP, None)
    count = len(tree.flatten(rows)[0])
    return np.arange(count) if groups is None else groups.cpu().numpy()


class WholeEpochsMixin(Learner):
    """Makes a Learner use `WholeEpochs`; networks on numbers get observations as narrow as they take them."""

    def _create_iterator_if_necessary(
        self,
        *,
        training_data: TrainingData,
        num_total_minibatches: int = 0,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        **kwargs: Any,
    ) -> Any:
        if training_data.data_iterators:
            return super()._create_iterator_if_necessary(
                training_data=training_data,
                num_total_minibatches=num_total_minibatches,
                num_epochs=num_epochs,
                minibatch_size=minibatch_size,
                shuffle_batch_per_epoch=shuffle_batch_per_epoch,
                **kwargs,
            )
        batch = self._make_batch_if_necessary(training_data=training_data)
        for module_id in list(batch.policy_batches):
            if not self.should_module_be_updated(module_id, batch):
                del batch.policy_batches[module_id]
        rows = {module_id: self._narrow(module_id, rows) for module_id, rows in batch.policy_batches.items()}
        return WholeEpochs(
            MultiAgentBatch(rows, env_steps=batch.env_steps()),
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle=shuffle_batch_per_epoch,
            num_total_minibatches=num_total_minibatches,
        )

    def _narrow(self, module_id: str, rows: SampleBatch) -> SampleBatch:
        narrow = getattr(self.module[module_id].unwrapped(), "narrow", None)
        return rows if narrow is None else SampleBatch({**rows, Columns.OBS: narrow(rows[Columns.OBS])})
