"""Cache of the texts that a cook reads: equal scenes have equal words, and scenes come back all the time."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from rllib_llm_comm.envs.overcooked_text import observation_text
from rllib_llm_comm.envs.overcooked_text.effects import Item

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_text.rules import Kitchen

SCENES = 50_000
_limit = SCENES
# Shared by all kitchens of a process that have the same rules and actions.
_KNOWN: dict[Hashable, dict[Hashable, Wording]] = {}


class Wording(NamedTuple):
    """Texts that one cook reads.

    Attributes:
        text: Its sight and the item in its hands.
        candidates: A phrase per action.
        mask: 0/1 per action.
    """

    text: str
    candidates: tuple[str, ...]
    mask: tuple[int, ...]


def wording(runner: Any, index: int) -> Wording:
    """Text, phrases and mask of one cook, as `observation_text.describe` and `observation_text.candidates` make them.

    A test plays at random and compares.

    Args:
        runner: Runner of the actions.
        index: The cook's index.
    """
    known = _KNOWN.setdefault(_rules(runner, index), {})
    key = _scene(runner.kitchen, index)
    found = known.get(key)
    if found is None:
        if len(known) >= _limit:
            known.clear()
        phrases, mask = observation_text.candidates(runner, index)
        found = known[key] = Wording(observation_text.describe(runner, index), tuple(phrases), tuple(mask))
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


def _scene(kitchen: Kitchen, index: int) -> Hashable:
    """All that the words of a cook depend on: what it sees, and its memory of the rest."""
    belief, seen = kitchen.beliefs[index], kitchen.sight(index)
    return (
        index,
        int.from_bytes(kitchen.cells, "big") & _window(seen),
        *belief.cells,
        *belief.status,
        *[food.chops if seen[food.cell] else None for food in kitchen.foods.values()],
        *[_name(agent.held) if seen[agent.cell] else 0 for agent in kitchen.agents],
        *[_name(board.on) if seen[board.cell] else 0 for board in kitchen.knives],
        *[tuple([food.name for food in plate.contents]) if seen[plate.cell] else 0 for plate in kitchen.plates],
        _name(kitchen.delivery.on) if seen[kitchen.delivery.cell] else 0,
    )


@functools.cache
def _window(seen: bytes) -> int:
    """The seen cells as the bits of a number that holds a byte per cell."""
    return int.from_bytes(bytes(255 * flag for flag in seen), "big")


def _name(item: Item | None) -> str | None:
    return None if item is None else item.name
