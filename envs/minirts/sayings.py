"""Messages of the scripted commanders, and the meaning of such messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.envs.minirts.engine.units import ARMY, COUNTER, MADE_BY
from rllib_llm_comm.envs.minirts.words import (
    ATTACK,
    BUILD,
    COMMANDERS,
    DEFEND,
    KIND_OF,
    KIND_PATTERN,
    MINE,
    PLURAL,
    SCOUT,
    SINGULAR,
    TRAIN,
    WAIT,
    army_words,
)

_DEED = rf"(?:build|train) (?:{KIND_PATTERN})|{MINE}|{ATTACK}|{DEFEND}|{SCOUT}|{WAIT}"
_NAME = "|".join(COMMANDERS)
_WORDINGS = ("i {mine}, please {name} {theirs}", "i {mine}, {name} {theirs}", "{name} {theirs}, i {mine}")
_PATTERNS = tuple(
    re.compile(wording.format(mine=f"(?P<mine>{_DEED})", name=f"(?P<name>{_NAME})", theirs=f"(?P<theirs>{_DEED})"))
    for wording in _WORDINGS
)
_ALONE = re.compile(rf"i (?P<mine>{_DEED})")
_TELL = ("the enemy trains {types}", "they train {types}", "we meet enemy {types}")
_ASK = ("what does the enemy train", "tell me what the enemy trains")
_TYPES = rf"(?P<types>(?:{KIND_PATTERN})(?: and (?:{KIND_PATTERN}))*)"
_TOLD = tuple(re.compile(wording.format(types=_TYPES)) for wording in _TELL)
_ENEMY = re.compile(r"\b(?:enemy|enemies|they|foes?|opponent)\b")
_KIND = re.compile(rf"\b(?:{KIND_PATTERN})\b")
Meaning = tuple[str, int]
"""Verb and kind of a command."""


@dataclass(frozen=True)
class CommanderSaying:
    """A message: what the speaker commands next, and what it wants of another one.

    Attributes:
        mine: Command of the speaker.
        name: The other commander; empty if there is none.
        theirs: Command that it should give; ("wait", -1) if nothing.
    """

    mine: Meaning
    name: str
    theirs: Meaning


@dataclass(frozen=True)
class EnemySaying:
    """A message about the enemy's army types.

    Attributes:
        types: The types that the speaker tells, in the order of `ARMY`; empty: the speaker asks for them.
    """

    types: tuple[int, ...]


Saying = CommanderSaying | EnemySaying


def word(saying: Saying, rng: np.random.Generator) -> str:
    """A message of at most ten words, in a wording that `rng` chooses."""
    if isinstance(saying, EnemySaying):
        wordings = _TELL if saying.types else _ASK
        return wordings[int(rng.integers(len(wordings)))].format(types=army_words(saying.types))
    if not saying.name:
        return f"i {_deed(saying.mine)}"
    wording = _WORDINGS[int(rng.integers(len(_WORDINGS)))]
    return wording.format(mine=_deed(saying.mine), name=saying.name, theirs=_deed(saying.theirs))


def understand(message: str) -> Saying | None:
    """The meaning of a message in one of our wordings, or `None`."""
    plain = " ".join(message.lower().split()).rstrip(".!? ")
    if plain in _ASK:
        return EnemySaying(())
    for pattern in _TOLD:
        if match := pattern.fullmatch(plain):
            named = _army(match["types"])
            return EnemySaying(named) if named else None
    for pattern in _PATTERNS:
        if match := pattern.fullmatch(plain):
            return CommanderSaying(_read(match["mine"]), match["name"], _read(match["theirs"]))
    match = _ALONE.fullmatch(plain)
    return CommanderSaying(_read(match["mine"]), "", (WAIT, -1)) if match else None


def meaning(message: str) -> str:
    """Content of a message, comparable with the infos' `private`.

    Returns:
        The army types that are named after the first word for the enemy, such as "spearmen" or "spearmen and
        dragons", in the order of `ARMY`. Without a word for the enemy what is asked of the listener, such as "train
        swordmen", if the wording is ours, else the army types that are named. The empty text if there is nothing of
        the kind.
    """
    plain = " ".join(message.lower().split())
    if enemy := _ENEMY.search(plain):
        return army_words(_army(plain[enemy.end() :]))
    saying = understand(plain)
    if isinstance(saying, CommanderSaying):
        verb, kind = saying.theirs if saying.name else saying.mine
        return _deed((verb, kind)) if kind >= 0 else ""
    return army_words(_army(plain))


def request(message: str) -> str:
    """The things that a message asks its listener to make, as words of commands; empty if there are none.

    Of the enemy's army types it asks for what beats them, and for the producers of that.
    """
    plain = " ".join(message.lower().split())
    if _ENEMY.search(plain):
        wanted = [COUNTER[KIND_OF[word]] for word in meaning(plain).split() if word in KIND_OF]
        names = [name for kind in wanted for name in (SINGULAR[kind], PLURAL[kind], SINGULAR[int(MADE_BY[kind])])]
    else:
        saying = understand(plain)
        asked = saying.theirs[1] if isinstance(saying, CommanderSaying) else -1
        names = [SINGULAR[asked], PLURAL[asked]] if asked >= 0 else []
    return " ".join(dict.fromkeys(names))


def _army(words: str) -> tuple[int, ...]:
    """Army types that are named, in the order of `ARMY`."""
    named = {KIND_OF[word] for word in _KIND.findall(words)}
    return tuple(kind for kind in ARMY if kind in named)


def _deed(meaning: Meaning) -> str:
    verb, kind = meaning
    if verb == BUILD:
        return f"build {SINGULAR[kind]}"
    return f"train {PLURAL[kind]}" if verb == TRAIN else verb


def _read(deed: str) -> Meaning:
    verb, _, kind = deed.partition(" ")
    return verb, KIND_OF[kind] if kind else -1
