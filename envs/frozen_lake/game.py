"""The record of the frozen lake."""

from __future__ import annotations

from rllib_llm_comm.envs.game_record import GameRecord

ENV_ID = "rllib_llm_comm/frozen_lake-v0"
GAME = GameRecord(
    name="frozen_lake",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    wait=f"{__package__}.env:wait_action",
    keys=f"{__package__}.person:keys",
    picture=f"{__package__}.person:picture",
    event_words=f"{__package__}.env:event_words",
    planning="rllib_llm_comm.sama.games.frozen_lake:LakePlanning",
    preparation="rllib_llm_comm.sama.games.frozen_lake_preparation:LakePreparation",
)
