"""The RLModule of agents that see numbers: `NumericNetwork` under RLlib."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import gymnasium as gym
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import override
from torch import nn

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.modules.numeric_network import (
    AUTO,
    BY_STATE,
    BY_TEAM,
    CRITIC_STATE,
    NumericNetwork,
    NumericSettings,
)
from rllib_llm_comm.modules.policy_folder import NUMERIC, PolicyExport, network_file
from rllib_llm_comm.modules.value_norm import ValueNorm

# RLlib's algorithm configs mix these keys of their own into every model_config.
_RLLIB_KEYS = ("vf_share_layers", "beta")


class NumericModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """One policy that chooses among actions by an agent's numeric vector, alone or with the team's.

    `model_config` holds the fields of `NumericSettings`. Observations are those of the `NumericObservations`
    connector.

    Attributes:
        network: Actor and critic.
        value_norm: The statistics by which the critic's targets are normalised, or `None`.
    """

    network: NumericNetwork
    value_norm: ValueNorm | None

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds actor and critic."""
        config = {name: value for name, value in dict(self.model_config).items() if name not in _RLLIB_KEYS}
        settings = _resolved(NumericSettings.from_mapping(config), self.observation_space)
        # Hidden from torch's registry: RLlib can only drop parts that are the module's own.
        self.__dict__["network"] = NumericNetwork(settings, *self._sizes(settings))
        self.actor, self.critic = self.network.actor, self.network.critic
        self.value_norm = self.network.value_norm

    def _sizes(self, settings: NumericSettings) -> tuple[int, int, int | None]:
        """Lengths of an agent's vector, of the actions and of what a central critic reads."""
        spaces = self.observation_space.spaces
        size = int(spaces[settings.inputs[0]].shape[-1])
        central = settings.critic_input != settings.inputs[0]
        return size, int(self.action_space.n), math.prod(spaces[settings.critic_input].shape) if central else None

    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        """The critic and its statistics are not needed to act."""
        return ["critic", "value_norm"]

    def actor_parameters(self) -> list[nn.Parameter]:
        """The actor's parameters."""
        return list(self.network.actor.parameters())

    def speaker_parameters(self) -> list[nn.Parameter]:
        """None: these agents say nothing."""
        return []

    def critic_parameters(self) -> list[nn.Parameter]:
        """The critic's parameters."""
        return list(self.network.critic.parameters())

    @override(TorchRLModule)
    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.network.logits(batch[Columns.OBS])}

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """Values (B,) of a batch's observations, in units of reward."""
        return self.network.values(batch[Columns.OBS])

    def critic_outputs(self, batch: dict[str, Any]) -> torch.Tensor:
        """What the critic itself says (B,): normalised values if there is a `value_norm`."""
        return self.network.critic_outputs(batch[Columns.OBS])

    def export_policy(self) -> PolicyExport:
        """What a checkpoint's policy folder holds of this module."""
        settings = self.network.settings
        sizes = dict(zip(("size", "actions", "critic_size"), self._sizes(settings), strict=True))
        return PolicyExport(NUMERIC, network_file(self.network), {**settings.to_dict(), **sizes})


def _resolved(settings: NumericSettings, space: gym.Space) -> NumericSettings:
    """The settings without `"auto"`, after a check that observations have what they ask for."""
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if settings.critic_observation == AUTO:
        seen = BY_STATE if CRITIC_STATE in parts else BY_TEAM
        settings = dataclasses.replace(settings, critic_observation=seen)
    for name in (settings.inputs[0], settings.critic_input):
        if name not in parts:
            raise UserError(
                f"the observation space is {space}, but a numeric policy needs a Dict with `{name}`; put the "
                "connector `NumericObservations` in front of it."
            )
    return settings
