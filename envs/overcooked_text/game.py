"""The record of the textual kitchen."""

from __future__ import annotations

from rllib_llm_comm.envs.game_record import GameRecord, GoldenFormat

ENV_ID = "rllib_llm_comm/overcooked_text-v0"
GAME = GameRecord(
    name="overcooked_text",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    scripted_player=f"{__package__}.scripted_player",
    wait=f"{__package__}.scripted_player:wait_action",
    difference=f"{__package__}.same_kitchen:difference",
    keys=f"{__package__}.person:keys",
    picture=f"{__package__}.person:picture",
    sayings=f"{__package__}.sayings:understand",
    golden=(
        GoldenFormat(
            frozenset({"id", "mode", "map", "task", "n_agents", "obs_radius", "layout", "initial", "steps"}),
            f"{__package__}.golden:replay",
        ),
    ),
    planning="rllib_llm_comm.sama.games.overcooked_text:SaladPlanning",
    event_words=f"{__package__}.event_words:event_words",
    success_words=("served", "not served"),
)
