"""The code of a game as a searchable collection: one piece per function or class, found by the words in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import bm25s
import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text

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
        file: Name of its file.
        name: Its name, such as "Kitchen.step"; the file's name for what stands outside.
        line: First line, counted from 1.
        code: Its text.
    """

    file: str
    name: str
    line: int
    code: str


def split_code(source: str, file: str = "") -> list[Piece]:
    """The pieces of a Python file, in its order.

    Args:
        source: Its text.
        file: Its name.

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
        self.pieces = list(pieces)
        texts = [words(f"{piece.name} {piece.code}") for piece in self.pieces]
        if not any(texts):
            raise UserError("There is no code to look in; give the source files of the game.")

        self._ranks = bm25s.BM25(method="lucene", k1=_SATURATION, b=_LENGTH)
        self._ranks.index(texts, show_progress=False)

    @classmethod
    def of_files(cls, files: Iterable[Path]) -> CodeIndex:
        """The index of Python files.

        Args:
            files: Their paths.

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
        """The pieces that fit a question best, the best first; those that share no word with it are left out.

        Args:
            question: Any words.
            count: Largest number.
        """
        known = sorted(self._ranks.vocab_dict.keys() & set(words(question)))
        if not known:
            return []
        scores = self._ranks.get_scores(known)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.pieces[number] for number in order if scores[number] > 0]


def words(text: str) -> list[str]:
    """The words of a text or of code, in lower case; names are split into theirs.

    Args:
        text: The text.
    """
    return [part.lower() for word in _WORD.findall(text) for part in _PARTS.findall(word)]
