"""Settings of EMMA's network, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.policies.numeric_network import AUTO, BY_OWN, BY_STATE
from rllib_llm_comm.policies.settings import (
    MOST_LAYERS,
    MOST_WIDTH,
    FromMapping,
    require_seed,
    require_whole,
    require_whole_numbers,
)

CRITIC_OBSERVATIONS = (AUTO, BY_STATE, BY_OWN)
_MOST = {"width": 8192, "frames": 64, "filters": 8192, "max_subgoal_tokens": 8192, "max_manual_tokens": 2**17}


@dataclass(frozen=True)
class EmmaSettings(FromMapping):
    """Settings of an `EmmaModule`: its `model_config`.

    Attributes:
        text_encoder: As of `load_text_encoder`. EMMA and SAMA: BERT-base; `"embedded"` (ours).
        width: Length of queries, keys and values, 1 to 8192. EMMA: 256; 32 (ours).
        frames: Number of observations, the newest last, that the actor sees, 1 to 64. EMMA: 3.
        filters: Filters of the convolutions, 1 to 8192. EMMA: 64; 32 (ours).
        hiddens: Widths of the critic's hidden layers, at most 16 of 1 to 65536. MAPPO: 64, 64.
        critic_observation: Input of the critic beside the agent's own map and subgoal: `"state"`: the game's state;
            `"own"`: nothing more; `"auto"`: the state where the environment tells it.
        max_subgoal_tokens: Width of the arrays of subgoals, 1 to 8192; a longer one is an error, never cut (ours).
        max_manual_tokens: The same of manuals, 1 to 131072 (ours).
        use_value_norm: True if the critic learns returns normalised by a `ValueNorm` (MAPPO).
        value_norm_beta: Its decay per update, in [0, 1). MAPPO: 0.99999.
        init_seed: Seed of the fresh weights; `None` takes torch's global generator.
    """

    text_encoder: str = "embedded"
    width: int = 32
    frames: int = 3
    filters: int = 32
    hiddens: Sequence[int] = (64, 64)
    critic_observation: str = BY_OWN
    max_subgoal_tokens: int = 48
    max_manual_tokens: int = 2048
    use_value_norm: bool = False
    value_norm_beta: float = 0.99999
    init_seed: int | None = None

    def __post_init__(self) -> None:
        require_whole_numbers("hiddens", self.hiddens, MOST_LAYERS, MOST_WIDTH)
        object.__setattr__(self, "hiddens", tuple(self.hiddens))
        for name, most in _MOST.items():
            require_whole(name, getattr(self, name), 1, most)
        require_seed("init_seed", self.init_seed)
        if not isinstance(self.text_encoder, str) or not self.text_encoder:
            raise UserError(f"`text_encoder` is {self.text_encoder!r} but must be a name, a folder or a hub id.")
        require_choice("critic_observation", self.critic_observation, CRITIC_OBSERVATIONS)
        require_choice("use_value_norm", self.use_value_norm, (False, True))
        if not isinstance(self.value_norm_beta, int | float) or not 0.0 <= self.value_norm_beta < 1.0:
            raise UserError(f"`value_norm_beta` is {self.value_norm_beta!r} but must be a number in [0, 1).")
