"""What all algorithms with language-model agents share: their settings, and adapters from checkpoints."""

from __future__ import annotations

from typing import Any

from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.annotations import override
from ray.rllib.utils.checkpoints import Checkpointable
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.language.adapters import ACTION, MESSAGE
from rllib_llm_comm.language.prompts import read_prompts
from rllib_llm_comm.policies.find_checkpoint import is_named
from rllib_llm_comm.policies.partners import game_difference
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest, read_manifest
from rllib_llm_comm.rl.policy_checkpoints import PolicyCheckpointMixin, on_every_learner
from rllib_llm_comm.rl.strict_config import StrictConfigMixin, select_fields
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.policy import other_prompts, tell_once
from rllib_llm_comm.verco.settings import MODEL_SETTINGS, CommunicationSettings, LanguageModelSettings


class LanguageModelConfigMixin(StrictConfigMixin):
    """Adds `.language_model(...)` and `.communication(...)`."""

    prompts: Any
    settings_models = {
        "language_model": select_fields(LanguageModelSettings, *MODEL_SETTINGS),
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

    def language_model_settings(self) -> LanguageModelSettings:
        """The module's `model_config` as checked settings."""
        values = {name: getattr(self, name) for name in MODEL_SETTINGS}
        return LanguageModelSettings(**{**values, **self.trained_parts(), "init_seed": self.seed})

    def trained_parts(self) -> dict[str, Any]:
        """Fields of `LanguageModelSettings` that say what is trained."""
        raise NotImplementedError

    def communication_settings(self) -> CommunicationSettings:
        """The connector's settings, checked."""
        return CommunicationSettings(**{name: getattr(self, name) for name in CommunicationSettings.names()})

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training; with the way of talking."""
        talk = {"communication": self.communication_settings().to_dict(), "teacher": getattr(self, "teacher", None)}
        return {**super().policy_record(), **talk}


_AUTHORS = {f"{MESSAGE}_checkpoint": "taught_by", f"{ACTION}_checkpoint": "cloned_from"}
"""Setting -> key of `provenance` that says whose answers the adapter has learned."""


class AdapterCheckpointMixin(PolicyCheckpointMixin):
    """Takes adapters from `message_checkpoint` and `action_checkpoint`; checkpoints tell whose answers they learned."""

    @override(PolicyCheckpointMixin)
    def provenance(self) -> dict[str, Any]:
        """Where its adapters come from."""
        found: dict[str, Any] = {}
        for setting, authors in _AUTHORS.items():
            if hasattr(self.config, setting):
                path = found[setting] = getattr(self.config, setting)
                if isinstance(path, str):
                    found[authors] = _authors(path, authors)
                else:  # a restored config has none any more, but its adapter is still the one that was taken
                    restored = self._restored_provenance
                    found |= {name: restored[name] for name in (setting, authors) if name in restored}
        return found

    def load_adapter(self, path: str, role: str = MESSAGE) -> None:
        """Loads the message adapter (or that of `ACTION`) of a checkpoint into Learners and EnvRunners.

        Raises:
            UserError: If there is none at `path`, or it belongs to another base model.
        """
        require_choice("role", role, (MESSAGE, ACTION))
        setting = f"{role}_checkpoint"
        place = path if is_named(path) else str(local_path(path, setting).absolute())
        try:
            on_every_learner(self, _load, path=place, role=role)
        except UserError as error:
            raise UserError(f"`{setting}`: {error}") from error
        self.sync_runners()
        learned_in = getattr(_manifest(place), "env", None)
        if isinstance(self.config.env, str) and game_difference(self.config.env, {}, learned_in, {}):
            tell_once(
                f"The {role} adapter of {path!r} was trained in {learned_in!r}, another game than {self.config.env!r} "
                "here; it is taken all the same."
            )

    @override(PolicyCheckpointMixin)
    def tell_other_settings(self, path: Any, manifest: PolicyManifest) -> None:
        """Tells of prompts that differ from those of a checkpoint."""
        tell_once(other_prompts(path, manifest, self.config.language_model_settings()))

    @override(Checkpointable)
    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config without checkpoints of adapters: their weights are here, the old files may be gone."""
        args, kwargs = super().get_ctor_args_and_kwargs()
        state = dict(args[0])
        state |= dict.fromkeys(state.keys() & _AUTHORS.keys())
        return (state, *args[1:]), kwargs


def _authors(checkpoint: str, key: str) -> Any:
    """Whose answers an adapter has learned, as far as its checkpoint tells."""
    manifest = _manifest(checkpoint)
    return [] if manifest is None else manifest.provenance.get(key, [])


def _manifest(checkpoint: str) -> PolicyManifest | None:
    try:
        return read_manifest(find_policy(checkpoint))
    except UserError:  # an adapter alone, or a checkpoint that is gone by now
        return None


def _load(learner: Learner, path: str, role: str) -> None:
    for module_id, module in learner.module.items():
        if isinstance(module.unwrapped(), LLMCommModule):
            module.unwrapped().load_adapter(path, role, agent=module_id)
