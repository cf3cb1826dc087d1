"""Batch prompting: several questions in one request, so that what they share is sent once.

After Cheng et al. 2023 (arXiv 2301.08721), which SAMA uses to save tokens and time. Answers carry the number of their
question, and only a reply whose numbers are in order is believed; what it leaves open is asked one by one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.client import concurrent_questions
from rllib_llm_comm.chat.purposes import MANUAL, asking_for
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.chat.turns import side_by_side
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.prompt_files import fill

logger = logging.getLogger(__name__)

_MARK = re.compile(r"^[ \t]*(?:[*_#>-][ \t]*)*\[(\d{1,4})\][ \t*_:.]*", re.MULTILINE)


def ask_batch(
    model: ChatModel,
    questions: Sequence[str],
    *,
    context: str = "",
    system: str = "",
    size: int = 8,
    purpose: str = MANUAL,
) -> list[str]:
    """Answers to many questions, asked together.

    Each answer is kept as that of its question alone, so that it is never paid for again, in whatever company the
    question comes back. Questions that are the same are asked once.

    Args:
        model: The chat model; its `max_tokens` has to do for all answers of a request.
        questions: The questions.
        context: The context of all questions, such as a manual; sent once per request.
        system: See `rllib_llm_comm.chat.client.ChatClient.complete`.
        size: Most questions in one request, >= 1.
        purpose: Purpose, which bounds the length of a request's answers: see `rllib_llm_comm.chat.purposes.TOKENS`.

    Returns:
        An answer per question, in their order.

    Raises:
        UserError: If `size` is not allowed, the budget is spent or the key is missing.
        ChatError: If a request failed for good; the answers so far are kept where the model keeps any.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UserError(f"`size` is {size!r} but must be a whole number from 1 up.")
    answers: dict[str, str] = {}
    with asking_for(purpose):
        for question in questions:
            known = None if question in answers else model.recall(single_prompt(question, context), system)
            if known is not None:
                answers[question] = without_thoughts(known)
        open_ = [question for question in dict.fromkeys(questions) if question not in answers]
        parts = [open_[start : start + size] for start in range(0, len(open_), size)]
        together = concurrent_questions(model)
        for found in side_by_side(lambda part: _ask_together(model, part, context, system), parts, together):
            answers.update(found)
    return [answers[question] for question in questions]


def _ask_together(model: ChatModel, questions: Sequence[str], context: str, system: str) -> dict[str, str]:
    answers: dict[str, str] = {}
    if len(questions) > 1:
        reply = model.complete(batch_prompt(questions, context), system)
        for question, answer in zip(questions, parse_batch(reply, len(questions)), strict=False):
            answers[question] = answer
            model.remember(single_prompt(question, context), answer, system)
        if len(answers) < len(questions):
            logger.info("A batch of %d questions got %d usable answers.", len(questions), len(answers))
    for question in questions:
        if question not in answers:
            answers[question] = without_thoughts(model.complete(single_prompt(question, context), system))
    return answers


def single_prompt(question: str, context: str = "") -> str:
    """A question on its own.

    Args:
        question: The question.
        context: Its context.
    """
    return _above(context) + question


def batch_prompt(questions: Sequence[str], context: str = "") -> str:
    """Numbered questions in one prompt.

    Args:
        questions: The questions.
        context: The context of all of them.
    """
    numbered = "\n\n".join(f"Question {number}: {question}" for number, question in enumerate(questions, 1))
    return fill(__package__, "batch", context=_above(context), count=len(questions), questions=numbered)


def parse_batch(reply: str, count: int) -> list[str]:
    """The answers of a reply that can be believed, from the first question on.

    All are, if the reply's marks are [1] to [count] in this order and no answer is empty. If it only stops early, all
    are but the last, which may be cut off. In any other case (a number twice, out of order, too large, left out, an
    answer without words) none is: nobody knows then which answer belongs to which question.

    Args:
        reply: The model's reply.
        count: Number of questions.

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
