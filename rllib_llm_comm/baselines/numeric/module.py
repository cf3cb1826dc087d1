"""The RLModule of agents that see numbers: `NumericNetwork` under RLlib."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.numeric_network import (
    AUTO,
    BY_STATE,
    BY_TEAM,
    CRITIC_STATE,
    NumericNetwork,
    NumericSettings,
)
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import NUMERIC
from rllib_llm_comm.rl.actor_critic import ActorCriticModule


class NumericModule(ActorCriticModule):
    """One policy that chooses among actions by an agent's numeric vector, alone or with the team's.

    `model_config` holds the fields of `NumericSettings`. Observations are those of the `NumericObservations`
    connector.
    """

    @override(ActorCriticModule)
    def build_network(self, config: dict[str, Any]) -> NumericNetwork:
        """Actor and critic."""
        settings = _resolved(NumericSettings.from_mapping(config), self.observation_space)
        return NumericNetwork(settings, *self._sizes(settings))

    def _sizes(self, settings: NumericSettings) -> tuple[int, int, int | None]:
        """Lengths of an agent's vector, of the actions and of what a central critic reads."""
        spaces = self.observation_space.spaces
        size = int(spaces[settings.inputs[0]].shape[-1])
        central = settings.critic_input != settings.inputs[0]
        return size, int(self.action_space.n), math.prod(spaces[settings.critic_input].shape) if central else None

    @override(ActorCriticModule)
    def narrow(self, observations: dict[str, Any]) -> dict[str, Any]:
        """Observations without the columns that are zero in all rows of an update (`NumericNetwork.narrow`)."""
        return self.network.narrow(observations)

    @override(ActorCriticModule)
    def export_policy(self) -> PolicyExport:
        """Settings, sizes and weights."""
        settings = self.network.settings
        sizes = dict(zip(("size", "actions", "critic_size"), self._sizes(settings), strict=True))
        return PolicyExport(NUMERIC, network_file(self.network), {**settings.to_dict(), **sizes})


def _resolved(settings: NumericSettings, space: gym.Space) -> NumericSettings:
    """The settings without `"auto"`, after a check that observations have what they ask for."""
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if settings.critic_observation == AUTO:
        seen = BY_STATE if CRITIC_STATE in parts else BY_TEAM
        settings = settings.replace(critic_observation=seen)
    for name in (settings.inputs[0], settings.critic_input):
        if name not in parts:
            raise UserError(
                f"the observation space is {space}, but a numeric policy needs a Dict with `{name}`; put the "
                "connector `NumericObservations` in front of it."
            )
    return settings
