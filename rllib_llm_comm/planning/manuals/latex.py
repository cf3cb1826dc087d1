"""From the LaTeX sources of a paper to paragraphs of plain words."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rllib_llm_comm.errors import UserError, did_you_mean
from rllib_llm_comm.planning.manuals.latex_commands import (
    ACCENTS,
    BREAK,
    GREEK,
    HEADINGS,
    SILENT,
    SYMBOLS,
    WITH_ARGUMENTS,
)

LONGEST = 2000
_PAPERS = Path(__file__).with_name("papers")
_FEW_WORDS = 5
_MOST_BYTES = 20 << 20
_MOST_EXPANSIONS = 3
_OPEN, _CLOSE = "\x01", "\x02"  # where a heading begins and ends

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*(?=[^\s]))?")
_BODY = re.compile(r"\\begin\s*\{document\}(.*?)(?:\\end\s*\{document\}|\Z)", re.DOTALL)
_MACRO = re.compile(r"\\(?:re)?newcommand\*?\s*\{?\\([A-Za-z]+)\}?\s*(?=\{)|\\def\s*\\([A-Za-z]+)\s*(?=\{)")
_GONE = ("comment", "thebibliography", "tikzpicture", "filecontents")
_FORMULAS = ("equation", "align", "gather", "multline", "eqnarray", "displaymath", "math")
_PICTURES = ("figure", "wrapfigure", "teaserfigure")
_COMMAND = re.compile(r"\\(?:([A-Za-z@]+)\*?|(.))", re.DOTALL)
_OUTER = re.compile(rf"\\(?:{'|'.join(HEADINGS)}|footnote)\b\*?")
_INPUT = re.compile(r"\\(?:input|include)\s*\{([^{}]+)\}")

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BLANKS = re.compile(r"\s*")
_OPTION = re.compile(r"\[[^\]]{0,300}\]")
_ACCENTED = re.compile(r"\s*(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))")
_CHARACTERS = {"{": "", "}": "", "$": "", "~": " ", "&": " | "}
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
    path = Path(named).expanduser()
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
        text = path.read_bytes().decode("utf-8", "replace")
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
        UserError: If `longest` is not allowed.
    """
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 100:
        raise UserError(f"`longest` is {longest!r} but must be a whole number from 100 up.")
    text = _without_comments(_without_controls(source))
    body = _BODY.search(text)
    text = _with_macros(text, body.group(1) if body else text)
    return _paragraphs(_plain(_without_environments(text)), longest)


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


def _without_environments(text: str) -> str:
    for name in _GONE:
        text = _replaced(text, name, lambda _: "\n\n")
    for name in _FORMULAS:
        text = _replaced(text, name, lambda _: " [formula] ")
    text = re.sub(r"\$\$.*?\$\$|(?<!\\)\\\[.*?(?<!\\)\\\]", " [formula] ", text, flags=re.DOTALL)
    for name in _PICTURES:
        text = _replaced(text, name, _captions)
    return re.sub(r"\\iffalse\b.*?\\fi\b", " ", text, flags=re.DOTALL)


def _replaced(text: str, name: str, by: Callable[[str], str]) -> str:
    """The text with all environments of a name (starred or not) replaced; one that never ends is left as it is."""
    begin, end = re.compile(rf"\\begin\s*\{{{name}\*?\}}"), re.compile(rf"\\end\s*\{{{name}\*?\}}")
    parts, at = [], 0
    while (opened := begin.search(text, at)) and (closed := end.search(text, opened.end())):
        parts += [text[at : opened.start()], by(text[opened.end() : closed.start()])]
        at = closed.end()
    return "".join([*parts, text[at:]])


def _captions(content: str) -> str:
    found, ends = [], _group_ends(content)
    for match in re.finditer(r"\\caption\s*(?:\[[^\]]*\]\s*)?(?=\{)", content):
        found.append(content[match.end() + 1 : ends.get(match.end(), match.end() + 1) - 1])
    return "\n\n" + "\n\n".join(found) + "\n\n"


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


# ---- commands ----------------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    """Commands carried out or dropped; breaks and headings are marked."""
    reader = _Reader(text)
    reader.read()
    return "".join(reader.out).replace("``", '"').replace("''", '"')


def _inner(text: str) -> str:
    """A heading or a footnote in plain words; one inside another is no more than words."""
    return _plain(_OUTER.sub(" ", text))


class _Reader:
    """Goes through LaTeX once, from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.ends = text, _group_ends(text)
        self.at = 0
        self.out: list[str] = []

    def read(self) -> None:
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\\":
                self._command()
            elif character == "\n":
                gap = _BLANKS.match(self.text, self.at)
                assert gap is not None
                self.out.append("\n\n" if gap.group().count("\n") > 1 else " ")
                self.at = gap.end()
            else:
                apart = self.text.startswith("}{", self.at)  # two arguments
                self.out.append(" " if apart else _CHARACTERS.get(character, character))
                self.at += 1

    def _command(self) -> None:
        match = _COMMAND.match(self.text, self.at)
        if match is None:  # a backslash at the very end
            self.at += 1
            return
        word, sign = match.groups()
        self.at = match.end()
        if word is None:
            self._sign(sign)
        elif word in ("begin", "end"):
            name = self._argument()
            self.out.append(BREAK)
            if word == "begin":
                self._skip(WITH_ARGUMENTS.get(name, 0))
        elif word in HEADINGS:
            self._skip(0)
            self.out.append(f"\n\n{_OPEN}{_inner(self._argument())}{_CLOSE}\n\n")
        elif word == "footnote":
            self._skip(0)
            self.out.append(f" ({_inner(self._argument())})")
        elif word in SILENT:
            self._skip(SILENT[word])
        elif word in SYMBOLS or word in GREEK:
            self.out.append(SYMBOLS.get(word, word))
        else:
            self._skip(0)
            self.out.append(BREAK if word == "caption" else "")

    def _sign(self, sign: str) -> None:
        """Commands of one sign: \\%, \\\\, accents."""
        if sign == "\\":
            self.out.append(BREAK)
            self.at += self.text.startswith("*", self.at)
            self._skip(0)
        elif sign in "%&#_${}":
            self.out.append(sign)
        elif sign in ", ;:\n":
            self.out.append(" ")
        elif sign in ACCENTS and (accented := _ACCENTED.match(self.text, self.at)):
            letter = accented.group(1) or accented.group(2)
            self.out.append(unicodedata.normalize("NFC", letter + ACCENTS[sign]))
            self.at = accented.end()

    def _argument(self) -> str:
        """The argument in braces that comes next, or nothing."""
        start = self._behind_blanks()
        if start not in self.ends:
            return ""
        self.at = self.ends[start]
        return self.text[start + 1 : self.at - 1]

    def _skip(self, arguments: int) -> None:
        """Goes on behind options in brackets and so many arguments in braces."""
        while True:
            start = self._behind_blanks()
            if option := _OPTION.match(self.text, start):
                self.at = option.end()
            elif arguments and start in self.ends:
                self.at, arguments = self.ends[start], arguments - 1
            else:
                return

    def _behind_blanks(self) -> int:
        start = self.at
        while start < len(self.text) and self.text[start] in " \t":
            start += 1
        return start


# ---- paragraphs --------------------------------------------------------------------------------------------


def _paragraphs(marked: str, longest: int) -> list[Paragraph]:
    found: list[Paragraph] = []
    section = ""
    for piece in re.split(rf"\n\n|({_OPEN}[^{_CLOSE}]*{_CLOSE})", marked):
        if not piece:
            continue
        if piece.startswith(_OPEN):
            section = _one_line(piece.strip(_OPEN + _CLOSE))[:longest]
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
    line = " ".join(text.replace(_OPEN, " ").replace(_CLOSE, " ").replace(BREAK, " ").split())
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
