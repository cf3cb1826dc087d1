"""The onion-soup kitchen of Overcooked-AI, for two cooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names
from rllib_llm_comm.envs.games import GameRecord, GoldenFormat

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_ai.env import OvercookedAI as OvercookedAI
    from rllib_llm_comm.envs.overcooked_ai.env import aec_env as aec_env
    from rllib_llm_comm.envs.overcooked_ai.env import parallel_env as parallel_env

# Lazy: the record, the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(__name__, {"env": ("OvercookedAI", "aec_env", "parallel_env")})

ENV_ID = "rllib_llm_comm/overcooked_ai-v0"
SUBGOAL_ENV_ID = "rllib_llm_comm/overcooked_ai_subgoals-v0"
GAME = GameRecord(
    name="overcooked_ai",
    package=__package__,
    entry_points={
        ENV_ID: f"{__package__}.env:parallel_env",
        SUBGOAL_ENV_ID: f"{__package__}.subgoal_env:subgoal_env",
    },
    scripted_player=f"{__package__}.scripted_cooks",
    partner=f"{__package__}.scripted_cooks:habitual_cook",
    wait=f"{__package__}.scripted_cooks:wait_action",
    actions=f"{__package__}.actions:own_actions",
    difference=f"{__package__}.env:difference",
    tables="rllib_llm_comm.evaluation.kitchen_tables:KitchenTables",
    keys=f"{__package__}.env:keys",
    picture=f"{__package__}.env:picture",
    pose=f"{__package__}.scripted_cooks:pose",
    view=f"{__package__}.scripted_cooks:view",
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
    event_words=f"{__package__}.env:event_words",
    planning="rllib_llm_comm.sama.games.overcooked_ai:KitchenPlanning",
    preparation="rllib_llm_comm.sama.games.overcooked_ai:KitchenPreparation",
    without_subgoals={SUBGOAL_ENV_ID: f"{__package__}.subgoal_env:without_subgoals"},
)
