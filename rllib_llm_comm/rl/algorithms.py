"""The package's algorithms by name, for Tune, the command line and the package's front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.core.registry import Registry

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

_OURS = {
    "Verco": "rllib_llm_comm.verco.verco:Verco",
    "ActionSFT": "rllib_llm_comm.verco.sft:ActionSFT",
    "MessageSFT": "rllib_llm_comm.verco.sft:MessageSFT",
    "TWOSOME": "rllib_llm_comm.verco.twosome:TWOSOME",
    "SymbolicPPO": "rllib_llm_comm.sama.emma.emma:SymbolicPPO",
    "CommNet": "rllib_llm_comm.baselines.numeric.commnet:CommNet",
    "MAPPO": "rllib_llm_comm.baselines.numeric.mappo:MAPPO",
    "EMMA": "rllib_llm_comm.sama.emma.emma:EMMA",
    "SelfPlayPPO": "rllib_llm_comm.baselines.population.self_play_ppo:SelfPlayPPO",
    "BestResponsePPO": "rllib_llm_comm.baselines.population.best_response_ppo:BestResponsePPO",
    "FCP": "rllib_llm_comm.baselines.population.fcp:FCP",
    "VercoFCP": "rllib_llm_comm.baselines.population.talkers:VercoFCP",
    "VercoPBT": "rllib_llm_comm.baselines.population.talkers:VercoPBT",
    "VercoCOLE": "rllib_llm_comm.baselines.population.talkers:VercoCOLE",
    "PBT": "rllib_llm_comm.baselines.population.pbt:PBT",
    "COLE": "rllib_llm_comm.baselines.population.cole:COLE",
    "VDN": "rllib_llm_comm.baselines.value.qmix:VDN",
    "QMIX": "rllib_llm_comm.baselines.value.qmix:QMIX",
    "LDSA": "rllib_llm_comm.baselines.value.ldsa:LDSA",
    "ROMA": "rllib_llm_comm.baselines.value.roma:ROMA",
    "MASER": "rllib_llm_comm.baselines.value.maser:MASER",
    "RED": "rllib_llm_comm.baselines.red.red:RED",
}
# An experiment file's `run` names these first; their classes lie above this module.
_STAGES = (
    "collect_labels", "collect_demonstrations", "make_manual", "translate", "collect_subgoals", "write_rewards",
    "evaluate", "replay", "crossplay", "chat_play", "sama_report", "demonstrate_officers", "clone_officer",
    "play_officers", "play_planners",
)  # fmt: skip
ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "run", _OURS, "`register_algorithm` adds one, in a module that `--import` names."
)
"""Name in experiment files and in Tune -> class."""


def algorithms_by_module() -> dict[str, tuple[str, ...]]:
    """Module within the package -> its algorithms and their configs, for the package's front; imports none of them."""
    found: dict[str, tuple[str, ...]] = {}
    for place in _OURS.values():
        module, name = place.removeprefix("rllib_llm_comm.").split(":")
        found[module] = (*found.get(module, ()), name, f"{name}Config")
    return found


def register_algorithm(name: str, algorithm: type[Algorithm]) -> None:
    """Makes an algorithm of one's own known by name, for experiment files and Tune.

    Args:
        name: The name, as `run` in an experiment file.
        algorithm: The class; its `get_default_config` gives its config.

    Raises:
        UserError: If it is no RLlib `Algorithm`, its own config builds another, or the name is that of a stage, or of
            another algorithm of this package or of RLlib.
    """
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.registry import ALGORITHMS as RLLIBS
    from ray.tune.registry import register_trainable

    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        raise UserError(f"`algorithm` is {shown(algorithm)} but must be a subclass of RLlib's Algorithm.")
    if name in _OURS or name in RLLIBS:
        raise UserError(f"`name` is {name!r}, which is an algorithm already; take another name.")
    if name in _STAGES:
        raise UserError(f"`name` is {name!r}, which `run` takes for a stage that trains nothing; take another name.")
    config = algorithm.get_default_config()
    builds = config.algo_class
    if builds not in (None, algorithm) and type(builds.get_default_config()) is not type(config):
        own = type(config).__name__
        raise UserError(
            f"`algorithm` is {algorithm.__name__} but its config {own} builds {builds.__name__}; write "
            f"`config_class = {own}` into the class, or let the config's constructor pass on `algo_class or "
            f"{algorithm.__name__}`."
        )

    ALGORITHMS.register(name, algorithm)
    register_trainable(name, algorithm)


def register_all() -> None:
    """Registers our algorithms and environments with Tune. Doing it again changes nothing."""
    from ray.tune.registry import register_trainable

    from rllib_llm_comm.envs.games import env_ids
    from rllib_llm_comm.rl.rllib_adapter import ensure_registered

    for name, algorithm in ALGORITHMS.items():
        register_trainable(name, algorithm)
    for env in env_ids(derived=True):
        ensure_registered(env)
