"""What the scripted cooks would say to each other, and what such messages mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_ai.planner import Task
    from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen

_DEEDS = {
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
_WAIT = "wait"
_MEANINGS = {deed: meaning for meaning, deed in _DEEDS.items()} | {_WAIT: (_WAIT, "")}
_WORDINGS = ("i {mine}, please {theirs}", "i {mine}, you {theirs}", "please {theirs}, i {mine}")
_DEED = "|".join(sorted(_MEANINGS, key=len, reverse=True))
_PATTERNS = tuple(
    re.compile(wording.format(mine=f"(?P<mine>{_DEED})", theirs=f"(?P<theirs>{_DEED})")) for wording in _WORDINGS
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


def say(kitchen: Kitchen, player: int) -> CookSaying:
    """What a scripted cook would say now, seeing everything.

    Args:
        kitchen: The game.
        player: 0 or 1.
    """
    # Late: messages of other games are compared, too, and need no compiled rules for that.
    from rllib_llm_comm.envs.overcooked_ai.planner import plan

    tasks = plan(kitchen)
    return CookSaying(_meaning(tasks[player]), _meaning(tasks[1 - player]))


def word(saying: CookSaying, rng: np.random.Generator) -> str:
    """A message of at most ten words.

    Args:
        saying: What it means.
        rng: Chooses among wordings.
    """
    wording = _WORDINGS[int(rng.integers(len(_WORDINGS)))]
    return wording.format(mine=_deed(saying.mine), theirs=_deed(saying.theirs))


def understand(message: str) -> CookSaying | None:
    """The meaning of a message in one of our wordings, or `None`."""
    plain = " ".join(message.lower().split()).rstrip(".! ")
    for pattern in _PATTERNS:
        match = pattern.fullmatch(plain)
        if match:
            return CookSaying(_MEANINGS[match["mine"]], _MEANINGS[match["theirs"]])
    return None


def _meaning(task: Task) -> Meaning:
    return (task.verb, task.kind) if (task.verb, task.kind) in _DEEDS else (_WAIT, "")


def _deed(meaning: Meaning) -> str:
    return _DEEDS.get(meaning, _WAIT)
