"""The adapter between a game and the stages that prepare it for planning: states, code, steps and words for actions.

It is written once for each game, beside its `PlanningGame`, and named in the game's record (`preparation`). The stages
`translate`, `collect_subgoals` and `write_rewards` know games through it and not by name.
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text
from rllib_llm_comm.envs.games import GAMES, GameRecord, game_of, make_env, record_of
from rllib_llm_comm.sama.planning_game import PlanningGame, State, planning_game

# ---- the game's code --------------------------------------------------------------------------------------------


Check = Callable[[str], bool | None]
"""True if a sentence is true of the state; `None` if that cannot be told: `PlanningGame.holds` of a moment."""

LONGEST = 2000
"""Longer pieces of code are cut, in characters."""
_SATURATION, _LENGTH = 1.5, 0.75
_WORD = re.compile(r"[A-Za-z]+|\d+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Piece:
    """A function, a class without its methods, or what stands outside of both.

    Attributes:
        name: Its name, such as "SoupKitchen.step"; the file's name for what stands outside.
        line: First line, counted from 1.
    """

    file: str
    name: str
    line: int
    code: str


def split_code(source: str, file: str = "") -> list[Piece]:
    """The pieces of a Python file, in its order.

    Raises:
        UserError: If it is no Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file!r} is no Python code ({error}); give the source files of the game.") from None
    lines = source.splitlines()
    pieces: list[Piece] = []
    outside = _split(tree.body, lines, file, "", pieces)
    if outside.strip():
        pieces.append(Piece(file, file, 1, outside[:LONGEST]))
    return sorted(pieces, key=lambda piece: piece.line)


def _split(body: Sequence[ast.stmt], lines: Sequence[str], file: str, above: str, pieces: list[Piece]) -> str:
    """Adds the pieces of a body, and gives the text of what belongs to none."""
    rest = []
    for node in body:
        first, last = _lines(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            code = "\n".join(lines[first - 1 : last])
            pieces.append(Piece(file, above + node.name, first, code[:LONGEST]))
        elif isinstance(node, ast.ClassDef):
            head = "\n".join(lines[first - 1 : _lines(node.body[0])[0] - 1])
            inside = _split(node.body, lines, file, f"{above}{node.name}.", pieces)
            pieces.append(Piece(file, above + node.name, first, f"{head}\n{inside}"[:LONGEST]))
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            rest.append("\n".join(lines[first - 1 : last]))
    return "\n".join(rest)


def _lines(node: ast.stmt) -> tuple[int, int]:
    """First and last line, decorators included."""
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    return min([node.lineno, *decorators]), node.end_lineno or node.lineno


class CodeIndex:
    """Finds the pieces that a question is about, by BM25 (Robertson and Zaragoza 2009; bm25s) over their words.

    Names are split at underscores and capitals, so that "cook time" finds `COOK_TIME`.

    Args:
        pieces: Pieces that can be found.

    Raises:
        UserError: If there is nothing.
    """

    def __init__(self, pieces: Iterable[Piece]) -> None:
        import bm25s  # with numba and scipy, which no command needs that only names a planner

        self.pieces = list(pieces)
        texts = [words(f"{piece.name} {piece.code}") for piece in self.pieces]
        if not any(texts):
            raise UserError("There is no code to look in; give the source files of the game.")

        self._ranks = bm25s.BM25(method="lucene", k1=_SATURATION, b=_LENGTH)
        self._ranks.index(texts, show_progress=False)

    @classmethod
    def of_files(cls, files: Iterable[Path]) -> CodeIndex:
        """The index of Python files.

        Raises:
            UserError: If one is missing or no Python.
        """
        pieces: list[Piece] = []
        for path in files:
            try:
                pieces += split_code(read_text(path), path.name)
            except (OSError, UnicodeDecodeError) as error:
                raise UserError(f"{str(path)!r} cannot be read ({error}); give the source files of the game.") from None
        return cls(pieces)

    def search(self, question: str, count: int = 5) -> list[Piece]:
        """The pieces that fit a question best, the best first; those that share no word with it are left out."""
        known = sorted(self._ranks.vocab_dict.keys() & set(words(question)))
        if not known:
            return []
        scores = self._ranks.get_scores(known)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.pieces[number] for number in order if scores[number] > 0]

    def shown(self, question: str, count: int) -> str:
        """What `search` finds, as a prompt shows it."""
        return "\n\n".join(f"# {piece.file}: {piece.name}\n{piece.code}" for piece in self.search(question, count))


def words(text: str) -> list[str]:
    """The words of a text or of code, in lower case; names are split into theirs."""
    return [part.lower() for word in _WORD.findall(text) for part in _PARTS.findall(word)]


# ---- the game ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transition:
    """One step of a game: the moments before and after it, and both as plain values."""

    before: State
    after: State
    plain_before: Mapping[str, Any]
    plain_after: Mapping[str, Any]


class GamePreparation(ABC):
    """Shows one game to the stages that prepare it. Texts are parts of sentences in the stages' questions.

    Args:
        game: The game as planners know it; it is left in the states that are drawn or put.

    Attributes:
        to_tell: Content of a translator's sentences, as an imperative sentence.
        to_leave: Things that a translator leaves out, as a list in words.
        course: The course of a game from its start to its end, in words.
        form: Form of proposed states, with the list `states`; `None` if a model cannot propose states of this game.
    """

    to_tell: ClassVar[str] = "Say all that the team needs to choose what to do next."
    to_leave: ClassVar[str] = "counts of steps"
    course: ClassVar[str] = "from its start to its end"
    form: ClassVar[type[BaseModel] | None] = None

    def __init__(self, game: PlanningGame) -> None:
        self.game = game

    @abstractmethod
    def code(self) -> CodeIndex:
        """The game's code, to search in."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> State:
        """A random legal state."""

    @abstractmethod
    def steps(self, number: int, seed: int = 0) -> Iterator[Transition]:
        """Steps of games in which many subgoals are done, to compare tests of subgoals in."""

    # ---- states that a model proposes --------------------------------------------------------------------

    def parts(self) -> str:
        """The parts of a situation, and what each can be."""
        raise NotImplementedError

    def impossible(self, proposed: Any) -> str:
        """Reason against a proposed state; empty if it is possible."""
        raise NotImplementedError

    def put(self, proposed: Any, rng: np.random.Generator) -> State:
        """The state that was proposed; what it leaves open is drawn."""
        raise NotImplementedError

    # ---- actions -----------------------------------------------------------------------------------------

    def actions(self, state: State, agent: str) -> Mapping[str, Check]:
        """An agent's actions as the code names them, each with the check of words for it; none: they are words."""
        return {}

    def beside(self, state: State, agent: str) -> Mapping[str, str]:
        """The places on the sides of an agent, for states without a map."""
        return {}

    # ---- data sets ---------------------------------------------------------------------------------------

    def origin(self) -> dict[str, Any]:
        """The game and its scenario, JSON-able, as a data set of subgoals tells them."""
        env = self.game.env.unwrapped
        return {"game": {"env": env.env_id, "settings": dict(env.settings)}}


def prepared_games() -> list[str]:
    """Names of the games that have a preparation."""
    return [name for name, record in GAMES.items() if record.preparation]


def preparation_of(game: PlanningGame) -> GamePreparation:
    """The preparation of a game.

    Raises:
        UserError: If it has none.
    """
    env = game.env.unwrapped
    return _preparation(game_of(env), type(env).__name__)(game)


def preparation_class(env: str) -> type[GamePreparation]:
    """The preparation of the game of an environment.

    Raises:
        UserError: If its game has none.
    """
    return _preparation(record_of(env), env, f"`env` is {env!r}, but no")


def _preparation(record: GameRecord | None, name: str, begin: str = "No") -> type[GamePreparation]:
    """The preparation that a game's record names; `name` tells a game without a record."""
    if record is None or not record.preparation:
        raise UserError(
            f"{begin} language model can prepare the game {record.name if record else name!r}, only "
            f"{', '.join(prepared_games())}; use one of these, or write a `GamePreparation` for it and name it in the "
            "game's record (`preparation`)."
        )
    found: type[GamePreparation] = record.code("preparation")
    return found


def played_with(env: str) -> Mapping[str, Any]:
    """The settings with which subgoals can be followed in the game of an environment; empty where none is known."""
    record = record_of(env)
    found: Mapping[str, Any] = record.code("planning").played_with if record is not None and record.planning else {}
    return found


def open_game(env: str, settings: Mapping[str, Any], seed: int = 0) -> PlanningGame:
    """A game at its start, with the settings with which subgoals can be followed unless others are given.

    Raises:
        UserError: If there is no such environment, planners do not know its game, or a setting is not allowed.
    """
    if record_of(env) is not None:
        preparation_class(env)  # before an environment is made with the settings of a player that there is not
    made = make_env(env, **{**played_with(env), **settings})
    made.reset(seed=seed)
    game = planning_game(made)
    preparation_of(game)
    return game
