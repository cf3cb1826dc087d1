"""Wordings of commands, all of which `tasks.parse_command` reads back, and their words as numbers."""

from __future__ import annotations

import re
import zlib

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.tasks import (
    ATTACK,
    BUILD,
    DEFEND,
    MINE,
    SCOUT,
    TRAIN,
    WAIT,
    Command,
    all_commands,
    phrase,
)
from rllib_llm_comm.envs.minirts.view.names import SINGULAR, counted

MOST_WORDS = 15
"""Words of a sentence that are read (RED: 15)."""
UNKNOWN_WORDS = 16
"""Numbers that words outside of the vocabulary share, by their hash (ours)."""
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
_PLAIN = {
    WAIT: ("go on as before",),
    MINE: ("mine", "gather resources", "collect gold", "dig with all idle peasants", "mine with idle peasants"),
    ATTACK: ("attack", "attack the enemy", "attack the enemy base with everything", "attack with the army"),
    DEFEND: ("defend", "defend the base", "defend our town hall", "defend with the army"),
    SCOUT: ("scout", "explore the map", "scout for the enemy base", "scout for the enemy"),
}
_BUILD_VERBS, _TRAIN_VERBS = ("build", "make", "construct"), ("train", "make", "create", "recruit")
_WORD = re.compile(r"[a-z]+|\d+")


def wordings(command: Command) -> tuple[str, ...]:
    """Sentences that mean a command, each once.

    Args:
        command: The command.
    """
    if command.verb == BUILD:
        name = SINGULAR[command.kind]
        made = [f"{verb} {article} {name}" for verb in _BUILD_VERBS for article in ("one", "a")]
    elif command.verb == TRAIN:
        many = counted(command.kind, command.number)
        in_words = f"{_NUMBERS[command.number]} {many.partition(' ')[2]}"
        made = [f"{verb} {units}" for verb in _TRAIN_VERBS for units in (many, in_words)]
        made.append(f"build {command.number} {SINGULAR[command.kind]}")  # as SAMA says it
    else:
        made = list(_PLAIN[command.verb])
    return tuple(dict.fromkeys([phrase(command), *made]))


def _words(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower())


_VOCABULARY = sorted({word for command in all_commands() for text in wordings(command) for word in _words(text)})
_NUMBER_OF = {word: number for number, word in enumerate(_VOCABULARY, 1)}
NUM_WORDS = 1 + len(_VOCABULARY) + UNKNOWN_WORDS
"""Numbers that `word_numbers` gives, 0 for no word included."""


def word_numbers(sentence: str) -> np.ndarray:
    """The words of a sentence as numbers, uint8 (15,), 0 behind its end; further words are not read.

    Args:
        sentence: Any text.
    """
    out = np.zeros(MOST_WORDS, np.uint8)
    for place, word in enumerate(_words(sentence)[:MOST_WORDS]):
        out[place] = _NUMBER_OF.get(word) or 1 + len(_VOCABULARY) + zlib.crc32(word.encode()) % UNKNOWN_WORDS
    return out
