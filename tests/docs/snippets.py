"""Fenced blocks of the docs, by page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"(?P<indent> *)```(?P<language>\w*)(?P<title> title=.*)?$")
_MARK = re.compile(r"<!-- (?P<kind>not run|slow|client): (?P<reason>.+?) -->$")
_SPAN = re.compile(r"`((?:\.venv/bin/)?(?:rllib|python) [^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: Path of its page.
        line: Number of its first line of text, counted from 1.
        language: "python", "yaml", "bash" or any other word after the fence; empty without one.
        text: Its text.
        mark: "not run", "slow" or "client" if a comment above the fence says so with a reason, else empty.
        reason: The reason; of "client" the modules that the block needs, which `tests/clients` runs.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    reason: str = field(default="", compare=False)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number, mark, reason = 0, "", ""
    while number < len(lines):
        if begin := _FENCE.match(lines[number]):
            end = next(later for later in range(number + 1, len(lines)) if lines[later].strip() == "```")
            inner = [line.removeprefix(begin["indent"]) for line in lines[number + 1 : end]]
            # A block with a title is a file: `tests/extend` writes and uses those.
            mark = "not run" if begin["title"] else mark
            yield Block(page, number + 2, begin["language"], "\n".join(inner) + "\n", mark, reason)
            number, mark, reason = end, "", ""
        elif lines[number].strip():
            found = _MARK.match(lines[number].strip())
            mark, reason = (found["kind"], found["reason"]) if found else ("", "")
        number += 1


def of_language(language: str, page: Path) -> list[Block]:
    """The blocks of a page in one language, but those that are not run, or by `tests/clients` only."""
    return [block for block in blocks(page) if block.language == language and block.mark not in ("not run", "client")]


def pages_with(language: str) -> list[Path]:
    """The pages that have blocks in a language."""
    return [page for page in PAGES if of_language(language, page)]


def name(page: Path) -> str:
    """A page's name in reports: its path without the suffix."""
    return str(page.relative_to(ROOT).with_suffix(""))


def commands(block: Block) -> list[list[str]]:
    """The words of each command of a block, comments left out; `&&` and `|` end a command.

    In a block with prompts (`$ rllib ...`) the other lines are what is printed.
    """
    found: list[list[str]] = []
    lines = block.text.replace("\\\n", " ").splitlines()
    asked = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in asked or lines:
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word not in ("&&", "|"):
                words.append(word)
            elif words:
                found.append(words)
                words = []
    return found


def inline_commands(page: Path) -> list[list[str]]:
    """The words of each `rllib ...` and `python ...` in the running text of a page."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [shlex.split(re.sub(r"\s+", " ", found)) for found in _SPAN.findall(text)]
