"""The manual of a game, made by a chat model from the LaTeX sources of papers about it.

After SAMA Section 3.1, which takes it from SPRING (Wu et al. 2023), with questions of our own. Paragraphs that answer
no question of relevance with yes are left out; of the others the model collects facts by four questions about the game;
facts that repeat others are named by number and left out, so that this step cannot invent any; the rest is summed up.
All questions are in `prompts/manual_*.txt`.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.chat.answers import (
    AnswerError,
    UnusableError,
    ask_batch,
    ask_checked,
    ask_for,
    read_yes_no,
)
from rllib_llm_comm.chat.chat_model import (
    MANUAL,
    ChatCounters,
    ChatModel,
    asking_for,
    concurrent_questions,
    count_scope,
    side_by_side,
)
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.language.prompts import fill, template
from rllib_llm_comm.sama.manuals.latex import Paragraph

logger = logging.getLogger(__name__)

_FACTS_AT_ONCE = 60
_MADE = Path(__file__).with_name("made")
LONGEST = 20_000
"""Longer manuals are not read, in characters."""
_NOTHING = frozenset({"", "none", "nothing", "n/a"})


def manuals() -> list[str]:
    """The names of the manuals that come with the package."""
    return sorted(path.stem for path in _MADE.glob("*.md"))


def find_manual(named: str | os.PathLike[str]) -> Path:
    """A manual's path from a setting: a file, or the name of one that comes with the package.

    Args:
        named: The setting; what is no such name is taken for the path of a file, whether it is there or not.
    """
    path = local_path(named, "manual")
    return _MADE / f"{named}.md" if not path.is_file() and str(named) in manuals() else path


def read_manual(path: str | os.PathLike[str]) -> str:
    """A manual from a file, without the comment that says how it was made.

    Args:
        path: Of a text file, such as `rllib manual` writes, or the name of a manual that comes with the package.

    Raises:
        UserError: If it cannot be read, or is empty or too long.
    """
    file = find_manual(path)
    try:
        text = read_text(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UserError(
            f"`manual` is {str(path)!r}, which cannot be read ({reason}); give the path of a text file, "
            f"such as `rllib manual` writes, or one of {', '.join(manuals())}, which come with the package."
        ) from error
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip()
    if not 0 < len(text) <= LONGEST:
        raise UserError(f"`manual` {str(path)!r} has {len(text)} characters but must have from 1 to {LONGEST}.")
    return text


class ManualShown(Settings):
    """Settings of who is shown a manual."""

    manual: str = ""
    """Manual that the model is shown: a file, such as `rllib manual` makes, or one that comes with the package; what
    holds for the scenario only (`PlanningGame.scenario`) is added. Empty: the game's own."""


class ManualSettings(Settings):
    """Settings of the making of a manual."""

    batch: int = Field(8, ge=1, le=100)
    """Paragraphs per request (ours)."""
    words: int = Field(400, ge=20, le=5000)
    """Most words of the manual (ours; SAMA does not say); the model is asked to keep it, and a manual of more than
    twice as many is refused."""


@dataclass
class Manual:
    """A manual and how it was made.

    Attributes:
        facts: Its material: facts per question about the game, without repetitions.
        relevant: Indices of those that were relevant.
        repeated: Facts that were left out because they repeat others.
        undecided: Relevant paragraphs that were kept although the last answer about them was neither yes nor no.
        unsorted: Lists of facts of which the model did not name the repetitions in two tries, so that all were kept.
        cost: Counts of the questions for it.
    """

    text: str
    facts: dict[str, list[str]]
    paragraphs: int
    relevant: list[int]
    repeated: int
    undecided: int = 0
    unsorted: int = 0
    cost: ChatCounters = field(default_factory=ChatCounters)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**vars(self), "cost": self.cost.to_json()}


class Repeated(BaseModel):
    """Answer to the question for repetitions; the prompt has its description."""

    model_config = ConfigDict(
        json_schema_extra={"description": "What the model answers when it is asked for repetitions."}
    )

    repeated: list[int] = Field(description="numbers of the facts that can be left out")


def make_manual(
    model: ChatModel,
    paragraphs: Sequence[Paragraph],
    settings: ManualSettings = ManualSettings(),  # noqa: B008
) -> Manual:
    """Makes the manual of a game.

    Args:
        paragraphs: Of papers about the game; see `rllib_llm_comm.sama.manuals.latex.split_latex`.

    Raises:
        UserError: If no paragraph is relevant, none tells anything, the budget is spent or the key is missing.
        ChatError: If a request failed for good, or the model gave no manual in two tries.
    """
    kept_in_doubt: Counter[str] = Counter()
    with count_scope() as cost:
        relevant = relevant_paragraphs(model, paragraphs, settings.batch, kept_in_doubt)
        if not relevant:
            raise UserError(
                f"None of the {len(paragraphs)} paragraphs is about how to play the game, says the chat model; give "
                "the sources of a paper that tells the rules, or another model."
            )
        facts = collect_facts(model, [paragraphs[index] for index in relevant], settings.batch)
        found = sum(map(len, facts.values()))
        if not found:
            raise UserError(
                "The chat model found no facts in the relevant paragraphs; give other sources or another model."
            )
        kept = without_repetitions(model, facts, kept_in_doubt)
        text = summary(model, [fact for group in kept.values() for fact in group], settings.words)
    repeated = found - sum(map(len, kept.values()))
    return Manual(text, kept, len(paragraphs), relevant, repeated, **kept_in_doubt, cost=cost)


def questions(name: str) -> list[str]:
    """The questions of a template file, one a line."""
    return [line for line in template(__package__, name).splitlines() if line.strip()]


def relevant_paragraphs(
    model: ChatModel, paragraphs: Sequence[Paragraph], batch: int = 8, kept_in_doubt: Counter[str] | None = None
) -> list[int]:
    """Numbers of the paragraphs that are of use to a player, by at least one of the questions of relevance.

    An answer that is neither yes nor no keeps the paragraph: a useless one costs little, a lost rule much.

    Args:
        batch: Number that is asked about together.
        kept_in_doubt: Paragraphs kept by an answer that is neither yes nor no are counted here as "undecided".

    Returns:
        Their indices.
    """
    relevant: set[int] = set()
    for question in questions("manual_relevance_questions"):
        # One yes is enough, so the next question is asked only of those that have none yet.
        open_ = [index for index in range(len(paragraphs)) if index not in relevant]
        context = fill(__package__, "manual_relevant", question=question)
        answers = ask_batch(model, [_shown(paragraphs[index]) for index in open_], context=context, size=batch)
        said = {index: read_yes_no(answer) for index, answer in zip(open_, answers, strict=True)}
        relevant |= {index for index, yes in said.items() if yes is not False}
        if kept_in_doubt is not None:
            kept_in_doubt["undecided"] += sum(yes is None for yes in said.values())
    return sorted(relevant)


def collect_facts(model: ChatModel, paragraphs: Sequence[Paragraph], batch: int = 8) -> dict[str, list[str]]:
    """Answers of paragraphs to the questions about the game, one fact per entry, each wording once.

    Args:
        paragraphs: Relevant ones.
        batch: Number that is asked about together.

    Returns:
        Question to facts.
    """
    facts: dict[str, list[str]] = {}
    seen: set[str] = set()

    def ask(question: str) -> list[str]:
        context = fill(__package__, "manual_answer", question=question)
        return ask_batch(model, [_shown(paragraph) for paragraph in paragraphs], context=context, size=batch)

    asked = questions("manual_game_questions")
    for question, answers in zip(asked, side_by_side(ask, asked, concurrent_questions(model)), strict=True):
        facts[question] = []
        for fact in (fact for answer in answers for fact in _lines(answer)):
            if _folded(fact) not in seen:
                seen.add(_folded(fact))
                facts[question].append(fact)
    return facts


def without_repetitions(
    model: ChatModel, facts: dict[str, list[str]], kept_in_doubt: Counter[str] | None = None
) -> dict[str, list[str]]:
    """The facts without those that say no more than another one.

    The model names numbers; it cannot change a fact or add one. If it names too many to believe (all of them, or
    numbers that do not exist, twice), everything is kept.

    Args:
        facts: Question to facts.
        kept_in_doubt: Lists that were kept whole for want of a usable answer are counted here as "unsorted".
    """
    entries = [(question, fact) for question, group in facts.items() for fact in group]
    kept: list[tuple[str, str]] = []
    while entries:
        # The facts kept so far are shown again, as far as it fits, so that facts of different parts meet.
        carried = kept[-_FACTS_AT_ONCE // 2 :]
        part, entries = entries[:_FACTS_AT_ONCE], entries[_FACTS_AT_ONCE:]
        shown = carried + part
        dropped = _repetitions(model, [fact for _, fact in shown])
        if dropped is None:
            dropped = set()
            if kept_in_doubt is not None:
                kept_in_doubt["unsorted"] += 1
        kept = kept[: len(kept) - len(carried)] + [entry for k, entry in enumerate(shown) if k not in dropped]
    return {question: [fact for whose, fact in kept if whose == question] for question in facts}


def _repetitions(model: ChatModel, facts: Sequence[str]) -> set[int] | None:
    """Indices of facts that repeat others; `None` without a usable answer."""
    if len(facts) < 2:
        return set()

    def check(answer: Repeated) -> None:
        strange = [number for number in answer.repeated if not 1 <= number <= len(facts)]
        if strange:
            raise UnusableError(f"there is no fact with the number {strange[0]}; they go from 1 to {len(facts)}")
        if len(set(answer.repeated)) == len(facts):
            raise UnusableError("not all facts can be left out")

    try:
        prompt = fill(__package__, "manual_repeated", facts=_numbered(facts))
        found = ask_for(model, prompt, Repeated, check=check, purpose=MANUAL)
    except AnswerError as error:
        logger.warning("%s All facts are kept.", error)
        return None
    return {number - 1 for number in found.repeated}


def summary(model: ChatModel, facts: Sequence[str], words: int = 400) -> str:
    """A manual made of facts.

    Args:
        words: Most words that the model is asked for.

    Raises:
        AnswerError: If two answers are empty or more than twice as long.
    """

    def read(text: str) -> str:
        length = len(text.split())
        if length == 0:
            raise UnusableError("it is empty")
        if length > 2 * words:
            raise UnusableError(f"it has {length} words but may have {words}")
        return text

    prompt = fill(__package__, "manual_summary", facts=_numbered(facts), words=words)
    with asking_for(MANUAL):
        return ask_checked(model, prompt, read, what="manual")


def _shown(paragraph: Paragraph) -> str:
    return f"(from the section {paragraph.section!r}) {paragraph.text}" if paragraph.section else paragraph.text


def _lines(answer: str) -> list[str]:
    """The facts of an answer, without bullets and numbers."""
    lines = (line.strip().lstrip("-*•").strip() for line in answer.splitlines())
    facts = (line.partition(" ")[2] if line.partition(" ")[0].rstrip(".)").isdigit() else line for line in lines)
    return [fact.strip() for fact in facts if fact.strip().lower().rstrip(".!") not in _NOTHING]


def _folded(fact: str) -> str:
    return " ".join(fact.lower().split()).rstrip(".! ")


def _numbered(facts: Iterable[str]) -> str:
    return "\n".join(f"{number}. {fact}" for number, fact in enumerate(facts, 1))
