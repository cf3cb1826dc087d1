"""Search spaces in plain data: `{grid_search: [...]}`, `{choice: [...]}`, `{loguniform: [low, high]}`, ...

`{by_seed: [...]}` is no space of its own: each trial takes the value at the place of its seed in `seed: {grid_search:
[...]}`. References to a sweep over the same seeds become such a list.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rllib_llm_comm.core.errors import UserError, shown

GRID = "grid_search"
BY_SEED = "by_seed"
# Name in a file -> number of arguments of Tune's function of that name; None: one list of options.
_DISTRIBUTIONS: dict[str, int | None] = {
    "choice": None,
    "uniform": 2,
    "loguniform": 2,
    "quniform": 3,
    "qloguniform": 3,
    "randn": 2,
    "randint": 2,
    "qrandint": 3,
    "lograndint": 2,
}


SEARCHES = (GRID, BY_SEED, *_DISTRIBUTIONS)


def search_kind(value: Any) -> str | None:
    """The kind of search that a config value asks for, or `None` if it is an ordinary value."""
    if isinstance(value, dict) and len(value) == 1:
        key = next(iter(value))
        if key in SEARCHES:
            return str(key)
    return None


def check_search(setting: str, value: dict[str, Any]) -> list[Any]:
    """Checks a search space (a dict for which `search_kind` is not `None`).

    Returns:
        Values of the space that can be checked as if they had been given alone.

    Raises:
        UserError: If the arguments do not fit the kind.
    """
    kind = next(iter(value))
    arguments = value[kind]
    count = _DISTRIBUTIONS.get(kind)
    if not isinstance(arguments, list) or not arguments:
        raise UserError(f"`{setting}.{kind}` is {arguments!r} but must be a list such as [0, 1].")
    if count is not None:
        _check_numbers(f"{setting}.{kind}", kind, arguments, count)
    return arguments if count is None else arguments[:1]


def _check_numbers(setting: str, kind: str, numbers: list[Any], count: int) -> None:
    if len(numbers) != count or not all(
        isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in numbers
    ):
        raise UserError(
            f"`{setting}` is {shown(numbers)} but must be a list of {count} numbers, none of them infinite or nan."
        )
    demands = {
        "two whole numbers first": "int" not in kind or all(isinstance(one, int) for one in numbers[:2]),
        "the smaller number first": kind == "randn" or numbers[0] < numbers[1],
        "numbers above 0": "log" not in kind or numbers[0] > 0,
        "a deviation of at least 0": kind != "randn" or numbers[1] >= 0,
        "a step above 0": count < 3 or numbers[2] > 0,
    }
    for demand, met in demands.items():
        if not met:
            raise UserError(f"`{setting}` is {shown(numbers)} but must have {demand}.")


def check_searches(setting: str, value: Any) -> None:
    """Checks all search spaces in a config, or in a value in it."""
    for place, space in spaces_in(value, setting):
        if search_kind(space):
            check_search(place, space)


def has_search(value: Any) -> bool:
    """True if a search space occurs anywhere in a config (plain data or Tune's own objects)."""
    return any(True for _ in spaces_in(value))


def has_draws(value: Any) -> bool:
    """True if some values of a config are drawn anew for each trial."""
    return any(search_kind(space) not in (GRID, BY_SEED) for _, space in spaces_in(value))


def grid_points(value: Any) -> int:
    """The number of combinations of all `grid_search` lists in a config."""
    return math.prod(len(space[GRID]) for _, space in spaces_in(value) if search_kind(space) == GRID)


def seeds_of(config: Mapping[str, Any]) -> list[Any]:
    """The seeds over which a config's grid goes; none without such a grid."""
    seed: Any = config.get("seed")
    return list(seed[GRID]) if search_kind(seed) == GRID else []


def check_by_seed(setting: str, value: Any, seeds: Sequence[Any]) -> None:
    """Refuses a `by_seed` in a config, or in a value in it, that has not one value per seed (`seeds_of`)."""
    for place, space in spaces_in(value, setting):
        if search_kind(space) != BY_SEED:
            continue
        if not seeds:
            raise UserError(
                f"`{place}.{BY_SEED}` gives a value per seed, but `seed` lists none; write for example "
                f"`seed: {{{GRID}: [0, 1]}}`."
            )
        if len(space[BY_SEED]) != len(seeds):
            raise UserError(
                f"`{place}.{BY_SEED}` has {len(space[BY_SEED])} values but `seed` lists {len(seeds)}; give one each."
            )


def to_tune(value: Any, seeds: Sequence[Any] = ()) -> Any:
    """Replaces distributions in a config, or in a value in it, by Tune's objects; Tune reads `grid_search` itself.

    `by_seed` refers to the given seeds, those of the config's grid.
    """
    kind = search_kind(value)
    if kind == GRID:
        return value
    if kind == BY_SEED:
        from ray import tune

        by_seed = dict(zip(seeds, value[kind], strict=True))
        # `first_point` asks outside of a trial.
        return tune.sample_from(lambda config: by_seed[config["seed"] if config is not None else seeds[0]])
    if kind:
        from ray import tune

        arguments = value[kind]
        make = getattr(tune, kind)
        return make(arguments) if _DISTRIBUTIONS[kind] is None else make(*arguments)
    if isinstance(value, dict):
        return {key: to_tune(item, seeds) for key, item in value.items()}
    return value


def first_point(value: Any) -> Any:
    """A config with every search space replaced by one value of it."""
    kind = search_kind(value)
    if kind:
        return value[kind][0]
    if isinstance(value, dict):
        return {key: first_point(item) for key, item in value.items()}
    return value.sample() if _is_domain(value) else value


def single_points(value: Any) -> Iterator[Any]:
    """A config's first point, then one for each other value of each search space, the others at their first."""
    yield first_point(value)
    for key, item in value.items():
        if (kind := search_kind(item)) and _DISTRIBUTIONS.get(kind) is None:
            yield from (first_point({**value, key: option}) for option in item[kind][1:])
        elif isinstance(item, dict):
            yield from ({**first_point(value), key: point} for point in itertools.islice(single_points(item), 1, None))


def flat_settings(value: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their path below `above`, joined with dots; search spaces and lists stay whole."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item and not search_kind(item):
            yield from flat_settings(item, f"{above}{key}.")
        else:
            yield f"{above}{key}", item


def spaces_in(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The search spaces in a config, plain data or Tune's own objects, and their places below `place`."""
    if search_kind(value) or _is_domain(value):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from spaces_in(item, f"{place}.{key}" if place else str(key))


def _is_domain(value: Any) -> bool:
    if type(value).__module__ != "ray.tune.search.sample":
        return False
    from ray.tune.search.sample import Domain

    return isinstance(value, Domain)
