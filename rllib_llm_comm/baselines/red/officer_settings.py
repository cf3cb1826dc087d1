"""Settings of the network of a MiniRTS officer, as plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.numeric_network import BY_OWN

_MOST = 4096


class OfficerSettings(Settings):
    """Settings of an `OfficerNetwork`: its `model_config`."""

    filters: int = Field(32, ge=1, le=_MOST)
    """Filters of the three convolutions over the map. RED: 256; 32 (ours)."""
    stride: Literal[1, 2] = 2
    """Cells per step of the first convolution. RED: 1; 2 (ours), a quarter of the work."""
    width: int = Field(64, ge=1, le=_MOST)
    """Length of the vectors of units and of hidden layers. RED: 256 and 128; 64 (ours)."""
    words: int = Field(32, ge=1, le=_MOST)
    """Length of word vectors and of half of the sentence LSTM. RED: 64; 32 (ours)."""
    keys: int = Field(16, ge=1, le=_MOST)
    """Length of the vectors whose dot products choose targets and cells. RED: 128 to 256; 16 (ours)."""
    critic_observation: Literal["own", "team"] = "own"
    """Input of the critic. `"own"`: what the officer sees, in one pass of the map less per minibatch. `"team"` (RED,
    SAMA): the view that the officers of a side share, with the units of all as one's own; for one commander both are
    the same. Default here `"own"` (ours), as policy folders that do not say it were trained so; `REDConfig` says
    `"team"`."""
    init_seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    """Seed of the fresh weights; `None` takes torch's global generator."""

    def shape(self) -> OfficerSettings:
        """The settings without those that change no weight's shape: equal for networks that can take over weights."""
        return self.replace(critic_observation=BY_OWN, init_seed=None)
