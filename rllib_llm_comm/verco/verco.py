"""Verco: PPO for language-model agents that talk before they act (arXiv 2404.17780)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pettingzoo.env_registry import registration
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.language.adapters import ACTION, MESSAGE
from rllib_llm_comm.rl.agent_policies import AgentPoliciesMixin
from rllib_llm_comm.rl.env_registration import playable_id
from rllib_llm_comm.rl.multi_agent_ppo import MultiAgentPPOConfig
from rllib_llm_comm.rl.ordered_observations import AddObservationsInOrder
from rllib_llm_comm.verco.adapter_checkpoints import AdapterCheckpointMixin
from rllib_llm_comm.verco.advantages import LISTENERS, SPEAKER, TEAM
from rllib_llm_comm.verco.group_baseline_settings import ADVANTAGE_FLOOR, GroupBaselinesMixin
from rllib_llm_comm.verco.learner import VercoLearner, first_kl_coeff
from rllib_llm_comm.verco.message_exchange import MessageExchange
from rllib_llm_comm.verco.message_protocol import require_possible
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.settings import DRAWN, OTHER_FACT, SWAPPED
from rllib_llm_comm.verco.teacher_messages import AddTeacherMessages
from rllib_llm_comm.verco.teachers.base import portable_teacher

if TYPE_CHECKING:
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from ray.rllib.core.learner import Learner
    from typing_extensions import Self

logger = logging.getLogger(__name__)

_MAY_BE_NONE = ("message_entropy_coeff", "message_kl_coeff", "message_kl_target")


class VercoConfig(AgentPoliciesMixin, GroupBaselinesMixin, MultiAgentPPOConfig):
    """Settings of `Verco`.

    All agents share one policy: a frozen language model with a message adapter, an action adapter and a
    critic; or, with `policies: per_agent`, each agent has adapters and a critic of its own on the one language model.
    Each agent first writes a message from its own observation (frozen message adapter), then scores
    its candidate actions behind its observation and the messages of the others. PPO trains the action adapter
    and the critic, and with `train_messages` the message adapter, too. With `advantages` "rloo" or "grpo" groups of
    episodes take the critic's place.

    .. testcode::
        :skipif: True

        from rllib_llm_comm import VercoConfig

        algo = (
            VercoConfig()
            .environment("rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "A"})
            .communication(message_checkpoint="results/sft/checkpoint")
            .build_algo()
        )
        algo.train()
    """

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults: for the embedded model on two CPU cores (ours: the paper gives none)."""
        super().__init__(algo_class=algo_class or Verco)
        self._set_language_defaults()
        self._set_group_defaults()
        self.message_checkpoint: str | None = None
        self.action_checkpoint: str | None = None
        self.teacher: str | Mapping[str, Any] | None = None
        self.lr = 2e-3
        self.advantage_floor = ADVANTAGE_FLOOR
        self.message_lr = 2e-4
        self.message_credit = SPEAKER
        self.message_entropy_coeff: float | None = None
        self.message_kl_coeff: float | None = None
        self.message_kl_target: float | None = None

    @override(PPOConfig)
    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The shared module: action adapter and critic are trained."""
        settings = self.language_model_settings(self._trained_roles(), train_critic=True)
        return RLModuleSpec(module_class=LLMCommModule, model_config=settings.to_dict())

    @override(MultiAgentPPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`VercoLearner`."""
        return VercoLearner

    @override(AlgorithmConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> ConnectorV2:
        """RLlib's pipeline with `MessageExchange` behind the user's own pieces."""
        pipeline = super().build_env_to_module_connector(env=env, spaces=spaces, device=device)
        following = "AddObservationsFromEpisodesToBatch"
        if not any(isinstance(piece, MessageExchange) for piece in pipeline.connectors):
            exchange = MessageExchange(
                language_model=self.language_model_settings(self._trained_roles(), train_critic=True).to_dict(),
                communication=self.communication_settings().to_dict(),
            )
            pipeline.insert_before(following, exchange)
        pipeline.insert_before(following, AddObservationsInOrder())
        return pipeline

    @override(MultiAgentPPOConfig)
    def training(
        self,
        *,
        message_lr: float = NotProvided,
        message_credit: str = NotProvided,
        message_entropy_coeff: float | None = NotProvided,
        message_kl_coeff: float | None = NotProvided,
        message_kl_target: float | None = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. Settings of messages take effect with `train_messages`; Verco freezes them.

        Args:
            message_lr: Learning rate of the message adapter, > 0. Default 2e-4 (ours): a message is many tokens, so its
                probability changes faster than that of an action.
            message_credit: The advantage that a message gets: `"speaker"` (default; the speaker's own, as part of its
                action), `"team"` (mean over all agents) or `"listeners"` (mean over those who heard it). All ours;
                where agents are paid apart, only the last two pay for helping.
            message_entropy_coeff: Weight of the entropy of messages, >= 0, or `None` (default, ours): that of
                `entropy_coeff`.
            message_kl_coeff: Weight of the KL divergence of messages from those that were learned from the teacher, in
                nats per message, >= 0; the first weight where `message_kl_target` is set. `None` (default, ours): 0.1
                for written messages, 0 for a menu, whose phrases stay what they are.
            message_kl_target: Divergence in nats per message towards which the weight is adapted after every update, as
                in Ziegler et al. (arXiv 1909.08593, section 2.2), > 0, or `None` (default) for a constant weight.
            **kwargs: Settings of `MultiAgentPPOConfig.training` and `GroupBaselinesMixin.training`.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    def _trained_roles(self) -> tuple[str, ...]:
        return (ACTION, MESSAGE) if self.train_messages else (ACTION,)

    @override(PPOConfig)
    def validate(self) -> None:
        """Checks all settings; registers the environment with RLlib if PettingZoo knows it.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        self._validate_groups()
        self.communication_settings()
        self.language_model_settings(self._trained_roles(), train_critic=True)
        if self.messages == "teacher":
            if not self.teacher:
                raise UserError("`messages` is 'teacher' but `teacher` is not set; set it, for example to 'scripted'.")
            self.teacher = portable_teacher(self.teacher)
            self._add_callback(AddTeacherMessages)
        if self.messages == SWAPPED:
            raise UserError(
                f"`messages` is {SWAPPED!r}, which is for playing trained agents; train with {OTHER_FACT!r}."
            )
        self._validate_messages()
        super().validate()

    def require_possible_messages(self) -> None:
        """Refuses messages about another fact in a game that tells at most one; makes the environment once.

        Likewise for the periodic evaluation (`evaluation_config`). Of environments that PettingZoo does not know it
        shows while they are played.

        Raises:
            UserError: If there is no other fact.
        """
        configs = [self, *([self.get_evaluation_config_object()] if self.evaluation_config else [])]
        for config in configs:
            env = playable_id(config.env)
            if config.messages == OTHER_FACT and env in registration.parallel_registry:
                made = make_env(str(env), **(config.env_config or {}))
                try:
                    require_possible(config.messages, made)
                finally:
                    made.close()

    def _validate_messages(self) -> None:
        require_choice("message_credit", self.message_credit, (SPEAKER, TEAM, LISTENERS))
        if self.message_credit != SPEAKER and not self.train_messages:
            raise UserError(
                f"`message_credit` is {self.message_credit!r}, but messages are not trained; set `train_messages` to "
                "true, or leave `message_credit` out."
            )
        given = [name for name in _MAY_BE_NONE if getattr(self, name) is not None]
        adapted = [name for name in given if name == "message_kl_target"]
        self.require_numbers(["message_lr", *given])
        for name in ("message_lr", *adapted):
            if not getattr(self, name) > 0:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be larger than 0.")
        for name in set(given) - set(adapted):
            if not getattr(self, name) >= 0:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be 0 or larger.")
        if adapted and not first_kl_coeff(self) > 0:
            raise UserError(
                f"`message_kl_coeff` is {self.message_kl_coeff!r} with `message_kl_target` {self.message_kl_target!r}, "
                "but 0 stays 0 however it is adapted; set it to 0.1, for example."
            )


class Verco(AdapterCheckpointMixin, PPO):
    """PPO over the action adapter and the critic of agents that exchange messages; settings: `VercoConfig`.

    A checkpoint also holds `policy/`: adapters in PEFT's format, the critic and a JSON file, from which
    `rllib_llm_comm.load_policy` makes a policy without Ray.
    """

    @classmethod
    @override(PPO)
    def get_default_config(cls) -> VercoConfig:
        """The default settings."""
        return VercoConfig()

    @override(PPO)
    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runners and learners and loads the adapters of `action_checkpoint` and `message_checkpoint`."""
        config.require_possible_messages()
        super().setup(config)
        if self.config.action_checkpoint:
            self.load_action_adapter(self.config.action_checkpoint)
        if self.config.message_checkpoint:
            self.load_message_adapter(self.config.message_checkpoint)
        elif self.config.messages in ("student", *DRAWN) and not self.config.train_messages:
            logger.warning(
                "`messages` is %r but `message_checkpoint` is not set: messages come from an untrained "
                "adapter unless a checkpoint of this algorithm is restored.",
                self.config.messages,
            )
