"""Language-model agents that talk, trained with Ray RLlib.

What a user imports from here is loaded on first use, so that `import rllib_llm_comm` stays quick and
`load_policy` needs no Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.core.lazy import lazy_names
from rllib_llm_comm.rl.algorithms import algorithms_by_module

if TYPE_CHECKING:
    from rllib_llm_comm.baselines.numeric.commnet import CommNet as CommNet
    from rllib_llm_comm.baselines.numeric.commnet import CommNetConfig as CommNetConfig
    from rllib_llm_comm.baselines.numeric.mappo import MAPPO as MAPPO
    from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig as MAPPOConfig
    from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO as BestResponsePPO
    from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPOConfig as BestResponsePPOConfig
    from rllib_llm_comm.baselines.population.cole import COLE as COLE
    from rllib_llm_comm.baselines.population.cole import COLEConfig as COLEConfig
    from rllib_llm_comm.baselines.population.fcp import FCP as FCP
    from rllib_llm_comm.baselines.population.fcp import FCPConfig as FCPConfig
    from rllib_llm_comm.baselines.population.pbt import PBT as PBT
    from rllib_llm_comm.baselines.population.pbt import PBTConfig as PBTConfig
    from rllib_llm_comm.baselines.population.self_play_ppo import SelfPlayPPO as SelfPlayPPO
    from rllib_llm_comm.baselines.population.self_play_ppo import SelfPlayPPOConfig as SelfPlayPPOConfig
    from rllib_llm_comm.baselines.population.talkers import VercoCOLE as VercoCOLE
    from rllib_llm_comm.baselines.population.talkers import VercoCOLEConfig as VercoCOLEConfig
    from rllib_llm_comm.baselines.population.talkers import VercoFCP as VercoFCP
    from rllib_llm_comm.baselines.population.talkers import VercoFCPConfig as VercoFCPConfig
    from rllib_llm_comm.baselines.population.talkers import VercoPBT as VercoPBT
    from rllib_llm_comm.baselines.population.talkers import VercoPBTConfig as VercoPBTConfig
    from rllib_llm_comm.baselines.red.red import RED as RED
    from rllib_llm_comm.baselines.red.red import REDConfig as REDConfig
    from rllib_llm_comm.baselines.value.ldsa import LDSA as LDSA
    from rllib_llm_comm.baselines.value.ldsa import LDSAConfig as LDSAConfig
    from rllib_llm_comm.baselines.value.maser import MASER as MASER
    from rllib_llm_comm.baselines.value.maser import MASERConfig as MASERConfig
    from rllib_llm_comm.baselines.value.qmix import QMIX as QMIX
    from rllib_llm_comm.baselines.value.qmix import VDN as VDN
    from rllib_llm_comm.baselines.value.qmix import QMIXConfig as QMIXConfig
    from rllib_llm_comm.baselines.value.qmix import VDNConfig as VDNConfig
    from rllib_llm_comm.baselines.value.roma import ROMA as ROMA
    from rllib_llm_comm.baselines.value.roma import ROMAConfig as ROMAConfig
    from rllib_llm_comm.envs.games import make_env as make_env
    from rllib_llm_comm.envs.games import register_game as register_game
    from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint as evaluate_checkpoint
    from rllib_llm_comm.evaluation.replay import replay_checkpoint as replay_checkpoint
    from rllib_llm_comm.evaluation.report import write_report as write_report
    from rllib_llm_comm.policies.load_policy import load_policy as load_policy
    from rllib_llm_comm.rl.algorithms import register_algorithm as register_algorithm
    from rllib_llm_comm.rl.algorithms import register_all as register_all
    from rllib_llm_comm.rl.policy_checkpoints import export_policy as export_policy
    from rllib_llm_comm.sama.emma.emma import EMMA as EMMA
    from rllib_llm_comm.sama.emma.emma import EMMAConfig as EMMAConfig
    from rllib_llm_comm.sama.emma.emma import SymbolicPPO as SymbolicPPO
    from rllib_llm_comm.sama.emma.emma import SymbolicPPOConfig as SymbolicPPOConfig
    from rllib_llm_comm.verco.sft import ActionSFT as ActionSFT
    from rllib_llm_comm.verco.sft import ActionSFTConfig as ActionSFTConfig
    from rllib_llm_comm.verco.sft import MessageSFT as MessageSFT
    from rllib_llm_comm.verco.sft import MessageSFTConfig as MessageSFTConfig
    from rllib_llm_comm.verco.twosome import TWOSOME as TWOSOME
    from rllib_llm_comm.verco.twosome import TWOSOMEConfig as TWOSOMEConfig
    from rllib_llm_comm.verco.verco import Verco as Verco
    from rllib_llm_comm.verco.verco import VercoConfig as VercoConfig

__version__ = "0.1.0"
_HOMES = {
    "policies.load_policy": ("load_policy",),
    "rl.algorithms": ("register_algorithm", "register_all"),
    "rl.policy_checkpoints": ("export_policy",),
    "envs.games": ("make_env", "register_game"),
    "evaluation.evaluate_checkpoint": ("evaluate_checkpoint",),
    "evaluation.replay": ("replay_checkpoint",),
    "evaluation.report": ("write_report",),
    **algorithms_by_module(),
}
__all__ = [name for names in _HOMES.values() for name in names]
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
