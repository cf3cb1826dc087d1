"""Messages of the scripted cooks, and the meaning of such messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DEEDS = {
    ("take", "onion"): "fetch an onion",
    ("take", "dish"): "fetch a dish",
    ("take", "soup"): "take the soup",
    ("put", "onion"): "hand over an onion",
    ("put", "dish"): "hand over a dish",
    ("put", "soup"): "hand over the soup",
    ("add", "onion"): "fill the pot",
    ("plate", "soup"): "plate the soup",
    ("deliver", "soup"): "serve the soup",
}
"""Words of each verb and kind of task that is spoken of."""
_WAIT = "wait"
_MEANINGS = {deed: meaning for meaning, deed in DEEDS.items()} | {_WAIT: (_WAIT, "")}
_WORDINGS = ("i {mine}, please {theirs}", "i {mine}, you {theirs}", "please {theirs}, i {mine}")
_DEED = "|".join(sorted(_MEANINGS, key=len, reverse=True))
_PATTERNS = tuple(
    re.compile(wording.format(mine=f"(?P<mine>{_DEED})", theirs=f"(?P<theirs>{_DEED})")) for wording in _WORDINGS
)

_TELL, _ASK = "tell", "ask"
_POT_WORDINGS = {
    _TELL: ("use the {pot}", "only the {pot} pays", "we need soup from the {pot}"),
    _ASK: ("which pot pays", "tell me the pot"),
}
_POT_PATTERNS = tuple(
    re.compile(wording.format(pot="(?P<pot>[a-z]+ pot|pot [0-9]+)"))
    for wordings in _POT_WORDINGS.values()
    for wording in wordings
)

Meaning = tuple[str, str]


@dataclass(frozen=True)
class CookSaying:
    """A message: what the speaker does next and what it wants of the other.

    Attributes:
        mine: Verb and kind of the speaker's task; ("wait", "") if it has none.
        theirs: The same of the other's.
    """

    mine: Meaning
    theirs: Meaning


@dataclass(frozen=True)
class PotSaying:
    """A message about the wanted pot.

    Attributes:
        pot: Its name, such as "upper pot", which the speaker tells; empty: the speaker asks for it.
    """

    pot: str


Saying = CookSaying | PotSaying


def word(saying: Saying, rng: np.random.Generator) -> str:
    """A message of at most ten words, in a wording that `rng` chooses."""
    if isinstance(saying, PotSaying):
        wordings = _POT_WORDINGS[_TELL if saying.pot else _ASK]
        return wordings[int(rng.integers(len(wordings)))].format(pot=saying.pot)
    wording = _WORDINGS[int(rng.integers(len(_WORDINGS)))]
    return wording.format(mine=_deed(saying.mine), theirs=_deed(saying.theirs))


def understand(message: str) -> Saying | None:
    """The meaning of a message in one of our wordings, or `None`."""
    plain = " ".join(message.lower().split()).rstrip(".! ")
    for pattern in _PATTERNS:
        match = pattern.fullmatch(plain)
        if match:
            return CookSaying(_MEANINGS[match["mine"]], _MEANINGS[match["theirs"]])
    for pattern in _POT_PATTERNS:
        match = pattern.fullmatch(plain)
        if match:
            return PotSaying(match.groupdict().get("pot") or "")
    return None


def meaning(message: str, pots: Sequence[str]) -> str:
    """The pots among `pots` that a message names, whatever its wording.

    Returns:
        The name of the pot, or several in the order of the message, joined by "or"; the empty string if there is none.
    """
    plain = " ".join(message.lower().split())
    found = {match.start(): name for name in pots for match in re.finditer(rf"\b{re.escape(name)}\b", plain)}
    return " or ".join(dict.fromkeys(found[start] for start in sorted(found)))


def _deed(meaning: Meaning) -> str:
    return DEEDS.get(meaning, _WAIT)
