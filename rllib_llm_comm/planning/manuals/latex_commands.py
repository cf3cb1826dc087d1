"""Tables of the LaTeX commands that papers use most: those without text, those for a sign, those with arguments."""

from __future__ import annotations

BREAK = "\x00"
"""Marks a line break inside a paragraph."""

HEADINGS = frozenset(
    ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
)  # fmt: skip

_NO_WORDS = (
    "cite", "citep", "citet", "citealp", "citealt", "citeauthor", "citeyear", "parencite", "textcite", "autocite",
    "footcite", "nocite", "label", "ref", "eqref", "pageref", "cref", "Cref", "autoref", "includegraphics", "vspace",
    "hspace", "vskip", "hskip", "input", "include", "bibliography", "bibliographystyle", "usepackage", "documentclass",
    "newpage", "pagestyle", "thispagestyle", "cline", "cmidrule", "rowcolor", "cellcolor", "color", "textcolor", "url",
    "author", "affiliation", "email", "date", "thanks", "graphicspath", "hypersetup", "phantom", "vphantom", "hphantom",
    "index", "glossary", "addbibresource", "captionsetup", "href",
)  # fmt: skip
_NO_WORDS_IN_TWO = (
    "setlength", "addtolength", "setcounter", "addtocounter", "rule", "newcommand", "renewcommand", "providecommand",
    "DeclareMathOperator", "newtheorem", "multicolumn", "multirow", "resizebox",
)  # fmt: skip
SILENT = {**dict.fromkeys(_NO_WORDS, 1), **dict.fromkeys(_NO_WORDS_IN_TWO, 2)}
"""Commands of which the first arguments say nothing to a reader, with the number of these."""

SYMBOLS = {
    "ldots": "...", "dots": "...", "cdots": "...", "times": "x", "cdot": "*", "leq": "<=", "le": "<=", "geq": ">=",
    "ge": ">=", "neq": "!=", "ne": "!=", "approx": "~", "sim": "~", "pm": "+-", "rightarrow": "->", "to": "->",
    "leftarrow": "<-", "Rightarrow": "=>", "infty": "infinity", "in": "in", "textbackslash": "\\",
    "textasciitilde": "~", "textgreater": ">", "textless": "<", "ss": "ß", "ae": "æ", "oe": "œ", "o": "ø", "quad": " ",
    "qquad": " ", "newline": BREAK, "tabularnewline": BREAK, "item": f"{BREAK}- ", "par": "\n\n", "and": ", ",
}  # fmt: skip
"""Commands that stand for a sign."""

GREEK = frozenset(
    (
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda",
        "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta",
        "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega",
    )
)  # fmt: skip
"""Letters that are written as their names."""

ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307"}
"""Accent commands, with the combining character."""

WITH_ARGUMENTS = {
    **dict.fromkeys(("tabular", "array", "longtable", "minipage", "multicols", "adjustbox", "wraptable"), 1),
    **dict.fromkeys(("tabular*", "tabularx"), 2),
}
"""Environments of which the first arguments say nothing, with the number of these."""
