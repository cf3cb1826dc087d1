"""Log-probabilities of label messages (Verco Eq. 1)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.packing import PAD

MESSAGE_IDS = "message_ids"
MESSAGE_LABELS = "message_labels"
IGNORED = -100


def encode_examples(
    base: BaseModel, prompts: Sequence[str], messages: Sequence[str], max_tokens: int
) -> dict[str, np.ndarray]:
    """Token ids and labels of (message prompt, message) pairs.

    Prompt and message are encoded together; labels begin where the encoding leaves that of the bare prompt,
    and end with the end token.

    Args:
        base: Its tokenizer is used.
        prompts: Filled message prompts.
        messages: The words to learn.
        max_tokens: Longest allowed row.

    Returns:
        `message_ids` (B, T) int32, padded on the right, and `message_labels` (B, T) int32, -100
        where nothing is learned.

    Raises:
        UserError: If a row is too long.
    """
    rows = []
    for prompt, message in zip(prompts, messages, strict=True):
        alone = base.encode(prompt)
        whole = base.encode_with(prompt, message) if message else alone
        shared = 0
        while shared < min(len(alone), len(whole)) and alone[shared] == whole[shared]:
            shared += 1
        rows.append((whole[:shared], whole[shared:] + [base.eos_id]))
    width = max((len(head) + len(tail) for head, tail in rows), default=0)
    if width > max_tokens:
        raise UserError(
            f"a prompt with its message has {width} tokens but `max_prompt_tokens` is {max_tokens}; set "
            f"`max_prompt_tokens` to {width} or more, or shorten the environment's text."
        )
    ids = np.full((len(rows), width), PAD, np.int32)
    labels = np.full((len(rows), width), IGNORED, np.int32)
    for index, (head, tail) in enumerate(rows):
        ids[index, : len(head) + len(tail)] = head + tail
        labels[index, len(head) : len(head) + len(tail)] = tail
    return {MESSAGE_IDS: ids, MESSAGE_LABELS: labels}


def message_log_probs(
    model: AdaptedModel, ids: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of every label token under the message adapter; differentiable.

    Args:
        model: The adapted model; its dropout is active while gradients are recorded.
        ids: (B, T) token ids, padded on the right.
        labels: (B, T); -100 where nothing is predicted.

    Returns:
        Log-probabilities (B, T), 0 where nothing is predicted, and whether the most likely token is the label
        (B, T), False there; both on the inputs' device.
    """
    device = ids.device
    with _dropout(model):
        row, target, logits = label_logits(model, ids, labels)
    tokens = labels.to(model.device)[row, target].long()
    chosen = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
    log_probs = torch.zeros(ids.shape, dtype=torch.float32, device=model.device)
    log_probs = log_probs.index_put((row, target), chosen)
    hits = torch.zeros(ids.shape, dtype=torch.bool, device=model.device)
    hits = hits.index_put((row, target), logits.argmax(-1) == tokens)
    return log_probs.to(device), hits.to(device)


def label_logits(
    model: AdaptedModel, ids: torch.Tensor, labels: torch.Tensor, role: str = MESSAGE
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The model's word on every label token; differentiable.

    Args:
        model: The adapted model.
        ids: (B, T) token ids, padded on the right.
        labels: (B, T); -100 where nothing is predicted.
        role: The adapter in use.

    Returns:
        Rows (N,) and columns (N,) of the labels, and the vocabulary's logits (N, V) before each; all on the model's
        device.
    """
    device = ids.device
    column = torch.arange(ids.shape[1], device=device)
    used = torch.where(labels != IGNORED, column + 1, 0).amax(1)
    width = int(used.max())
    model.base.require_positions(width)
    inner_ids = ids[:, :width].long().clamp(min=0).to(model.device)
    inner_labels = labels[:, :width].long().to(model.device)
    attention = (column[:width] < used[:, None]).long().to(model.device)
    with model.use(role):
        hidden = model.hidden_states(inner_ids, attention)
    # The head runs only where a token is predicted: a prompt is much longer than its message.
    row, target = torch.nonzero(inner_labels != IGNORED, as_tuple=True)
    return row, target, model.logits(hidden[row, target - 1])


@contextlib.contextmanager
def _dropout(model: AdaptedModel) -> Iterator[None]:
    active = model.config.dropout > 0 and torch.is_grad_enabled()
    if active:
        model.peft_model.train()
    try:
        yield
    finally:
        if active:
            model.peft_model.eval()
