"""Golden episodes of the textual 7x7 kitchen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.envs.golden import GoldenReport
from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner
from rllib_llm_comm.envs.overcooked_text.layouts import MAPS
from rllib_llm_comm.envs.overcooked_text.rules import TextKitchen

_OVERCOOKED_REWARDS = {
    "subtask finished": "chop",
    "correct delivery": "correct_delivery",
    "wrong delivery": "wrong_delivery",
    "step penalty": "step",
}


def replay(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays one episode and notes differences."""
    require_choice("map", episode["map"], MAPS)
    kitchen = TextKitchen(
        map_name=episode["map"],
        layout=episode["layout"],
        recipe=episode["task"],
        num_agents=episode["n_agents"],
        view_radius=episode["obs_radius"],
        rewards={_OVERCOOKED_REWARDS[key]: value for key, value in episode["rewards"].items()},
        legacy=True,
    )
    runner = MacroRunner(kitchen, include_moves=True) if episode["mode"] == "macro" else None
    name = str(episode["id"])
    if runner is not None:
        report.compare(name, 0, "macro_names", list(episode["macro_names"]), list(runner.names))
    _compare_state(report, name, 0, episode["initial"], (runner or kitchen).snapshot())
    observed = _observe(kitchen, runner, None)
    _compare_observations(report, name, 0, episode["initial_obs"], observed)
    for number, step in enumerate(episode["steps"], 1):
        outcome = (runner or kitchen).step(step["actions"])
        observed = _observe(kitchen, runner, observed)
        report.steps += 1
        _compare_state(report, name, number, step["state"], (runner or kitchen).snapshot())
        _compare_observations(report, name, number, step["obs"], observed)
        report.compare_numbers(name, number, "reward", step["reward"], outcome.rewards)
        report.compare(name, number, "done", step["done"], outcome.done)
        report.compare(name, number, "blocked", step["blocked"], outcome.blocked)
        report.compare(name, number, "swaps", [sorted(s) for s in step["swaps"]], [list(s) for s in outcome.swaps])
        if runner is not None:
            report.compare(name, number, "primitive", step["primitive"], outcome.primitive)
            report.compare(name, number, "info.cur_mac", step["info"]["cur_mac"], runner.current)
            report.compare(name, number, "info.mac_done", step["info"]["mac_done"], runner.finished)


def _observe(kitchen: Any, runner: Any, last: list[list[float]] | None) -> list[list[float]]:
    """The original's observations: with memory (primitive), or without it and stale if busy (macro)."""
    if runner is None:
        return [kitchen.memory_vector(i) for i in range(kitchen.num_agents)]
    return [
        kitchen.seen_vector(i) if last is None or runner.finished[i] else last[i] for i in range(kitchen.num_agents)
    ]


def _compare_state(
    report: GoldenReport, episode: str, step: int, expected: Mapping[str, Any], got: Mapping[str, Any]
) -> None:
    for key, value in expected.items():
        report.compare(episode, step, f"state.{key}", value, got.get(key))


def _compare_observations(
    report: GoldenReport,
    episode: str,
    step: int,
    expected: Sequence[Sequence[float]],
    got: Sequence[Sequence[float]],
) -> None:
    report.compare(episode, step, "obs (number of agents)", len(expected), len(got))
    for i, (wanted, ours) in enumerate(zip(expected, got, strict=False)):
        report.compare_numbers(episode, step, f"obs of agent {i}", wanted, ours)
