"""Words for units, buildings and commanders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rllib_llm_comm.envs.minirts.engine.units import ARMY, BUILDINGS, NAMES, PEASANT, RESOURCE

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
