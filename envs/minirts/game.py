"""The record of MiniRTS."""

from __future__ import annotations

from rllib_llm_comm.envs.game_record import GameRecord, GoldenFormat

ENV_ID = "rllib_llm_comm/minirts-v0"
GAME = GameRecord(
    name="minirts",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    scripted_player=f"{__package__}.commanders.scripted_player",
    wait=f"{__package__}.commanders.scripted_player:wait_action",
    picture=f"{__package__}.person:picture",
    sayings=f"{__package__}.commanders.sayings:understand",
    golden=(GoldenFormat(frozenset({"id", "kind"}), f"{__package__}.golden:replay"),),
    planning="rllib_llm_comm.sama.games.minirts:StrategyPlanning",
    preparation="rllib_llm_comm.sama.games.minirts_preparation:StrategyPreparation",
)
