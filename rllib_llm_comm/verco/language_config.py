"""Settings that all algorithms with language-model agents share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import NotProvided

from rllib_llm_comm.language.prompt_sets import DEFAULT, PromptSet, read_prompts
from rllib_llm_comm.rl.strict_config import StrictConfigMixin
from rllib_llm_comm.verco.settings import CommunicationSettings, LanguageModelSettings

if TYPE_CHECKING:
    from typing_extensions import Self

MODEL_SETTINGS = tuple(
    name for name in LanguageModelSettings.names() if name not in ("trainable_roles", "train_critic", "init_seed")
)
"""Settings of a language model that a user gives."""


class LanguageModelConfigMixin(StrictConfigMixin):
    """Adds `.language_model(...)` and `.communication(...)`.

    Every setting is also an attribute, and so a flat key of a YAML file's `config:`.
    """

    def _set_language_defaults(self) -> None:
        defaults = LanguageModelSettings().to_dict()
        for name in MODEL_SETTINGS:
            setattr(self, name, defaults[name])
        self.prompts: PromptSet = DEFAULT
        for name, value in CommunicationSettings().to_dict().items():
            setattr(self, name, value)
        self._set_shared_policy()

    def language_model(
        self,
        *,
        base_model: str = NotProvided,
        action_checkpoint: str | None = NotProvided,
        dtype: str = NotProvided,
        quantization: str = NotProvided,
        device: str = NotProvided,
        lora_r: int = NotProvided,
        lora_alpha: int = NotProvided,
        lora_dropout: float = NotProvided,
        lora_target_modules: str | Sequence[str] = NotProvided,
        lora_layers: int | str = NotProvided,
        critic_hiddens: Sequence[int] = NotProvided,
        prompts: PromptSet = NotProvided,
        prompt_format: str = NotProvided,
        prompt_date: str = NotProvided,
        score_normalization: str = NotProvided,
        temperature: float = NotProvided,
        max_prompt_tokens: int = NotProvided,
        max_candidate_tokens: int = NotProvided,
        engine: str = NotProvided,
        prefix_cache_mb: int = NotProvided,
        trunk_cache_mb: int = NotProvided,
        trunk_cache_dtype: str = NotProvided,
        micro_batch_tokens: int | None = NotProvided,
        gradient_checkpointing: bool = NotProvided,
        autocast: str = NotProvided,
    ) -> Self:
        """Sets the language model, its adapters and the critic on it.

        Args:
            base_model: `"embedded"` (default; a tiny model that comes with the package and has read about kitchens),
                `"embedded_minirts"` (another one that has read about MiniRTS), a folder with a Hugging Face causal
                language model in safetensors, or a hub id. Verco: LLaMA-7B.
            action_checkpoint: Checkpoint of `ActionSFT` (or of `Verco`), or a PEFT adapter folder, whose action adapter
                is loaded when the algorithm is built. Default `None`: a fresh adapter.
            dtype: `"float32"` (default), `"bfloat16"` or `"float16"` of the frozen weights. TWOSOME: float16.
            quantization: `"none"` (default), or `"8bit"` or `"4bit"`: how the frozen linear maps are held; needs the
                extra `quantized` (bitsandbytes). `dtype` is what they are computed in (ours).
            device: `"cpu"` (default), `"cuda"`, `"cuda:1"`, ... or `"auto"`: where base, adapters and critic
                compute, whatever device RLlib gives a Learner or EnvRunner.
            lora_r: Rank of the adapters, 1 to 4096. Default 8 (TWOSOME; Verco is silent).
            lora_alpha: LoRA's scale numerator, 1 to 10**6. Default 16 (TWOSOME; Verco is silent).
            lora_dropout: In [0, 1); acts in supervised training only. Default 0 (TWOSOME).
            lora_target_modules: `"all-linear"` (default, ours) or names of linear maps; TWOSOME: q_proj,
                v_proj.
            lora_layers: `"all"` (default; Verco, TWOSOME), or a number k >= 1: only the k layers next to the output
                have adapters. What lies below is then computed once per text for all roles (ours).
            critic_hiddens: Hidden widths of the critic, at most 16 of 1 to 65536. Default (128, 128) (ours); TWOSOME:
                (1024, 512).
            prompts: `"default"` (ours), `"twosome"` or `"verco"`, each also with `_options` (the action prompt lists
                the allowed candidates), a folder with template files, or texts by template. Checkpoints keep the texts.
            prompt_format: `"plain"` (default; Verco, TWOSOME), or `"chat"` (ours): prompts stand in the chat template
                of the tokenizer, for chat-tuned models.
            prompt_date: The day that a chat template with a date shows, as YYYY-MM-DD. Default "2024-07-26" (ours):
                it does not move on, and is kept with the checkpoint.
            score_normalization: `"sum"` (default; Verco Eq. 3), `"token"` or `"word"` (TWOSOME).
            temperature: > 0, at most 10**6; divides the scores before the softmax. Default 1 (Verco Eq. 3).
            max_prompt_tokens: Longest prompt in tokens, 1 to 131072; longer ones are an error. Default 256 (ours).
            max_candidate_tokens: Longest action phrase in tokens, 1 to 8192. Default 32 (ours).
            engine: `"fast"` (default) or `"plain"`: the same up to rounding and many times slower, to check the
                fast one when in doubt (ours).
            prefix_cache_mb: Most megabytes of keys and values of earlier prompts that are kept per adapter while
                acting, >= 0. Default 256 (ours); LLaMA-7B needs half a megabyte per token.
            trunk_cache_mb: With `lora_layers` k: most megabytes that are kept of the layers below the adapters, from
                roll-out to update, >= 0. Default 512 (ours).
            trunk_cache_dtype: `"same"` (default): kept as computed; `"bfloat16"` or `"int8"`: smaller, inexact (ours).
            micro_batch_tokens: Most tokens of distinct texts whose activations an update holds at once, >= 1, or
                `None` (default). A minibatch with more is computed in parts whose gradients are added up; the step is
                the same (ours). With several Learners each part is computed once more in the backward pass.
            gradient_checkpointing: True if an update keeps the inputs of layers only (default no): less memory, one
                more forward pass (ours).
            autocast: `"none"` (default) or `"bfloat16"`: matrix products in bfloat16 whatever `dtype` is (ours).

        Returns:
            This config.
        """
        return self._assign(locals())

    def communication(
        self,
        *,
        messages: str = NotProvided,
        message_checkpoint: str | None = NotProvided,
        teacher: str | Mapping[str, Any] | None = NotProvided,
        max_message_words: int = NotProvided,
        message_temperature: float = NotProvided,
        constant_message: str = NotProvided,
        message_menu: Sequence[str] = NotProvided,
        train_messages: bool = NotProvided,
        message_server: Mapping[str, Any] | None = NotProvided,
    ) -> Self:
        """Sets how agents talk.

        Args:
            messages: `"student"` (default; Verco): written by the message adapter. `"teacher"`: by `teacher`.
                `"none"`, `"constant"`, `"other_moments"` (what was written at other moments, in any episode) and
                `"other_fact"` (what was written where another fact was told): controls (ours). `"menu"`: one of
                `message_menu`.
            message_checkpoint: Checkpoint of `MessageSFT` (or of `Verco`), or a PEFT adapter folder, whose
                message adapter is loaded when the algorithm is built. Default `None`: a fresh adapter.
            teacher: For `messages="teacher"`: a teacher's registered name, or a dict with `name` and its
                arguments.
            max_message_words: Longest message in words, 1 to 1000. Default 10 (Verco).
            message_temperature: 0 (default, ours): greedy; otherwise the sampling temperature, at most 100.
            message_server: Keys of `MessageServer` (`base_url`, `model`, ...): an OpenAI-compatible server, such as
                vLLM, that writes the messages in place of the module (ours). Default `None`.
            constant_message: The message with `messages="constant"`. Default "hello" (ours).
            message_menu: With `messages="menu"`: at least two different phrases, among which the message adapter
                chooses (FAMA). Default none.
            train_messages: True if PPO trains the message adapter, too, on the joint probability of message and
                action; wants `messages` "student" or "menu" and `message_temperature` 1. Default no (Verco).

        Returns:
            This config.
        """
        return self._assign(locals())

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
