"""From the LaTeX sources of a paper to paragraphs of plain words; pylatexenc reads them."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexMacroNode, LatexWalker, get_default_latex_context_db
from pylatexenc.macrospec import std_environment, std_macro

from rllib_llm_comm.core.errors import UserError, did_you_mean, require_whole
from rllib_llm_comm.core.files import read_regular
from rllib_llm_comm.core.places import local_path

BREAK = "\x00"
"""Marks a line break inside a paragraph."""
OPEN, CLOSE = "\x01", "\x02"
"""Mark the place where a heading begins, and the place where it ends."""

_HEADINGS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
_BREAKS = ("\\", "newline", "tabularnewline")
_NO_WORDS = (
    "cite", "citep", "citet", "citealp", "citealt", "citeauthor", "citeyear", "parencite", "textcite", "autocite",
    "footcite", "nocite", "label", "ref", "eqref", "pageref", "cref", "Cref", "autoref", "includegraphics", "vspace",
    "hspace", "vskip", "hskip", "input", "include", "bibliography", "bibliographystyle", "usepackage", "documentclass",
    "pagestyle", "thispagestyle", "cline", "cmidrule", "rowcolor", "cellcolor", "color", "textcolor", "url", "author",
    "affiliation", "email", "date", "thanks", "graphicspath", "hypersetup", "phantom", "vphantom", "hphantom", "index",
    "glossary", "addbibresource", "captionsetup", "href",
)  # fmt: skip
_NO_WORDS_IN_TWO = (
    "setlength", "addtolength", "setcounter", "addtocounter", "rule", "newcommand", "renewcommand", "providecommand",
    "DeclareMathOperator", "newtheorem", "multicolumn", "multirow", "resizebox",
)  # fmt: skip
# Commands whose first arguments say nothing to a reader, with the number of these; what follows them stays.
_SILENT = {
    **dict.fromkeys(("maketitle", "today"), 0),
    **dict.fromkeys(_NO_WORDS, 1),
    **dict.fromkeys(_NO_WORDS_IN_TWO, 2),
}
_FORMULAS = ("equation", "align", "gather", "multline", "eqnarray", "displaymath", "math")
_PICTURES = ("figure", "wrapfigure", "teaserfigure")
# Environments of which the first arguments say nothing, with the number of these.
_WITH_ARGUMENTS = {
    **dict.fromkeys(("tabular", "array", "longtable", "minipage", "multicols", "adjustbox", "wraptable"), 1),
    **dict.fromkeys(("tabular*", "tabularx"), 2),
    **dict.fromkeys(("itemize", "enumerate", "description", "table", "table*"), 0),
    **{name + star: 0 for name in (*_FORMULAS, *_PICTURES) for star in ("", "*")},
}
_SIGNS = {"&": " | ", "~": " ", "``": '"', "''": '"', "--": "--", "---": "---"}
# Spaces that stand in the source stay, also where TeX takes them away.
_SPACES = {"between-macro-and-chars": False, "between-latex-constructs": True, "after-comment": False}


def plain_words(text: str) -> str:
    """A text in plain words, with its headings between `OPEN` and `CLOSE`, its lines at `BREAK`.

    Raises:
        UserError: If it is nested too deeply to be read.
    """
    try:
        nodes, _, _ = LatexWalker(text, latex_context=_commands(), tolerant_parsing=True).get_latex_nodes()
        words: str = _Words(strict_latex_spaces=_SPACES).nodelist_to_text(nodes)
    except RecursionError:
        raise UserError(
            "The LaTeX is nested deeper than any paper is, such as by braces that nobody closes; mend or shorten it."
        ) from None
    return words


def _commands() -> Any:
    """The commands with their arguments: pylatexenc's, and ours."""
    known = get_default_latex_context_db()
    macros = [std_macro(name, "*[[" + "{" * arguments) for name, arguments in _SILENT.items()]
    macros += [std_macro(name, "*[{") for name in (*_HEADINGS, "footnote", "caption", "title")]
    environments = [std_environment(name, "[" + "{" * arguments) for name, arguments in _WITH_ARGUMENTS.items()]
    known.add_context_category("papers", macros=macros, environments=environments, prepend=True)
    known.set_unknown_macro_spec(std_macro("", "*["))
    return known


class _Words(LatexNodes2Text):
    def macro_node_to_text(self, node: Any) -> str:
        name = node.macroname
        if name in _SILENT:
            return ""
        if name in _BREAKS:
            return BREAK
        if name in _HEADINGS:
            return f"\n\n{OPEN}{self._last(node)}{CLOSE}\n\n"
        if name == "footnote":
            return f" ({self._last(node)})"
        if name in ("caption", "title"):
            return f"{BREAK}{self._last(node)}"
        if name == "item":
            return f"{BREAK}- {self._last(node)} "
        if self.latex_context.get_macro_spec(name) in (None, self.latex_context.unknown_macro_spec):
            return _verbatim(node) + " ".join(map(self.node_to_text, _arguments(node, braced=True)))
        words: str = super().macro_node_to_text(node)
        return words

    def environment_node_to_text(self, node: Any) -> str:
        name = node.environmentname.rstrip("*")
        if name in _FORMULAS:
            return " [formula] "
        if name in _PICTURES:
            found = [self._last(caption) for caption in _captions(node.nodelist)]
            return "\n\n".join(("", *found, ""))
        return f"{BREAK}{_verbatim(node)}{self.nodelist_to_text(node.nodelist)}{BREAK}"

    def math_node_to_text(self, node: Any) -> str:
        words: str = " [formula] " if node.displaytype == "display" else self.nodelist_to_text(node.nodelist)
        return words

    def specials_node_to_text(self, node: Any) -> str:
        words: str = _SIGNS.get(node.specials_chars) or super().specials_node_to_text(node)
        return words

    def _last(self, node: Any) -> str:
        return self.nodelist_to_text(_arguments(node)[-1:])


def _arguments(node: Any, braced: bool = False) -> list[Any]:
    """The arguments that are given: all, or those in braces."""
    given = [one for one in (node.nodeargd.argnlist if node.nodeargd else ()) if one is not None]
    return [one for one in given if not braced or one.latex_verbatim().startswith("{")]


def _verbatim(node: Any) -> str:
    """The text of \\verb and of the environment of its kind."""
    return getattr(node.nodeargd, "verbatim_text", None) or ""


def _captions(nodes: Sequence[Any]) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, LatexMacroNode) and node.macroname == "caption":
            yield node
        elif hasattr(node, "nodelist"):
            yield from _captions(node.nodelist)


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
        longest: Most characters of a paragraph, >= 100; longer ones are cut, between sentences if possible.

    Raises:
        UserError: If `longest` is not allowed, or commands are nested too deeply.
    """
    require_whole("longest", longest, 100)
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
