"""Messages as a part of the action: what was said, with its probability, so that PPO can train the message adapter.

Two kinds. Free text: the probability of a message is that of its tokens and the end token behind the message prompt.
Menu: a softmax over the scores of given phrases behind the message prompt, as candidate actions have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import gymnasium as gym
import numpy as np
import torch

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.language.scoring import encode_candidates
from rllib_llm_comm.modules.encoding import TextObservation
from rllib_llm_comm.modules.message_loss import IGNORED, MESSAGE_IDS, MESSAGE_LABELS, encode_examples, message_log_probs

SPEECH_IDS = "speech_ids"
SPEECH_LABELS = "speech_labels"
MENU_IDS = "menu_ids"
SPEECH_CHOICE = "speech_choice"
SPEECH_LOGP = "speech_logp"
SILENT = -1

Scores = Callable[..., torch.Tensor]


def encode_menu(base: BaseModel, menu: Sequence[str]) -> np.ndarray:
    """Token ids (K, C) of a menu's phrases, padded on the right.

    Args:
        base: Its tokenizer is used.
        menu: The phrases.
    """
    _, tails = encode_candidates(base, message_prompt("."), menu)
    ids = np.full((len(menu), max(map(len, tails))), base.pad_id, np.int32)
    for row, tail in zip(ids, tails, strict=True):
        row[: len(tail)] = tail
    return ids


def menu_logits(scores: Scores, model: AdaptedModel, prompts: torch.Tensor, menu: torch.Tensor) -> torch.Tensor:
    """Scores (B, K) of the phrases of a menu under the message adapter; differentiable.

    Args:
        scores: `score_candidates` or its plain form.
        model: The adapted model.
        prompts: (B, P) ids of message prompts.
        menu: (B, K, C) ids of the phrases.
    """
    return scores(model, prompts, menu, torch.ones(menu.shape[:2], dtype=torch.bool), role=MESSAGE)


class SpeechEncoder:
    """Writes what was said as arrays of an observation.

    Args:
        base: Its tokenizer is used.
        max_tokens: Longest row of prompt and message.
        menu: The phrases of a menu; empty for free text.
    """

    def __init__(self, base: BaseModel, max_tokens: int, menu: Sequence[str] = ()) -> None:
        self._base, self._max_tokens = base, max_tokens
        self._menu = tuple(menu)
        self._menu_ids = encode_menu(base, self._menu) if menu else None

    def space(self) -> dict[str, gym.spaces.Box]:
        """The spaces of the arrays."""
        top = np.iinfo(np.int32).max
        row = gym.spaces.Box(0, top, (self._max_tokens,), np.int32)
        logp = gym.spaces.Box(-np.inf, 0.0, (1,), np.float32)
        if self._menu_ids is None:
            labels = gym.spaces.Box(IGNORED, top, (self._max_tokens,), np.int32)
            return {SPEECH_IDS: row, SPEECH_LABELS: labels, SPEECH_LOGP: logp}
        return {
            SPEECH_IDS: row,
            MENU_IDS: gym.spaces.Box(0, top, self._menu_ids.shape, np.int32),
            SPEECH_CHOICE: gym.spaces.Box(SILENT, len(self._menu) - 1, (1,), np.int32),
            SPEECH_LOGP: logp,
        }

    def encode(self, view: TextObservation, said: str | None) -> dict[str, np.ndarray]:
        """The arrays of one row, with a log-probability of 0 that the caller puts right.

        Args:
            view: The speaker's observation.
            said: Its message; `None` if it was not asked for one.

        Raises:
            UserError: If the row is too long.
        """
        prompt = message_prompt(view.text, view.subgoal)
        ids = np.full(self._max_tokens, self._base.pad_id, np.int32)
        arrays: dict[str, np.ndarray] = {SPEECH_IDS: ids, SPEECH_LOGP: np.zeros(1, np.float32)}
        if self._menu_ids is not None:
            row = self._base.encode(prompt)
            if len(row) > self._max_tokens:
                raise UserError(
                    f"a message prompt has {len(row)} tokens but `max_prompt_tokens` is {self._max_tokens}."
                )
            ids[: len(row)] = row
            choice = SILENT if said is None else self._menu.index(said)
            return {**arrays, MENU_IDS: self._menu_ids, SPEECH_CHOICE: np.array([choice], np.int32)}
        labels = np.full(self._max_tokens, IGNORED, np.int32)
        if said is not None:
            example = encode_examples(self._base, [prompt], [said], self._max_tokens)
            width = example[MESSAGE_IDS].shape[1]
            ids[:width], labels[:width] = example[MESSAGE_IDS][0], example[MESSAGE_LABELS][0]
        return {**arrays, SPEECH_LABELS: labels}


def speech_log_probs(
    scores: Scores, model: AdaptedModel, observations: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """How likely what was said is now; differentiable with respect to the message adapter.

    Args:
        scores: `score_candidates` or its plain form.
        model: The adapted model.
        observations: Batched arrays of a `SpeechEncoder`.

    Returns:
        Log-probabilities (B,), 0 for rows without a message, and the entropy of the choice (of free text: the negative
        log-probability, whose mean estimates it), averaged over rows with a message; both on the inputs' device.
    """
    device = observations[SPEECH_IDS].device
    if MENU_IDS in observations:
        choice = observations[SPEECH_CHOICE][:, 0].long()
        logits = menu_logits(scores, model, observations[SPEECH_IDS], observations[MENU_IDS]).to(device)
        log_probs = logits.log_softmax(-1)
        chosen = log_probs.gather(1, choice.clamp(min=0)[:, None])[:, 0] * (choice != SILENT)
        entropy = -(log_probs.exp() * log_probs).sum(-1)[choice != SILENT]
    else:
        labels = observations[SPEECH_LABELS]
        spoke = (labels != IGNORED).any(1)
        if not spoke.any():
            return torch.zeros(len(labels), device=device), torch.zeros((), device=device)
        chosen = message_log_probs(model, observations[SPEECH_IDS], labels)[0].sum(1)
        entropy = -chosen.detach()[spoke]
    return chosen, entropy.mean() if len(entropy) else torch.zeros((), device=device)
