"""Supervised training of the message adapter (Verco Eq. 1)."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import ModuleID, TensorType

from rllib_llm_comm.agents.label_loss import IGNORED, MESSAGE_LABELS
from rllib_llm_comm.learners.epoch_progress import told_parts
from rllib_llm_comm.learners.minibatches import WholeEpochs, WholeEpochsMixin
from rllib_llm_comm.learners.optimizers import adamw, annealed
from rllib_llm_comm.modules.llm_comm import MESSAGE_HITS, MESSAGE_LOG_PROBS


class SFTLearner(WholeEpochsMixin, TorchLearner):
    """Minimises the cross entropy of label messages behind their prompts: the mean over the tokens of a
    minibatch.

    Settings read from the config: `lr`, `anneal`, `grad_clip`.
    """

    _followed: tuple[str, int] | None = None

    @override(TorchLearner)
    def get_parameters(self, module: Any) -> list[torch.nn.Parameter]:
        """Only what is trained."""
        return [parameter for parameter in module.parameters() if parameter.requires_grad]

    @override(TorchLearner)
    def configure_optimizers_for_module(self, module_id: ModuleID, config: Any = None) -> None:
        """One AdamW for the adapter."""
        parameters = self.get_parameters(self._module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=adamw(parameters, config.lr),
            params=parameters,
            lr_or_lr_schedule=None if config.anneal else config.lr,
        )

    @override(TorchLearner)
    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Sets the annealed learning rate."""
        super().before_gradient_based_update(timesteps=timesteps)
        if self.config.anneal:
            for optimizer in self._named_optimizers.values():
                self._set_optimizer_lr(optimizer, annealed(self.config.lr, self._weights_seq_no, self.config.anneal))

    def follow(self, folder: str, iteration: int) -> None:
        """Lets the next update write the share of it that is done into a folder.

        Args:
            folder: The trial's working folder.
            iteration: Number of iterations that are done.
        """
        self._followed = (folder, iteration)

    @override(WholeEpochsMixin)
    def _create_iterator_if_necessary(self, **kwargs: Any) -> Any:
        parts = super()._create_iterator_if_necessary(**kwargs)
        followed, self._followed = self._followed, None
        return told_parts(parts, len(parts), *followed) if followed and isinstance(parts, WholeEpochs) else parts

    @override(TorchLearner)
    def compute_loss_for_module(
        self, *, module_id: ModuleID, config: Any, batch: dict[str, Any], fwd_out: dict[str, TensorType]
    ) -> TensorType:
        """Cross entropy of one minibatch."""
        used = batch[MESSAGE_LABELS] != IGNORED
        loss = -fwd_out[MESSAGE_LOG_PROBS].sum() / used.sum()
        accuracy = fwd_out[MESSAGE_HITS].sum() / used.sum()
        for name, value in (("train_loss", loss.detach()), ("train_token_accuracy", accuracy)):
            self.metrics.log_value((module_id, name), value, reduce="mean", window=100)
        return loss

    @torch.no_grad()
    def evaluate_loss(
        self, module_id: ModuleID, columns: dict[str, Any], rows_per_batch: int = 256
    ) -> dict[str, float]:
        """Cross entropy and token accuracy of rows that are not learned from.

        Args:
            module_id: The module.
            columns: `message_ids` and `message_labels` as numpy arrays.
            rows_per_batch: Rows per forward pass.
        """
        module = self.module[module_id].unwrapped()
        tokens, total, hits = 0, 0.0, 0
        tensors = {name: torch.as_tensor(column) for name, column in columns.items()}
        count = len(tensors[MESSAGE_LABELS])
        for start in range(0, count, rows_per_batch):
            part = {name: tensor[start : start + rows_per_batch] for name, tensor in tensors.items()}
            outputs = module._forward_train(part)
            tokens += int((part[MESSAGE_LABELS] != IGNORED).sum())
            total -= float(outputs[MESSAGE_LOG_PROBS].sum())
            hits += int(outputs[MESSAGE_HITS].sum())
        return {"loss": total / max(1, tokens), "token_accuracy": hits / max(1, tokens)}
