"""Answers with a form: JSON from a chat model, checked, and asked again once when it does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rllib_llm_comm.chat.chat_model import ChatModel, cut_at
from rllib_llm_comm.chat.client import ChatError
from rllib_llm_comm.chat.purposes import PLAN, asking_for
from rllib_llm_comm.chat.thoughts import objects_in, without_thoughts
from rllib_llm_comm.language.prompt_files import fill

_MOST_SHOWN = 4000
_MOST_REASONS = 10

Answer = TypeVar("Answer", bound=BaseModel)
Read = TypeVar("Read")


class UnusableError(ValueError):
    """An answer does not fit.

    Attributes:
        reasons: Faults of it.
    """

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = list(reasons)


class AnswerError(ChatError):
    """A model's answer does not fit, not even when it was told why.

    Attributes:
        answer: Its last answer.
        reasons: Faults of it.
    """

    def __init__(self, what: str, answer: str, reasons: list[str]) -> None:
        super().__init__(f"The chat model gave no usable {what} in two tries: {'; '.join(reasons)}")
        self.answer, self.reasons = answer, reasons


def ask_for(
    model: ChatModel,
    prompt: str,
    form: type[Answer],
    *,
    system: str = "",
    check: Callable[[Answer], object] | None = None,
    purpose: str = PLAN,
) -> Answer:
    """Asks for an object of a given form, and once more if the answer does not fit.

    Args:
        model: The chat model.
        prompt: The question; the form is told after it.
        form: A pydantic model; its JSON schema is what the language model is shown.
        system: See `rllib_llm_comm.chat.client.ChatClient.complete`.
        check: Raises a `ValueError` (a `UserError` is one) if an answer of the right form is wrong for the game; its
            words go to the language model.
        purpose: Purpose, which bounds the answer's length: see `rllib_llm_comm.chat.purposes.TOKENS`.

    Returns:
        The object.

    Raises:
        AnswerError: If the second answer does not fit either.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    schema, name = form.model_json_schema(), form.__name__
    asked = fill(__package__, "structured", prompt=prompt, schema=json.dumps(schema))
    with asking_for(purpose, schema, name):
        return ask_checked(model, asked, lambda text: read_answer(text, form, check), what=name, system=system)


def ask_checked(
    model: ChatModel, prompt: str, read: Callable[[str], Read], *, what: str = "answer", system: str = ""
) -> Read:
    """Asks for something that has to be read, and once more, with the reasons, if it cannot be.

    Args:
        model: The chat model.
        prompt: The question.
        read: Makes of the answer, without the model's thoughts, what is wanted, or raises a `ValueError` whose words go
            to the language model.
        what: The wanted thing, for the error's text.
        system: See `rllib_llm_comm.chat.client.ChatClient.complete`.

    Returns:
        What `read` made of the first answer that it could read.

    Raises:
        AnswerError: If it can read neither answer.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    answer = model.complete(prompt, system)
    said = without_thoughts(answer)
    try:
        return read(said)
    except ValueError as error:
        reasons = _reasons(error, answer, said)
    if cut_at(answer):
        reasons.append("it was cut off, since it became too long; think and write less")
    told = "\n".join(f"- {reason}" for reason in reasons)
    again = fill(__package__, "repair", prompt=prompt, answer=said[:_MOST_SHOWN], reasons=told)
    answer = model.complete(again, system)
    said = without_thoughts(answer)
    try:
        return read(said)
    except ValueError as error:
        reasons = _reasons(error, answer, said)
    if cut_at(answer):
        reasons.append(f"it was cut off after {cut_at(answer)} tokens (raise `max_tokens`)")
    raise AnswerError(what, answer, reasons)


def read_answer(text: str, form: type[Answer], check: Callable[[Answer], object] | None = None) -> Answer:
    """The object that a text holds: the first JSON object in it that fits, whatever stands around it.

    Args:
        text: A model's text.
        form: A pydantic model.
        check: See `rllib_llm_comm.chat.answers.ask_for`.

    Raises:
        UnusableError: If none fits; it tells what is wrong with the last one.
    """
    reasons = ["there is no JSON object in the answer"]
    for document, *_ in objects_in(without_thoughts(text)):
        try:
            found = form.model_validate(document)
            if check is not None:
                check(found)
        except ValidationError as error:
            reasons = [_sentence(problem) for problem in error.errors()[:_MOST_REASONS]]
        except ValueError as error:
            reasons = _reasons(error)
        else:
            return found
    raise UnusableError(*reasons)


def read_yes_no(text: str) -> bool | None:
    """Yes or no of an answer: by its first word, else by the only one of the two that occurs in it; `None` if unclear.

    Args:
        text: A model's text.

    Returns:
        `None` if it says neither, or both.
    """
    words = re.findall(r"[a-z]+", without_thoughts(text).lower())
    said = words[:1] if words[:1] in (["yes"], ["no"]) else sorted({"yes", "no"} & set(words))
    return said == ["yes"] if len(said) == 1 else None


def _reasons(error: ValueError, answer: str = "", said: str = "") -> list[str]:
    if answer.strip() and not said:
        return ["it holds thoughts, but no answer behind them"]
    return list(error.reasons) if isinstance(error, UnusableError) else [" ".join(str(error).split())]


def _sentence(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else problem["msg"]
