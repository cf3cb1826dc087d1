"""All that the environment remembers at a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rllib_llm_comm.envs.minirts.engine.rts_game import Snapshot
from rllib_llm_comm.envs.minirts.side import SideSnapshot


@dataclass(frozen=True)
class EnvSnapshot:
    """All that an environment remembers; see `rllib_llm_comm.envs.minirts.env.MiniRTS.snapshot`."""

    game: Snapshot
    side: SideSnapshot
    executor: Any
    rng: dict[str, Any]
    agents: list[str]
    worth: float
