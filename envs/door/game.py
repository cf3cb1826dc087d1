"""The record of "tell me the door"."""

from __future__ import annotations

from rllib_llm_comm.envs.game_record import GameRecord

ENV_ID = "rllib_llm_comm/door-v0"
GAME = GameRecord(
    name="door",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    scripted_player=f"{__package__}.scripted_player",
    wait="rllib_llm_comm.envs.telling_game:wait_action",
    sayings=f"{__package__}.sayings:understand",
)
