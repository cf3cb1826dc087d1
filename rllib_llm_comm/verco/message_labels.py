"""Label messages as token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from ray.rllib.offline.offline_prelearner import OfflinePreLearner
from ray.rllib.utils.annotations import override

from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.message_words import limit_words
from rllib_llm_comm.language.prompts import PromptTemplates
from rllib_llm_comm.verco.label_loss import encode_examples
from rllib_llm_comm.verco.learned_rows import LearnedRows
from rllib_llm_comm.verco.teachers.label_store import LABELS


class MessagePreLearner(OfflinePreLearner):
    """Turns rows of `prompt` and `message` into token ids and labels.

    RLlib's own would build a whole module in every worker; this one needs the tokenizer only.

    Args:
        base: The base model whose tokenizer is used.
        max_tokens: Longest allowed row.
        max_words: Messages are cut to so many words.
        templates: The prompts behind which messages stand.
    """

    def __init__(self, *, base: BaseModel, max_tokens: int, max_words: int, templates: PromptTemplates) -> None:
        self._base = base
        self._max_tokens = max_tokens
        self._max_words = max_words
        self._templates = templates

    @override(OfflinePreLearner)
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays of `encode_examples`."""
        return encode_examples(
            self._base,
            [self._templates.message(str(text)) for text in batch["prompt"]],
            [limit_words(str(message), self._max_words) for message in batch["message"]],
            self._max_tokens,
        )


class MessageLabels(LearnedRows):
    """Reads labels of messages."""

    form = LABELS
