"""Translators: code that a chat model writes once, which puts every state of a game into words for planners.

SAMA (Section 3.1) asks its model to translate states with the help of the game's code. Here the model writes the
translation down as a Python function (ours), so that each state of a game can be told without another question. The
code runs in the sandbox of reward code, and the game's own checker throws away sentences that are false.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rllib_llm_comm.chat.answers import UnusableError, ask_checked
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.purposes import TRANSLATION, asking_for
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.sama.code_index import CodeIndex
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.preparation import preparation_of
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError, Sandbox, shared_sandbox

TRANSLATOR = "translator"
_FORMAT = 1
_MOST_BYTES = 2**24
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Told:
    """A state in a translator's words.

    Attributes:
        true: Sentences that the game's checker proved.
        false: Sentences that it disproved; planners do not see them.
        unclear: Sentences of which it cannot tell; planners see them.
    """

    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()

    def __add__(self, other: Told) -> Told:
        """The sentences of both."""
        return Told(self.true + other.true, self.false + other.false, self.unclear + other.unclear)


@dataclass(frozen=True)
class Translator:
    """A translation of states as code.

    Attributes:
        source: Python code with a function `translate(state)`, which gets `PlanningGame.plain` and returns sentences.
        sandbox: Its sandbox; by default the one that all code of this process shares.
    """

    source: str
    sandbox: Sandbox = field(default_factory=shared_sandbox, compare=False, repr=False)

    def told(self, game: PlanningGame, state: State) -> Told:
        """A state in words, each sentence checked.

        Args:
            game: The game.
            state: The state.

        Raises:
            RefusedCodeError: If the code runs into a limit, fails, or returns anything but sentences.
        """
        found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
        for sentence in dict.fromkeys(self.sandbox.translate(self.source, game.plain(state))):
            found[game.holds(state, sentence)].append(sentence)
        return Told(tuple(found[True]), tuple(found[False]), tuple(found[None]))

    def words(self, game: PlanningGame, state: State) -> str:
        """A state in words for planners: all that the code says and that is not false, in its order.

        Args:
            game: The game.
            state: The state.

        Raises:
            RefusedCodeError: As of `told`.
        """
        told = self.told(game, state)
        kept = {*told.true, *told.unclear}
        return " ".join(one for one in self.sandbox.translate(self.source, game.plain(state)) if one in kept)


def write_translator(
    model: ChatModel,
    game: PlanningGame,
    states: Sequence[State],
    index: CodeIndex,
    *,
    manual: str,
    pieces: int = 1,
    sandbox: Sandbox | None = None,
) -> Translator:
    """Lets a chat model write a translator, and once more if it is refused or says something false.

    Args:
        model: The chat model.
        game: The game.
        states: States in which the code is tried, at least one; the first is shown.
        index: The game's code.
        manual: The game in words.
        pieces: Pieces of code that the model is shown.
        sandbox: Sandbox of the code.

    Raises:
        AnswerError: If both answers are refused.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    place = sandbox or shared_sandbox()
    shown = json.dumps(game.plain(states[0]))

    def read(text: str) -> Translator:
        blocks = _FENCE.findall(text)
        made = Translator((blocks[0] if blocks else text).strip(), place)
        for state in states:
            try:
                false = made.told(game, state).false
            except RefusedCodeError as error:
                raise UnusableError(f"{error.reason} for the state {json.dumps(game.plain(state))}") from None
            if false:
                raise UnusableError(f"it says {false[0]!r} of the state {json.dumps(game.plain(state))}")
        return made

    code = "\n\n".join(f"# {piece.file}: {piece.name}\n{piece.code}" for piece in index.search(shown, pieces))
    how = preparation_of(game)
    prompt = fill(
        __package__, "translator", manual=manual, code=code, state=shown, tell=how.to_tell, leave=how.to_leave
    )
    with asking_for(TRANSLATION):
        return ask_checked(model, prompt, read, what="translator")


def to_json(translator: Translator, **more: Any) -> str:
    """A translator as the text of a file.

    Args:
        translator: The translator.
        **more: Figures and texts that are kept beside it.
    """
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
