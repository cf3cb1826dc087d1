"""`rllib manual`: the manual of a game from the LaTeX sources of papers about it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.experiment_file import load_json_option
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.files import write_atomically


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

        rllib manual docs/manuals/onion_soup.tex --chat '{"local": "smollm2"}' --batch 1
    """
    from rllib_llm_comm.chat.cassettes import open_chat
    from rllib_llm_comm.chat.purposes import MANUAL, TOKENS
    from rllib_llm_comm.planning.manuals.latex import read_latex, split_latex
    from rllib_llm_comm.planning.manuals.manual import ManualSettings, make_manual

    require_writable({"--out": target, "--json": figures})
    settings = ManualSettings(batch, words)
    given = {"model": model, "base_url": base_url, "cassette": None if cassette is None else str(cassette)}
    asked = {} if chat is None else load_json_option("--chat", chat)
    if asked.get("local"):
        asked = {"max_tokens": TOKENS[MANUAL], **asked}
    asked |= {key: value for key, value in given.items() if value is not None}
    sources = {path: read_latex(path) for path in papers}
    found = {path: split_latex(source) for path, source in sources.items()}
    for path, parts in found.items():
        if not parts:
            raise UserError(f"{str(path)!r} has no paragraphs; give the main LaTeX file of a paper.")
    paragraphs = [paragraph for parts in found.values() for paragraph in parts]
    chat_model = open_chat(asked)
    with out.status(f"asking about {len(paragraphs)} paragraphs"):
        manual = make_manual(chat_model, paragraphs, settings)
    made = _how(sources, manual.to_json(), asked, chat_model)
    write_atomically(target, f"<!--\n{made}\n-->\n\n{manual.text}\n")
    if figures is not None:
        write_atomically(figures, json.dumps(manual.to_json(), indent=2) + "\n")
    say(
        f"{len(manual.relevant)} of {len(paragraphs)} paragraphs are relevant; "
        f"{sum(map(len, manual.facts.values()))} facts, {manual.repeated} repetitions left out; "
        f"{manual.cost.requests} requests, {manual.cost.cached} kept answers, cost {manual.cost.cost:.4g}"
    )
    for line in _doubts(manual.to_json()):
        say(line)
    say(f"The manual is in {short_path(target)}.")


def _doubts(figures: dict[str, Any]) -> list[str]:
    """Sentences about all that was kept because the answer of the model could not be used."""
    undecided, unsorted = figures["undecided"], figures["unsorted"]
    told = [f"{undecided} paragraphs were kept although the model said neither yes nor no."] if undecided else []
    return told + ([f"{unsorted} lists of facts were kept whole for want of a usable answer."] if unsorted else [])


def _how(sources: dict[Path, str], figures: dict[str, Any], asked: dict[str, Any], chat_model: Any) -> str:
    """How a manual was made: it stands in the file, so that nobody takes it for one that a person wrote."""
    names = ", ".join(
        f"{path.name} (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})" for path, text in sources.items()
    )
    by, note = getattr(chat_model, "model", ""), ""
    if (header := getattr(chat_model, "header", None)) is not None:  # a recording
        by = str(header["model"])
        if getattr(chat_model, "client", None) is None:
            by, note = f"the recording {Path(asked['cassette']).name} ({by}, {header['made']})", str(header["note"])
    lines = [
        f"Made by `rllib manual` from {names}, by {by}. Not checked by a person.",
        f"{len(figures['relevant'])} of {figures['paragraphs']} paragraphs were relevant.",
        *_doubts(figures),
        *([note] if note else []),
    ]
    return "\n".join(lines).replace("--", "- -")
