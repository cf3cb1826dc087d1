"""`rllib manual`: the manual of a game from the LaTeX sources of papers about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.manual_run import run_manual


def command(
    papers: Annotated[list[Path], typer.Argument(metavar="PAPER.tex...", help="Main LaTeX file of each paper.")],
    target: Annotated[Path, typer.Option("--out", help="File of the manual (Markdown).")] = Path("manual.md"),
    model: Annotated[str | None, typer.Option(help="The chat model's name at the server.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of the API; OpenAI's own by default.")] = None,
    cassette: Annotated[
        Path | None,
        typer.Option(help="Recorded answers: played back without network, or recorded if a model is given."),
    ] = None,
    chat: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Further settings of the chat client, such as prices, budget, cache_dir, or a `local` model.",
        ),
    ] = None,
    words: Annotated[int, typer.Option(help="Most words of the manual.")] = 400,
    batch: Annotated[int, typer.Option(help="Paragraphs per request.")] = 8,
    figures: Annotated[
        Path | None, typer.Option("--json", help="Also write facts, figures and cost to this file.")
    ] = None,
) -> None:
    """Make the manual of a game from the LaTeX sources of papers about it, with a chat model or a recording.

    Examples:

        rllib manual paper/main.tex --model gpt-4o --cassette manual.jsonl --out manual.md

        rllib manual paper/main.tex --cassette manual.jsonl --out manual.md

        rllib manual onion_soup --chat '{"local": "smollm2"}' --batch 1
    """
    given = {"model": model, "base_url": base_url, "cassette": None if cassette is None else str(cassette)}
    settings = {} if chat is None else load_json_option("--chat", chat)
    settings |= {key: value for key, value in given.items() if value is not None}
    run_manual(papers, target, settings, words=words, batch=batch, figures=figures)
