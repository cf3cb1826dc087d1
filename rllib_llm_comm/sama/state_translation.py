"""States in words by a chat model that reads the game's code, each sentence checked against the true state.

SAMA (Section 3.1) has states translated by retrieval over the code, and nothing checks what comes out. Here the game's
own checker does: what it disproves is thrown away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.purposes import TRANSLATION
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.sama.code_index import CodeIndex

_SENTENCE = re.compile(r"(?<=[.!?])\s+")

Check = Callable[[str], bool | None]
"""True if a sentence is true of the state; `None` if that cannot be told: `PlanningGame.holds` of a moment."""


class Sentences(BaseModel):
    """A state in words."""

    sentences: list[str] = Field(min_length=1, max_length=80)


class Checked:
    """Words that a checker has sorted into true, false and unclear ones."""

    true: Sized
    false: Sized
    unclear: Sized

    @property
    def precision(self) -> float:
        """Share of the true ones among those that are true or false; 1 if there are none."""
        judged = len(self.true) + len(self.false)
        return len(self.true) / judged if judged else 1.0

    @property
    def judged(self) -> float:
        """Share of the words of which the checker could tell; 1 if there are none."""
        total = len(self.true) + len(self.false) + len(self.unclear)
        return 1 - len(self.unclear) / total if total else 1.0


@dataclass(frozen=True)
class Translation(Checked):
    """A state in words, and what became of each sentence.

    Attributes:
        true: Sentences that the checker proved.
        false: Sentences that it disproved: thrown away.
        unclear: Sentences of which it cannot tell.
    """

    true: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)

    def text(self, unclear: bool = False) -> str:
        """Sentences that can be passed on, as one text.

        Args:
            unclear: Whether sentences that could not be checked are told on as well.
        """
        return " ".join([*self.true, *(self.unclear if unclear else [])])

    def __add__(self, other: Translation) -> Translation:
        """The sentences of both, for the precision over many states."""
        return Translation(self.true + other.true, self.false + other.false, self.unclear + other.unclear)


def translate(
    model: ChatModel,
    index: CodeIndex,
    state: Mapping[str, Any],
    check: Check,
    *,
    manual: str = "",
    pieces: int = 5,
) -> Translation:
    """Puts a state into words.

    Args:
        model: The chat model.
        index: The game's code.
        state: The state as plain values.
        check: The game's checker for this state.
        manual: The game in words.
        pieces: Number of pieces of code that the model is shown.

    Raises:
        ChatError: If a request failed for good, or both answers have not the right form.
        UserError: If the budget is spent or the key is missing.
    """
    shown = json.dumps(state)
    code = "\n\n".join(f"# {piece.file}: {piece.name}\n{piece.code}" for piece in index.search(shown, pieces))
    prompt = fill(__package__, "translate_state", manual=manual or "It is told nowhere.", code=code, state=shown)
    return checked(ask_for(model, prompt, Sentences, purpose=TRANSLATION).sentences, check)


def checked(sentences: Sequence[str], check: Check) -> Translation:
    """Sorts sentences by what the checker says of them; one that is said twice counts once.

    Args:
        sentences: One or more sentences each.
        check: The checker.
    """
    found = Translation()
    single = [part.strip() for text in sentences for part in _SENTENCE.split(text) if part.strip()]
    for sentence in dict.fromkeys(single):
        truth = check(sentence)
        (found.unclear if truth is None else found.true if truth else found.false).append(sentence)
    return found
