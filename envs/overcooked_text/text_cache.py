"""Cache of what a cook reads: equal scenes have equal words and numbers, and scenes come back all the time."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.effects import Agent, Food, Knife, Plate

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_text.rules import Kitchen

SCENES = 50_000
_limit = SCENES
_NOTHING = np.zeros(0, np.int8)
# Shared by all kitchens of a process that have the same rules and actions.
_KNOWN: dict[Hashable, dict[Hashable, Wording]] = {}


class Wording(NamedTuple):
    """Texts and numbers that one cook reads.

    Attributes:
        text: Its sight and the item in its hands.
        candidates: A phrase per action.
        mask: int8 (actions,): 1 where an action would do something. Do not change it.
        vector: float32 (n,): its sight as numbers, as `Kitchen.seen_vector` gives it. Do not change it.
    """

    text: str
    candidates: tuple[str, ...]
    mask: np.ndarray
    vector: np.ndarray


def wording(runner: Any, index: int) -> Wording:
    """Text, phrases and mask of one cook, as `observation_text.describe` and `observation_text.candidates` make them.

    A test plays at random and compares.

    Args:
        runner: Runner of the actions.
        index: The cook's index.
    """
    kitchen: Kitchen = runner.kitchen
    known = _KNOWN.setdefault(_rules(runner, index), {})
    sight = _sight(kitchen, index)
    key = (sight, *_memory(kitchen, index))
    found = known.get(key)
    if found is None:
        if len(known) >= _limit:
            known.clear()
        seen = known.get(sight)
        if seen is None:  # the memory, of which there is no word in the text, comes in many more forms than the sight
            text, vector = observation_text.describe(runner, index), kitchen.seen_vector(index)
            seen = known[sight] = Wording(text, (), _NOTHING, np.array(vector, np.float32))
        phrases, mask = observation_text.candidates(runner, index)
        found = known[key] = seen._replace(candidates=tuple(phrases), mask=np.array(mask, np.int8))
    return found


def remember(scenes: int = SCENES) -> None:
    """Forgets all words, and from now on remembers those of so many scenes per set of rules (for measurements).

    Args:
        scenes: At least 1.
    """
    global _limit
    _limit = scenes
    _KNOWN.clear()


def _rules(runner: Any, index: int) -> Hashable:
    kitchen: Kitchen = runner.kitchen
    return (runner.names, kitchen.map_name, kitchen.layout, kitchen.told(index), kitchen.num_agents,
            kitchen.view_radius, kitchen.legacy)  # fmt: skip


def _sight(kitchen: Kitchen, index: int) -> Hashable:
    """All that text and numbers of a cook depend on; what it may do depends on its memory of the rest, too."""
    seen = kitchen.sight(index)
    key: list[Hashable] = [index, int.from_bytes(kitchen.cells, "big") & _window(seen)]
    for thing in kitchen.things:
        if not seen[thing.cell]:
            key.append(None)
            continue
        key.append(thing.cell)
        if isinstance(thing, Food):
            key.append(thing.chops)
        elif isinstance(thing, Plate):
            key.append(tuple([food.name for food in thing.contents]))
        else:
            item = thing.held if isinstance(thing, Agent) else thing.on if isinstance(thing, Knife) else None
            key.append(item and item.name)
    return tuple(key)


def _memory(kitchen: Kitchen, index: int) -> tuple[Hashable, ...]:
    """All of a cook's memory on which its candidates depend: places of foods and bowls, and which foods are chopped.

    Boards and the delivery never move. A cook that is believed out of sight is passable wherever that is, unless it
    hides an item that is believed in the same place and would not be.
    """
    belief, seen = kitchen.beliefs[index], kitchen.sight(index)
    items = belief.cells[: len(kitchen.items)]
    return (
        *items,
        *[status >= 1 for status in belief.status],
        *[cell if seen[cell] or cell in items else -1 for cell in belief.cells[-kitchen.num_agents :]],
    )


@functools.cache
def _window(seen: bytes) -> int:
    """The seen cells as the bits of a number that holds a byte per cell."""
    return int.from_bytes(bytes(255 * flag for flag in seen), "big")
