"""Games that the original package saved (`AgentEvaluator.save_traj_as_json`): `ep_states`, `ep_actions` and so on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import ORIGINAL_NAMES, get_layout, portable
from rllib_llm_comm.envs.overcooked_ai.original_layouts import PREFIX, original_kitchens
from rllib_llm_comm.envs.overcooked_ai.original_rules import KEYS, read_rows
from rllib_llm_comm.envs.overcooked_ai.original_states import cook_times, read_action, read_state

_ORDERS = ("all_orders", "bonus_orders")


@dataclass(frozen=True)
class OriginalGame:
    """One saved game.

    Attributes:
        name: The layout's name and the number of the game in its file, from 1.
        layout: The kitchen's description, for `Kitchen`.
        dynamics: "old" or "new".
        horizon: Steps of an episode if they are told, else `None`.
        actions: Primitive actions of both players, one pair per step.
        states: As `Kitchen.snapshot` gives them: before each step, and perhaps after the last.
        cook_times: Cook times of started soups that each of these states tells, by place.
        rewards: Reward for soups of both players together per step; empty if not saved.
    """

    name: str
    layout: dict[str, Any]
    dynamics: str
    horizon: int | None
    actions: list[tuple[int, int]]
    states: list[dict[str, Any]]
    cook_times: list[dict[tuple[int, ...], float]]
    rewards: list[float]


def read_games(
    trajectories: Mapping[str, Any], layout: Any = None, dynamics: str | None = None
) -> Iterator[OriginalGame]:
    """The games of a file of the original.

    `mdp_params` in such files tell the map and the orders, but neither points nor cook times. These are taken from the
    original's kitchen of that name if it has the same map, else they are those of a kitchen that tells nothing (20
    points, 20 steps), unless `layout` tells them.

    Args:
        trajectories: Content of the JSON file.
        layout: The kitchen, for files that do not tell enough; see
            `rllib_llm_comm.envs.overcooked_ai.layouts.get_layout`.
        dynamics: "old" or "new"; `None`: as `mdp_params` say, else "new", as the original is by default.

    Yields:
        One game after the other.

    Raises:
        UserError: If something cannot be read.
    """
    for number, (states, actions) in enumerate(
        zip(trajectories["ep_states"], trajectories["ep_actions"], strict=True), 1
    ):
        params = _of(trajectories.get("mdp_params"), number)
        told = {key: value for key, value in params.items() if key in KEYS and value is not None}
        old = told.pop("old_dynamics", False)
        described = {**_base(told, layout), **told}
        # The orders that count are those of the state.
        if "all_orders" in states[0]:
            described["start_state"] = {**states[0], **{key: states[0].get(key, []) for key in _ORDERS}}
        recipes = get_layout(described).recipes
        rewards = trajectories.get("ep_rewards")
        horizon = _of(trajectories.get("env_params"), number).get("horizon")
        joint = [pair for pair in actions if None not in pair]  # a saved last state has no actions
        yield OriginalGame(
            f"{told.get('layout_name', 'custom')}/{number}",
            described,
            dynamics or ("old" if old else "new"),
            None if horizon is None else int(min(horizon, 2**15 - 1)),
            [(read_action(first), read_action(second)) for first, second in joint],
            [read_state(state, recipes) for state in states],
            [cook_times(state) for state in states],
            [float(reward) for reward in rewards[number - 1]] if rewards else [],
        )


def _of(entries: Any, number: int) -> Mapping[str, Any]:
    """An entry of a game, told once for all or for each."""
    if isinstance(entries, Mapping):
        return entries
    return entries[number - 1] if isinstance(entries, Sequence) and len(entries) >= number else {}


def _base(told: Mapping[str, Any], layout: Any) -> dict[str, Any]:
    """The description that `mdp_params` are laid over."""
    if layout is not None:
        given = portable(layout)
        if isinstance(given, str):
            kitchen = get_layout(given)
            theirs = ORIGINAL_NAMES.get(kitchen.name, kitchen.name.removeprefix(PREFIX))
            return dict(original_kitchens()[theirs])
        return dict(given) if isinstance(given, Mapping) else {"grid": given}
    name = str(told.get("layout_name", ""))
    known = original_kitchens().get(name, {})
    if "grid" in told or "terrain" in told:
        return dict(known) if known and read_rows(known) == read_rows(told) else {}
    if not known:
        raise UserError(
            f"The saved games tell no map and their `layout_name` is {name!r}, which is no kitchen of the original; "
            "give the kitchen as `layout`."
        )
    return dict(known)
