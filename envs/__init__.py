"""Games as PettingZoo environments, and their way into RLlib.

Importing this package puts the games into PettingZoo's own registry, under names such as
`rllib_llm_comm/overcooked_text-v0`; the games themselves are imported when one is made.
"""

from __future__ import annotations

from rllib_llm_comm.envs.games import (
    GAMES,
    GameRecord,
    GoldenFormat,
    env_ids,
    game_of,
    make_env,
    register_game,
    register_games,
)

__all__ = ["GAMES", "GameRecord", "GoldenFormat", "env_ids", "game_of", "make_env", "register_game", "register_games"]

register_games()
