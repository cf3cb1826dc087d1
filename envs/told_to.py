"""The setting `told_to`: the agents that are told what others may not know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rllib_llm_comm.core.errors import UserError, require_choice

ALL, ONE, PLANNER = "all", "one", "planner"


def check_told_to(
    told_to: str | Sequence[str], names: Sequence[str], fact: str, planner: bool = False
) -> str | tuple[str, ...]:
    """Checks the setting.

    Args:
        told_to: "all", "one" (drawn for each episode), names, or "planner" (no agent).
        names: Names of the agents.
        fact: The thing that is told, in messages, such as "order".
        planner: Whether "planner" is allowed: planners of this game see what is told.

    Returns:
        The setting, names in the order of the agents.

    Raises:
        UserError: For a value that is not allowed.
    """
    if isinstance(told_to, str):
        if told_to in names:
            raise UserError(f"`told_to` is {told_to!r} but must be 'all', 'one' or a list; write [{told_to!r}].")
        require_choice("told_to", told_to, (ALL, ONE, PLANNER) if planner else (ALL, ONE))
        return told_to
    if not isinstance(told_to, (list, tuple)) or not told_to:
        raise UserError(
            f"`told_to` is {told_to!r} but must be 'all', 'one' or a list of at least one of {list(names)}; "
            f"somebody has to know the {fact}."
        )
    for name in told_to:
        require_choice("told_to", name, names)
    check_each_once("told_to", told_to)
    return tuple(name for name in names if name in told_to)


def check_each_once(setting: str, names: Sequence[str]) -> None:
    """Checks that a list has no name twice.

    Args:
        setting: The setting's name as the user writes it.
        names: Its value.

    Raises:
        UserError: If it has.
    """
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise UserError(f"`{setting}` is {names!r} but must name {twice!r} only once.")


def fact_generators(seed: int, count: int) -> tuple[np.random.Generator, ...]:
    """Generators of what an episode hides, one per kind of thing that is drawn.

    They differ from `default_rng(seed)`, from which players, walkers and roles draw. `default_rng([seed, 0])` would be
    the very same stream: whoever draws by the seed of the episode would then draw what it hides.

    Args:
        seed: Of the episode, >= 0.
        count: Number of generators.
    """
    return tuple(np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(count))


def draw_told(told_to: str | Sequence[str], names: Sequence[str], rng: np.random.Generator) -> tuple[bool, ...]:
    """Per agent whether it is told in an episode.

    Args:
        told_to: As checked.
        names: Names of the agents.
        rng: Draws for "one".
    """
    if told_to == ALL:
        return (True,) * len(names)
    if told_to == PLANNER:
        return (False,) * len(names)
    if told_to == ONE:
        chosen = int(rng.integers(len(names)))
        return tuple(k == chosen for k in range(len(names)))
    return tuple(name in told_to for name in names)
