"""The setting `told_to`: the agents that are told what others may not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.core.settings import Several

ALL, ONE, PLANNER = "all", "one", "planner"
Name = Literal["alice", "bob", "carol"]
NAMES: tuple[Name, ...] = get_args(Name)
"""Names of agents, in the order of their numbers."""
_T = TypeVar("_T")
_N = TypeVar("_N")


def each_once(values: Any) -> Any:
    """Refuses a list in which something is twice."""
    if not isinstance(values, str) and len(set(values)) < len(values):
        raise PydanticCustomError("value_error", "a list that names each only once")
    return values


def no_bare_name(value: Any) -> Any:
    """Refuses a name that is no list of names, with the list that may be meant."""
    if isinstance(value, str) and value in NAMES:
        raise PydanticCustomError("value_error", f"a list, such as [{value!r}]")
    return value


Nonempty: TypeAlias = Annotated[Several[_T], Field(min_length=1)]
"""Settings with at least one value."""
Distinct: TypeAlias = Annotated[Nonempty[_T], AfterValidator(each_once)]
"""Settings with at least one value, none of them twice."""
Told: TypeAlias = Annotated[_T | Nonempty[_N], AfterValidator(each_once), BeforeValidator(no_bare_name)]
"""Who is told something: one of some words, such as `Literal["all", "one"]`, or agents by name."""


def require_agents(told_to: str | Sequence[str] | None, agents: Sequence[str]) -> None:
    """Refuses names of agents that are not in the game.

    Raises:
        UserError: If one is named.
    """
    for name in [] if told_to is None or isinstance(told_to, str) else told_to:
        require_choice("told_to", name, agents)


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
    """Per agent whether it is told in an episode; `rng` draws for "one"."""
    if told_to == ALL:
        return (True,) * len(names)
    if told_to == PLANNER:
        return (False,) * len(names)
    if told_to == ONE:
        chosen = int(rng.integers(len(names)))
        return tuple(k == chosen for k in range(len(names)))
    return tuple(name in told_to for name in names)
