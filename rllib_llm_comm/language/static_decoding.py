"""Messages written with a key-value cache of fixed size, so that a GPU replays each token's step as one CUDA graph.

A step takes the last token of every row, writes its keys and values in place, draws the next token and notes which rows
have ended; all of it stays on the device. The host only starts steps and looks every few of them whether all rows are
done. On a CPU, where this gains nothing, the same steps run one by one in the tests.
"""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import phase
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.llama import LlamaDecoder, LlamaWeights, Lora, is_merged

logger = logging.getLogger(__name__)

_WIDTHS = 32  # prompts are padded to a multiple of so many tokens
_LOOK_EVERY = 4  # steps between two looks of the host
_MOST_WRITERS = 4  # shapes of batches whose caches are kept
ROWS_PER_BATCH = 512
"""Most messages that are written at once; a small model's step takes hardly longer with more rows."""
_WARM_UP = 2  # steps before a graph is captured, in which libraries take their memory


class StopTable:
    """What each token adds to a message: line breaks and words.

    Args:
        base: Its tokenizer is read.
    """

    def __init__(self, base: BaseModel) -> None:
        word = base.encode("a")[-1:]
        before = len(base.tokenizer.decode(word))
        texts = [text[before:] for text in base.tokenizer.batch_decode([[*word, i] for i in range(base.vocab_size)])]
        device = base.device
        self.breaks = torch.tensor(["\n" in text for text in texts], device=device)
        self.words = torch.tensor([len(text.split()) for text in texts], device=device)
        self.empty = torch.tensor([not text for text in texts], device=device)
        self.opens = torch.tensor([text[:1].isspace() for text in texts], device=device)
        self.closes = torch.tensor([text[-1:].isspace() for text in texts], device=device)


@functools.lru_cache(maxsize=8)
def stop_table(base: BaseModel) -> StopTable:
    """The table of a base, made once."""
    return StopTable(base)


def free_bytes(device: torch.device) -> int | None:
    """Bytes that are free on a GPU, those included that this process holds without use; `None` of other devices."""
    if device.type != "cuda":
        return None
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + idle


def sampled(logits: torch.Tensor, temperature: float, uniform: torch.Tensor) -> torch.Tensor:
    """Tokens (B,) that random numbers (B, 1), uniform in [0, 1), draw by logits (B, vocabulary)."""
    cumulative = (logits / temperature).softmax(-1).double().cumsum(-1)
    return (cumulative < uniform * cumulative[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)


class StaticCache:
    """Keys and values (rows, heads, columns, size) per layer, written in place.

    Args:
        weights: Of the model.
        heads: Heads of keys and values.
        rows: Rows of a batch.
        columns: Most tokens of a row.
    """

    def __init__(self, weights: LlamaWeights, heads: int, rows: int, columns: int) -> None:
        like, shape = weights.embedding, (rows, heads, columns, weights.head_size)
        self._keys, self._values = (
            [torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in weights.layers] for _ in range(2)
        )
        self._rows = torch.arange(rows, device=like.device)
        self.positions = torch.zeros(rows, dtype=torch.long, device=like.device)

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes a prompt from the first column on, or each row's next token at its own position.

        Args:
            keys: (rows, heads, T, size).
            values: As `keys`.

        Returns:
            Of a prompt the keys and values themselves, of a token all that is there.
        """
        tokens = keys.shape[2]
        if tokens > 1:
            self._keys[layer][:, :, :tokens] = keys
            self._values[layer][:, :, :tokens] = values
            return keys, values
        self._keys[layer][self._rows, :, self.positions] = keys[:, :, 0]
        self._values[layer][self._rows, :, self.positions] = values[:, :, 0]
        return self._keys[layer], self._values[layer]


class StaticWriter:
    """Writes messages behind at most `rows` prompts of at most `width` tokens.

    Args:
        base: The model.
        weights: Of the model.
        shape: Rows, width of prompts, most tokens of a message, most words of a message.
        temperature: 0 takes the likeliest token.
        lora: The adapter; its storage has to stay the same while the writer is used.
    """

    def __init__(
        self,
        base: BaseModel,
        weights: LlamaWeights,
        shape: tuple[int, int, int, int],
        temperature: float,
        lora: Lora | None,
    ) -> None:
        self.rows, self.width, self.most, self._max_words = shape
        device = base.device
        self._decoder, self._head, self._lora = LlamaDecoder(weights), base.head, lora
        self._stops, self._eos, self._temperature = stop_table(base), base.eos_id, temperature
        self._cache = StaticCache(weights, base.kv_heads[0], self.rows, self.width + self.most)
        self._column = torch.arange(self.width + self.most, device=device)
        self._tokens = torch.zeros(self.rows, dtype=torch.long, device=device)
        self._written = torch.zeros(self.rows, self.most, dtype=torch.long, device=device)
        self._draws = torch.zeros(self.rows, self.most, dtype=torch.float64, device=device)
        self._words = torch.zeros(self.rows, dtype=torch.long, device=device)
        self._inside = torch.zeros(self.rows, dtype=torch.bool, device=device)  # a word may go on
        self._broken = torch.zeros(self.rows, dtype=torch.bool, device=device)  # a line has ended
        self._done = torch.zeros(self.rows, dtype=torch.bool, device=device)
        self._count = torch.zeros(1, dtype=torch.long, device=device)
        self._graph = _captured(self._step) if device.type == "cuda" else None
        self._table = weights.table  # the graph reads it, also when a longer one has taken its place

    @torch.no_grad()
    def write(self, prompts: Sequence[Sequence[int]], draws: np.ndarray | None) -> list[list[int]]:
        """Ids behind each prompt, at least up to where its message ends; an end token is part of them.

        Args:
            prompts: Token ids.
            draws: (prompts, most) uniform random numbers, one per token; `None` where the likeliest are taken.
        """
        count = len(prompts)
        lengths = [len(prompt) for prompt in prompts] + [1] * (self.rows - count)
        width = min(self.width, -(-max(lengths) // _WIDTHS) * _WIDTHS)
        ids = np.zeros((self.rows, width), np.int64)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = prompt
        device = self._tokens.device
        if draws is not None:
            self._draws[:count] = torch.from_numpy(draws).to(device)
        for state in (self._count, self._words, self._inside, self._broken, self._done):
            state.zero_()
        self._done[count:] = True
        ends = torch.tensor(lengths, device=device)
        hidden = self._decoder(input_ids=torch.from_numpy(ids).to(device), cache=self._cache, lora=self._lora)
        self._cache.positions.copy_(ends)
        self._choose(self._head(hidden[torch.arange(self.rows, device=device), ends - 1]))
        for step in range(1, self.most):
            if step % _LOOK_EVERY == 0 and bool(self._done.all()):
                break
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
        steps = int(self._count)
        phase.count_tokens(ids.size + self.rows * (steps - 1))
        return [row[:steps] for row in self._written[:count].tolist()]

    def _step(self) -> None:
        positions = self._cache.positions
        seen = (self._column <= positions[:, None])[:, None, None]
        hidden = self._decoder(
            input_ids=self._tokens[:, None],
            attention_mask=seen,
            position_ids=positions[:, None],
            cache=self._cache,
            lora=self._lora,
        )
        positions.add_(1)
        self._choose(self._head(hidden[:, 0]))

    def _choose(self, logits: torch.Tensor) -> None:
        """Draws every row's next token, and counts its words; rows that are done write end tokens."""
        logits = logits.float()
        if self._temperature == 0:
            tokens = logits.argmax(-1)
        else:
            uniform = self._draws.gather(1, self._count.expand(self.rows)[:, None])
            tokens = sampled(logits, self._temperature, uniform)
        tokens = torch.where(self._done, self._eos, tokens)
        self._written.scatter_(1, self._count.expand(self.rows)[:, None], tokens[:, None])
        stops = self._stops
        words = stops.words[tokens]
        goes_on = self._inside & ~stops.opens[tokens] & (words > 0)
        self._words.add_(words - goes_on.long())
        self._inside.copy_(torch.where(stops.empty[tokens], self._inside, ~stops.closes[tokens]))
        # Rather a word too many: what is written here is cut by the exact rule, which has to see where it ends.
        too_long = (self._words > self._max_words + 1) | (self._broken & (words > 0))
        self._done.logical_or_((tokens == self._eos) | too_long)
        self._broken.logical_or_(stops.breaks[tokens] & (self._words > 0))
        self._tokens.copy_(tokens)
        self._count.add_(1)


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A step as a CUDA graph: warmed up on a side stream, as libraries take memory in their first calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        step()
    return graph


class StaticWriters:
    """Writers by the shape of their batches, made when they are needed; the oldest go.

    Args:
        base: The model.
        weights: Of the model.
    """

    def __init__(self, base: BaseModel, weights: LlamaWeights) -> None:
        self._base, self._weights = base, weights
        self._writers: OrderedDict[Any, StaticWriter] = OrderedDict()
        self._most_rows = ROWS_PER_BATCH

    def write(
        self,
        prompts: Sequence[Sequence[int]],
        draws: np.ndarray | None,
        *,
        most: int,
        max_words: int,
        temperature: float,
        role: str | None,
        lora: Lora | None,
    ) -> list[list[int]]:
        """As `StaticWriter.write`; too little memory lowers the number of rows that are written at once.

        Args:
            prompts: Token ids.
            draws: (prompts, most) random numbers; `None` where the likeliest tokens are taken.
            most: Most tokens of a message.
            max_words: As of `draw_messages`.
            temperature: 0 takes the likeliest token.
            role: Name of the adapter.
            lora: The adapter.
        """
        rows = min(self._most_rows, 1 << max(0, len(prompts) - 1).bit_length())
        width = -(-max(map(len, prompts)) // _WIDTHS) * _WIDTHS
        written: list[list[int]] = []
        while len(written) < len(prompts):
            part = slice(len(written), len(written) + rows)
            key = (rows, width, most, max_words, temperature, role, is_merged(lora))
            try:
                if key not in self._writers:
                    shape = (rows, width, most, max_words)
                    self._writers[key] = StaticWriter(self._base, self._weights, shape, temperature, lora)
                    while len(self._writers) > _MOST_WRITERS:
                        self._writers.popitem(last=False)
                self._writers.move_to_end(key)
                written += self._writers[key].write(prompts[part], None if draws is None else draws[part])
            except torch.cuda.OutOfMemoryError:
                self._writers.clear()
                torch.cuda.empty_cache()
                if rows == 1:
                    raise UserError(
                        f"the GPU's memory does not hold the keys and values of one message of {most} tokens behind a "
                        f"prompt of {width}; shorten prompts, lower `max_message_words`, set `quantization` to '4bit', "
                        "or take a smaller `base_model` or a larger GPU."
                    ) from None
                rows = self._most_rows = rows // 2
                logger.warning("The GPU's memory holds messages of %d rows at once; more are written in turn.", rows)
        return written
