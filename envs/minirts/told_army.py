"""The enemy's army types as a private fact: who is told it, and what it is in sentences and numbers.

The opponent draws its types at the start of a game, by the seed; the rules know nothing of who is told them. Everything
has the same shape for every commander. The types are in it only for who is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from rllib_llm_comm.envs.minirts.commanders.command_level import COUNTER, enemy_types
from rllib_llm_comm.envs.minirts.commanders.executor import Executor
from rllib_llm_comm.envs.minirts.engine import opponents
from rllib_llm_comm.envs.minirts.engine.units import ARMY, MADE_BY
from rllib_llm_comm.envs.minirts.side import PRODUCERS, Side
from rllib_llm_comm.envs.minirts.view.names import army_words, listing
from rllib_llm_comm.envs.told_to import ALL, ONE

NUMBERS = len(ARMY)
"""Number of entries on top of the vector where `told_to` is set: one per army type."""


def facts(opponent: str) -> tuple[str, ...]:
    """All that can be told of an opponent in the spelling of the infos' `private`; "strong" has no types to tell."""
    named = opponents.parse(opponent)
    free = [kind for kind in opponents.DRAWN_TYPES if kind not in named.types]
    drawn = combinations(free, max(0, named.num_types - len(named.types)))
    return tuple(army_words((*named.types, *more)) for more in drawn)


def private(side: Side, commander: int) -> str | None:
    """Private information of a commander, such as "spearmen", or None."""
    return army_words(enemy_types(side)) if side.told is not None and side.told[commander] else None


def told_sentences(side: Side, commander: int) -> list[str]:
    """Sentences by which a commander is told the enemy's types; none if `told_to` is not set."""
    if side.told is None:
        return []
    fact = private(side, commander)
    return [f"The enemy trains {fact}." if fact else "You are not told what the enemy trains."]


def rules(told_to: str | Sequence[str] | None, producers: str | None, num_agents: int) -> list[str]:
    """The rules of the settings `told_to` and `producers` in sentences that are the same in every game."""
    sentences = []
    if told_to is not None and num_agents > 1:
        if isinstance(told_to, str):
            who = {ALL: "Everybody", ONE: "One commander, drawn for each game,"}[told_to]
        else:
            who = f"Only {listing(name.capitalize() for name in told_to)}"
        plural = not isinstance(told_to, str) and len(told_to) > 1
        sentences.append(f"{who} {'are' if plural else 'is'} told what the enemy trains.")
    if producers is not None:
        sentences.append(f"Only {producers.capitalize()} puts up and owns buildings that train fighters.")
    return sentences


def numbers(side: Side, commander: int) -> np.ndarray:
    """float32 (6,): 1 per army type that the enemy makes, in the order of `ARMY`; zeros for who is not told."""
    told = side.told is not None and side.told[commander]
    types = enemy_types(side) if told else ()
    return np.array([float(kind in types) for kind in ARMY], np.float32)


# ---- what can be concluded without being told --------------------------------------------------------------


def seen_types(side: Side) -> tuple[int, ...]:
    """Army types of the enemies in sight, or else those that its known producers train and opponents draw."""
    counts = side.enemy_counts()
    fighters = tuple(kind for kind in ARMY if counts[kind])
    return fighters or tuple(kind for kind in opponents.DRAWN_TYPES if counts[int(MADE_BY[kind])])


def prepared_types(side: Side) -> tuple[int, ...]:
    """Army types against which the side prepares, as its producers show, finished or under construction."""
    houses = {unit.type for unit in side.own} | {unit.making for unit in side.own}
    return tuple(kind for kind in ARMY if int(MADE_BY[COUNTER[kind]]) in houses & set(PRODUCERS))


def assumed_types(executor: Executor, commander: int) -> tuple[int, ...]:
    """Army types that a commander takes the enemy to make by what it is told and sees; empty if nothing tells."""
    side = executor.side
    if side.told is None or side.told[commander]:
        return enemy_types(side)
    return seen_types(side) or prepared_types(side)


def is_prepared(side: Side) -> bool:
    """True if the side has, or puts up, a producer of what beats each type that the enemy makes."""
    return set(enemy_types(side)) <= set(prepared_types(side))
