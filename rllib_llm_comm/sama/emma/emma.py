"""EMMA under MAPPO: agents that follow subgoals in words, SAMA's lower level; and its control without words.

A connector makes maps of symbols, manuals and subgoals the arrays that the network reads. `SymbolicPPO` reads the
game's numeric vector instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.annotations import override

from rllib_llm_comm.baselines.numeric.mappo import MAPPOConfig, MAPPOTraining
from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericPPO, NumericPPOConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import SUBGOAL_ENV_ID
from rllib_llm_comm.language.text_encoder import check_text_encoder, load_text_encoder
from rllib_llm_comm.policies.numeric_network import AUTO, BY_OWN, BY_STATE, CRITIC_STATE
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import GROUNDED
from rllib_llm_comm.rl.actor_critic import ActorCriticModule
from rllib_llm_comm.rl.connectors import ReplaceObservations
from rllib_llm_comm.rl.strict_config import select_fields, with_defaults
from rllib_llm_comm.sama.emma.network import (
    ENTITIES,
    FRAMES,
    MANUAL_TOKENS,
    SUBGOAL_TOKENS,
    EmmaEncoder,
    EmmaNetwork,
    EmmaSettings,
    emma_space,
)
from rllib_llm_comm.sama.emma.new_subgoals import NewSubgoalsConfigMixin, NewSubgoalsMixin, SubgoalData

EARLIER_FRAMES = "rllib_llm_comm/earlier_frames"


class EmmaObservations(ReplaceObservations):
    """Replaces every new observation by what `EmmaEncoder` makes of it.

    Input: multi-agent episodes whose newest observations are dicts with `entities`, `manual` and `subgoal`, and
    optionally `action_mask` and `state`. The earlier maps of an agent travel in the episode's `custom_data` and so
    survive the cuts between roll-out fragments.

    Raises:
        UserError: If the spaces do not hold what is needed.
    """

    def __init__(
        self,
        input_observation_space: gym.Space | None = None,
        input_action_space: gym.Space | None = None,
        *,
        settings: EmmaSettings,
        **kwargs: Any,
    ) -> None:
        self._settings = settings
        self._encoder = EmmaEncoder(load_text_encoder(settings.text_encoder), settings)
        super().__init__(input_observation_space, input_action_space, **kwargs)

    @override(ReplaceObservations)
    def spaces(self, agents: Mapping[str, gym.Space], actions: Any) -> Mapping[str, gym.Space]:
        """The agents' spaces as arrays."""
        return {agent: emma_space(agent, space, actions[agent], self._settings) for agent, space in agents.items()}

    @override(ReplaceObservations)
    def write(self, episode: MultiAgentEpisode, newest: list[tuple[Any, SingleAgentEpisode, Any]]) -> None:
        """Writes the arrays into an episode."""
        earlier = episode.custom_data.setdefault(EARLIER_FRAMES, {})
        for agent, single, seen in newest:
            if ENTITIES not in seen:  # arrays already
                continue
            space = self.observation_space[agent]
            arrays = self._encoder.encode(seen, earlier.setdefault(str(agent), []), CRITIC_STATE in space.spaces)
            single.set_observations(at_indices=-1, new_data=arrays)
            single.observation_space = space


class EmmaModule(ActorCriticModule):
    """One policy that follows subgoals in words (EMMA under MAPPO: SAMA's language-grounded agents).

    `model_config` holds the fields of `EmmaSettings`. Observations are those of the `EmmaObservations` connector. The
    text encoder is frozen and shared by the process; it is no part of the weights.
    """

    @override(ActorCriticModule)
    def build_network(self, config: dict[str, Any]) -> EmmaNetwork:
        """Actor and critic."""
        settings, space = EmmaSettings.from_mapping(config), self.observation_space
        parts: Any = space.spaces if isinstance(space, gym.spaces.Dict) else {}
        for name in (FRAMES, SUBGOAL_TOKENS, MANUAL_TOKENS):
            if name not in parts:
                raise UserError(
                    f"the observation space is {space}, but EMMA needs a Dict with `{name}`; put the connector "
                    "`EmmaObservations` in front of it."
                )
        if settings.critic_observation == AUTO:
            seen = BY_STATE if CRITIC_STATE in parts else BY_OWN
            settings = settings.replace(critic_observation=seen)
        return EmmaNetwork(
            settings,
            symbols=int(parts[FRAMES].high.max()) + 1,
            shape=parts[FRAMES].shape[1:3],
            actions=int(self.action_space.n),
            state_size=parts[CRITIC_STATE].shape[0] if settings.critic_observation == BY_STATE else 0,
            encoder=load_text_encoder(settings.text_encoder),
        )

    @override(ActorCriticModule)
    def export_policy(self) -> PolicyExport:
        """Settings, sizes and weights; not the encoder."""
        return PolicyExport(
            GROUNDED, network_file(self.network), {**self.network.settings.to_dict(), **self.network.sizes}
        )


@with_defaults(
    lr=2e-3,
    critic_lr=1e-3,
    lambda_=0.6,
    entropy_coeff=0.02,
    num_epochs=8,
    minibatch_size=512,
    train_batch_size_per_learner=2048,
)
class EMMATraining(MAPPOTraining):
    """The optimisation: onion-soup kitchens with sampled subgoals, trained within minutes (ours)."""


class EMMAConfig(NewSubgoalsConfigMixin, MAPPOConfig):
    """Settings of `EMMA`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import EMMAConfig

        algo = EMMAConfig().environment(env_config={"layout": "coordination_ring"}).build_algo()
        algo.train()
    """

    network: ClassVar[str] = "emma"
    acts_by_vectors: ClassVar[bool] = False
    settings_models = {
        **MAPPOConfig.settings_models,
        "training": EMMATraining,
        "subgoal_data": SubgoalData,
        "policy_network": select_fields(
            EmmaSettings, "text_encoder", "width", "frames", "filters", "hiddens", "max_subgoal_tokens",
            "max_manual_tokens", critic_observation="auto",
        ),
    }  # fmt: skip
    subgoals_in_vector: ClassVar[bool] = False
    own_env: ClassVar[str | None] = SUBGOAL_ENV_ID
    env_defaults: ClassVar[Mapping[str, Any]] = {
        "observe": ["entities", "state"], "action_level": "goal_cell", "commit": True,
    }  # fmt: skip

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults."""
        super().__init__(algo_class=algo_class)
        self.num_envs_per_env_runner = 32

    @override(NumericPPOConfig)
    def network_settings(self) -> Any:
        """The module's `model_config` as checked settings (`EmmaSettings`)."""
        return EmmaSettings.from_attributes(self, init_seed=self.seed)

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
        """Checks all settings; a `UserError` names one that is not allowed or does not fit the others."""
        super().validate()
        check_text_encoder(self.text_encoder)


class EMMA(NewSubgoalsMixin, NumericPPO):
    """MAPPO with a network that reads a manual and a subgoal; settings: `EMMAConfig`."""

    config_class = EMMAConfig


class SymbolicPPOConfig(NewSubgoalsConfigMixin, NumericPPOConfig):
    """Settings of `SymbolicPPO`.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import SymbolicPPOConfig

        algo = (
            SymbolicPPOConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B"})
            .training(lr=1e-3)
            .build_algo()
        )
    """

    network: ClassVar[str] = "mlp"
    settings_models = {**NumericPPOConfig.settings_models, "subgoal_data": SubgoalData}


class SymbolicPPO(NewSubgoalsMixin, NumericPPO):
    """The paper's "symbolic PPO": all agents share an MLP actor and an MLP critic; settings: `SymbolicPPOConfig`."""

    config_class = SymbolicPPOConfig
