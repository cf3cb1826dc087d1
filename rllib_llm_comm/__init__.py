"""Language-model agents that talk, trained with Ray RLlib.

What a user imports from here is loaded on first use, so that `import rllib_llm_comm` stays quick and
`load_policy` needs no Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rllib_llm_comm.lazy import lazy_names

if TYPE_CHECKING:
    from rllib_llm_comm.agents.load_policy import load_policy as load_policy
    from rllib_llm_comm.algorithms.action_sft import ActionSFT as ActionSFT
    from rllib_llm_comm.algorithms.action_sft import ActionSFTConfig as ActionSFTConfig
    from rllib_llm_comm.algorithms.algorithms import register_algorithm as register_algorithm
    from rllib_llm_comm.algorithms.algorithms import register_all as register_all
    from rllib_llm_comm.algorithms.best_response_ppo import BestResponsePPO as BestResponsePPO
    from rllib_llm_comm.algorithms.best_response_ppo import BestResponsePPOConfig as BestResponsePPOConfig
    from rllib_llm_comm.algorithms.cole import COLE as COLE
    from rllib_llm_comm.algorithms.cole import COLEConfig as COLEConfig
    from rllib_llm_comm.algorithms.commnet import CommNet as CommNet
    from rllib_llm_comm.algorithms.commnet import CommNetConfig as CommNetConfig
    from rllib_llm_comm.algorithms.emma import EMMA as EMMA
    from rllib_llm_comm.algorithms.emma import EMMAConfig as EMMAConfig
    from rllib_llm_comm.algorithms.fcp import FCP as FCP
    from rllib_llm_comm.algorithms.fcp import FCPConfig as FCPConfig
    from rllib_llm_comm.algorithms.ldsa import LDSA as LDSA
    from rllib_llm_comm.algorithms.ldsa import LDSAConfig as LDSAConfig
    from rllib_llm_comm.algorithms.mappo import MAPPO as MAPPO
    from rllib_llm_comm.algorithms.mappo import MAPPOConfig as MAPPOConfig
    from rllib_llm_comm.algorithms.maser import MASER as MASER
    from rllib_llm_comm.algorithms.maser import MASERConfig as MASERConfig
    from rllib_llm_comm.algorithms.message_sft import MessageSFT as MessageSFT
    from rllib_llm_comm.algorithms.message_sft import MessageSFTConfig as MessageSFTConfig
    from rllib_llm_comm.algorithms.pbt import PBT as PBT
    from rllib_llm_comm.algorithms.pbt import PBTConfig as PBTConfig
    from rllib_llm_comm.algorithms.policy_export import export_policy as export_policy
    from rllib_llm_comm.algorithms.qmix import QMIX as QMIX
    from rllib_llm_comm.algorithms.qmix import QMIXConfig as QMIXConfig
    from rllib_llm_comm.algorithms.red import RED as RED
    from rllib_llm_comm.algorithms.red import REDConfig as REDConfig
    from rllib_llm_comm.algorithms.roma import ROMA as ROMA
    from rllib_llm_comm.algorithms.roma import ROMAConfig as ROMAConfig
    from rllib_llm_comm.algorithms.self_play_ppo import SelfPlayPPO as SelfPlayPPO
    from rllib_llm_comm.algorithms.self_play_ppo import SelfPlayPPOConfig as SelfPlayPPOConfig
    from rllib_llm_comm.algorithms.symbolic_ppo import SymbolicPPO as SymbolicPPO
    from rllib_llm_comm.algorithms.symbolic_ppo import SymbolicPPOConfig as SymbolicPPOConfig
    from rllib_llm_comm.algorithms.twosome import TWOSOME as TWOSOME
    from rllib_llm_comm.algorithms.twosome import TWOSOMEConfig as TWOSOMEConfig
    from rllib_llm_comm.algorithms.vdn import VDN as VDN
    from rllib_llm_comm.algorithms.vdn import VDNConfig as VDNConfig
    from rllib_llm_comm.algorithms.verco import Verco as Verco
    from rllib_llm_comm.algorithms.verco import VercoConfig as VercoConfig
    from rllib_llm_comm.envs.games import make_env as make_env
    from rllib_llm_comm.envs.games import register_game as register_game
    from rllib_llm_comm.evaluation.evaluate_checkpoint import evaluate_checkpoint as evaluate_checkpoint
    from rllib_llm_comm.evaluation.replay_checkpoint import replay_checkpoint as replay_checkpoint
    from rllib_llm_comm.evaluation.report import write_report as write_report

__version__ = "0.1.0"
_HOMES = {
    "agents.load_policy": ("load_policy",),
    "algorithms.action_sft": ("ActionSFT", "ActionSFTConfig"),
    "algorithms.best_response_ppo": ("BestResponsePPO", "BestResponsePPOConfig"),
    "algorithms.cole": ("COLE", "COLEConfig"),
    "algorithms.commnet": ("CommNet", "CommNetConfig"),
    "algorithms.emma": ("EMMA", "EMMAConfig"),
    "algorithms.fcp": ("FCP", "FCPConfig"),
    "algorithms.ldsa": ("LDSA", "LDSAConfig"),
    "algorithms.mappo": ("MAPPO", "MAPPOConfig"),
    "algorithms.maser": ("MASER", "MASERConfig"),
    "algorithms.red": ("RED", "REDConfig"),
    "algorithms.message_sft": ("MessageSFT", "MessageSFTConfig"),
    "algorithms.algorithms": ("register_algorithm", "register_all"),
    "algorithms.pbt": ("PBT", "PBTConfig"),
    "algorithms.policy_export": ("export_policy",),
    "algorithms.qmix": ("QMIX", "QMIXConfig"),
    "algorithms.roma": ("ROMA", "ROMAConfig"),
    "algorithms.self_play_ppo": ("SelfPlayPPO", "SelfPlayPPOConfig"),
    "algorithms.symbolic_ppo": ("SymbolicPPO", "SymbolicPPOConfig"),
    "algorithms.twosome": ("TWOSOME", "TWOSOMEConfig"),
    "algorithms.vdn": ("VDN", "VDNConfig"),
    "algorithms.verco": ("Verco", "VercoConfig"),
    "envs.games": ("make_env", "register_game"),
    "evaluation.evaluate_checkpoint": ("evaluate_checkpoint",),
    "evaluation.replay_checkpoint": ("replay_checkpoint",),
    "evaluation.report": ("write_report",),
}
__all__ = [name for names in _HOMES.values() for name in names]
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
