"""Observations of agents: their parts and the spaces of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rllib_llm_comm.envs.interface import entity_spaces, text_spaces
from rllib_llm_comm.envs.overcooked_ai import text
from rllib_llm_comm.envs.overcooked_ai import wanted_pot_observations as wanted_pot
from rllib_llm_comm.envs.overcooked_ai.encoding import NUM_CHANNELS, NUM_FEATURES
from rllib_llm_comm.envs.overcooked_ai.entities import SLOTS, entities, entity_manual, num_symbols
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen

DEFAULT_PARTS = ("vector", "text")
VECTORS = ("features", "planes")
_LARGEST = 64


def observation_space(kitchen: SoupKitchen, parts: tuple[str, ...], vector: str, num_actions: int) -> spaces.Dict:
    """The space of an agent's observations: those of the settings `observe` and `vector`."""

    layout = kitchen.layout
    size = (layout.width, layout.height, NUM_CHANNELS)
    length = NUM_FEATURES if vector == "features" else int(np.prod(size))
    slots, symbols = len(SLOTS), num_symbols(layout)
    largest = max(_LARGEST, *layout.recipes.times)
    if kitchen.wanted is not None:
        size = (layout.width, layout.height, NUM_CHANNELS + wanted_pot.NUM_PLANES)
        length = NUM_FEATURES + wanted_pot.count_numbers(layout) if vector == "features" else int(np.prod(size))
        slots, symbols = slots + 1, symbols + wanted_pot.count_symbols(layout)
    make: dict[str, Callable[[], dict[str, spaces.Space[Any]]]] = {
        "vector": lambda: {"vector": spaces.Box(-largest, largest, (length,), np.float32)},
        "text": lambda: text_spaces(num_actions),
        "planes": lambda: {"planes": spaces.Box(0, largest, size, np.uint8)},
        "state": lambda: {"state": spaces.Box(0, largest, (int(np.prod(size)),), np.float32)},
        "entities": lambda: entity_spaces((layout.height, layout.width, slots), symbols),
    }
    chosen = {name: space for part in parts for name, space in make[part]().items()}
    return spaces.Dict({**chosen, "action_mask": spaces.Box(0, 1, (num_actions,), np.int8)})


def whole_space(kitchen: SoupKitchen) -> spaces.Box:
    """The space of `whole`."""
    space: spaces.Box = observation_space(kitchen, ("state",), VECTORS[0], 1)["state"]  # type: ignore[assignment]
    return space


def whole(kitchen: SoupKitchen) -> np.ndarray:
    """The whole game, float32 (n,): the planes of player 0 as a vector, with the wanted pot whoever is told."""
    return _planes(kitchen)[1].reshape(-1).astype(np.float32)


def observations(
    kitchen: SoupKitchen,
    parts: tuple[str, ...],
    vector: str,
    soups: int,
    masks: Sequence[np.ndarray],
    phrases: Callable[[int], list[str]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Observations of both players.

    Args:
        kitchen: The game.
        parts: As of `observation_space`.
        vector: As of `observation_space`.
        soups: Soups that brought points so far.
        masks: Action mask per player.
        phrases: Gives the candidate phrases of a player (asked only if there is text).
    """
    seen: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    in_planes = vector == "planes"
    if "vector" in parts and not in_planes:
        rows = kitchen.features().astype(np.float32)
        for i in range(2):
            seen[i]["vector"] = (
                rows[i] if kitchen.wanted is None else np.append(rows[i], wanted_pot.numbers(kitchen, i))
            )
    if in_planes or "planes" in parts or "state" in parts:
        planes, whole = _planes(kitchen)
        if in_planes and "vector" in parts:
            flat = planes.astype(np.float32).reshape(2, -1)
            seen[0]["vector"], seen[1]["vector"] = flat[0], flat[1]
        if "planes" in parts:
            seen[0]["planes"], seen[1]["planes"] = planes[0], planes[1]
        if "state" in parts:  # the same for both: as player 0 sees it
            state = whole.reshape(-1).astype(np.float32)
            seen[0]["state"], seen[1]["state"] = state, state.copy()
    if "entities" in parts:
        told, symbols = _symbols(kitchen)
        for i in range(2):
            seen[i].update(entities=symbols[i], manual=told, subgoal="")
    if "text" in parts:
        for i in range(2):
            words = text.observation_text(kitchen, i, soups)
            seen[i].update(text=words, candidates=tuple(phrases(i)), subgoal="")
    seen[0]["action_mask"], seen[1]["action_mask"] = masks
    return seen


def _planes(kitchen: SoupKitchen) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (2, W, H, C): what each player sees, and (W, H, C): the whole game, as player 0 sees it."""
    planes, wanted = kitchen.lossless().view(np.uint8), kitchen.wanted
    if wanted is None:
        return planes, planes[0]
    own = np.stack([wanted_pot.planes(kitchen, told) for told in wanted.told])
    whole = np.concatenate([planes[0], wanted_pot.planes(kitchen, told=True)], axis=-1)
    return np.concatenate([planes, own], axis=-1), whole


def _symbols(kitchen: SoupKitchen) -> tuple[str, np.ndarray]:
    """The manual, and int16 (2, H, W, K): the symbols of each cell as each player sees them."""
    symbols = entities(kitchen.state, kitchen.layout)
    if kitchen.wanted is not None:
        symbols = wanted_pot.with_symbols(symbols, kitchen, first=num_symbols(kitchen.layout))
    return manual_of(kitchen), symbols


def manual_of(kitchen: SoupKitchen) -> str:
    """The part `manual` of observations, the same for the whole game."""
    sentences = entity_manual(kitchen.layout, kitchen.dynamics)
    if kitchen.wanted is not None:
        symbols = wanted_pot.symbol_sentences(kitchen.layout)
        sentences = (*sentences, *wanted_pot.wanted_rules(kitchen.wanted), *symbols)
    return " ".join(sentences)
