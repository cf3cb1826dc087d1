"""One fixed random vector per word, for encoders whose tokenizer spells most words of a game."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

WORD_WIDTH = 128
"""Length of the vectors: enough for hundreds of words to be nearly orthogonal."""
_SPACE = "Ġ"
_AT_THE_ENDS = ".,;:!?\"'()"


class WordVectors:
    """Mapping of tokens to the words they belong to, as a vector.

    Nothing is learned: the vector follows from the letters, so that it is the same in every process. Words that are
    alike in meaning are not alike here; that is left to the hidden states beside it.

    Args:
        tokenizer: A byte-level Hugging Face tokenizer, which marks spaces.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._pieces: list[str] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self._special = frozenset(tokenizer.all_special_ids)

    def of_tokens(self, ids: Sequence[int]) -> np.ndarray:
        """float32 (L, `WORD_WIDTH`): for each token the vector of its word; zero for special tokens and bare spaces.

        Args:
            ids: The tokenizer's numbers of one text.
        """
        out = np.zeros((len(ids), WORD_WIDTH), np.float32)
        for first, last in self._words(ids):
            text = "".join(self._pieces[number] for number in ids[first:last])
            word = text.replace(_SPACE, "").strip(_AT_THE_ENDS).lower()
            if word:
                out[first:last] = _vector(word)
        return out

    def _words(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Begin and end of each word; special tokens are in none."""
        starts: list[int] = []
        ends: list[int] = []
        inside = False
        for at, number in enumerate(ids):
            special = number in self._special
            if inside and (special or self._pieces[number].startswith(_SPACE)):
                ends.append(at)
                inside = False
            if not special and not inside:
                starts.append(at)
                inside = True
        return list(zip(starts, [*ends, len(ids)] if inside else ends, strict=True))


@lru_cache(maxsize=65536)
def _vector(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(WORD_WIDTH).astype(np.float32)
