"""Log-probabilities of messages: of a teacher's labels (Verco Eq. 1), and of utterances, which PPO may train.

A label is the message that a teacher would write. An utterance is a message that an agent wrote in a roll-out, with the
token ids that were drawn, or its choice from a menu, as columns of the observation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE, REFERENCE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.packing import PAD, distinct_rows, micro_batches
from rllib_llm_comm.language.prompts import DEFAULT_TEMPLATES, TOKENS_PER_WORD, PromptTemplates
from rllib_llm_comm.language.scoring import encode_candidates
from rllib_llm_comm.verco.encoding import TextObservation

# ---- of labels --------------------------------------------------------------------------------------------------


MESSAGE_IDS = "message_ids"
MESSAGE_LABELS = "message_labels"
IGNORED = -100


def encode_examples(
    base: BaseModel, prompts: Sequence[str], messages: Sequence[str], max_tokens: int
) -> dict[str, np.ndarray]:
    """Token ids and labels of (message prompt, message) pairs.

    Prompt and message are encoded together; labels begin where the encoding leaves that of the bare prompt,
    and end with the end token.

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
    # Only where a token is predicted: a prompt is much longer than its message.
    row, target = torch.nonzero(inner_labels != IGNORED, as_tuple=True)
    with model.use(role):
        hidden = model.hidden_states(inner_ids, attention, places=(row, target - 1))
    return row, target, model.logits(hidden)


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


# ---- of utterances -----------------------------------------------------------------------------------------------


UTTERANCE_IDS = "utterance_ids"
UTTERANCE_TARGETS = "utterance_targets"
MENU_IDS = "menu_ids"
UTTERANCE_CHOICE = "utterance_choice"
UTTERANCE_LOGP = "utterance_logp"
UTTERANCE_MOMENT = "utterance_moment"
SILENT = -1

Scores = Callable[..., torch.Tensor]


def encode_menu(base: BaseModel, menu: Sequence[str], templates: PromptTemplates = DEFAULT_TEMPLATES) -> np.ndarray:
    """Token ids (K, C) of a menu's phrases, padded on the right."""
    _, tails = encode_candidates(base, templates.message("."), menu)
    ids = np.full((len(menu), max(map(len, tails))), PAD, np.int32)
    for row, tail in zip(ids, tails, strict=True):
        row[: len(tail)] = tail
    return ids


def menu_logits(
    scores: Scores, model: AdaptedModel, prompts: torch.Tensor, menu: torch.Tensor, role: str = MESSAGE
) -> torch.Tensor:
    """Scores (B, K) of the phrases of a menu under the message adapter; differentiable.

    Args:
        scores: `score_candidates` or its plain form.
        model: The adapted model.
        prompts: (B, P) ids of message prompts.
        menu: (B, K, C) ids of the phrases.
        role: The adapter in use.
    """
    return scores(model, prompts, menu, torch.ones(menu.shape[:2], dtype=torch.bool), role=role)


class UtteranceEncoder:
    """Writes utterances as arrays of an observation.

    Args:
        base: Its tokenizer is used.
        max_tokens: Longest message prompt in tokens.
        max_words: Longest message in words, which bounds its tokens.
        menu: The phrases of a menu; empty for free text.
        templates: The prompts behind which messages stand.
    """

    def __init__(
        self,
        base: BaseModel,
        max_tokens: int,
        max_words: int,
        menu: Sequence[str] = (),
        templates: PromptTemplates = DEFAULT_TEMPLATES,
    ) -> None:
        self._base, self._max_tokens, self._templates = base, max_tokens, templates
        # Whatever is drawn behind the longest prompt has room: a roll-out must not fail by a message.
        self._width = max_tokens + (0 if menu else max_words * TOKENS_PER_WORD)
        self._menu = tuple(menu)
        self._menu_ids = encode_menu(base, self._menu, templates) if menu else None

    def space(self) -> dict[str, gym.spaces.Box]:
        """The spaces of the arrays."""
        top = np.iinfo(np.int32).max
        row = gym.spaces.Box(PAD, top, (self._width,), np.int32)
        common = {
            UTTERANCE_IDS: row,
            UTTERANCE_LOGP: gym.spaces.Box(-np.inf, 0.0, (1,), np.float32),
            UTTERANCE_MOMENT: gym.spaces.Box(0, top, (1,), np.int32),
        }
        if self._menu_ids is None:
            return {**common, UTTERANCE_TARGETS: gym.spaces.Box(IGNORED, top, (self._width,), np.int32)}
        return {
            **common,
            MENU_IDS: gym.spaces.Box(PAD, top, self._menu_ids.shape, np.int32),
            UTTERANCE_CHOICE: gym.spaces.Box(SILENT, len(self._menu) - 1, (1,), np.int32),
        }

    def encode(self, view: TextObservation, said: Written | None, moment: int = 0) -> dict[str, np.ndarray]:
        """The arrays of one row, with a log-probability of 0 that the caller puts right.

        Args:
            view: The speaker's observation.
            said: Its message; `None` if it was not asked for one.
            moment: Time of the message, on a clock that all agents of the episode share.

        Raises:
            UserError: If the prompt is too long.
        """
        prompt = self._base.encode(self._templates.message(view.text, view.subgoal))
        if len(prompt) > self._max_tokens:
            raise UserError(
                f"a message prompt has {len(prompt)} tokens but `max_prompt_tokens` is {self._max_tokens}; set "
                f"`max_prompt_tokens` to {len(prompt)} or more, or shorten the environment's text."
            )
        ids = np.full(self._width, PAD, np.int32)
        ids[: len(prompt)] = prompt
        arrays: dict[str, np.ndarray] = {
            UTTERANCE_IDS: ids,
            UTTERANCE_LOGP: np.zeros(1, np.float32),
            UTTERANCE_MOMENT: np.array([moment], np.int32),
        }
        if self._menu_ids is not None:
            choice = SILENT if said is None else self._menu.index(said.text)
            return {**arrays, MENU_IDS: self._menu_ids, UTTERANCE_CHOICE: np.array([choice], np.int32)}
        labels = np.full(self._width, IGNORED, np.int32)
        if said is not None:
            end = len(prompt) + len(said.ids)
            ids[len(prompt) : end] = labels[len(prompt) : end] = said.ids
        return {**arrays, UTTERANCE_TARGETS: labels}


@dataclass(frozen=True)
class UtteranceTerms:
    """Terms of the loss of messages under the present adapter, row by row (B,); 0 in rows without a message.

    Attributes:
        log_probs: Log-probability of the message; differentiable.
        entropy: Of free text the sum over the message's tokens of the exact entropy of the next token; of a menu the
            entropy of the choice. In nats; differentiable.
        kl: KL divergence of the message adapter from the reference, exact over the vocabulary (menu), summed likewise;
            differentiable. 0 where there is no reference.
        spoke: True if the row has a message.
    """

    log_probs: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor
    spoke: torch.Tensor

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Mean of (B,) values over the rows with a message; 0 if there is none."""
        return values.sum() / self.spoke.sum().clamp(min=1)


def spoken(observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """True (B,) for rows with a message, of batched arrays of a `UtteranceEncoder`."""
    if MENU_IDS in observations:
        return observations[UTTERANCE_CHOICE][:, 0] != SILENT
    return (observations[UTTERANCE_TARGETS] != IGNORED).any(1)


def utterance_terms(
    scores: Scores,
    model: AdaptedModel,
    observations: Mapping[str, torch.Tensor],
    max_tokens: int | None = None,
    *,
    kl: bool | None = None,
) -> UtteranceTerms:
    """Log-probability, entropy and KL divergence of utterances; differentiable with respect to the message adapter.

    Equal rows are computed once.

    Args:
        scores: `score_candidates` or its plain form.
        model: The adapted model.
        observations: Batched arrays of a `UtteranceEncoder`.
        max_tokens: Most tokens whose activations are held at once where gradients are recorded, or `None`.
        kl: True if the KL divergence from the role `REFERENCE`, where there is one, is computed; `None`: where
            gradients are recorded.

    Returns:
        The terms, on the inputs' device.
    """
    device = observations[UTTERANCE_IDS].device
    menu = MENU_IDS in observations
    names = (UTTERANCE_IDS, UTTERANCE_CHOICE) if menu else (UTTERANCE_IDS, UTTERANCE_TARGETS)
    spoke = spoken(observations)
    if not spoke.any():
        nothing = torch.zeros(len(spoke), device=device)
        return UtteranceTerms(nothing, nothing, nothing, spoke)
    speaking = {name: observations[name][spoke] for name in names}
    rows, inverse = distinct_rows(torch.cat([speaking[name].long().cpu() for name in names], dim=1))
    width = observations[UTTERANCE_IDS].shape[1]
    ids, said = rows[:, :width].to(device), rows[:, width:].to(device)
    phrases = observations[MENU_IDS][:1] if menu else None
    wanted = torch.is_grad_enabled() if kl is None else kl
    reference = REFERENCE in model.roles and wanted

    def part(ids: torch.Tensor, said: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The terms of some rows: of drawn tokens, or of a choice from a menu."""
        if phrases is None:
            return _free_terms(model, ids, said, reference)
        return _menu_terms(scores, model, ids, said[:, 0], phrases.expand(len(ids), -1, -1), reference)

    tokens = (ids != PAD).sum(1).cpu()
    parts = micro_batches(rows, tokens, max_tokens) if max_tokens is not None and torch.is_grad_enabled() else []
    terms = by_parts(part, (ids, said), parts)
    place = torch.nonzero(spoke)[:, 0]
    whole = [
        torch.zeros(len(spoke), device=device).index_put((place,), term.to(device)[inverse.to(device)])
        for term in terms
    ]
    return UtteranceTerms(whole[0], whole[1], whole[2], spoke)


def by_parts(
    compute: Callable[..., tuple[torch.Tensor, ...]], columns: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """What a function makes of rows, with the activations of one part at a time.

    Activation checkpointing: each part is computed now without a graph and again in the backward pass.

    Args:
        compute: Takes the columns of some rows.
        columns: The columns of all rows, (B, ...) each.
        parts: Row numbers of each part; fewer than two: all rows at once.
    """
    if len(parts) < 2:
        return compute(*columns)
    found = [
        checkpoint(compute, *(column[part.to(column.device)] for column in columns), use_reentrant=False)
        for part in parts
    ]
    back = torch.argsort(torch.cat(list(parts))).to(found[0][0].device)
    return tuple(torch.cat(results)[back] for results in zip(*found, strict=True))


def _free_terms(
    model: AdaptedModel, ids: torch.Tensor, labels: torch.Tensor, with_reference: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    row, column, logits = label_logits(model, ids, labels)
    log_probs = logits.log_softmax(-1)
    reference = None
    if with_reference:
        with torch.no_grad():
            reference = label_logits(model, ids, labels, REFERENCE)[2].log_softmax(-1)
    tokens = labels.to(model.device)[row, column].long()
    chosen = log_probs.gather(1, tokens[:, None])[:, 0]
    entropy, kl = _entropy_and_kl(log_probs, reference)
    nothing = torch.zeros(len(ids), device=model.device)
    return tuple(nothing.index_add(0, row, term) for term in (chosen, entropy, kl))  # type: ignore[return-value]


def _menu_terms(
    scores: Scores,
    model: AdaptedModel,
    prompts: torch.Tensor,
    choice: torch.Tensor,
    menu: torch.Tensor,
    with_reference: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    log_probs = menu_logits(scores, model, prompts, menu).log_softmax(-1)
    reference = None
    if with_reference:
        with torch.no_grad():
            reference = menu_logits(scores, model, prompts, menu, REFERENCE).log_softmax(-1)
    chosen = log_probs.gather(1, choice.long().to(log_probs.device)[:, None])[:, 0]
    return (chosen, *_entropy_and_kl(log_probs, reference))


def _entropy_and_kl(log_probs: torch.Tensor, reference: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy and KL divergence (N,) of distributions (N, V), from a reference if there is one."""
    chances = log_probs.exp()
    entropy = -(chances * log_probs).sum(-1)
    kl = torch.zeros_like(entropy) if reference is None else (chances * (log_probs - reference)).sum(-1)
    return entropy, kl
