"""What our RLModules share; and the one around a network with actor and critic apart, for agents without language."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import override
from torch import nn

from rllib_llm_comm.policies.numeric_network import ValueNorm
from rllib_llm_comm.policies.policy_folder import PolicyExport

# RLlib's algorithm configs mix these keys of their own into every model_config.
RLLIB_KEYS = ("vf_share_layers", "beta")


class SetupErrorsMixin:
    """Keeps the message of an AttributeError in an RLModule's constructor or `setup`, by raising a RuntimeError.

    RLlib takes an AttributeError there as the sign of an old module, retries with a constructor that no longer exists,
    and reports that failure alone. Stands in front of `TorchRLModule` among the base classes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except AttributeError as error:
            raise RuntimeError(f"{type(self).__name__} cannot be set up: AttributeError: {error}") from error


class ActorCriticModule(SetupErrorsMixin, TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """One policy whose network has `actor`, `critic`, `value_norm`, `logits`, `values` and `critic_outputs`.

    Attributes:
        network: The network.
        value_norm: The statistics by which the critic's targets are normalised, or `None`.
    """

    network: Any
    value_norm: ValueNorm | None

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds actor and critic."""
        config = {name: value for name, value in dict(self.model_config).items() if name not in RLLIB_KEYS}
        # Hidden from torch's registry: RLlib can only drop parts that are the module's own.
        self.__dict__["network"] = self.build_network(config)
        self.actor, self.critic = self.network.actor, self.network.critic
        self.value_norm = self.network.value_norm

    @abstractmethod
    def build_network(self, config: dict[str, Any]) -> Any:
        """The network of a `model_config`, for the module's spaces."""

    @override(InferenceOnlyAPI)
    def get_non_inference_attributes(self) -> list[str]:
        """The critic and its statistics are not needed to act."""
        return ["critic", "value_norm"]

    def actor_parameters(self) -> list[nn.Parameter]:
        """The actor's parameters."""
        return list(self.network.actor.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        """The critic's parameters."""
        return list(self.network.critic.parameters())

    @override(TorchRLModule)
    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.network.logits(batch[Columns.OBS])}

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """Values (B,) of a batch's observations, in units of reward."""
        values: torch.Tensor = self.network.values(batch[Columns.OBS])
        return values

    def critic_outputs(self, batch: dict[str, Any]) -> torch.Tensor:
        """Outputs of the critic (B,): normalised values if there is a `value_norm`."""
        outputs: torch.Tensor = self.network.critic_outputs(batch[Columns.OBS])
        return outputs

    @abstractmethod
    def export_policy(self) -> PolicyExport:
        """Settings and weights of this module for a checkpoint's policy folder."""
