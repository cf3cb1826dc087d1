"""Purposes of a question to a chat model: each has its own bound on the answer's length, and maybe a form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.chat.chat_model import cut_at
from rllib_llm_comm.core.errors import UserError, did_you_mean

LABEL, PLAY, JUDGE, PLAN, REFLECTION, TRANSLATION, REWARD_CODE, MANUAL, OTHER = (
    "label", "play", "judge", "plan", "reflection", "translation", "reward_code", "manual", "other",
)  # fmt: skip

# Most tokens of an answer, thoughts before it included (ours; the papers give none).
TOKENS: Mapping[str, int] = {
    LABEL: 400,
    PLAY: 400,
    JUDGE: 400,
    PLAN: 1500,
    REFLECTION: 1500,
    TRANSLATION: 1500,
    REWARD_CODE: 1500,
    MANUAL: 2000,
    OTHER: 1000,
}


@dataclass(frozen=True)
class Asking:
    """Purpose of the present questions.

    Attributes:
        purpose: One of `TOKENS`.
        schema: JSON schema of the answer; `None` for free text.
        form: Name of the schema.
    """

    purpose: str = OTHER
    schema: Mapping[str, Any] | None = None
    form: str = "answer"


_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


def asking() -> Asking:
    """Purpose of this thread's or task's present questions."""
    return _asking.get() or Asking()


@contextmanager
def asking_for(purpose: str, schema: Mapping[str, Any] | None = None, form: str = "answer") -> Iterator[None]:
    """Context in which questions have a purpose; models that do not care need no such argument.

    Args:
        purpose: One of `TOKENS`.
        schema: JSON schema of the answer.
        form: Name of the schema.
    """
    token = _asking.set(Asking(purpose, schema, form))
    try:
        yield
    finally:
        _asking.reset(token)


def tokens_for(max_tokens: int | Mapping[str, int] | None, purpose: str) -> int:
    """The bound on the tokens of an answer.

    Args:
        max_tokens: As given by the user: one number, numbers by purpose, or `None`.
        purpose: One of `TOKENS`.
    """
    if isinstance(max_tokens, Mapping):
        return max_tokens.get(purpose, TOKENS[purpose])
    return TOKENS[purpose] if max_tokens is None else max_tokens


def cut_too_early(answer: str, max_tokens: int | Mapping[str, int] | None) -> bool:
    """True if a kept answer was cut off where one may be longer now, so that it is worth asking again.

    Args:
        answer: The answer.
        max_tokens: See `rllib_llm_comm.chat.purposes.tokens_for`; the purpose is that of the moment.
    """
    return 0 < cut_at(answer) < tokens_for(max_tokens, asking().purpose)


def check_tokens(max_tokens: Any) -> None:
    """Refuses what is no bound on the length of answers.

    Raises:
        UserError: Says what is wrong.
    """
    if max_tokens is None:
        return
    given = max_tokens if isinstance(max_tokens, Mapping) else {"": max_tokens}
    for purpose, value in given.items():
        name = f"max_tokens.{purpose}" if purpose else "max_tokens"
        if purpose and purpose not in TOKENS:
            raise UserError(
                f"`max_tokens` has the key {purpose!r}; known are {', '.join(TOKENS)}."
                f"{did_you_mean(str(purpose), TOKENS)}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(f"`{name}` is {value!r} but must be a whole number above 0.")
