"""EMMA under MAPPO: agents that follow subgoals in words, SAMA's lower level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPOConfig
from rllib_llm_comm.envs.overcooked_ai.game import SUBGOAL_ENV_ID
from rllib_llm_comm.language.text_encoder import check_text_encoder
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin
from rllib_llm_comm.rl.strict_config import part
from rllib_llm_comm.sama.emma.module import EmmaModule
from rllib_llm_comm.sama.emma.new_subgoals_config import NewSubgoalsConfigMixin, NewSubgoalsMixin, SubgoalData
from rllib_llm_comm.sama.emma.observations import EmmaObservations
from rllib_llm_comm.sama.emma.settings import EmmaSettings

if TYPE_CHECKING:
    from ray.rllib.connectors.connector_v2 import ConnectorV2


class EMMAConfig(NewSubgoalsConfigMixin, MAPPOConfig):
    """Settings of `EMMA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import EMMAConfig

        algo = EMMAConfig().environment(env_config={"layout": "coordination_ring"}).build_algo()
        algo.train()
    """

    network: ClassVar[str] = "emma"
    settings_models = {
        **MAPPOConfig.settings_models,
        "subgoal_data": SubgoalData,
        "policy_network": part(
            EmmaSettings, "text_encoder", "width", "frames", "filters", "hiddens", "critic_observation",
            "max_subgoal_tokens", "max_manual_tokens",
        ),
    }  # fmt: skip
    subgoals_in_vector: ClassVar[bool] = False
    own_env: ClassVar[str | None] = SUBGOAL_ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {
        "observe": ["entities", "state"], "action_level": "goal_cell", "commit": True,
    }  # fmt: skip

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: onion-soup kitchens with sampled subgoals, trained within minutes (ours)."""
        super().__init__(algo_class=algo_class or EMMA)
        self.lr = 2e-3
        self.critic_lr = 1e-3
        self.lambda_ = 0.6
        self.entropy_coeff = 0.02
        self.num_epochs = 8
        self.minibatch_size = 512
        self.train_batch_size_per_learner = 2048
        self.num_envs_per_env_runner = 32

    @override(NumericPPOConfig)
    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`EmmaSettings`).

        Raises:
            UserError: If a value is not allowed.
        """
        own = {name: getattr(self, name) for name in EmmaSettings.names() if hasattr(self, name)}
        return EmmaSettings(**{**own, "init_seed": self.seed})

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module."""
        return RLModuleSpec(module_class=EmmaModule, model_config=self.network_settings().to_dict())

    @override(NumericPPOConfig)
    def observations_connector(self) -> ConnectorV2:
        """`EmmaObservations`."""
        return EmmaObservations(settings=self.network_settings())

    @override(MAPPOConfig)
    def validate(self) -> None:
        """Checks all settings.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        super().validate()
        self._validate_new_subgoals()
        check_text_encoder(self.text_encoder)


class EMMA(NewSubgoalsMixin, PolicyCheckpointMixin, PPO):
    """MAPPO with a network that reads a manual and a subgoal; settings: `EMMAConfig`."""

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> EMMAConfig:
        """The default settings."""
        return EMMAConfig()
