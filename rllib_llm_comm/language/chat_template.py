"""A chat-tuned model's own form of a question and the beginning of its answer, as token ids around our texts."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.core.errors import UserError

PLAIN, CHAT = "plain", "chat"
PROMPT_FORMATS = (PLAIN, CHAT)
PROMPT_DATE = "2024-07-26"
"""Day that templates with a date show. It does not move on: a policy scores the same tomorrow."""
_MARK = "QQMARKQQ"
_DIRECTIVES = "aAbBcdDeFGhHIjmMpRSTuUVwWxXyY"


def check_prompt_date(prompt_date: str) -> None:
    """Raises a `UserError` unless a text is a day, written as YYYY-MM-DD."""
    try:
        datetime.date.fromisoformat(prompt_date)
    except ValueError as error:
        raise UserError(
            f"`prompt_date` is {prompt_date!r} but must be a day such as {PROMPT_DATE!r} (YYYY-MM-DD)."
        ) from error


@dataclass(frozen=True)
class ChatFrame:
    """Token ids of a chat template around a user's text.

    Attributes:
        before: In front of it: what the template says first, and the mark of the user.
        after: Behind it, up to where the model begins to answer.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


def chat_frame(tokenizer: Any, name: str, prompt_date: str = PROMPT_DATE) -> ChatFrame:
    """The frame of a tokenizer's chat template.

    The text itself is never put through the template: names of special tokens in it would become such tokens.

    Args:
        name: Name of its model, in messages.
        prompt_date: The day that a template with a date shows, as YYYY-MM-DD.

    Raises:
        UserError: If it has no chat template, or one that fails or changes a user's text.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"`prompt_format` is 'chat' but the tokenizer of `base_model` {name!r} has no chat template; set it to "
            "'plain', or take a chat-tuned model."
        )
    try:
        whole = tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARK}],
            add_generation_prompt=True,
            tokenize=False,
            chat_template=_clock_of(datetime.date.fromisoformat(prompt_date)) + tokenizer.get_chat_template(),
        )
    except Exception as error:  # a stranger's template is a program: it can fail in every way
        reason = (str(error).strip() or "?").splitlines()[0]
        raise UserError(
            f"`prompt_format` is 'chat' but the chat template of `base_model` {name!r} fails "
            f"({type(error).__name__}: {reason}); set it to 'plain', or mend the template."
        ) from error
    parts = whole.split(_MARK)
    if len(parts) != 2:
        raise UserError(
            f"`prompt_format` is 'chat' but the chat template of `base_model` {name!r} does not show a user's text "
            "once; set it to 'plain'."
        )
    before, after = (tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in parts)
    return ChatFrame(before, after)


def _clock_of(day: datetime.date) -> str:
    """Beginning of a template that puts a clock which stands still in place of the one that transformers gives.

    A function among the template's variables would not reach it: only data do.
    """
    shown = {f"%{letter}": day.strftime(f"%{letter}") for letter in _DIRECTIVES}
    shown |= {f"%-{letter}": shown[f"%{letter}"].lstrip("0") or "0" for letter in "dHIjmMSUVWy"}
    changes = "".join(f".replace({directive!r}, {text!r})" for directive, text in shown.items())
    # Jinja drops the end of a line behind a block.
    return f"{{% macro strftime_now(format) %}}{{{{ format{changes} }}}}{{% endmacro %}}\n"
