"""The RLModule of agents that read a map, a manual and a subgoal: `EmmaNetwork` under RLlib."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import AUTO, BY_OWN, BY_STATE, CRITIC_STATE
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_file
from rllib_llm_comm.policies.policy_manifest import GROUNDED
from rllib_llm_comm.rl.actor_critic import ActorCriticModule
from rllib_llm_comm.sama.emma.inputs import FRAMES, MANUAL_TOKENS, SUBGOAL_TOKENS
from rllib_llm_comm.sama.emma.network import EmmaNetwork
from rllib_llm_comm.sama.emma.settings import EmmaSettings


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
