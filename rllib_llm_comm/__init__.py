"""Language-model agents that talk, trained with Ray RLlib.

What a user imports from here is loaded on first use, so that `import rllib_llm_comm` stays quick and
`load_policy` needs no Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rllib_llm_comm import moved as _moved

if TYPE_CHECKING:
    from rllib_llm_comm.agents.load_policy import load_policy
    from rllib_llm_comm.algorithms.commnet import CommNet, CommNetConfig
    from rllib_llm_comm.algorithms.emma import EMMA, EMMAConfig
    from rllib_llm_comm.algorithms.mappo import MAPPO, MAPPOConfig
    from rllib_llm_comm.algorithms.message_sft import MessageSFT, MessageSFTConfig
    from rllib_llm_comm.algorithms.registry import register_all
    from rllib_llm_comm.algorithms.self_play_ppo import SelfPlayPPO, SelfPlayPPOConfig
    from rllib_llm_comm.algorithms.symbolic_ppo import SymbolicPPO, SymbolicPPOConfig
    from rllib_llm_comm.algorithms.twosome import TWOSOME, TWOSOMEConfig
    from rllib_llm_comm.algorithms.verco import Verco, VercoConfig

__version__ = "0.1.0"
__all__ = [
    "CommNet",
    "CommNetConfig",
    "EMMA",
    "EMMAConfig",
    "MAPPO",
    "MAPPOConfig",
    "MessageSFT",
    "MessageSFTConfig",
    "SelfPlayPPO",
    "SelfPlayPPOConfig",
    "SymbolicPPO",
    "SymbolicPPOConfig",
    "TWOSOME",
    "TWOSOMEConfig",
    "Verco",
    "VercoConfig",
    "load_policy",
    "register_all",
]

_HOMES = {
    "CommNet": "algorithms.commnet",
    "CommNetConfig": "algorithms.commnet",
    "EMMA": "algorithms.emma",
    "EMMAConfig": "algorithms.emma",
    "MAPPO": "algorithms.mappo",
    "MAPPOConfig": "algorithms.mappo",
    "MessageSFT": "algorithms.message_sft",
    "MessageSFTConfig": "algorithms.message_sft",
    "SelfPlayPPO": "algorithms.self_play_ppo",
    "SelfPlayPPOConfig": "algorithms.self_play_ppo",
    "SymbolicPPO": "algorithms.symbolic_ppo",
    "SymbolicPPOConfig": "algorithms.symbolic_ppo",
    "TWOSOME": "algorithms.twosome",
    "TWOSOMEConfig": "algorithms.twosome",
    "Verco": "algorithms.verco",
    "VercoConfig": "algorithms.verco",
    "load_policy": "agents.load_policy",
    "register_all": "algorithms.registry",
}

_moved.install()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
