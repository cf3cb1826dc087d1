"""MiniRTS: a small real-time strategy game for one to three commanders of one side against a scripted opponent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names
from rllib_llm_comm.envs.games import GameRecord, GoldenFormat

if TYPE_CHECKING:
    from rllib_llm_comm.envs.minirts.env import MiniRTS as MiniRTS
    from rllib_llm_comm.envs.minirts.env import aec_env as aec_env
    from rllib_llm_comm.envs.minirts.env import parallel_env as parallel_env

# Lazy: the record, the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(__name__, {"env": ("MiniRTS", "aec_env", "parallel_env")})

ENV_ID = "rllib_llm_comm/minirts-v0"
GAME = GameRecord(
    name="minirts",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    scripted_player=f"{__package__}.commanders",
    wait=f"{__package__}.commanders:wait_action",
    picture=f"{__package__}.env:picture",
    sayings=f"{__package__}.sayings:understand",
    golden=(GoldenFormat(frozenset({"id", "kind"}), f"{__package__}.golden:replay"),),
    planning="rllib_llm_comm.sama.games.minirts:StrategyPlanning",
    preparation="rllib_llm_comm.sama.games.minirts:StrategyPreparation",
)
