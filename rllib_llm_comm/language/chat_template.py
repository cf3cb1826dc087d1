"""A chat-tuned model's own form of a question and the beginning of its answer, as token ids around our texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.errors import UserError

PLAIN, CHAT = "plain", "chat"
PROMPT_FORMATS = (PLAIN, CHAT)
_MARK = "QQMARKQQ"


@dataclass(frozen=True)
class ChatFrame:
    """Token ids of a chat template around a user's text.

    Attributes:
        before: In front of it: what the template says first, and the mark of the user.
        after: Behind it, up to where the model begins to answer.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


def chat_frame(tokenizer: Any, name: str) -> ChatFrame:
    """The frame of a tokenizer's chat template.

    The text itself is never put through the template: names of special tokens in it would become such tokens.

    Args:
        tokenizer: A Hugging Face tokenizer.
        name: Name of its model, in messages.

    Raises:
        UserError: If it has no chat template, or one that changes a user's text.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"`prompt_format` is 'chat' but the tokenizer of `base_model` {name!r} has no chat template; set it to "
            "'plain', or take a chat-tuned model."
        )
    whole = tokenizer.apply_chat_template(
        [{"role": "user", "content": _MARK}], add_generation_prompt=True, tokenize=False
    )
    parts = whole.split(_MARK)
    if len(parts) != 2:
        raise UserError(
            f"`prompt_format` is 'chat' but the chat template of `base_model` {name!r} does not show a user's text "
            "once; set it to 'plain'."
        )
    before, after = (tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in parts)
    return ChatFrame(before, after)


def padding_beside(tokenizer: Any, frame: ChatFrame, name: str) -> int:
    """A token id for padding that neither the frame nor a text has.

    Chat-tuned models often pad with the token that ends a turn, which is in every frame.

    Args:
        tokenizer: The tokenizer.
        frame: Its frame.
        name: Name of its model, in messages.

    Raises:
        UserError: If all special tokens are in use.
    """
    taken = {*frame.before, *frame.after, tokenizer.eos_token_id}
    special = [number for number, token in sorted(tokenizer.added_tokens_decoder.items()) if token.special]
    for number in [tokenizer.pad_token_id, tokenizer.unk_token_id, *special]:
        if number is not None and number not in taken:
            return int(number)
    raise UserError(
        f"`prompt_format` is 'chat' but the tokenizer of `base_model` {name!r} has no special token left for padding; "
        "add a pad token of its own to its files, or set `prompt_format` to 'plain'."
    )
