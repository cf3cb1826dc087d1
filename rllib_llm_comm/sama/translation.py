"""States and actions in the words of a chat model that reads the game's code, checked against the game.

SAMA (Section 3.1) translates by retrieval over the code, and nothing checks what comes out. Here the game's own checker
throws away what is false. A `Translator` is code that the model writes once (ours), so that each state can be told
without another question; it runs in the sandbox of reward code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field, create_model

from rllib_llm_comm.chat.answers import UnusableError, ask_checked, ask_for
from rllib_llm_comm.chat.chat_model import TRANSLATION, ChatModel, asking_for
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.sama.planning_game import OURS, PlanningGame, State, worded
from rllib_llm_comm.sama.preparation import Check, CodeIndex, preparation_of
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError, Sandbox, code_of, shared_sandbox

_UNTOLD = "It is told nowhere."
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


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
        state: The state as plain values.
        check: The game's checker for this state.
        manual: The game in words.
        pieces: Number of pieces of code that the model is shown.

    Raises:
        ChatError: If a request failed for good, or both answers have not the right form.
        UserError: If the budget is spent or the key is missing.
    """
    shown = json.dumps(state)
    told = {"manual": manual or _UNTOLD, "code": index.shown(shown, pieces), "state": shown}
    prompt = fill(__package__, "translate_state", **told)
    return checked(ask_for(model, prompt, Sentences, purpose=TRANSLATION).sentences, check)


def checked(sentences: Sequence[str], check: Check) -> Translation:
    """Sorts sentences by what the checker says of them; one that is said twice counts once."""
    single = [part.strip() for text in sentences for part in _SENTENCE.split(text) if part.strip()]
    return sorted_by(single, check)


def sorted_by(sentences: Iterable[str], check: Check) -> Translation:
    """Sentences by what a checker says of them; one that is said twice counts once."""
    found = Translation()
    for sentence in dict.fromkeys(sentences):
        truth = check(sentence)
        (found.unclear if truth is None else found.true if truth else found.false).append(sentence)
    return found


TRANSLATOR = "translator"
_FORMAT = 1
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class Translator:
    """A translation of states as code.

    Attributes:
        source: Python code with a function `translate(state)`, which gets `PlanningGame.plain` and returns sentences.
        sandbox: Its sandbox; by default the one that all code of this process shares.
    """

    source: str
    sandbox: Sandbox = field(default_factory=shared_sandbox, compare=False, repr=False)

    def told(self, game: PlanningGame, state: State) -> Translation:
        """A state in words, each sentence checked.

        Raises:
            RefusedCodeError: If the code runs into a limit, fails, or returns anything but sentences.
        """
        said = self.sandbox.translate(self.source, game.plain(state))
        return sorted_by(said, lambda sentence: game.holds(state, sentence))

    def words(self, game: PlanningGame, state: State) -> str:
        """A state in words for planners: all that the code says and that is not false, in its order.

        Raises:
            RefusedCodeError: As of `told`.
        """
        said = self.sandbox.translate(self.source, game.plain(state))
        false = sorted_by(said, lambda sentence: game.holds(state, sentence)).false
        return " ".join(one for one in said if one not in false)


def write_translator(
    model: ChatModel,
    game: PlanningGame,
    states: Sequence[State],
    index: CodeIndex,
    *,
    manual: str,
    pieces: int = 1,
    prompts: str = OURS,
) -> Translator:
    """Lets a chat model write a translator, and once more if it is refused or says something false.

    Args:
        states: States in which the code is tried, at least one; the first is shown.
        manual: The game in words.
        pieces: Pieces of code that the model is shown.
        prompts: As of `PromptsOf`.

    Raises:
        AnswerError: If both answers are refused.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    shown = json.dumps(game.plain(states[0]))

    def read(text: str) -> Translator:
        made = Translator(code_of(text).strip())
        for state in states:
            try:
                false = made.told(game, state).false
            except RefusedCodeError as error:
                raise UnusableError(f"{error.reason} for the state {json.dumps(game.plain(state))}") from None
            if false:
                raise UnusableError(f"it says {false[0]!r} of the state {json.dumps(game.plain(state))}")
        return made

    how = preparation_of(game)
    told = {"manual": manual, "code": index.shown(shown, pieces), "state": shown}
    prompt = fill(__package__, worded(prompts, "translator"), **told, tell=how.to_tell, leave=how.to_leave)
    with asking_for(TRANSLATION):
        return ask_checked(model, prompt, read, what="translator")


def to_json(translator: Translator, **more: Any) -> str:
    """A translator as the text of a file."""
    record = {"translator": TRANSLATOR, "format": _FORMAT, "source": translator.source, **more}
    return json.dumps(record, indent=1) + "\n"


def read_translator(path: str | os.PathLike[str]) -> Translator:
    """The translator of a file.

    Args:
        path: A file that a stage `run: translate` wrote.

    Raises:
        UserError: If there is no such file or it holds no translator.
    """
    named = f"`translation` is {str(path)!r}"
    made_by = "make one with a stage `run: translate`"
    file = local_path(path, "translation")
    try:
        record = read_foreign_json(file, _MOST_BYTES)
        if record["translator"] != TRANSLATOR or record["format"] != _FORMAT:
            raise ValueError("another format")
        return Translator(str(record["source"]))
    except OSError as error:
        raise UserError(f"{named}, which cannot be read ({error.strerror}); {made_by}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{named}, which holds no translator ({type(error).__name__}); {made_by}.") from error


@dataclass(frozen=True)
class ActionWords(Checked):
    """Words for the effects of actions, sorted by the result of their check.

    Attributes:
        true: Action to words that say what it does.
        false: Words that say something else: thrown away.
        unclear: Words of which it cannot be told.
    """

    true: dict[str, str] = field(default_factory=dict)
    false: dict[str, str] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)


def translate_actions(
    model: ChatModel,
    index: CodeIndex,
    state: Mapping[str, Any],
    agent: str,
    actions: Mapping[str, Check],
    *,
    manual: str = "",
    beside: Mapping[str, str] | None = None,
    pieces: int = 5,
) -> ActionWords:
    """Puts into words what the actions of an agent would do.

    Args:
        state: The state as plain values.
        actions: Each action as the code names it, and the game's check of it; at least one.
        manual: The game in words.
        beside: Things on each side of the agent, for states without a map.
        pieces: Number of pieces of code that the model is shown.

    Raises:
        ChatError: If a request failed for good, or both answers have not the right form.
        UserError: If the budget is spent or the key is missing.
    """
    shown, named = json.dumps(state), list(actions)
    prompt = fill(
        __package__,
        "translate_actions",
        manual=manual or _UNTOLD,
        code=index.shown(f"{' '.join(named)} {agent} action effect interact", pieces),
        state=shown,
        beside=f"Beside {agent}: {', '.join(f'{way} {place}' for way, place in beside.items())}\n" if beside else "",
        agent=agent,
        actions="\n".join(f"{number}. {action}" for number, action in enumerate(named, 1)),
        count=len(named),
    )
    effects: Any = (list[str], Field(min_length=len(named), max_length=len(named)))
    form: type[BaseModel] = create_model("Effects", effects=effects)
    said: list[str] = ask_for(model, prompt, form, purpose=TRANSLATION).model_dump()["effects"]
    sorted_: dict[bool | None, dict[str, str]] = {True: {}, False: {}, None: {}}
    for action, words in zip(named, said, strict=True):
        sorted_[actions[action](words)][action] = words
    return ActionWords(sorted_[True], sorted_[False], sorted_[None])
