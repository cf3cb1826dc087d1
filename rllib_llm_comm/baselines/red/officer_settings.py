"""Settings of the network of a MiniRTS officer, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.policies.numeric_network import BY_OWN, BY_TEAM
from rllib_llm_comm.policies.settings import FromMapping, require_seed, require_whole

STRIDES = (1, 2)
_MOST = 4096
_WIDTHS = ("filters", "width", "words", "keys")


@dataclass(frozen=True)
class OfficerSettings(FromMapping):
    """Settings of an `OfficerNetwork`: its `model_config`.

    Attributes:
        filters: Filters of the three convolutions over the map, 1 to 4096. RED: 256; 32 (ours).
        stride: Cells per step of the first convolution, 1 or 2. RED: 1; 2 (ours), a quarter of the work.
        width: Length of the vectors of units and of hidden layers, 1 to 4096. RED: 256 and 128; 64 (ours).
        words: Length of word vectors and of half of the sentence LSTM, 1 to 4096. RED: 64; 32 (ours).
        keys: Length of the vectors whose dot products choose targets and cells, 1 to 4096. RED: 128 to 256; 16 (ours).
        critic_observation: Input of the critic. `"own"`: what the officer sees. `"team"` (RED, SAMA): the view that
            the officers of a side share, with the units of all as one's own. Default here `"own"` (ours), as policy
            folders that do not say it were trained so; `REDConfig` says `"team"`.
        init_seed: Seed of the fresh weights; `None` takes torch's global generator.
    """

    filters: int = 32
    stride: int = 2
    width: int = 64
    words: int = 32
    keys: int = 16
    critic_observation: str = BY_OWN
    init_seed: int | None = None

    def __post_init__(self) -> None:
        for name in _WIDTHS:
            require_whole(name, getattr(self, name), 1, _MOST)
        require_choice("stride", self.stride, STRIDES)
        require_choice("critic_observation", self.critic_observation, (BY_OWN, BY_TEAM))
        require_seed("init_seed", self.init_seed)

    def shape(self) -> OfficerSettings:
        """The settings without those that change no weight's shape: equal for networks that can take over weights."""
        return replace(self, critic_observation=BY_OWN, init_seed=None)
