"""Settings that all algorithms with language-model agents share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from rllib_llm_comm.language.prompt_sets import read_prompts
from rllib_llm_comm.rl.strict_config import StrictConfigMixin, part
from rllib_llm_comm.verco.settings import CommunicationSettings, LanguageModelSettings

MODEL_SETTINGS = tuple(
    name for name in LanguageModelSettings.names() if name not in ("trainable_roles", "train_critic", "init_seed")
)
"""Settings of a language model that a user gives."""


class WithMessageCheckpoint(CommunicationSettings):
    """How agents talk, and what their message adapter has learned."""

    message_checkpoint: str | None = None
    """Checkpoint of `MessageSFT` (or of `Verco`), or a PEFT adapter folder, whose message adapter is loaded when the
    algorithm is built. None: a fresh adapter."""


class LanguageModelConfigMixin(StrictConfigMixin):
    """Adds `.language_model(...)` and `.communication(...)`."""

    prompts: Any
    settings_models = {
        "language_model": part(LanguageModelSettings, *MODEL_SETTINGS),
        "communication": CommunicationSettings,
    }

    def language_model(self, **settings: Any) -> Self:
        """Sets the language model, its adapters and the critic on it, as of `LanguageModelSettings`."""
        return self.assign("language_model", settings)

    def communication(self, **settings: Any) -> Self:
        """Sets how agents talk, as of `CommunicationSettings`."""
        return self.assign("communication", settings)

    def validate(self) -> None:
        """Checks the prompts, and keeps their texts: a checkpoint is restored where their folder is not."""
        self.prompts = read_prompts(self.prompts)
        super().validate()

    def language_model_settings(self, roles: Sequence[str], train_critic: bool) -> LanguageModelSettings:
        """The module's `model_config` as checked settings.

        Args:
            roles: Adapters that are trained.
            train_critic: True if the critic is trained.
        """
        values = {name: getattr(self, name) for name in MODEL_SETTINGS}
        return LanguageModelSettings(
            **values, trainable_roles=tuple(roles), train_critic=train_critic, init_seed=self.seed
        )

    def communication_settings(self) -> CommunicationSettings:
        """The connector's settings, checked."""
        return CommunicationSettings(**{name: getattr(self, name) for name in CommunicationSettings.names()})

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training; with the way of talking."""
        talk = {"communication": self.communication_settings().to_dict(), "teacher": getattr(self, "teacher", None)}
        return {**super().policy_record(), **talk}
