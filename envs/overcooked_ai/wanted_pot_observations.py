"""Additions to observations where a pot is wanted: sentences, numbers, planes and symbols.

Everything has the same shape for every cook. Which pot is wanted is in it only for who is told; where soups came from
is in it for both, as both saw it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.layouts import Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.subgoals import pots_in_use
from rllib_llm_comm.envs.overcooked_ai.wanted import WantedPot, told_words

NUM_PLANES = 2
"""Planes more than in the original: the wanted pot, and the number (1, 2, ...) of the pot of each soup outside."""
SLOT = "wanted"
"""The slot of `entities` that comes on top, before "self"."""


# ---- words -------------------------------------------------------------------------------------------------


def wanted_sentence(kitchen: SoupKitchen, player: int) -> list[str]:
    """Sentence on the pot whose soups pay, as far as a player is told; none where all pay."""
    wanted = kitchen.wanted
    if wanted is None:
        return []
    if wanted.told[player]:
        return [f"Only soup from {places_of(kitchen.layout).phrases[wanted.pot]} brings points."]
    return ["Only soup from one of the pots brings points, and you are not told which."]


def origin_sentences(kitchen: SoupKitchen, player: int) -> list[str]:
    """The pot of each soup that is held or lies on a counter, as a player reads it."""
    if kitchen.wanted is None:
        return []
    phrases, sentences = places_of(kitchen.layout).phrases, []
    for where, pot in sorted(kitchen.wanted.origins.items(), key=lambda entry: str(entry[0])):
        if isinstance(where, int):
            soup = "Your soup" if where == player else f"{COOKS[where].capitalize()}'s soup"
        else:
            soup = f"The soup on {phrases[where]}"
        sentences.append(f"{soup} is from {phrases[pot]}.")
    return sentences


def wanted_rules(wanted: WantedPot) -> list[str]:
    """The rule of the wanted pot in sentences that are the same in every episode."""
    pots = f"{', '.join(f'the {name}' for name in wanted.names[:-1])} or the {wanted.names[-1]}"
    rules = [
        f"In each game only soups from one wanted pot bring points, {pots}, and {told_words(wanted.told_to)} which.",
    ]
    if wanted.anew:
        rules.append("After each soup that brings points the wanted pot is drawn anew.")
    return rules


# ---- numbers -----------------------------------------------------------------------------------------------


def count_numbers(layout: Layout) -> int:
    """Length of the list that `numbers` gives."""
    return 3 * len(pots_in_use(layout))


def numbers(kitchen: SoupKitchen, player: int) -> np.ndarray:
    """float32 (3 * pots,): one-hot the wanted pot (zeros for who is not told), the pot of the soup in the own hands,
    and of that in the other's.
    """
    wanted = _wanted(kitchen)
    blocks = [wanted.pot if wanted.told[player] else None, wanted.origins.get(player), wanted.origins.get(1 - player)]
    return np.array([float(pot == there) for there in blocks for pot in wanted.pots], np.float32)


def planes(kitchen: SoupKitchen, told: bool) -> np.ndarray:
    """uint8 (W, H, 2): 1 at the wanted pot, if it is told; the number of its pot where a soup outside of pots is."""
    wanted, layout = _wanted(kitchen), kitchen.layout
    out = np.zeros((layout.width, layout.height, NUM_PLANES), np.uint8)
    if told:
        x, y = wanted.pot
        out[x, y, 0] = 1
    for (x, y), number in _soups(kitchen):
        out[x, y, 1] = number + 1
    return out


# ---- symbols -----------------------------------------------------------------------------------------------


def count_symbols(layout: Layout) -> int:
    """Number of symbols on top of those of `entities`: the wanted pot, and a soup from each pot."""
    return 1 + len(pots_in_use(layout))


@lru_cache(maxsize=32)
def symbol_sentences(layout: Layout) -> tuple[str, ...]:
    """One sentence for each of these symbols."""
    phrases = places_of(layout).phrases
    soups = [f"A soup from {phrases[pot]} brings points while that pot is wanted." for pot in pots_in_use(layout)]
    return ("The wanted pot is the one whose soups bring points.", *soups)


def with_symbols(symbols: np.ndarray, kitchen: SoupKitchen, first: int) -> np.ndarray:
    """int16 (2, H, W, K + 1): the map of symbols with the slot `SLOT` before the last.

    Args:
        symbols: int16 (2, H, W, K); see `rllib_llm_comm.envs.overcooked_ai.entities`.
        kitchen: The game, with a wanted pot.
        first: The number of the first symbol that comes on top.
    """
    wanted = _wanted(kitchen)
    own = np.zeros(symbols.shape[:3], np.int16)
    for player in range(2):
        if wanted.told[player]:
            own[player, wanted.pot[1], wanted.pot[0]] = first
    for (x, y), number in _soups(kitchen):
        own[:, y, x] = first + 1 + number
    return np.concatenate([symbols[..., :-1], own[..., None], symbols[..., -1:]], axis=-1)


def _soups(kitchen: SoupKitchen) -> list[tuple[Cell, int]]:
    """Cell and number of the pot of each soup outside of pots; one in the hands is where its cook stands."""
    wanted = _wanted(kitchen)
    return [
        (kitchen.cook(where).cell if isinstance(where, int) else where, wanted.pots.index(pot))
        for where, pot in wanted.origins.items()
    ]


def _wanted(kitchen: SoupKitchen) -> WantedPot:
    assert kitchen.wanted is not None
    return kitchen.wanted
