"""The RLModule of MiniRTS officers, and RED's masked action distribution under RLlib."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchDistribution
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.annotations import override
from torch import nn

from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice
from rllib_llm_comm.baselines.red.observations import OfficerObservations
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.view.officer_view import officer_spaces
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import OFFICER
from rllib_llm_comm.rl.told_errors import ToldErrors

# RLlib's algorithm configs mix these keys of their own into every model_config.
_RLLIB_KEYS = ("vf_share_layers", "beta")


class CollectiveDistribution(TorchDistribution):
    """`CollectiveChoice` as RLlib's distributions are.

    Args:
        choice: The distributions.
        greedy: True if `sample` takes the most likely value of each part.
    """

    def __init__(self, choice: CollectiveChoice, greedy: bool = False) -> None:
        self._greedy = greedy
        super().__init__(choice)

    @override(TorchDistribution)
    def _get_torch_distribution(self, choice: CollectiveChoice) -> Any:
        return choice

    @override(TorchDistribution)
    def sample(self, *, sample_shape: Any = None) -> torch.Tensor:
        """Actions (B, 58)."""
        actions: torch.Tensor = self._dist.sample(greedy=self._greedy)
        return actions

    @override(TorchDistribution)
    def rsample(self, *, sample_shape: Any = None) -> torch.Tensor:
        """Not possible: actions are whole numbers."""
        raise NotImplementedError("whole numbers have no gradient")

    @override(TorchDistribution)
    def logp(self, value: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Log-probabilities (B,) of actions (B, 58), of the parts that they use."""
        logp: torch.Tensor = self._dist.logp(value)
        return logp

    @override(TorchDistribution)
    def kl(self, other: Any) -> torch.Tensor:
        """Not known in closed form; the learner estimates it from log-probabilities."""
        raise NotImplementedError("the divergence has no closed form")

    @staticmethod
    @override(TorchDistribution)
    def required_input_dim(space: gym.Space, **kwargs: Any) -> int:
        """Not told by the space: it depends on the network's `keys`."""
        raise NotImplementedError("the network's settings say it")

    @classmethod
    @override(TorchDistribution)
    def from_logits(cls, logits: CollectiveChoice, **kwargs: Any) -> CollectiveDistribution:
        """The distributions of `ACTION_DIST_INPUTS`, which are no one array here: most of it would be keys of cells."""
        return cls(logits)

    def to_deterministic(self) -> CollectiveDistribution:
        """The same distributions, of which `sample` takes the most likely values."""
        return CollectiveDistribution(self._dist, greedy=True)


class OfficerModule(ToldErrors, TorchRLModule, ValueFunctionAPI):
    """One network for all officers, at the action level "red" of MiniRTS (`OfficerNetwork`).

    `model_config` holds the fields of `OfficerSettings`. Observations have the part `officer`. Actions are drawn here,
    so that only they and their log-probabilities are kept of a roll-out: the distributions are large. PPO's learners
    make these anew. Actor and critic share all layers but the last.

    Attributes:
        network: The network.
        value_norm: None: returns are not normalised.
        observations_connector: The connector that algorithms put in front of it.
    """

    value_norm = None
    observations_connector = OfficerObservations

    @override(TorchRLModule)
    def setup(self) -> None:
        """Builds the network."""
        config = {name: value for name, value in dict(self.model_config).items() if name not in _RLLIB_KEYS}
        parts = self.observation_space.spaces if isinstance(self.observation_space, gym.spaces.Dict) else {}
        for name in officer_spaces():
            if name not in parts:
                raise UserError(
                    f"the observation space has no `{name}`, which officers act on; use MiniRTS with "
                    "`action_level: red` and `observe: [officer]`."
                )
        self.network = OfficerNetwork(OfficerSettings.from_mapping(config))
        self.action_dist_cls = CollectiveDistribution

    def actor_parameters(self) -> list[nn.Parameter]:
        """All parameters but those of the last layer of the critic."""
        own = {id(parameter) for parameter in self.critic_parameters()}
        return [parameter for parameter in self.network.parameters() if id(parameter) not in own]

    def critic_parameters(self) -> list[nn.Parameter]:
        """The last layer of the critic."""
        return list(self.network.value.parameters())

    @override(TorchRLModule)
    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, greedy=True)

    @override(TorchRLModule)
    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return self._act(batch, greedy=False)

    def _act(self, batch: dict[str, Any], greedy: bool) -> dict[str, Any]:
        with torch.no_grad():
            choice = self.network.choice(batch[Columns.OBS])
            actions = choice.sample(greedy=greedy)
            return {Columns.ACTIONS: actions, Columns.ACTION_LOGP: choice.logp(actions)}

    @override(TorchRLModule)
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        choice, whole = self.network.choose(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: choice, Columns.EMBEDDINGS: whole}

    @override(ValueFunctionAPI)
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        """Values (B,) of a batch's observations.

        Args:
            batch: Observations.
            embeddings: Global vectors (B, D) of what the critic reads of these, if `forward_train` has computed them.
        """
        if embeddings is not None:
            return self.network.values(embeddings)
        return self.network.judged(batch[Columns.OBS])

    def export_policy(self) -> PolicyExport:
        """Settings and weights of this module for a checkpoint's policy folder."""
        return PolicyExport(OFFICER, network_file(self.network), self.network.settings.to_dict())
