"""The record of the onion-soup kitchen."""

from __future__ import annotations

from rllib_llm_comm.envs.game_record import GameRecord, GoldenFormat

ENV_ID = "rllib_llm_comm/overcooked_ai-v0"
SUBGOAL_ENV_ID = "rllib_llm_comm/overcooked_ai_subgoals-v0"
GAME = GameRecord(
    name="overcooked_ai",
    package=__package__,
    entry_points={
        ENV_ID: f"{__package__}.env:parallel_env",
        SUBGOAL_ENV_ID: f"{__package__}.subgoal_env:subgoal_env",
    },
    scripted_player=f"{__package__}.scripted_player",
    partner=f"{__package__}.scripted_partners:habitual_cook",
    wait=f"{__package__}.scripted_partners:wait_action",
    actions=f"{__package__}.own_actions:own_actions",
    difference=f"{__package__}.same_kitchen:difference",
    tables="rllib_llm_comm.evaluation.kitchen_tables:KitchenTables",
    keys=f"{__package__}.person:keys",
    picture=f"{__package__}.person:picture",
    pose=f"{__package__}.scripted_partners:pose",
    view=f"{__package__}.scripted_partners:view",
    sayings=f"{__package__}.sayings:understand",
    golden=(
        GoldenFormat(
            frozenset({"id", "kind", "layout", "dynamics"}),
            f"{__package__}.golden:replay",
        ),
        # Games that the original itself saves as JSON.
        GoldenFormat(
            frozenset({"ep_states", "ep_actions"}),
            f"{__package__}.golden:replay_saved_games",
            name="overcooked_ai_games",
            settings=True,
        ),
    ),
    event_words=f"{__package__}.event_words:event_words",
    planning="rllib_llm_comm.sama.games.overcooked_ai:KitchenPlanning",
    preparation="rllib_llm_comm.sama.games.overcooked_ai:KitchenPreparation",
    without_subgoals={SUBGOAL_ENV_ID: f"{__package__}.subgoal_env:without_subgoals"},
)
