"""Answers with a form: JSON from a chat model, checked, and asked again once when it does not fit.

`form_in` finds a form for a model that is led through it (`decoding.fill_form`). `ask_batch` asks several questions in
one request, so that what they share is sent once (Cheng et al. 2023, arXiv 2301.08721, as in SAMA).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rllib_llm_comm.chat.chat_model import (
    MANUAL,
    PLAN,
    ChatError,
    ChatModel,
    asking_for,
    concurrent_questions,
    cut_at,
    side_by_side,
)
from rllib_llm_comm.chat.thoughts import objects_in, without_thoughts
from rllib_llm_comm.core.errors import require_whole
from rllib_llm_comm.language.prompts import fill

_CUT = "it was cut off after {} tokens (raise `max_tokens`)"
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
        prompt: The question; the form is told after it.
        form: A pydantic model; its JSON schema is what the language model is shown.
        system: System prompt.
        check: Raises a `ValueError` (a `UserError` is one) if an answer of the right form is wrong for the game; its
            words go to the language model.
        purpose: Purpose, which bounds the answer's length: see `rllib_llm_comm.chat.chat_model.TOKENS`.

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
        read: Makes of the answer, without the model's thoughts, what is wanted, or raises a `ValueError` whose words go
            to the language model.
        what: The wanted thing, for the error's text.
        system: System prompt.

    Returns:
        What `read` made of the first answer that it could read.

    Raises:
        AnswerError: If it can read neither answer.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    asked = prompt
    for cut in ("it was cut off, since it became too long; think and write less", _CUT):
        answer = model.complete(asked, system)
        said = without_thoughts(answer)
        try:
            return read(said)
        except ValueError as error:
            reasons = _reasons(error, answer, said)
        if cut_at(answer):
            reasons.append(cut.format(cut_at(answer)))
        told = "\n".join(f"- {reason}" for reason in reasons)
        asked = fill(__package__, "repair", prompt=prompt, answer=said[:_MOST_SHOWN], reasons=told)
    raise AnswerError(what, answer, reasons)


def read_answer(text: str, form: type[Answer], check: Callable[[Answer], object] | None = None) -> Answer:
    """The object that a text holds: the first JSON object in it that fits, whatever stands around it.

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
    """Yes or no of an answer: by its first word, else by the only one of the two in it; `None` of neither or both."""
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


_STRICT = ("type", "enum", "const", "description", "minItems", "maxItems")


class UnknownFormError(ValueError):
    """A schema has something that cannot be filled in here."""


def form_in(prompt: str) -> tuple[dict[str, Any] | None, str]:
    """The last JSON schema of an object that stands on a line of its own in a prompt, as `ask_for` shows it.

    Returns:
        The schema, and the prompt with the names of the fields in its place: small models copy what stands in a
        schema. `None` and the prompt as it is if there is none, or one of a kind that cannot be filled in.
    """
    for line in reversed(prompt.splitlines()):
        if line.startswith("{") and '"properties"' in line:
            try:
                schema = json.loads(line)
                _check(schema, schema, ())
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            return schema, prompt.replace(line, ", ".join(schema["properties"]))
    return None, prompt


def strict_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in the subset that servers write by (`response_format`): all fields are required, no others allowed.

    What the subset lacks (lengths of texts, defaults) is left to the check of the answer.

    Args:
        schema: A JSON schema, as pydantic makes it.

    Raises:
        UnknownFormError: If it has an object without named fields.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    if schema.get("type") == "object" and not schema.get("properties"):
        raise UnknownFormError("an object without named fields cannot be written by a server")
    kept: dict[str, Any] = {name: schema[name] for name in _STRICT if name in schema}
    for name in ("properties", "$defs"):
        if name in schema:
            kept[name] = {key: strict_form(inner) for key, inner in schema[name].items()}
    if "items" in schema:
        kept["items"] = strict_form(schema["items"])
    if "anyOf" in schema:
        kept["anyOf"] = [strict_form(inner) for inner in schema["anyOf"]]
    if "properties" in kept:
        kept |= {"required": list(kept["properties"]), "additionalProperties": False}
    return kept


def any_answer(schema: Mapping[str, Any]) -> str:
    """An answer that has the right form and says nothing: first options, lists of one entry, ones and single letters.

    Args:
        schema: The JSON schema; see `rllib_llm_comm.chat.answers.form_in`.
    """
    return json.dumps(_any(schema, schema))


def _any(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    schema = resolved(schema, root)
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: _any(inner, root) for name, inner in schema["properties"].items()}
    if schema["type"] == "array":
        return [_any(schema["items"], root)] * max(1, schema.get("minItems", 0))
    return {"boolean": True, "integer": 1}.get(schema["type"], "x" * max(1, schema.get("minLength", 0)))


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of a JSON schema with the definition in the schema that it refers to, if it does."""
    if "$ref" not in schema:
        return schema
    found: Any = root
    for part in str(schema["$ref"]).removeprefix("#/").split("/"):
        found = found[part]
    resolved: Mapping[str, Any] = found
    return resolved


def _check(schema: Mapping[str, Any], root: Mapping[str, Any], above: tuple[str, ...]) -> None:
    """Raises if a schema has anything that `decoding.fill_form` does not know."""
    name = str(schema.get("$ref", ""))
    if name in above and name:
        raise UnknownFormError(f"{name} holds itself")
    above = (*above, name) if name else above
    schema = resolved(schema, root)
    if "enum" in schema:
        return
    kind = schema.get("type")
    if kind == "object" and schema.get("properties"):
        for inner in schema["properties"].values():
            _check(inner, root, above)
    elif kind == "array" and "items" in schema:
        _check(schema["items"], root, above)
    elif kind not in ("string", "integer", "boolean"):
        raise UnknownFormError(f"{kind!r} cannot be filled in")


logger = logging.getLogger(__name__)

_MARK = re.compile(r"^[ \t]*(?:[*_#>-][ \t]*)*\[(\d{1,4})\][ \t*_:.]*", re.MULTILINE)


def ask_batch(
    model: ChatModel,
    questions: Sequence[str],
    *,
    context: str = "",
    size: int = 8,
) -> list[str]:
    """Answers to many questions, asked together.

    Each answer is kept as that of its question alone, so that it is never paid for again, in whatever company the
    question comes back. Questions that are the same are asked once.

    Args:
        model: The chat model; its `max_tokens` has to do for all answers of a request.
        context: The context of all questions, such as a manual; sent once per request.
        size: Most questions in one request, >= 1.

    Returns:
        An answer per question, in their order.

    Raises:
        UserError: If `size` is not allowed, the budget is spent or the key is missing.
        ChatError: If a request failed for good; the answers so far are kept where the model keeps any.
    """
    require_whole("size", size, 1)
    answers: dict[str, str] = {}
    with asking_for(MANUAL):
        for question in questions:
            known = None if question in answers else model.recall(single_prompt(question, context))
            if known is not None:
                answers[question] = without_thoughts(known)
        open_ = [question for question in dict.fromkeys(questions) if question not in answers]
        parts = [open_[start : start + size] for start in range(0, len(open_), size)]
        together = concurrent_questions(model)
        for found in side_by_side(lambda part: _ask_together(model, part, context), parts, together):
            answers.update(found)
    return [answers[question] for question in questions]


def _ask_together(model: ChatModel, questions: Sequence[str], context: str) -> dict[str, str]:
    answers: dict[str, str] = {}
    if len(questions) > 1:
        reply = model.complete(batch_prompt(questions, context))
        for question, answer in zip(questions, parse_batch(reply, len(questions)), strict=False):
            answers[question] = answer
            model.remember(single_prompt(question, context), answer)
        if len(answers) < len(questions):
            logger.info("A batch of %d questions got %d usable answers.", len(questions), len(answers))
    for question in questions:
        if question not in answers:
            answers[question] = without_thoughts(model.complete(single_prompt(question, context)))
    return answers


def single_prompt(question: str, context: str = "") -> str:
    """A question on its own."""
    return _above(context) + question


def batch_prompt(questions: Sequence[str], context: str = "") -> str:
    """Numbered questions in one prompt."""
    numbered = "\n\n".join(f"Question {number}: {question}" for number, question in enumerate(questions, 1))
    return fill(__package__, "batch", context=_above(context), count=len(questions), questions=numbered)


def parse_batch(reply: str, count: int) -> list[str]:
    """The answers of a reply that can be believed, from the first question on.

    All are, if the reply's marks are [1] to [count] in this order and no answer is empty. If it only stops early, all
    are but the last, which may be cut off. In any other case (a number twice, out of order, too large, left out, an
    answer without words) none is: nobody knows then which answer belongs to which question.

    Returns:
        At most `count` answers.
    """
    text = without_thoughts(reply)
    marks = list(_MARK.finditer(text))
    in_order = [int(mark.group(1)) for mark in marks] == list(range(1, len(marks) + 1))
    if not marks or not in_order or len(marks) > count:
        return []
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    answers = [text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    if len(marks) < count:
        answers = answers[:-1]
    return answers if all(answers) else []


def _above(context: str) -> str:
    return f"{context}\n\n" if context else ""
