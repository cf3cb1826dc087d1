"""The package's algorithms by name, for Tune, the command line and the package's front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.registry import Registry

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

_PACKAGE = "rllib_llm_comm.algorithms"
ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "run",
    {
        "Verco": f"{_PACKAGE}.verco:Verco",
        "ActionSFT": f"{_PACKAGE}.action_sft:ActionSFT",
        "MessageSFT": f"{_PACKAGE}.message_sft:MessageSFT",
        "TWOSOME": f"{_PACKAGE}.twosome:TWOSOME",
        "SymbolicPPO": f"{_PACKAGE}.symbolic_ppo:SymbolicPPO",
        "CommNet": f"{_PACKAGE}.commnet:CommNet",
        "MAPPO": f"{_PACKAGE}.mappo:MAPPO",
        "EMMA": f"{_PACKAGE}.emma:EMMA",
        "SelfPlayPPO": f"{_PACKAGE}.self_play_ppo:SelfPlayPPO",
        "BestResponsePPO": f"{_PACKAGE}.best_response_ppo:BestResponsePPO",
        "FCP": f"{_PACKAGE}.fcp:FCP",
        "PBT": f"{_PACKAGE}.pbt:PBT",
        "COLE": f"{_PACKAGE}.cole:COLE",
        "VDN": f"{_PACKAGE}.vdn:VDN",
        "QMIX": f"{_PACKAGE}.qmix:QMIX",
        "LDSA": f"{_PACKAGE}.ldsa:LDSA",
        "ROMA": f"{_PACKAGE}.roma:ROMA",
        "MASER": f"{_PACKAGE}.maser:MASER",
        "RED": f"{_PACKAGE}.red:RED",
    },
    "`register_algorithm` adds one.",
)


def register_algorithm(name: str, algorithm: type[Algorithm]) -> None:
    """Makes an algorithm of one's own known by name, for experiment files and Tune.

    Args:
        name: The name, as `run` in an experiment file.
        algorithm: The class; its `get_default_config` gives its config.
    """
    from ray.tune.registry import register_trainable

    ALGORITHMS.register(name, algorithm)
    register_trainable(name, algorithm)


def register_all() -> None:
    """Registers our algorithms and environments with Tune. Doing it again changes nothing."""
    from ray.tune.registry import register_trainable

    from rllib_llm_comm.envs.games import env_ids
    from rllib_llm_comm.rl.env_registration import ensure_registered

    for name, algorithm in ALGORITHMS.items():
        register_trainable(name, algorithm)
    for env in env_ids():
        ensure_registered(env)
