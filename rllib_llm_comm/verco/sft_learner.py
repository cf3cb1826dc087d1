"""Supervised training of one adapter: of messages (Verco Eq. 1) or of actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import tree
from ray.rllib.core import ALL_MODULES
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.annotations import override
from ray.rllib.utils.typing import ModuleID, TensorType

from rllib_llm_comm.core.phases import log_cost
from rllib_llm_comm.rl.epoch_progress import told_parts
from rllib_llm_comm.rl.minibatches import WholeEpochs, WholeEpochsMixin
from rllib_llm_comm.rl.optimizers import adamw, annealed
from rllib_llm_comm.verco.label_loss import IGNORED, MESSAGE_LABELS
from rllib_llm_comm.verco.module import MESSAGE_HITS, MESSAGE_LOG_PROBS


class SFTLearner(WholeEpochsMixin, TorchLearner):
    """Minimises the cross entropy of what was recorded: of label messages behind their prompts the mean over the tokens
    of a minibatch; of actions among the allowed candidates, scored as the policy scores them, the mean over the rows.

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

    @override(TorchLearner)
    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Logs what the pass took."""
        super().after_gradient_based_update(timesteps=timesteps)
        log_cost(self.metrics, (ALL_MODULES,))

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
        log_probs, hits = learned_terms(batch, fwd_out)
        loss = -log_probs.mean()
        accuracy = "train_token_accuracy" if MESSAGE_LABELS in batch else "train_top_1"
        for name, value in (("train_loss", loss.detach()), (accuracy, hits.float().mean())):
            self.metrics.log_value((module_id, name), value, reduce="mean", window=100)
        return loss

    @torch.no_grad()
    def judge(
        self, module_id: ModuleID, columns: dict[str, Any], rows_per_batch: int = 256
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `learned_terms` gives for rows that are not learned from.

        Args:
            module_id: The module.
            columns: Arrays as numpy arrays, possibly nested.
            rows_per_batch: Rows per forward pass.
        """
        module = self.module[module_id].unwrapped()
        tensors = tree.map_structure(torch.as_tensor, columns)
        found = []
        for start in range(0, len(tree.flatten(tensors)[0]), rows_per_batch):
            part = tree.map_structure(lambda tensor, at=start: tensor[at : at + rows_per_batch], tensors)
            found.append(learned_terms(part, module._forward_train(part)))
        log_probs, hits = (torch.cat(both).cpu().numpy() for both in zip(*found, strict=True))
        return log_probs, hits


def learned_terms(batch: dict[str, Any], fwd_out: dict[str, TensorType]) -> tuple[torch.Tensor, torch.Tensor]:
    """What rows say of what is learned from them.

    Args:
        batch: Label messages as of `encode_examples`; or observations and actions.
        fwd_out: The module's answer.

    Returns:
        Log-probability (N,) of each token of the labels, or of each row's action among the allowed candidates, and
        whether it is the most likely one (N,).
    """
    if MESSAGE_LABELS in batch:
        used = batch[MESSAGE_LABELS] != IGNORED
        return fwd_out[MESSAGE_LOG_PROBS][used], fwd_out[MESSAGE_HITS][used]
    logits, actions = fwd_out[Columns.ACTION_DIST_INPUTS], batch[Columns.ACTIONS].long()
    log_probs = logits.log_softmax(-1).gather(1, actions[:, None])[:, 0]
    return log_probs, logits.argmax(-1) == actions
