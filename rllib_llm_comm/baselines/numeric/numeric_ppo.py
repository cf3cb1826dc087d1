"""PPO for agents that see numbers instead of words: what `SymbolicPPO`, `CommNet` and `MAPPO` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.module import NumericModule
from rllib_llm_comm.baselines.numeric.observations import NumericObservations
from rllib_llm_comm.policies.numeric_network import NumericSettings
from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig
from rllib_llm_comm.rl.ordered_observations import AddObservationsInOrder
from rllib_llm_comm.rl.strict_config import SHARED_POLICY, part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from typing_extensions import Self


class NumericPPOConfig(MultiAgentPPOConfig):
    """Settings of algorithms whose agents observe numbers: the parts `vector` and `action_mask`."""

    settings_models = {**MultiAgentPPOConfig.settings_models, "policy_network": part(NumericSettings, "hiddens")}
    network: ClassVar[str]
    subgoals_in_vector: ClassVar[bool] = True
    own_env: ClassVar[str | None] = None
    """Id of the game that an algorithm is made for."""
    env_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that the game has with this algorithm unless `env_config` says otherwise."""

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults."""
        super().__init__(algo_class=algo_class)
        if self.own_env is not None:
            self.env = self.own_env
            self.env_config = dict(self.env_defaults)
        self.lr = 1e-3
        self.minibatch_size: int | None = 256
        self.num_epochs = 4

    @override(AlgorithmConfig)
    def environment(self, env: Any = NotProvided, *, env_config: Any = NotProvided, **kwargs: Any) -> Self:
        """As RLlib's; in the algorithm's own game `env_config` is filled up with `env_defaults`."""
        super().environment(env, env_config=env_config, **kwargs)
        self._fill_env_config()
        return self

    def _fill_env_config(self) -> None:
        if self.own_env is not None and self.env == self.own_env:
            self.env_config = {**self.env_defaults, **(self.env_config or {})}

    def policy_network(self, **settings: Any) -> Self:
        """Sets the network; the settings are those of `settings_models["policy_network"]`."""
        return self.assign("policy_network", settings)

    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`NumericSettings`).

        Raises:
            UserError: If a value is not allowed.
        """
        own = {name: getattr(self, name) for name in NumericSettings.names() if hasattr(self, name)}
        return NumericSettings(**{**own, "network": self.network, "init_seed": self.seed})

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module."""
        return RLModuleSpec(module_class=NumericModule, model_config=self.network_settings().to_dict())

    @override(AlgorithmConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> ConnectorV2:
        """RLlib's pipeline with the network's own piece behind the user's pieces."""
        pipeline = super().build_env_to_module_connector(env=env, spaces=spaces, device=device)
        following = "AddObservationsFromEpisodesToBatch"
        pipeline.insert_before(following, self.observations_connector())
        pipeline.insert_before(following, AddObservationsInOrder())
        return pipeline

    def observations_connector(self) -> ConnectorV2:
        """The connector from the environment's observations to those of the module: its own, if it names one.

        A module of one's own, given to `rl_module`, names it as its class's `observations_connector`.
        """
        spec: Any = self.rl_module_spec
        if isinstance(spec, MultiRLModuleSpec):
            spec = spec.rl_module_specs.get(SHARED_POLICY)
        own = getattr(getattr(spec, "module_class", None), "observations_connector", None)
        if own is not None:
            connector: ConnectorV2 = own()
            return connector
        settings = self.network_settings()
        return NumericObservations(team=settings.hears, critic=settings.critic_observation)

    @override(MultiAgentPPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        self._fill_env_config()
        self.network_settings()
        super().validate()
