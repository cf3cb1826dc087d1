"""A frozen lake for two, where nobody sees the holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names
from rllib_llm_comm.envs.games import GameRecord

if TYPE_CHECKING:
    from rllib_llm_comm.envs.frozen_lake.env import FrozenLake as FrozenLake
    from rllib_llm_comm.envs.frozen_lake.env import aec_env as aec_env
    from rllib_llm_comm.envs.frozen_lake.env import parallel_env as parallel_env

# Lazy: the record, the rules and the words of the game are used without PettingZoo, too.
__getattr__, __dir__ = lazy_names(__name__, {"env": ("FrozenLake", "aec_env", "parallel_env")})

ENV_ID = "rllib_llm_comm/frozen_lake-v0"
GAME = GameRecord(
    name="frozen_lake",
    package=__package__,
    entry_points={ENV_ID: f"{__package__}.env:parallel_env"},
    wait="rllib_llm_comm.envs.interface:wait_action",
    keys=f"{__package__}.env:keys",
    picture=f"{__package__}.env:picture",
    event_words=f"{__package__}.env:event_words",
    counts_collisions=True,
    planning="rllib_llm_comm.sama.games.frozen_lake:LakePlanning",
    preparation="rllib_llm_comm.sama.games.frozen_lake:LakePreparation",
)
