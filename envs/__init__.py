"""Games as PettingZoo environments, and their way into RLlib.

Importing this package puts the games into PettingZoo's own registry, under names such as
`rllib_llm_comm/overcooked_text-v0`; the games themselves are imported when one is made.
"""

from __future__ import annotations

GAMES: dict[str, str] = {
    "rllib_llm_comm/door-v0": "rllib_llm_comm.envs.door.env:parallel_env",
    "rllib_llm_comm/frozen_lake-v0": "rllib_llm_comm.envs.frozen_lake.env:parallel_env",
    "rllib_llm_comm/minirts-v0": "rllib_llm_comm.envs.minirts.env:parallel_env",
    "rllib_llm_comm/overcooked_ai-v0": "rllib_llm_comm.envs.overcooked_ai.env:parallel_env",
    "rllib_llm_comm/overcooked_ai_subgoals-v0": "rllib_llm_comm.envs.overcooked_ai.subgoal_env:subgoal_env",
    "rllib_llm_comm/referential-v0": "rllib_llm_comm.envs.referential.env:parallel_env",
    "rllib_llm_comm/overcooked_text-v0": "rllib_llm_comm.envs.overcooked_text.env:parallel_env",
}
"""Id and constructor of each game."""


def register_games() -> None:
    """Puts all games into PettingZoo's registry of parallel environments; may be called again."""
    from pettingzoo.env_registry import registration

    for env_id, entry_point in GAMES.items():
        if env_id not in registration.parallel_registry:
            registration.register("parallel", env_id, entry_point)


register_games()
