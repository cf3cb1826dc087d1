"""An answer of a chat model in this process, token by token: free, or into a form.

`fill_form` lets a small model, which seldom closes all its braces, write the texts and numbers alone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.chat.answers import resolved
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.generation import choose_token
from rllib_llm_comm.language.packing import common_prefix

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
        same = common_prefix(kept.ids, prompt[:-1])  # the last token is always read
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


# ---- into a form ------------------------------------------------------------------------------------------------


_LINE_TOKENS = 48  # most of one text
_MOST_ENTRIES = 12
_MOST_DIGITS = 4
_DIGITS = tuple("0123456789")


def fill_form(decoding: Decoding, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> str:
    """Lets a model fill in a form.

    Args:
        decoding: The answer in the making.
        schema: The JSON schema; see `rllib_llm_comm.chat.answers.form_in`.
        root: The schema that it is a part of; `None` if it is the whole.

    Returns:
        What was written, as JSON.
    """
    root = root or schema
    schema = resolved(schema, root)
    if "enum" in schema:
        return decoding.choose([json.dumps(option) for option in schema["enum"]])
    kind = schema["type"]
    if kind == "object":
        parts = []
        for number, (name, inner) in enumerate(schema["properties"].items()):
            lead = f"{', ' if number else '{'}{json.dumps(name)}: "
            decoding.force(lead)
            parts.append(lead + fill_form(decoding, inner, root))
        decoding.force("}")
        return "".join(parts) + "}"
    if kind == "array":
        return _list(decoding, schema, root)
    if kind == "boolean":
        return decoding.choose(["true", "false"])
    if kind == "integer":
        return _number(decoding)
    decoding.force('"')
    text = decoding.line(_LINE_TOKENS, min(1, schema.get("minLength", 0)))[: schema.get("maxLength")]
    decoding.force('"')
    return json.dumps(text)


def _list(decoding: Decoding, schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Writes entries until the model ends the list, may write no more, or says an entry twice."""
    least, most = max(1, schema.get("minItems", 0)), min(_MOST_ENTRIES, schema.get("maxItems", _MOST_ENTRIES))
    decoding.force("[")
    entries = [fill_form(decoding, schema["items"], root)]
    while len(entries) < max(least, most if decoding.open else 0):
        if len(entries) < least:
            decoding.force(", ")
        elif decoding.choose([", ", "]"]) == "]":
            return f"[{', '.join(entries)}]"
        entry = fill_form(decoding, schema["items"], root)
        if entry in entries and len(entries) >= least:
            break
        entries.append(entry)
    decoding.force("]")
    return f"[{', '.join(entries)}]"


def _number(decoding: Decoding) -> str:
    digits = decoding.choose(_DIGITS)
    while len(digits) < _MOST_DIGITS and digits != "0" and decoding.likes(_DIGITS):
        digits += decoding.choose(_DIGITS)
    return digits
