"""Infos of the environment: events, the game's own figures, and facts that are told to some commanders only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rllib_llm_comm.envs.interface import EPISODE_METRICS, PRIVATE
from rllib_llm_comm.envs.minirts import told_army
from rllib_llm_comm.envs.minirts.commanders.executor import Done
from rllib_llm_comm.envs.minirts.engine.units import IS_ARMY, IS_BUILDING
from rllib_llm_comm.envs.minirts.side import Side, types_of
from rllib_llm_comm.envs.minirts.view import text


def infos_of(
    agents: Sequence[str], team: Side, ended: Sequence[Done], rewards: Sequence[float]
) -> dict[str, dict[str, Any]]:
    """Infos of all commanders.

    Args:
        agents: Their names, by number.
        team: Their side.
        ended: Commands that ended in the step.
        rewards: The reward of the step; none at a reset.
    """
    metrics, game = _metrics(team), team.game
    infos: dict[str, dict[str, Any]] = {
        agent: {
            "needs_action": True,
            "step_rewards": list(rewards),
            "game_step": game.tick,
            "events": [
                text.event_text(done.commander, done.command, done.success)
                for done in ended
                if done.commander == commander
            ],
            "task_success": game.winner == team.player,
            EPISODE_METRICS: dict(metrics),
        }
        for commander, agent in enumerate(agents)
    }
    if team.told is not None:
        for commander, agent in enumerate(agents):
            infos[agent][PRIVATE] = told_army.private(team, commander)
    return infos


def _metrics(team: Side) -> dict[str, float]:
    game = team.game
    made = [(kind, number) for own in team.made for kind, number in own.items()]
    return {
        "won": float(game.winner == team.player),
        "lost": float(game.winner == 1 - team.player),
        "gold": float(team.money),
        "units_made": float(sum(number for kind, number in made if not IS_BUILDING[kind])),
        "buildings_made": float(sum(number for kind, number in made if IS_BUILDING[kind])),
        "army": float(sum(bool(IS_ARMY[unit.type]) for unit in team.own)),
        "enemies_left": float(len(types_of(game, 1 - team.player))),
    }
