"""Golden episodes and single transitions of the onion-soup kitchen, and games that the original itself saved."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.golden import GoldenReport
from rllib_llm_comm.envs.overcooked_ai.layouts import ORIGINAL_NAMES, get_layout, portable
from rllib_llm_comm.envs.overcooked_ai.original import (
    PREFIX,
    OriginalRules,
    cook_times,
    original_kitchens,
    read_action,
    read_rows,
    read_state,
)
from rllib_llm_comm.envs.overcooked_ai.recipes import contents
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON, KitchenStep, SoupKitchen
from rllib_llm_comm.envs.overcooked_ai.text import soup_of

_ORDERS = ("all_orders", "bonus_orders")


@dataclass(frozen=True)
class OriginalGame:
    """One saved game.

    Attributes:
        name: The layout's name and the number of the game in its file, from 1.
        layout: The kitchen's description, for `SoupKitchen`.
        dynamics: "old" or "new".
        horizon: Steps of an episode if they are told, else `None`.
        actions: Primitive actions of both players, one pair per step.
        states: As `SoupKitchen.snapshot` gives them: before each step, and perhaps after the last.
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
        layout: The kitchen, for files that do not tell enough; see `layouts.get_layout`.
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
        told = {key: value for key, value in params.items() if key in OriginalRules.model_fields and value is not None}
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
        if not known:
            return {}
        own, recorded = (read_rows(OriginalRules.checked("layout", params)) for params in (known, told))
        return dict(known) if own == recorded else {}
    if not known:
        raise UserError(
            f"The saved games tell no map and their `layout_name` is {name!r}, which is no kitchen of the original; "
            "give the kitchen as `layout`."
        )
    return dict(known)


_LARGEST = 64 * 2**20


def replay(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays an episode, or a block of single transitions, and notes differences.

    Raises:
        UserError: If its kind is unknown.
    """
    kitchen = SoupKitchen(episode["layout"], episode["dynamics"], int(episode.get("horizon", 400)))
    if episode["kind"] == "episode":
        _replay_episode(episode, kitchen, report)
    elif episode["kind"] == "transitions":
        _replay_transitions(episode, kitchen, report)
    else:
        raise UserError(f"`kind` is {episode['kind']!r} but must be 'episode' or 'transitions'.")


def _replay_episode(episode: Mapping[str, Any], kitchen: SoupKitchen, report: GoldenReport) -> None:
    planes = _array(episode["lossless"])
    # Left out where the original takes too long for them.
    features = _array(episode["featurize"]) if "featurize" in episode else [None] * len(planes)
    name = str(episode["id"])
    report.compare(name, 0, "state", episode["states"][0], kitchen.snapshot())
    _compare_encodings(report, name, 0, planes[0], features[0], kitchen)
    for number, actions in enumerate(episode["actions"], 1):
        result = kitchen.step(actions)
        report.steps += 1
        at = number - 1
        expected = (episode["sparse_r"][at], episode["shaped_r"][at], episode["events"][at])
        _compare_result(report, name, number, expected, result)
        report.compare(name, number, "state", episode["states"][number], kitchen.snapshot())
        report.compare(name, number, "done", bool(episode["done"][at]), kitchen.over)
        _compare_encodings(report, name, number, planes[number], features[number], kitchen)


def _replay_transitions(episode: Mapping[str, Any], kitchen: SoupKitchen, report: GoldenReport) -> None:
    planes, features = _array(episode["lossless_next"]), _array(episode["featurize_next"])
    name = str(episode["id"])
    for number, (before, actions, after, *expected) in enumerate(episode["cases"], 1):
        kitchen.restore(before)
        report.compare(name, number, "state before", before, kitchen.snapshot())
        result = kitchen.step(actions)
        report.steps += 1
        _compare_result(report, name, number, expected, result)
        report.compare(name, number, "state", after, kitchen.snapshot())
        _compare_encodings(report, name, number, planes[number - 1], features[number - 1], kitchen)


def _compare_result(report: GoldenReport, name: str, number: int, expected: Sequence[Any], result: KitchenStep) -> None:
    sparse, shaped, events = expected
    report.compare(name, number, "sparse reward", list(sparse), list(result.sparse))
    report.compare(name, number, "shaped reward", list(shaped), list(result.shaped))
    ours = sorted([event, i] for i in range(2) for event in result.events[i])
    report.compare(name, number, "events", sorted(events), ours)


def _compare_encodings(
    report: GoldenReport, name: str, number: int, planes: np.ndarray, features: np.ndarray | None, kitchen: SoupKitchen
) -> None:
    ours = kitchen.lossless()
    if planes.shape != ours.shape or (planes != ours).any():
        report.compare(name, number, "lossless encoding", planes.tolist(), ours.tolist())
    if features is not None:
        report.compare(name, number, "features", features.tolist(), kitchen.features().tolist())


def _array(packed: Mapping[str, Any]) -> np.ndarray:
    """An array from base64 of zlib of its bytes, in bounds."""
    raw = zlib.decompressobj().decompress(base64.b64decode(packed["b64zlib"]), _LARGEST)
    return np.frombuffer(raw, np.dtype(packed["dtype"])).reshape(packed["shape"])


def replay_saved_games(
    trajectories: Mapping[str, Any], report: GoldenReport, layout: Any = None, dynamics: str | None = None
) -> None:
    """Replays all games of a file, read by `read_games`, and notes differences.

    After a state that differs the game goes on from the recorded one, so that each difference is told once.
    """
    games = 0
    for game in read_games(trajectories, layout, dynamics):
        _replay_game(game, report)
        games += 1
    report.episodes += games - 1  # a file counts as one


def _replay_game(game: OriginalGame, report: GoldenReport) -> None:
    kitchen = SoupKitchen(game.layout, game.dynamics, game.horizon or HORIZON)
    kitchen.restore(game.states[0])
    _compare_times(game, 0, kitchen, report)
    for number, actions in enumerate(game.actions, 1):
        result = kitchen.step(actions)
        report.steps += 1
        if game.rewards:
            report.compare(game.name, number, "reward", game.rewards[number - 1], float(sum(result.sparse)))
        if number < len(game.states):
            recorded, ours = game.states[number], kitchen.snapshot()
            report.compare(game.name, number, "state", recorded, ours)
            if recorded != ours:
                kitchen.restore(recorded)
            _compare_times(game, number, kitchen, report)


def _compare_times(game: OriginalGame, number: int, kitchen: SoupKitchen, report: GoldenReport) -> None:
    """Cook times that the recorded state tells; the state of the kitchen is that one."""
    for place, time in game.cook_times[number].items():
        cooks = [kitchen.cook(i) for i in range(2)]
        soup = next((cook.held for cook in cooks if cook.cell == place), None) or kitchen.item((place[0], place[1]))
        if soup is not None and soup.time != time:
            told = f"cook time of {soup_of(contents(soup.onions, soup.tomatoes))}"
            report.compare(game.name, number, told, time, soup.time)
