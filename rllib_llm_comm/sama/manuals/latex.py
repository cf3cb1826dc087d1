"""From the LaTeX sources of a paper to paragraphs of plain words."""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from rllib_llm_comm.core.errors import UserError, did_you_mean
from rllib_llm_comm.core.files import read_regular
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.sama.manuals.latex_words import BREAK, CLOSE, OPEN, plain_words

LONGEST = 2000
_PAPERS = Path(__file__).with_name("papers")
_FEW_WORDS = 5
_MOST_BYTES = 20 << 20
_MOST_EXPANSIONS = 3

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*(?=[^\s]))?")
_BODY = re.compile(r"\\begin\s*\{document\}(.*?)(?:\\end\s*\{document\}|\Z)", re.DOTALL)
_MACRO = re.compile(r"\\(?:re)?newcommand\*?\s*\{?\\([A-Za-z]+)\}?\s*(?=\{)|\\def\s*\\([A-Za-z]+)\s*(?=\{)")
_GONE = re.compile(
    r"\\begin\s*\{(comment|thebibliography|tikzpicture|filecontents)\*?\}.*?\\end\s*\{\1\*?\}|\\iffalse\b.*?\\fi\b",
    re.DOTALL,
)
_INPUT = re.compile(r"\\(?:input|include)\s*\{([^{}]+)\}")

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")


@dataclass(frozen=True)
class Paragraph:
    """A piece of a paper.

    Attributes:
        section: The heading above it, or the empty string.
        text: Plain words; lines only where the paper has items of a list or rows of a table.
    """

    section: str
    text: str


def papers() -> list[str]:
    """The names of the descriptions of games in LaTeX that come with the package."""
    return sorted(path.stem for path in _PAPERS.glob("*.tex"))


def find_paper(named: str | os.PathLike[str]) -> Path:
    """A paper's path from a setting: a file, or the name of one that comes with the package.

    Args:
        named: The setting.

    Raises:
        UserError: If it is neither.
    """
    path = local_path(named, "paper")
    if path.is_file():
        return path
    if str(named) in papers():
        return _PAPERS / f"{named}.tex"
    raise UserError(
        f"The paper {str(named)!r} is no file and none of {', '.join(papers())}, which come with the package; correct "
        f"it.{did_you_mean(str(named), papers())}"
    )


def read_latex(path: str | Path) -> str:
    r"""A LaTeX file with what it takes in by \input and \include.

    Args:
        path: The main file. Files that it names are looked for in its folder and below; those that are missing there,
            or lie elsewhere, are left out.

    Raises:
        UserError: If the file cannot be read.
    """
    main = Path(path)
    return _read(main, main.parent.resolve(), set())


def _read(path: Path, folder: Path, seen: set[Path]) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{str(path)!r} is larger than {_MOST_BYTES >> 20} MiB, which no paper's source is.")
        text = read_regular(path).decode("utf-8-sig", "replace")
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read ({error.strerror}); correct the path.") from error
    seen.add(path.resolve())

    def taken_in(match: re.Match[str]) -> str:
        name = match.group(1).strip()
        for candidate in (folder / name, folder / f"{name}.tex"):
            inner = candidate.resolve()
            if inner.is_file() and inner.is_relative_to(folder) and inner not in seen:
                return _read(inner, folder, seen)
        return ""

    return _INPUT.sub(taken_in, _without_comments(text))


def split_latex(source: str, longest: int = LONGEST) -> list[Paragraph]:
    """The paragraphs of a paper in plain words.

    Comments, the preamble, the bibliography, drawings, citations and references go; of figures the captions stay, of
    tables the rows, with " | " between the cells; displayed formulas become "[formula]". Of commands that are not
    known the arguments stay. Any text is taken, also half a document.

    Args:
        source: LaTeX.
        longest: Most characters of a paragraph, >= 100; longer ones are cut, between sentences if possible.

    Raises:
        UserError: If `longest` is not allowed, or commands are nested too deeply.
    """
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 100:
        raise UserError(f"`longest` is {longest!r} but must be a whole number from 100 up.")
    text = _without_comments(_without_controls(source))
    body = _BODY.search(text)
    text = _GONE.sub("\n\n", _with_macros(text, body.group(1) if body else text))
    # Words of different arguments of an unknown command stay apart.
    return _paragraphs(plain_words(text.replace("}{", "} {")), longest)


def _without_controls(text: str) -> str:
    """Line ends as \\n, no other control characters: some mark places later."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else " " for c in lines)


def _without_comments(text: str) -> str:
    # A comment takes the end of its line with it, unless the next line is empty: then the paragraph ends there.
    return _COMMENT.sub(r"\1", text)


def _with_macros(text: str, body: str) -> str:
    """The body with the paper's own short commands (those without arguments) written out."""
    macros: dict[str, str] = {}
    ends = _group_ends(text)
    for match in _MACRO.finditer(text):
        end = ends.get(match.end(), match.end() + 1)
        macros[match.group(1) or match.group(2)] = text[match.end() + 1 : end - 1]
        body = body.replace(text[match.start() : end], "")
    macros = {name: meaning for name, meaning in macros.items() if "#" not in meaning and len(meaning) <= 200}
    if not macros:
        return body
    names = re.compile(rf"\\({'|'.join(sorted(macros, key=len, reverse=True))})(?![A-Za-z])([ \t]*)")

    def written_out(match: re.Match[str]) -> str:
        meaning = macros[match.group(1)]
        # TeX takes the blanks behind a command away, unless it says \xspace.
        return f"{{{meaning}}}{match.group(2) if 'xspace' in meaning else ''}"

    for _ in range(_MOST_EXPANSIONS):
        body = names.sub(written_out, body)
    return body


def _group_ends(text: str) -> dict[int, int]:
    """The place of each opening brace that is closed, and the place behind the brace that closes it."""
    ends: dict[int, int] = {}
    open_: list[int] = []
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            open_.append(match.start())
        elif match.group() == "}" and open_:
            ends[open_.pop()] = match.end()
    return ends


# ---- paragraphs --------------------------------------------------------------------------------------------


def _paragraphs(marked: str, longest: int) -> list[Paragraph]:
    found: list[Paragraph] = []
    section = ""
    for piece in re.split(rf"\n\s*\n|({OPEN}[^{CLOSE}]*{CLOSE})", marked):
        if not piece:
            continue
        if piece.startswith(OPEN):
            section = _one_line(piece.strip(OPEN + CLOSE))[:longest]
            continue
        text = "\n".join(line for part in piece.split(BREAK) if (line := _one_line(part)))
        if not re.search(r"\w", text):
            continue
        last = found[-1] if found else None
        # Text that says nothing on its own: a few words, and the list that "... the following:" speaks of.
        belongs = len(text.split()) < _FEW_WORDS or (text.startswith("- ") and last and last.text.endswith(":"))
        if belongs and last and last.section == section and len(last.text) + len(text) < longest:
            found[-1] = Paragraph(section, f"{last.text}\n{text}")
        else:
            found += [Paragraph(section, part) for part in _cut(text, longest)]
    return found


def _one_line(text: str) -> str:
    line = " ".join(text.replace(OPEN, " ").replace(CLOSE, " ").replace(BREAK, " ").split())
    line = re.sub(r" +([.,;:!?)])(?!\.)", r"\1", line).replace("( ", "(").replace("()", "")
    return re.sub(r"^(?:\| ?)*(?=\| )\| | \|(?: ?\|)*$|^\|$", "", line).strip()  # empty cells at both ends


def _cut(text: str, longest: int) -> list[str]:
    """A text in parts of bounded length: between lines or sentences, else between words, else anywhere."""
    parts: list[str] = []
    rest = text
    while len(rest) > longest:
        head = rest[: longest + 1]
        ends = [head.rfind("\n"), *(match.start() for match in _SENTENCE_END.finditer(head))]
        at = max(ends) if max(ends) > 0 else head.rfind(" ")
        at = at if at > 0 else longest
        parts.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*parts, rest] if rest else parts
