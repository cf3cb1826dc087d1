"""Settings of networks that value a team's actions: `QTeam` and its parts."""

from __future__ import annotations

from dataclasses import dataclass

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.policies.settings import (
    MOST_WIDTH,
    FromMapping,
    require_number,
    require_seed,
    require_whole,
)

PLAIN, LDSA, ROMA = "plain", "ldsa", "roma"
AGENTS = (PLAIN, LDSA, ROMA)
VDN, QMIX, ALONE = "vdn", "qmix", "none"
MIXERS = (VDN, QMIX, ALONE)
_MOST_SUBTASKS = 64


@dataclass(frozen=True)
class QSettings(FromMapping):
    """Settings of a `QTeam`: the `model_config` of a `JointQModule`.

    Attributes:
        kind: The agents' network: `"plain"` (a GRU), `"ldsa"` (subtasks) or `"roma"` (roles).
        mixer: Total of the agents' values: `"vdn"` (their sum), `"qmix"` (monotone in each), or `"none"` (each agent
            learns alone from the team's reward).
        width: Units of an agent's layers, 1 to 65536. PyMARL: 64.
        recurrent: True if agents remember by a GRU; otherwise a layer with ReLU stands in its place.
        agent_ids: True if an agent's input has its number in the team, one-hot.
        last_action: True if an agent's input has its last action, one-hot.
        mixing_width: Units of QMIX's mixing network, 1 to 65536. PyMARL: 32.
        hypernet_layers: Layers of the two hypernetworks that make QMIX's weights, 1 or 2. PyMARL's qmix.yaml: 2.
        hypernet_width: Units between two such layers, 1 to 65536. PyMARL: 64.
        subtasks: LDSA: number of subtasks, 2 to 64. Authors: 4.
        subtask_width: LDSA: length of subtasks and abilities, 1 to 65536. Authors: 64.
        random_subtasks: LDSA: True if an agent's subtask is drawn at random in place of by its ability: the ablation.
        role_size: ROMA: numbers of a role, 1 to 64. Authors: 3.
        role_width: ROMA: units of encoder and decoder of roles, 1 to 65536. Authors: 16.
        role_variance_floor: ROMA: smallest variance of a role, > 0 and at most 1. Authors: 0.002; for other maps 1e-4.
        distance_width: MASER: units of the network of distances, 0 (none) to 65536. Authors: 128.
        init_seed: Seed of the fresh weights; `None` takes torch's global generator.
    """

    kind: str = PLAIN
    mixer: str = QMIX
    width: int = 64
    recurrent: bool = True
    agent_ids: bool = True
    last_action: bool = True
    mixing_width: int = 32
    hypernet_layers: int = 2
    hypernet_width: int = 64
    subtasks: int = 4
    subtask_width: int = 64
    random_subtasks: bool = False
    role_size: int = 3
    role_width: int = 16
    role_variance_floor: float = 0.002
    distance_width: int = 0
    init_seed: int | None = None

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, AGENTS)
        require_choice("mixer", self.mixer, MIXERS)
        for name in ("recurrent", "agent_ids", "last_action", "random_subtasks"):
            require_choice(name, getattr(self, name), (False, True))
        for name in ("width", "mixing_width", "hypernet_width", "subtask_width", "role_width"):
            require_whole(name, getattr(self, name), 1, MOST_WIDTH)
        require_whole("distance_width", self.distance_width, 0, MOST_WIDTH)
        require_whole("hypernet_layers", self.hypernet_layers, 1, 2)
        require_whole("subtasks", self.subtasks, 2, _MOST_SUBTASKS)
        require_whole("role_size", self.role_size, 1, _MOST_SUBTASKS)
        require_number("role_variance_floor", self.role_variance_floor, 0.0, 1.0, above=True)
        require_seed("init_seed", self.init_seed)
