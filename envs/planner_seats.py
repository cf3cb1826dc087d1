"""The record of planner seats, which are SAMA's."""

from __future__ import annotations

from rllib_llm_comm.envs.games import GameRecord

_SEATS = "rllib_llm_comm.sama.planner_seats"
GAME = GameRecord(
    name="planner_seats",
    package=_SEATS,
    entry_points={
        "rllib_llm_comm/overcooked_ai_planner-v0": f"{_SEATS}:kitchen_seats",
        "rllib_llm_comm/overcooked_text_planner-v0": f"{_SEATS}:salad_seats",
        "rllib_llm_comm/frozen_lake_planner-v0": f"{_SEATS}:lake_seats",
        "rllib_llm_comm/minirts_planner-v0": f"{_SEATS}:commander_seats",
    },
    scripted_player=_SEATS,
    derived=True,
)
