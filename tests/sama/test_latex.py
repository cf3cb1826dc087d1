"""From LaTeX to paragraphs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.manuals.latex import Paragraph, read_latex, split_latex
from tests.refusal import refused

PAPER = r"""
\documentclass[10pt]{article} % not in the text
\usepackage{graphicx}
\newcommand{\game}{Soup World}
\newcommand*{\onions}[1]{#1 onions}
\def\chef{cook}
\title{A title in the preamble}
\begin{document}
\maketitle
\begin{abstract}
In \game{} two \chef s make soup~\cite[see][p.~3]{one,two}.  % a comment with secret words
They earn 20\,points, i.e.\ 100\% of what a soup na\"ive cooks make.
\end{abstract}

\section{Rules of \emph{\game}}\label{sec:rules}
A pot holds \textbf{three \textit{onions}}, see Figure~\ref{fig:one}.
It cooks for $20$ steps ($t \geq 20$).

% a paragraph
% of comments
The \texttt{dish\_stack} \& the {\sc counter} never run out\footnote{Nor do crates.}.
\begin{itemize}[leftmargin=*]
  \item Onions go into pots.
  \item[Dishes] take soups \ldots out.
\end{itemize}

\begin{figure}[t]
  \centering
  \includegraphics[width=0.5\textwidth]{kitchen.pdf}
  \caption[Short]{The kitchen has \emph{two} pots.}
  \label{fig:one}
\end{figure}

\begin{table}
\begin{tabular}{l|cc}
\toprule
Unit & \multicolumn{2}{c}{Strength} \\ \midrule
Archer & 3 & 5\% \\[2pt]
Dragon & 9 & --- \\
\bottomrule
\end{tabular}
\caption{Units of the game.}
\end{table}

\begin{equation*}
  J(\theta) = \mathbb{E}[R]
\end{equation*}

\subsection*{Training}
We train with ``PPO'' for \onions{5} hours.
\iffalse never shown \fi
\begin{comment}
also never shown
\end{comment}

\bibliographystyle{plain}
\bibliography{refs}
\begin{thebibliography}{9}
\bibitem{one} A book about soup.
\end{thebibliography}
\end{document}
after the end
"""


def test_a_paper_becomes_plain_paragraphs():
    rules = [
        "A pot holds three onions, see Figure. It cooks for 20 steps (t ≥ 20).",
        "The dish_stack & the counter never run out (Nor do crates.).\n- Onions go into pots.\n"
        "- Dishes take soups … out.",
        "The kitchen has two pots.",
        "Unit | Strength\nArcher | 3 | 5%\nDragon | 9 | ---\nUnits of the game.\n[formula]",
    ]
    first = "In Soup World two cooks make soup. They earn 20 points, i.e. 100% of what a soup naïve cooks make."
    assert split_latex(PAPER) == [
        Paragraph("", first),
        *(Paragraph("Rules of Soup World", text) for text in rules),
        Paragraph("Training", 'We train with "PPO" for 5 hours.'),
    ]


def test_half_a_document_is_taken_too():
    assert split_latex("Only words.\n\nAnd more of them, without end {\\bf here \\cite{open") == [
        Paragraph("", "Only words."),
        Paragraph("", "And more of them, without end here"),
    ]
    assert split_latex("") == split_latex("% nothing\n\n\\maketitle") == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"50\% of\% it % not this", "50% of% it"),
        (r"a line\\% not this", "a line"),
        (r"\verb|x_{1}| stays", "x_{1} stays"),
        ("one %\ntwo", "one two"),
        ("one%\n   two", "onetwo"),
        (r"\unknown[with]{arguments}{stay} here", "arguments stay here"),
        (r"\'{e}\`a \c{c} \^\i", "éà ç î"),
        (r"\href{http://x.org}{a page} and \url{http://y.org}", "a page and"),
        (r"$\alpha \rightarrow \beta$ and $$x^2$$ and \[ y \] end", "α→β and [formula] and [formula] end"),
        (r"\textcolor{red}{hot} soup", "hot soup"),
        ("These are there now:\n\n\\begin{itemize}\\item pots\\end{itemize}", "These are there now:\n- pots"),
        ("left\\begin{minipage}{3cm}inside\\end{minipage}right", "left\ninside\nright"),
        (r"a\begin{equation} x", "a [formula]"),
    ],
)
def test_commands(source, text):
    assert [paragraph.text for paragraph in split_latex(source)] == [text]


WORD = st.text("abcdefghijklmnopqrstuvwxyzäöü0123456789-", min_size=1, max_size=12)
SENTENCE = st.lists(WORD, min_size=5, max_size=12).map(lambda words: " ".join(words) + ".")
PROSE = st.lists(st.lists(SENTENCE, min_size=1, max_size=5), min_size=1, max_size=4)


@given(PROSE, st.integers(100, 400))
def test_plain_words_stay_as_they_are(prose, longest):
    source = "\n\n".join("\n".join(sentences) for sentences in prose)
    found = split_latex(source, longest)
    assert " ".join(paragraph.text for paragraph in found).split() == source.split()
    assert all(0 < len(paragraph.text) <= longest for paragraph in found)
    whole = split_latex(source, 100_000)
    assert [paragraph.text for paragraph in whole] == [" ".join(sentences) for sentences in prose]


@given(PROSE, st.lists(st.text("abc\\{}%$& ", max_size=20), min_size=4, max_size=4))
def test_comments_change_nothing(prose, comments):
    plain = "\n\n".join(" ".join(sentences) for sentences in prose)
    pairs = zip(prose, comments, strict=False)
    noted = "\n\n".join(" ".join(sentences) + f" %SECRET {comment}" for sentences, comment in pairs)
    assert split_latex(noted) == split_latex(plain)


UNREAD = st.tuples(st.sampled_from(["thebibliography", "comment", "tikzpicture"]), st.text("ab \\{}&$\n", max_size=60))
PICTURE = st.tuples(st.sampled_from(["figure", "figure*"]), st.sampled_from(["", "a & b", "{a $b$}\n\n\\\\ \\c"]))


@given(PROSE, UNREAD | PICTURE)
def test_what_is_left_out_changes_no_other_paragraph(prose, environment):
    pieces, (name, content) = [" ".join(sentences) for sentences in prose], environment
    hidden = f"\n\n\\begin{{{name}}}{content}\\end{{{name}}}\n\n"
    assert split_latex(hidden.join(pieces)) == split_latex("\n\n".join(pieces))


PIECES = (
    r"\section{ \begin{table} \end{table} \begin{tabular}{ll} \end{tabular} \cite[ ] { } $ $$ \[ \] \\ % & ~ "
    r"\item \caption{ \begin{figure} \end{figure} \newcommand{\x}{ \x \def\y{ \y \iffalse \fi \" \' \ \begin{ "
    r"\footnote{ \verb"
)
LATEX = st.lists(
    st.sampled_from([*PIECES.split(" "), "\n", "\n\n", " ", "word", "\x00", "\x01", "\x02", "\r\n"]),
    max_size=60,
).map("".join)


@given(LATEX | st.text(), st.integers(100, 300))
def test_any_text_is_taken(source, longest):
    for paragraph in split_latex(source, longest):
        assert paragraph.text.strip() == paragraph.text and 0 < len(paragraph.text) <= longest
        assert not re.search("[\x00-\x09\x0b-\x1f]", paragraph.text + paragraph.section)
        assert "\n" not in paragraph.section


@pytest.mark.parametrize("piece", ["}", "$$", "\\newcommand{\\x}{\\x\\x}", "\n\n", "\\end{figure}", "}{"])
def test_long_nonsense_takes_no_time(piece):
    split_latex(piece * 3000)


@pytest.mark.parametrize("piece", ["{", "\\cite{", "\\section{", "\\begin{figure}", "\\[", "\\begin{comment}"])
def test_what_no_paper_nests_so_deeply_gets_one_sentence(piece):
    with pytest.raises(UserError, match="nested deeper than any paper"):
        split_latex(piece * 1500)


@pytest.mark.parametrize(("begin", "end"), [("{", "}"), ("\\emph{", "}"), ("\\begin{center}", "\\end{center}")])
def test_papers_nest_as_deeply_as_they_do(begin, end):
    assert split_latex(50 * begin + "all the words" + 50 * end) == [Paragraph("", "all the words")]


def test_files_take_in_others_below_their_folder(tmp_path):
    (tmp_path / "parts").mkdir()
    taken = "\\input{parts/rules}\n%\\input{parts/hidden}\n\\include{main}\n\\input{../outside}\n\\input{none}"
    (tmp_path / "main.tex").write_text(f"First words of it.\n{taken}")
    (tmp_path / "parts" / "rules.tex").write_text("All the rules are here.\n\n\\input{parts/more.tex}")
    (tmp_path / "parts" / "more.tex").write_bytes("Caf\xe9 and more of it.".encode("latin-1"))
    (tmp_path / "parts" / "hidden.tex").write_text("Hidden words.")
    (tmp_path.parent / "outside.tex").write_text("Outside words.")
    texts = [paragraph.text for paragraph in split_latex(read_latex(tmp_path / "main.tex"))]
    assert texts == ["First words of it. All the rules are here.", "Caf\N{REPLACEMENT CHARACTER} and more of it."]


def test_bad_input_gets_one_sentence(tmp_path):
    for path in (tmp_path / "none.tex", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            read_latex(path)
    with refused("longest", "range"):
        split_latex("x", 99)
