"""The RLModule of a team that learns by value decomposition: `QTeam` under RLlib."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import override
from ray.rllib.utils.schedules.scheduler import Scheduler

from rllib_llm_comm.baselines.value.q_network import epsilon_greedy
from rllib_llm_comm.baselines.value.q_settings import QSettings
from rllib_llm_comm.baselines.value.q_team import QTeam
from rllib_llm_comm.baselines.value.team_episodes import ACTIVE, MASK, SEEN, STATE
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import VALUED
from rllib_llm_comm.rl.told_errors import ToldErrors

MEMORY, LAST = "memory", "last_actions"
EPSILON, TEAM = "epsilon", "team"


class JointQModule(ToldErrors, TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI):
    """All agents of a team, with the mixer and the target team; observations are those of a `JointGame`.

    `model_config` holds the fields of `QSettings`; `epsilon`, a number or a schedule over game steps; and `team`, which
    names the agents and the forms of their observations for policy folders.

    Attributes:
        team: The team that learns.
        target: The team that targets are taken from; only Learners have it.
    """

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds the team."""
        config = dict(self.model_config)
        settings = QSettings.from_mapping({name: config[name] for name in QSettings.names() if name in config})
        spaces: Any = self.observation_space
        agents, actions = spaces[MASK].shape
        self.team = QTeam(settings, spaces[SEEN].shape[1], actions, agents, spaces[STATE].shape[0])
        self._epsilon = Scheduler(fixed_value_or_schedule=config.get(EPSILON, 0.0), framework="torch")

    @override(TorchRLModule)
    def set_state(self, state: dict[str, Any]) -> None:
        """Sets weights.

        Raises:
            UserError: If they are of other sizes: another team's, or another network's.
        """
        for name, weight in self.state_dict().items():
            if name in state and np.shape(state[name]) != weight.shape:
                raise UserError(
                    f"`{name}` has the shape {tuple(np.shape(state[name]))} in the state that is set but "
                    f"{tuple(weight.shape)} here; take weights of the same team, game and network settings."
                )
        super().set_state(state)

    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        """The target team is not needed to act."""
        return ["target"]

    @override(TargetNetworkAPI)
    def make_target_networks(self) -> None:
        """Copies the team."""
        self.target = copy.deepcopy(self.team).eval().requires_grad_(False)

    @override(TargetNetworkAPI)
    def get_target_network_pairs(self) -> list[tuple[Any, Any]]:
        """The team, mixer included, and its target."""
        return [(self.team, self.target)]

    @override(TargetNetworkAPI)
    def forward_target(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Nothing: the loss unrolls the target team itself."""
        return {}

    @override(TorchRLModule)
    def get_initial_state(self) -> dict[str, Any]:
        """Memory of a team that begins an episode: zeros, and no last action."""
        memory = self.team.initial_memory(1)[0]
        return {MEMORY: memory.cpu().numpy(), LAST: torch.full(memory.shape[:1], -1, dtype=torch.long).numpy()}

    def epsilon_at(self, step: int) -> float:
        """The share of random actions.

        Args:
            step: Game steps played so far.
        """
        self._epsilon.update(step)
        return float(self._epsilon.get_current_value())

    @override(TorchRLModule)
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, 0.0, sample=False)

    @override(TorchRLModule)
    def _forward_exploration(self, batch: dict[str, Any], t: int = 0, **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, self.epsilon_at(t), sample=True)

    @override(TorchRLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {}  # the loss unrolls the team itself, beside its target

    def _act(self, batch: dict[str, Any], epsilon: float, sample: bool) -> dict[str, Any]:
        seen, state = batch[Columns.OBS], batch[Columns.STATE_IN]
        self.team.eval()
        with torch.no_grad():
            active = seen[ACTIVE] != 0
            out = self.team.unroll(seen[SEEN], state[LAST].unsqueeze(1), state[MEMORY], active, sample=sample)
            actions = epsilon_greedy(out.values, seen[MASK], epsilon)
            last = torch.where(active[:, -1], actions[:, -1], state[LAST].long())
        return {Columns.ACTIONS: actions, Columns.STATE_OUT: {MEMORY: out.memory, LAST: last}}

    def export_policy(self) -> PolicyExport:
        """Settings, sizes and the agents' weights; the mixer is not needed to act."""
        agents = copy.deepcopy(self.team)
        agents.mixer = agents.distance = None
        config = {**self.team.settings.to_dict(), **agents.sizes, "state_size": 0, **self.model_config[TEAM]}
        return PolicyExport(VALUED, network_file(agents), config)
