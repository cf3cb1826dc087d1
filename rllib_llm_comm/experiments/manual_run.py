"""The manual of a game from LaTeX sources, made with a chat model or its recording and written with its provenance."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import out, say, short_path
from rllib_llm_comm.experiments.outputs import require_writable

if TYPE_CHECKING:
    from rllib_llm_comm.chat.chat_model import ChatModel
    from rllib_llm_comm.sama.manuals.manual import Manual


def run_manual(
    papers: Sequence[Path],
    target: Path,
    chat: Mapping[str, Any],
    *,
    words: int = 400,
    batch: int = 8,
    figures: Path | None = None,
    chat_model: ChatModel | None = None,
) -> dict[str, Any]:
    """Makes the manual of a game from papers about it, and prints what it cost.

    Args:
        papers: Main LaTeX file of each paper, or the name of one that comes with the package.
        target: File of the manual (Markdown).
        chat: Settings of the chat model, as of `open_chat`; a recording may be one that comes with the package.
        words: Most words of the manual.
        batch: Paragraphs per request.
        figures: File of facts, figures and cost (JSON); `None` for none.
        chat_model: The chat model, in place of the one that the settings name.

    Returns:
        Facts, figures and cost.

    Raises:
        UserError: If a file cannot be read or written, or a setting is not allowed.
        ChatError: If a request failed for good.
    """
    from rllib_llm_comm.chat.cassettes import open_chat
    from rllib_llm_comm.sama.manuals.latex import find_paper, read_latex, split_latex
    from rllib_llm_comm.sama.manuals.manual import ManualSettings, make_manual
    from rllib_llm_comm.sama.recordings import find_recording

    require_writable({"--out": target, "--json": figures})
    settings = ManualSettings(batch, words)
    asked = manual_chat(chat)
    if asked.get("cassette") and not asked.get("local") and not asked.get("model"):
        asked["cassette"] = find_recording(asked["cassette"])
    sources = {path: read_latex(path) for path in map(find_paper, papers)}
    found = {path: split_latex(source) for path, source in sources.items()}
    for path, parts in found.items():
        if not parts:
            raise UserError(f"{str(path)!r} has no paragraphs; give the main LaTeX file of a paper.")
    paragraphs = [paragraph for parts in found.values() for paragraph in parts]
    if chat_model is None:  # a recording without answers is false
        chat_model = open_chat(asked)
    with out.status(f"asking about {len(paragraphs)} paragraphs"):
        manual = make_manual(chat_model, paragraphs, settings)
    made = _provenance(sources, manual.to_json(), chat_model)
    write_atomically(target, f"<!--\n{made}\n-->\n\n{manual.text}\n")
    if figures is not None:
        write_atomically(figures, json.dumps(manual.to_json(), indent=2) + "\n")
    _tell(manual, len(paragraphs), target)
    return manual.to_json()


def manual_chat(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a chat model with room for the long answers of a manual, which a local model has to be told.

    Args:
        chat: As of `open_chat`.
    """
    from rllib_llm_comm.chat.chat_model import MANUAL, TOKENS

    return {"max_tokens": TOKENS[MANUAL], **chat} if chat.get("local") else dict(chat)


def _tell(manual: Manual, paragraphs: int, target: Path) -> None:
    say(
        f"{len(manual.relevant)} of {paragraphs} paragraphs are relevant; "
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


def _provenance(sources: dict[Path, str], figures: dict[str, Any], chat_model: Any) -> str:
    """The sources and the author of a manual, kept in the file so that nobody takes it for one that a person wrote."""
    names = ", ".join(
        f"{path.name} (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})" for path, text in sources.items()
    )
    by, note = getattr(chat_model, "model", ""), ""
    if (header := getattr(chat_model, "header", None)) is not None:  # a recording
        by = str(header["model"])
        if getattr(chat_model, "client", None) is None:
            authors = ", ".join(chat_model.played) or by
            by, note = f"the recording {chat_model.path.name} ({authors}, {header['made']})", str(header["note"])
    lines = [
        f"Made by `rllib manual` from {names}, by {by}. Not checked by a person.",
        f"{len(figures['relevant'])} of {figures['paragraphs']} paragraphs were relevant.",
        *_doubts(figures),
        *([note] if note else []),
    ]
    return "\n".join(lines).replace("--", "- -")
