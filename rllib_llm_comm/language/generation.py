"""Texts that a model writes: messages behind prompts, and answers of chat models, free or into a form."""

from __future__ import annotations

import bisect
import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.multi_lora import Role, Rows, of_rows
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import TOKENS_PER_WORD, limit_words
from rllib_llm_comm.language.static_decoding import ROWS_PER_BATCH

# ---- messages ---------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_ROWS_PER_BATCH = 256


@dataclass(frozen=True)
class Written:
    """A message with what was drawn for it.

    Attributes:
        text: The message: one plain line, cut to the words allowed.
        ids: Token ids as drawn, the end token included if it was drawn. A message that was cut has the token that went
            too far, and no end token. Encoding `text` again may give other ids, whose probability is another one.
    """

    text: str
    ids: tuple[int, ...] = ()


def generate_messages(model: AdaptedModel, prompts: Sequence[str], **how: Any) -> list[str]:
    """The texts of `draw_messages`, which has the same arguments."""
    return [message.text for message in draw_messages(model, prompts, **how)]


def draw_messages(
    model: AdaptedModel,
    prompts: Sequence[str],
    *,
    max_words: int = 10,
    temperature: float = 0.0,
    seed: int | Sequence[int] | None = None,
    role: Role = MESSAGE,
) -> list[Written]:
    """Writes one message behind each prompt, batched with a key-value cache.

    Args:
        prompts: Texts; the message follows each.
        max_words: Upper bound on a message's words (paper: 10); longer ones are cut.
        temperature: 0 for greedy decoding, otherwise the sampling temperature.
        seed: Fixes the sampled words; one for all rows, or one per row. A row's words depend on its seed, its adapter,
            its prompt and how often the three stand before it in the batch, not on its batch mates.
        role: The adapter in use, or that of each row.

    Returns:
        One message per prompt; its text may be empty.
    """
    if max_words < 1:
        raise UserError(f"`max_message_words` is {max_words} but must be at least 1.")
    if temperature < 0:
        raise UserError(f"`message_temperature` is {temperature} but must be 0 (greedy) or larger.")
    # Greedy: equal prompts have equal messages. Sampling: each occurrence draws on its own.
    owners = role.owners.tolist() if isinstance(role, Rows) else [0] * len(prompts)
    drawn_by = None if temperature == 0 else seed
    seeds = [drawn_by] * len(prompts) if drawn_by is None or isinstance(drawn_by, int) else drawn_by
    seen: Counter[tuple[Any, ...]] = Counter()
    keys = []
    for prompt, owner, own_seed in zip(prompts, owners, seeds, strict=True):
        number = 0 if temperature == 0 else seen[prompt, owner, own_seed]
        keys.append(_Message(prompt, number, owner, own_seed))
        seen[prompt, owner, own_seed] += 1
    distinct = list(dict.fromkeys(keys))
    by_length = sorted(distinct, key=lambda key: (len(model.base.encode(key.prompt)), key))
    drawn: dict[_Message, Written] = {}
    most = _ROWS_PER_BATCH if model.static_writers is None else ROWS_PER_BATCH
    for start in range(0, len(by_length), most):
        part = sorted(by_length[start : start + most], key=lambda key: key.owner)
        rows = [model.base.encode(key.prompt) for key in part]
        whose = role.pool.rows([key.owner for key in part]) if isinstance(role, Rows) else role

        def draws(keys: Sequence[_Message] = part) -> list[np.random.Generator] | None:
            return None if temperature == 0 else [row_generator(key.seed, (key.prompt, key.number)) for key in keys]

        ids = _decode_statically(rows, model, max_words, temperature, draws(), whose)
        if ids is None:
            ids = []
            for first in range(0, len(rows), _ROWS_PER_BATCH):  # a growing cache has room for fewer
                those = slice(first, first + _ROWS_PER_BATCH)
                ids += _decode(rows[those], model, max_words, temperature, draws(part[those]), of_rows(whose, those))
        for key, row in zip(part, ids, strict=True):
            drawn[key] = as_written(model.base, row, max_words)
    return [drawn[key] for key in keys]


class _Message(NamedTuple):
    """What a message is drawn for; `number` counts equal ones."""

    prompt: str
    number: int
    owner: int
    seed: int | None


def as_written(base: BaseModel, ids: Sequence[int], max_words: int) -> Written:
    """The message of drawn token ids.

    A message that used up its tokens loses its last word, which may be a part of one, unless that is all there is.

    Args:
        ids: As drawn; an end token can only be the last one.
        max_words: Upper bound on the words of the text.
    """
    ended = bool(ids) and ids[-1] == base.eos_id
    text = base.decode(ids[:-1] if ended else ids)
    if not ended and len(ids) >= max_words * TOKENS_PER_WORD and is_open(text, max_words) and " " in text:
        text = text.rsplit(" ", 1)[0]
    return Written(limit_words(text, max_words), tuple(ids))


def row_generator(seed: int | None, key: tuple[str, int]) -> np.random.Generator:
    """Random numbers of one row.

    Args:
        seed: The seed of all rows.
        key: The row's prompt, and how often the prompt stands before it.
    """
    if seed is None:
        return np.random.default_rng()
    digest = hashlib.blake2b(f"{seed}\0{key[1]}\0{key[0]}".encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def _decode_statically(
    rows: list[list[int]],
    model: AdaptedModel,
    max_words: int,
    temperature: float,
    draws: list[np.random.Generator] | None,
    role: Role,
) -> list[list[int]] | None:
    """As `_decode` with a cache of fixed size; `None` where the device has none, or fails at it."""
    if model.static_writers is None or isinstance(role, Rows):  # its graph has one adapter
        return None
    most = max_words * TOKENS_PER_WORD
    model.base.require_positions(max(map(len, rows)) + most)
    uniform = None if draws is None else np.stack([generator.random(most) for generator in draws])
    try:
        written = model.static_writers.write(
            rows,
            uniform,
            most=most,
            most_words=max_words,
            temperature=temperature,
            role=role,
            lora=model.detached(role),
        )
    except RuntimeError as error:
        model.static_writers = None
        reason = (str(error) or type(error).__name__).splitlines()[0]
        logger.warning("Messages are written with a growing cache, which is slower (%s).", reason)
        return None
    return [up_to_end(model.base, row, max_words) for row in written]


@torch.no_grad()
def _decode(
    rows: list[list[int]],
    model: AdaptedModel,
    max_words: int,
    temperature: float,
    draws: list[np.random.Generator] | None,
    role: Role,
) -> list[list[int]]:
    base, device = model.base, model.device
    longest = max(len(row) for row in rows)
    base.require_positions(longest + max_words * TOKENS_PER_WORD)
    prompts = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    prefixes = model.prefixes(role)
    assert prefixes is not None
    known = prefixes.find(prompts, lengths, role)
    rows = [row[int(before) :] for row, before in zip(rows, known.lengths, strict=True)]
    width = max(len(row) for row in rows)
    # Left padding: every row's next token then stands in the same column.
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    cache: Any = model.cache_of(known, grows=True)
    written: list[list[int]] = [[] for _ in rows]
    active = np.arange(len(rows))
    step_ids = ids
    positions = (mask.cumsum(1) - 1).clamp(min=0) + known.lengths[:, None].to(device)
    mask = torch.cat([known.mask.long(), mask], dim=1)
    for _ in range(max_words * TOKENS_PER_WORD):
        with model.use(of_rows(role, active)):
            hidden = model.decoder(input_ids=step_ids, attention_mask=mask, position_ids=positions, cache=cache)
        if step_ids is ids:
            prefixes.put(prompts, lengths, role, known, cache, hidden, [width - len(row) for row in rows])
        logits = model.logits(hidden[:, -1])
        chosen = choose_token(logits, temperature, [draws[i] for i in active] if draws else None)
        alive = _unfinished(base, written, active, chosen.tolist(), max_words)
        if not alive:
            break
        keep = torch.tensor(alive, device=device)
        if len(alive) < len(active):
            cache.batch_select_indices(keep)
            active = active[alive]
            mask, positions, chosen = mask[keep], positions[keep], chosen[keep]
        step_ids = chosen[:, None]
        positions = positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones((len(active), 1))], dim=1)
    return written


def _unfinished(
    base: BaseModel, written: list[list[int]], active: np.ndarray, tokens: list[int], max_words: int
) -> list[int]:
    """Adds a token to every active row; places of the rows that go on."""
    alive = []
    for place, (row, token) in enumerate(zip(active, tokens, strict=True)):
        written[row].append(token)
        if _goes_on(base, written[row], max_words):
            alive.append(place)
    return alive


def _goes_on(base: BaseModel, ids: Sequence[int], max_words: int) -> bool:
    """True if a message may go on behind some tokens."""
    if ids[-1] == base.eos_id:
        return False
    # A word has at least one token, so a short row of one line needs no decoding to be known as short.
    short = len(ids) <= max_words and not any(_breaks_line(base, one) for one in ids)
    return short or is_open(base.decode(ids), max_words)


def up_to_end(base: BaseModel, ids: Sequence[int], max_words: int) -> list[int]:
    """The tokens of a message without those behind its end.

    Args:
        ids: Token ids, at least one.
        max_words: Upper bound on the words of the text.
    """
    count = ids.index(base.eos_id) + 1 if base.eos_id in ids else len(ids)
    whole = base.decode(ids[: count - 1])
    if not whole.isascii():  # a character that is not yet whole may count as a word, and be a blank in the end
        return next(
            (list(ids[:n]) for n in range(1, count) if not _goes_on(base, ids[:n], max_words)), list(ids[:count])
        )
    if is_open(whole, max_words):
        return list(ids[:count])
    # What is too long stays too long, so the first such beginning is found in a few decodings.
    return list(
        ids[
            : 1
            + bisect.bisect_left(range(1, count - 1), True, key=lambda n: not is_open(base.decode(ids[:n]), max_words))
        ]
    )


@functools.lru_cache(maxsize=65536)
def _breaks_line(base: BaseModel, token: int) -> bool:
    return "\n" in base.tokenizer.decode([token])


def is_open(text: str, max_words: int) -> bool:
    """True if a message may go on: one line, and not yet longer than allowed."""
    return "\n" not in text and len(text.split()) <= max_words


def choose_token(logits: torch.Tensor, temperature: float, draws: list[np.random.Generator] | None) -> torch.Tensor:
    """The next token of every row.

    Args:
        logits: (B, vocabulary).
        temperature: Of sampling.
        draws: Random numbers per row; `None` for the likeliest token.
    """
    if draws is None:
        return logits.argmax(-1)
    probabilities = (logits / temperature).softmax(-1).double()
    threshold = torch.tensor([generator.random() for generator in draws], device=logits.device)
    cumulative = probabilities.cumsum(-1)
    return (cumulative < threshold[:, None] * cumulative[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)


# ---- answers ----------------------------------------------------------------------------------------------------


_QUOTE = '"'
_LINE_CIRCLE, _TEXT_CIRCLE = 8, 24
"""Length of a repetition: a text whose last tokens, as many as this, stood there before goes in circles. Small models
do not end by themselves. Code in a longer text repeats itself without."""


@dataclass
class KeptPrefix:
    """Keys and values of what a model read last, so that what the next prompt shares with it is not read again.

    Attributes:
        ids: Token ids of what was read.
        cache: The model's keys and values of them; `None` at first.
    """

    ids: list[int] = field(default_factory=list)
    cache: Any = None

    def shared_with(self, ids: Sequence[int]) -> int:
        """Number of first token ids that need not be read again; at least the last one is always read."""
        same = 0
        for mine, theirs in zip(self.ids, ids[:-1], strict=False):
            if mine != theirs:
                break
            same += 1
        return same


class Decoding:
    """One answer in the making.

    Attributes:
        ended: Whether `text` ended by itself, and was not cut off.

    Args:
        base: The model.
        prompt: Token ids to go on from.
        kept: The prefix that was read before; is changed.
        most: Most tokens that the model may write.
        temperature: 0 takes the likeliest token.
        draws: Random numbers, for a temperature above 0.
    """

    def __init__(
        self,
        base: BaseModel,
        prompt: Sequence[int],
        kept: KeptPrefix,
        most: int,
        temperature: float = 0.0,
        draws: np.random.Generator | None = None,
    ) -> None:
        from transformers import DynamicCache

        self.base, self.written, self.most = base, 0, most
        self.ended = False
        self._temperature, self._draws = temperature, draws
        self._kept = kept
        same = kept.shared_with(prompt)
        if kept.cache is None or same == 0:
            kept.cache, same = DynamicCache(), 0
        elif same < len(kept.ids):
            kept.cache.crop(same - len(kept.ids))
        kept.ids = list(prompt[:same])
        self._read(prompt[same:])

    @property
    def open(self) -> bool:
        """True if the model may write on."""
        return self.written < self.most

    def force(self, text: str) -> None:
        """Goes on with a given text, which counts for nothing."""
        ids = self.base.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if ids:
            self._read(ids)

    def text(self) -> str:
        """Text that the model writes until it ends, goes in circles or may write no more."""
        ids: list[int] = []
        while self.open and not _circles(ids, _TEXT_CIRCLE):
            token = self._next()
            if token == self.base.eos_id:
                self.ended = True
                break
            ids.append(token)
            self._read([token])
        self.ended |= _circles(ids, _TEXT_CIRCLE)
        return self.base.decode(ids)

    def line(self, most: int, least: int = 0) -> str:
        """Text that the model writes until a quotation mark, a line's end or its own end; none of these is part of it.

        It also ends when it goes in circles.

        Args:
            most: Most tokens.
            least: 1 if it must not be empty, not even if the model may write no more.
        """
        ids: list[int] = []
        enders = _enders(self.base)
        while (self.open and len(ids) < most and not _circles(ids, _LINE_CIRCLE)) or len(ids) < least:
            token = self._next(None if ids or not least else lambda logits: logits.masked_fill(enders, -torch.inf))
            if bool(enders[token]):
                rest = self._head(token)
                self.force(rest)
                return _without_marks(self.base.tokenizer.decode(ids) + rest)
            ids.append(token)
            self._read([token])
        return _without_marks(self.base.tokenizer.decode(ids))

    def choose(self, options: Sequence[str]) -> str:
        """The option that the model would write, token by token; it is written.

        Args:
            options: Different texts, none of which begins another.
        """
        whole = {"add_special_tokens": False, "split_special_tokens": True}
        rows = {option: self.base.tokenizer(option, **whole)["input_ids"] for option in options}
        at = 0
        while len(rows) > 1:
            allowed = sorted({row[at] for row in rows.values() if len(row) > at})
            chosen = allowed[int(self._logits[allowed].argmax())]
            rows = {option: row for option, row in rows.items() if len(row) > at and row[at] == chosen}
            self._read([chosen])
            at += 1
        option, row = next(iter(rows.items()))
        if row[at:]:
            self._read(row[at:])
        return option

    def likes(self, options: Sequence[str]) -> bool:
        """True if the likeliest next token is one of some; nothing is written.

        Args:
            options: Texts of one token each.
        """
        likeliest = str(self.base.tokenizer.decode([int(self._logits.argmax())]))
        return likeliest in options

    def _next(self, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> int:
        logits = self._logits if change is None else change(self._logits)
        self.written += 1
        draws = None if self._temperature == 0 or self._draws is None else [self._draws]
        return int(choose_token(logits[None], self._temperature, draws)[0])

    @torch.no_grad()
    def _read(self, ids: Sequence[int]) -> None:
        rows = torch.tensor([list(ids)], device=self.base.device)
        cache = {self.base.cache_argument: self._kept.cache}
        output = self.base.model(rows, use_cache=True, logits_to_keep=1, **cache)
        self._kept.ids += ids
        self._logits: torch.Tensor = output.logits[0, -1].float().cpu()

    def _head(self, token: int) -> str:
        """Part of a token before a mark that ends a line."""
        if token == self.base.eos_id:
            return ""
        text = str(self.base.tokenizer.decode([token]))
        return text[: min(text.find(mark) for mark in (_QUOTE, "\n", "\r") if mark in text)]


@functools.lru_cache(maxsize=8)
def _enders(base: BaseModel) -> torch.Tensor:
    """bool (vocabulary,): tokens that end a line."""
    texts = base.tokenizer.batch_decode([[token] for token in range(base.vocab_size)])
    ends = torch.tensor([any(mark in text for mark in (_QUOTE, "\n", "\r")) for text in texts])
    ends[base.eos_id] = True
    return ends


def _circles(ids: Sequence[int], length: int) -> bool:
    """True if the last tokens are a repetition."""
    last = list(ids[-length:])
    return any(list(ids[at : at + length]) == last for at in range(len(ids) - length))


def _without_marks(text: str) -> str:
    return " ".join(text.replace("\\", " ").split())
