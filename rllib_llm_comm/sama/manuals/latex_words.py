"""LaTeX in plain words: pylatexenc reads it, this module chooses the words for who reads the rules of a game."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexMacroNode, LatexWalker, get_default_latex_context_db
from pylatexenc.macrospec import std_environment, std_macro

from rllib_llm_comm.core.errors import UserError

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

    Args:
        text: LaTeX without comments.

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
    """Writes nodes out."""

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
        """The last argument in words."""
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
