"""Words for units, buildings and commanders, and commands in words and back."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.envs.minirts.engine.units import ARMY, BUILDINGS, IS_BUILDING, NAMES, PEASANT, RESOURCE

COMMANDERS = ("alice", "bob", "carol")
"""Names of the commanders, in the order in which units are shared out."""
SINGULAR = tuple(name.lower().replace("_", " ") for name in NAMES)
"""Each type in words."""


def _plural(word: str) -> str:
    if word.endswith("man"):
        return f"{word[:-3]}men"
    if word.endswith("y"):
        return word if word == "cavalry" else f"{word[:-1]}ies"
    return f"{word}s"


PLURAL = tuple(_plural(word) for word in SINGULAR)
TRAINED = (PEASANT, *ARMY)
"""Types that buildings make."""
KINDS = (*TRAINED, *BUILDINGS)
"""All types that a side can have."""
_SYNONYMS = {
    "worker": "peasant",
    "villager": "peasant",
    "swordsman": "swordman",
    "swordsmen": "swordman",
    "spear man": "spearman",
    "sword man": "swordman",
    "horseman": "cavalry",
    "horsemen": "cavalry",
    "cavalries": "cavalry",
    "bowman": "archer",
    "bowmen": "archer",
    "barracks": "barrack",
    "smithy": "blacksmith",
    "forge": "blacksmith",
    "tower": "guard tower",
    "hall": "town hall",
    "townhall": "town hall",
    "guardtower": "guard tower",
}


def _by_word() -> dict[str, int]:
    found = {}
    for kind in KINDS:
        for word in (SINGULAR[kind], PLURAL[kind]):
            found[word] = kind
    for word, meant in _SYNONYMS.items():
        found[word] = found[meant]
        found.setdefault(f"{word}s", found[meant])
    return found


KIND_OF: Mapping[str, int] = _by_word()
"""Type of each word that names one, in singular or plural."""
KIND_PATTERN = "|".join(re.escape(word) for word in sorted(KIND_OF, key=len, reverse=True))
"""Regular expression of all these words, the longer ones first."""


def counted(kind: int, number: int) -> str:
    """A number of units in words, such as "2 swordmen"."""
    return f"{number} {SINGULAR[kind] if number == 1 else PLURAL[kind]}"


def listing(words: Iterable[str]) -> str:
    """Words as a list: "a, b and c"; "nothing" if there are none."""
    parts = list(words)
    if not parts:
        return "nothing"
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def army_words(kinds: Iterable[int]) -> str:
    """Army types in words, each once: "spearmen and dragons", in the order of `ARMY`; empty for none.

    Without commas, so that each word of it stands alone.
    """
    named = set(kinds)
    return " and ".join(PLURAL[kind] for kind in ARMY if kind in named)


def group(counts: Mapping[int, int]) -> str:
    """Units in words: "3 peasants and 1 town hall", in the order of `KINDS`."""
    return listing(counted(kind, counts[kind]) for kind in KINDS if kind != RESOURCE and counts.get(kind, 0))


# ---- commands ----------------------------------------------------------------------------------------

WAIT, MINE, BUILD, TRAIN, ATTACK, DEFEND, SCOUT = "wait", "mine", "build", "train", "attack", "defend", "scout"
STANCES = (ATTACK, DEFEND, SCOUT)
"""Commands to an army."""
MOST = 6
"""Most units of a type that one command asks for, and most of them that a commander has at a time."""


@dataclass(frozen=True)
class Command:
    """Something a commander tells its units.

    Attributes:
        verb: `WAIT`, `MINE`, `BUILD`, `TRAIN` or one of `STANCES`.
        kind: Type to build or train; -1 for other verbs.
        number: Number to train; 1 for "build", 0 for other verbs.
    """

    verb: str
    kind: int = -1
    number: int = 0


NOTHING = Command(WAIT)
_PLAIN = {
    WAIT: "wait",
    MINE: "mine with idle peasants",
    ATTACK: "attack with the army",
    DEFEND: "defend with the army",
    SCOUT: "scout for the enemy",
}


def all_commands(numbers: Sequence[int] = tuple(range(1, MOST + 1))) -> tuple[Command, ...]:
    """All commands, in the order of actions: wait, mine, build, train (each of some numbers), attack, defend, scout."""
    return (
        NOTHING,
        Command(MINE),
        *(Command(BUILD, kind, 1) for kind in BUILDINGS),
        *(Command(TRAIN, kind, number) for kind in TRAINED for number in numbers),
        *(Command(stance) for stance in STANCES),
    )


def phrase(command: Command) -> str:
    """A command in words: "build one barrack", "train 3 archers"; no other has the same."""
    if command.verb == BUILD:
        return f"build one {SINGULAR[command.kind]}"
    if command.verb == TRAIN:
        return f"train {counted(command.kind, command.number)}"
    return _PLAIN[command.verb]


_NUMBERS = {word: n for n, word in enumerate(["one", "two", "three", "four", "five", "six"], 1)} | {"a": 1, "an": 1}
_MAKE = re.compile(
    rf"(?:build|train|make|create|recruit|construct|produce) (?:(?P<number>\d|{'|'.join(_NUMBERS)}) )?(?:more )?"
    rf"(?P<kind>{KIND_PATTERN})(?: (?:buildings?|units?))?"
)
_OTHERS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (WAIT, re.compile(r"(?:wait|idle|continue|do nothing|go on|go on as before)")),
    (
        MINE,
        re.compile(
            r"(?:mine|gather|dig|collect|mine (?:for )?resources|(?:gather|collect) (?:gold|resources))"
            r"(?: with (?:(?:all|the|my|your|all the) )?(?:idle )?peasants?)?"
        ),
    ),
    (
        ATTACK,
        re.compile(
            r"attack(?: (?:the )?(?:enemy|enemies|enemy base|base))?"
            r"(?: with (?:the |my |your )?(?:army|everything|all))?"
        ),
    ),
    (
        DEFEND,
        re.compile(r"defend(?: (?:the |our )?(?:base|town hall|town))?(?: with (?:the |my |your )?(?:army|all))?"),
    ),
    (SCOUT, re.compile(r"(?:scout|explore)(?: (?:for )?(?:the )?(?:enemy|enemies|enemy base|map))?")),
)


def parse_command(text: str) -> Command | None:
    """The command that a text names, the reverse of `phrase`; `None` if it names none or too many units.

    Reads other words, too, such as SAMA's "build 3 swordman" and "mine with all idle peasant", but no text of more than
    300 characters.
    """
    if len(text) > MAX_SUBGOAL:
        return None
    words = " ".join(text.lower().split()).rstrip(".! ")
    if match := _MAKE.fullmatch(words):
        return _made(KIND_OF[match["kind"]], match["number"])
    for verb, pattern in _OTHERS:
        if pattern.fullmatch(words):
            return Command(verb)
    return None


def _made(kind: int, number: str | None) -> Command | None:
    many = 1 if number is None else int(number) if number.isdigit() else _NUMBERS[number]
    if IS_BUILDING[kind]:
        return Command(BUILD, kind, 1) if many == 1 else None
    return Command(TRAIN, kind, many) if 1 <= many <= MOST else None


MOST_WORDS = 15
"""Words of a sentence that are read (RED: 15)."""
UNKNOWN_WORDS = 16
"""Numbers that words outside of the vocabulary share, by their hash (ours)."""
_NUMBER_WORDINGS = ("zero", "one", "two", "three", "four", "five", "six")
_WORDINGS = {
    WAIT: ("go on as before",),
    MINE: ("mine", "gather resources", "collect gold", "dig with all idle peasants", "mine with idle peasants"),
    ATTACK: ("attack", "attack the enemy", "attack the enemy base with everything", "attack with the army"),
    DEFEND: ("defend", "defend the base", "defend our town hall", "defend with the army"),
    SCOUT: ("scout", "explore the map", "scout for the enemy base", "scout for the enemy"),
}
_BUILD_VERBS, _TRAIN_VERBS = ("build", "make", "construct"), ("train", "make", "create", "recruit")
_WORD = re.compile(r"[a-z]+|\d+")


def wordings(command: Command) -> tuple[str, ...]:
    """Sentences that mean a command, each once."""
    if command.verb == BUILD:
        name = SINGULAR[command.kind]
        made = [f"{verb} {article} {name}" for verb in _BUILD_VERBS for article in ("one", "a")]
    elif command.verb == TRAIN:
        many = counted(command.kind, command.number)
        in_words = f"{_NUMBER_WORDINGS[command.number]} {many.partition(' ')[2]}"
        made = [f"{verb} {units}" for verb in _TRAIN_VERBS for units in (many, in_words)]
        made.append(f"build {command.number} {SINGULAR[command.kind]}")  # as SAMA says it
    else:
        made = list(_WORDINGS[command.verb])
    return tuple(dict.fromkeys([phrase(command), *made]))


def _words(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower())


_VOCABULARY = sorted({word for command in all_commands() for text in wordings(command) for word in _words(text)})
_NUMBER_OF = {word: number for number, word in enumerate(_VOCABULARY, 1)}
NUM_WORDS = 1 + len(_VOCABULARY) + UNKNOWN_WORDS
"""Numbers that `word_numbers` gives, 0 for no word included."""


def word_numbers(sentence: str) -> np.ndarray:
    """The words of a sentence as numbers, uint8 (15,), 0 behind its end; further words are not read."""
    out = np.zeros(MOST_WORDS, np.uint8)
    for place, word in enumerate(_words(sentence)[:MOST_WORDS]):
        out[place] = _NUMBER_OF.get(word) or 1 + len(_VOCABULARY) + zlib.crc32(word.encode()) % UNKNOWN_WORDS
    return out
