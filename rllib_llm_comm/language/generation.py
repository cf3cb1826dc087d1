"""Messages that a model writes behind prompts."""

from __future__ import annotations

import bisect
import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.multi_lora import Role, Rows, of_rows
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import limit_words, most_tokens
from rllib_llm_comm.language.static_decoding import ROWS_PER_BATCH, sampled

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
            its prompt, and how often the same three stand before it in the batch, not on its batch mates.
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
        ids = _decode_statically(rows, model, max_words, temperature, _generators(part, temperature), whose)
        if ids is None:
            ids = []
            for first in range(0, len(rows), _ROWS_PER_BATCH):  # a growing cache has room for fewer
                those = slice(first, first + _ROWS_PER_BATCH)
                draws = _generators(part[those], temperature)
                ids += _decode(rows[those], model, max_words, temperature, draws, of_rows(whose, those))
        for key, row in zip(part, ids, strict=True):
            drawn[key] = as_written(model.base, row, max_words)
    return [drawn[key] for key in keys]


class _Message(NamedTuple):
    """What a message is drawn for; `number` counts equal ones."""

    prompt: str
    number: int
    owner: int
    seed: int | None


def _generators(keys: Sequence[_Message], temperature: float) -> list[np.random.Generator] | None:
    return None if temperature == 0 else [row_generator(key.seed, (key.prompt, key.number)) for key in keys]


def as_written(base: BaseModel, ids: Sequence[int], max_words: int) -> Written:
    """The message of drawn token ids.

    A message that used up its tokens loses its last word, which may be a part of one, unless that is all there is.

    Args:
        ids: As drawn; an end token can only be the last one.
        max_words: Upper bound on the words of the text.
    """
    ended = bool(ids) and ids[-1] == base.eos_id
    text = base.decode(ids[:-1] if ended else ids)
    if not ended and len(ids) >= most_tokens(max_words) and is_open(text, max_words) and " " in text:
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
    most = most_tokens(max_words)
    model.base.require_positions(max(map(len, rows)) + most)
    uniform = None if draws is None else np.stack([generator.random(most) for generator in draws])
    try:
        written = model.static_writers.write(
            rows,
            uniform,
            most=most,
            max_words=max_words,
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
    base.require_positions(longest + most_tokens(max_words))
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
    for _ in range(most_tokens(max_words)):
        with model.use(of_rows(role, active)):
            hidden = model.decoder(input_ids=step_ids, attention_mask=mask, position_ids=positions, cache=cache)
        if step_ids is ids:
            prefixes.put(prompts, lengths, role, known, cache, hidden, [width - len(row) for row in rows])
        logits = model.token_logits(hidden[:, -1])
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
        count = next((n for n in range(1, count) if not _goes_on(base, ids[:n], max_words)), count)
    elif not is_open(whole, max_words):
        # What is too long stays too long, so the first such beginning is found in a few decodings.
        lengths = range(1, count - 1)
        count = 1 + bisect.bisect_left(lengths, True, key=lambda n: not is_open(base.decode(ids[:n]), max_words))
    return list(ids[:count])


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
    uniform = torch.tensor([[generator.random()] for generator in draws], device=logits.device)
    return sampled(logits, temperature, uniform)
