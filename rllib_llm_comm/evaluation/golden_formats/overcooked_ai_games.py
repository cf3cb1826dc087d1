"""Games that the original Overcooked-AI saved, replayed through ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.envs.overcooked_ai.manual import soup_of
from rllib_llm_comm.envs.overcooked_ai.original_games import OriginalGame, read_games
from rllib_llm_comm.envs.overcooked_ai.recipes import contents
from rllib_llm_comm.envs.overcooked_ai.rules import HORIZON, Kitchen
from rllib_llm_comm.evaluation.golden_report import GoldenReport


def replay(
    trajectories: Mapping[str, Any], report: GoldenReport, layout: Any = None, dynamics: str | None = None
) -> None:
    """Replays all games of a file and notes differences.

    After a state that differs the game goes on from the recorded one, so that each difference is told once.

    Args:
        trajectories: Content of the file.
        report: Notes differences.
        layout: See `rllib_llm_comm.envs.overcooked_ai.original_games.read_games`.
        dynamics: See `rllib_llm_comm.envs.overcooked_ai.original_games.read_games`.

    Raises:
        UserError: If something cannot be read.
    """
    games = 0
    for game in read_games(trajectories, layout, dynamics):
        _replay_game(game, report)
        games += 1
    report.episodes += games - 1  # a file counts as one


def _replay_game(game: OriginalGame, report: GoldenReport) -> None:
    kitchen = Kitchen(game.layout, game.dynamics, game.horizon or HORIZON)
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


def _compare_times(game: OriginalGame, number: int, kitchen: Kitchen, report: GoldenReport) -> None:
    """Cook times that the recorded state tells; the state of the kitchen is that one."""
    for place, time in game.cook_times[number].items():
        cooks = [kitchen.cook(i) for i in range(2)]
        soup = next((cook.held for cook in cooks if cook.cell == place), None) or kitchen.item((place[0], place[1]))
        if soup is not None and soup.time != time:
            told = f"cook time of {soup_of(contents(soup.onions, soup.tomatoes))}"
            report.compare(game.name, number, told, time, soup.time)
