"""Minibatches that use every row exactly once per epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import tree
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch


class WholeEpochs:
    """Splits a multi-agent batch into minibatches of nearly equal size, anew in every epoch.

    RLlib's own iterator goes round the batch in steps of `minibatch_size`: rows at the seam are used twice,
    and without `minibatch_size` it takes the number of environment steps for the number of rows.

    Args:
        batch: Rows by module, as tensors.
        num_epochs: Passes over the batch.
        minibatch_size: Upper bound on the rows per module and minibatch; `None` for the whole batch.
        shuffle: Whether rows are put in random order before each pass.
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
        self._counts = {module_id: _count(rows) for module_id, rows in self._rows.items()}
        self._epochs = num_epochs
        largest = max(self._counts.values(), default=0)
        self._parts = math.ceil(largest / minibatch_size) if minibatch_size else min(1, largest)
        self._shuffle = shuffle and self._parts > 1
        self._total = num_total_minibatches

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
        orders = {
            module_id: torch.randperm(count) if self._shuffle else torch.arange(count)
            for module_id, count in self._counts.items()
        }
        for part in range(self._parts):
            chosen = {}
            for module_id, order in orders.items():
                count = self._counts[module_id]
                rows = order[part * count // self._parts : (part + 1) * count // self._parts]
                if len(rows):
                    chosen[module_id] = self._take(module_id, rows)
            if chosen:
                yield MultiAgentBatch(chosen, env_steps=max(len(rows) for rows in chosen.values()))

    def _take(self, module_id: str, rows: torch.Tensor) -> SampleBatch:
        columns = self._rows[module_id]
        if self._parts == 1:
            return SampleBatch(columns)
        return SampleBatch(tree.map_structure(lambda column: column[rows.to(column.device)], columns))


def _count(rows: dict[str, Any]) -> int:
    return len(tree.flatten(rows)[0])


class WholeEpochsMixin(Learner):
    """Makes a Learner use `WholeEpochs`."""

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
        return WholeEpochs(
            batch,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle=shuffle_batch_per_epoch,
            num_total_minibatches=num_total_minibatches,
        )
