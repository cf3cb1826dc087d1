"""The RLModule of agents that see numbers: `NumericNetwork` under RLlib."""

from __future__ import annotations

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
from rllib_llm_comm.modules.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.modules.policy_folder import NUMERIC, PolicyExport, network_file

# RLlib's algorithm configs mix these keys of their own into every model_config.
_RLLIB_KEYS = ("vf_share_layers", "beta")


class NumericModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """One policy that chooses among actions by an agent's numeric vector, alone or with the team's.

    `model_config` holds the fields of `NumericSettings`. Observations are those of the `NumericObservations`
    connector.
    """

    network: NumericNetwork

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds actor and critic."""
        config = {name: value for name, value in dict(self.model_config).items() if name not in _RLLIB_KEYS}
        settings = NumericSettings.from_mapping(config)
        spaces = self.observation_space
        seen = settings.inputs[0]
        if not isinstance(spaces, gym.spaces.Dict) or seen not in spaces.spaces:
            raise UserError(
                f"the observation space is {spaces}, but a numeric policy needs a Dict with `{seen}`; put the "
                "connector `NumericObservations` in front of it."
            )
        network = NumericNetwork(settings, _length(spaces[seen]), int(self.action_space.n))
        # Hidden from torch's registry: RLlib can only drop parts that are the module's own.
        self.__dict__["network"] = network
        self.actor, self.critic = network.actor, network.critic

    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        """The critic is not needed to act."""
        return ["critic"]

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
        """Values (B,) of a batch's observations."""
        return self.network.values(batch[Columns.OBS])

    def export_policy(self) -> PolicyExport:
        """What a checkpoint's policy folder holds of this module."""
        spaces = self.observation_space
        size = _length(spaces[self.network.settings.inputs[0]])
        settings = {**self.network.settings.to_dict(), "size": size, "actions": int(self.action_space.n)}
        return PolicyExport(NUMERIC, network_file(self.network), settings)


def _length(space: gym.Space) -> int:
    assert space.shape
    return int(space.shape[-1])
