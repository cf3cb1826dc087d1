"""Settings of EMMA's network, as plain data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rllib_llm_comm.core.settings import Settings, Several
from rllib_llm_comm.policies.settings import MOST_LAYERS, MOST_WIDTH


class EmmaSettings(Settings):
    """Settings of an `EmmaModule`: its `model_config`."""

    text_encoder: str = Field("embedded", min_length=1)
    """The frozen model that reads manual and subgoal: `"embedded"` (ours), `"minilm"` (extra of that name), a folder or
    a hub id. SAMA and EMMA: BERT-base."""
    width: int = Field(32, ge=1, le=8192)
    """Length of queries, keys and values. EMMA: 256; 32 (ours)."""
    frames: int = Field(3, ge=1, le=64)
    """Number of the last maps that the actor sees, the newest last (EMMA)."""
    filters: int = Field(32, ge=1, le=8192)
    """Filters of the convolutions. EMMA: 64; 32 (ours)."""
    hiddens: Several[Annotated[int, Field(ge=1, le=MOST_WIDTH)]] = Field((64, 64), max_length=MOST_LAYERS)
    """Widths of the critic's hidden layers (MAPPO)."""
    critic_observation: Literal["auto", "state", "own"] = "own"
    """Input of the critic beside the agent's own map and subgoal: `"state"`: the game's state; `"own"`: nothing more;
    `"auto"`: the state where the environment tells it."""
    max_subgoal_tokens: int = Field(48, ge=1, le=8192)
    """Width of the arrays of subgoals; a longer one is an error, never cut (ours)."""
    max_manual_tokens: int = Field(2048, ge=1, le=2**17)
    """The same of manuals (ours)."""
    use_value_norm: bool = False
    """True if the critic learns returns normalised by a `ValueNorm` (MAPPO)."""
    value_norm_beta: float = Field(0.99999, ge=0, lt=1)
    """Its decay per update (MAPPO)."""
    init_seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    """Seed of the fresh weights; `None` takes torch's global generator."""
