"""Prompts are text files beside the code that uses them, in a folder `prompts/`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib import resources

_SLOT = re.compile(r"\{(\w+)\}")


@functools.cache
def template(package: str, name: str) -> str:
    """The text of a template, without the line end at its end.

    Args:
        package: The package whose folder `prompts` has it.
        name: File name without `.txt`.
    """
    text = resources.files(package).joinpath(f"prompts/{name}.txt").read_text(encoding="utf-8")
    return text.rstrip("\n")


def fill(package: str, name: str, **values: object) -> str:
    """A template with its slots filled, in one pass: braces inside the values are data and stay as they are.

    Args:
        package: See `rllib_llm_comm.language.prompt_files.template`.
        name: See `rllib_llm_comm.language.prompt_files.template`.
        **values: A value for each `{slot}`.

    Raises:
        KeyError: If a slot has no value.
    """
    return fill_pieces(_pieces(package, name), **values)


def pieces_of(text: str) -> list[str]:
    """A template's words and, between them, the names of its slots.

    Args:
        text: The template.
    """
    return _SLOT.split(text)


def fill_pieces(pieces: Sequence[str], **values: object) -> str:
    """As `fill`, of a template that was cut by `pieces_of`."""
    return "".join([str(values[piece]) if place % 2 else piece for place, piece in enumerate(pieces)])


@functools.cache
def _pieces(package: str, name: str) -> list[str]:
    return pieces_of(template(package, name))
