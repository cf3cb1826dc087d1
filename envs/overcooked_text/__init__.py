"""The textual 7x7 kitchen, a game of cooks who see little and have to work together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names
from rllib_llm_comm.envs.games import GameRecord, GoldenFormat

if TYPE_CHECKING:
    from rllib_llm_comm.envs.overcooked_text.env import OvercookedText as OvercookedText
    from rllib_llm_comm.envs.overcooked_text.env import aec_env as aec_env
    from rllib_llm_comm.envs.overcooked_text.env import parallel_env as parallel_env

# Lazy: the record, the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(__name__, {"env": ("OvercookedText", "aec_env", "parallel_env")})

ENV_ID = "rllib_llm_comm/overcooked_text-v0"
GAME = GameRecord(
    name="overcooked_text",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    scripted_player=f"{__package__}.cooks",
    wait=f"{__package__}.cooks:wait_action",
    difference=f"{__package__}.env:difference",
    keys=f"{__package__}.env:keys",
    picture=f"{__package__}.env:picture",
    sayings=f"{__package__}.cooks:understand",
    counts_collisions=True,
    golden=(
        GoldenFormat(
            frozenset({"id", "mode", "map", "task", "n_agents", "obs_radius", "layout", "initial", "steps"}),
            f"{__package__}.golden:replay",
        ),
    ),
    planning="rllib_llm_comm.sama.games.overcooked_text:SaladPlanning",
    event_words=f"{__package__}.env:event_words",
    success_words=("served", "not served"),
)
