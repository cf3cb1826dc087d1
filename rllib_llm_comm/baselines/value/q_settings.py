"""Settings of networks that value a team's actions: `QTeam` and its parts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.numeric_network import MOST_WIDTH

PLAIN, LDSA, ROMA = "plain", "ldsa", "roma"
VDN, QMIX, ALONE = "vdn", "qmix", "none"


class QSettings(Settings):
    """Settings of a `QTeam`: the `model_config` of a `JointQModule`."""

    kind: Literal["plain", "ldsa", "roma"] = "plain"
    """The agents' network: `"plain"` (a GRU), `"ldsa"` (subtasks) or `"roma"` (roles)."""
    mixer: Literal["vdn", "qmix", "none"] = "qmix"
    """Total of the agents' values: `"vdn"` (their sum), `"qmix"` (monotone in each), or `"none"` (each agent learns
    alone from the team's reward)."""
    width: int = Field(64, ge=1, le=MOST_WIDTH)
    """Units of an agent's layers (PyMARL)."""
    recurrent: bool = True
    """True if agents remember by a GRU (PyMARL); otherwise a layer with ReLU stands in its place."""
    agent_ids: bool = True
    """True if an agent's input has its number in the team, one-hot (PyMARL). Without it agents with equal views act
    equally."""
    last_action: bool = True
    """True if an agent's input has its last action, one-hot (PyMARL)."""
    mixing_width: int = Field(32, ge=1, le=MOST_WIDTH)
    """Units of QMIX's mixing network (PyMARL)."""
    hypernet_layers: int = Field(2, ge=1, le=2)
    """Layers of the two hypernetworks that make QMIX's weights (PyMARL's qmix.yaml)."""
    hypernet_width: int = Field(64, ge=1, le=MOST_WIDTH)
    """Units between two such layers (PyMARL)."""
    subtasks: int = Field(4, ge=2, le=64)
    """LDSA: number of subtasks (authors)."""
    subtask_width: int = Field(64, ge=1, le=MOST_WIDTH)
    """LDSA: length of subtasks and abilities (authors)."""
    random_subtasks: bool = False
    """LDSA: True if an agent's subtask is drawn at random in place of by its ability: the ablation."""
    role_size: int = Field(3, ge=1, le=64)
    """ROMA: numbers of a role (authors)."""
    role_width: int = Field(16, ge=1, le=MOST_WIDTH)
    """ROMA: units of encoder and decoder of roles (authors)."""
    role_variance_floor: float = Field(0.002, gt=0, le=1)
    """ROMA: smallest variance of a role (authors; 1e-4 on other maps)."""
    distance_width: int = Field(0, ge=0, le=MOST_WIDTH)
    """MASER: units of the network of distances; 0: there is none. Authors: 128."""
    init_seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    """Seed of the fresh weights; `None` takes torch's global generator."""
