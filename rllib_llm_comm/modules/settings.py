"""Settings of the language-model module and of the communication, as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rllib_llm_comm.errors import UserError, did_you_mean, require_choice
from rllib_llm_comm.language.message_server import MessageServer

MESSAGE_MODES = ("none", "student", "teacher", "shuffled", "constant", "menu")
_DTYPES = ("float32", "bfloat16", "float16")
_ENGINES = ("fast", "plain")
QUANTIZATIONS = ("none", "8bit", "4bit")
AUTOCASTS = ("none", "bfloat16")
_NORMALIZATIONS = ("sum", "token", "word")

_Settings = TypeVar("_Settings", bound="FromMapping")


class FromMapping:
    """Adds construction from a dict that refuses unknown names."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all settings."""
        return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    @classmethod
    def from_mapping(cls: type[_Settings], values: Mapping[str, Any]) -> _Settings:
        """Builds the settings from a dict such as a `model_config`.

        Raises:
            UserError: If a name is unknown or a value is out of its range.
        """
        known = cls.names()
        for name in values:
            if name not in known:
                raise UserError(
                    f"`{name}` is no setting here; known are {', '.join(known)}.{did_you_mean(str(name), known)}"
                )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dict of plain values (JSON can hold it)."""
        plain = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}


@dataclass(frozen=True)
class LanguageModelSettings(FromMapping):
    """What an `LLMCommModule` is built from: its `model_config`.

    Attributes:
        base_model: `"embedded"`, a folder with a Hugging Face causal language model (safetensors), or a hub
            id.
            Verco: LLaMA-7B.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`: how the frozen weights are held. TWOSOME: float16.
        quantization: `"none"`, or `"8bit"` or `"4bit"`: how the frozen linear maps are held; needs the extra
            `quantized` (bitsandbytes). `dtype` is what they are computed in (ours).
        device: Where base, adapters and critic compute: `"cpu"`, `"cuda"`, `"cuda:1"`, ... or `"auto"` (a GPU
            where this process sees one).
        lora_r: Rank of both adapters, >= 1. TWOSOME: 8; Verco is silent.
        lora_alpha: LoRA scale numerator, >= 1. TWOSOME: 16; Verco is silent.
        lora_dropout: In [0, 1); used by supervised training only, because with dropout the first PPO ratio
            would not be 1. 0 by default (ours).
        lora_target_modules: `"all-linear"` (ours) or names of linear maps; TWOSOME: q_proj and v_proj.
        critic_hiddens: Widths of the critic's hidden layers. TWOSOME: 1024, 512; Verco: "MLP"; (128, 128)
            (ours).
        score_normalization: `"sum"` (Verco Eq. 3), `"token"` or `"word"` (TWOSOME).
        temperature: > 0; candidate scores are divided by it before the softmax. 1 is Verco Eq. 3; larger
            values give a softer start.
        max_prompt_tokens: Width of the prompt arrays; a longer prompt is an error, never cut (ours).
        max_candidate_tokens: Width of the candidate arrays; a longer phrase is an error (ours).
        engine: `"fast"`, or `"plain"`: every candidate behind its own prompt, nothing packed, folded or remembered.
            Many times slower and the same up to rounding; to check the fast one when in doubt (ours).
        prefix_cache_mb: Most megabytes of keys and values of earlier prompts that are kept per adapter while acting,
            >= 0. 256 is plenty for small models; LLaMA-7B needs half a megabyte per token (ours).
        micro_batch_tokens: Most tokens of distinct texts whose activations are held at once in an update, or `None`. A
            minibatch with more is computed in parts, each once more in the backward pass; the gradient is the same
            (ours).
        gradient_checkpointing: Whether an update keeps the inputs of layers only and computes the rest again in the
            backward pass (ours).
        autocast: `"none"`, or `"bfloat16"`: matrix products in bfloat16 whatever the weights' dtype (ours).
        trainable_roles: Adapters that are trained: `("action",)` in PPO, `("message",)` in supervised
            training.
        train_critic: Whether the critic is trained.
        init_seed: Seed of the fresh adapters and critic; `None` takes torch's global generator.
    """

    base_model: str = "embedded"
    dtype: str = "float32"
    quantization: str = "none"
    device: str = "cpu"
    lora_r: int = 8
    lora_alpha: int = 16
    lora_dropout: float = 0.0
    lora_target_modules: str | Sequence[str] = "all-linear"
    critic_hiddens: Sequence[int] = (128, 128)
    score_normalization: str = "sum"
    temperature: float = 1.0
    max_prompt_tokens: int = 256
    max_candidate_tokens: int = 32
    engine: str = "fast"
    prefix_cache_mb: int = 256
    micro_batch_tokens: int | None = None
    gradient_checkpointing: bool = False
    autocast: str = "none"
    trainable_roles: Sequence[str] = ("action",)
    train_critic: bool = True
    init_seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("critic_hiddens", "trainable_roles"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.lora_target_modules, str):
            object.__setattr__(self, "lora_target_modules", tuple(self.lora_target_modules))
        require_choice("dtype", self.dtype, _DTYPES)
        require_choice("engine", self.engine, _ENGINES)
        require_choice("quantization", self.quantization, QUANTIZATIONS)
        require_choice("autocast", self.autocast, AUTOCASTS)
        require_choice("gradient_checkpointing", self.gradient_checkpointing, (False, True))
        require_at_least("prefix_cache_mb", self.prefix_cache_mb, 0)
        if self.micro_batch_tokens is not None:
            require_at_least("micro_batch_tokens", self.micro_batch_tokens, 1)
        require_choice("score_normalization", self.score_normalization, _NORMALIZATIONS)
        for role in self.trainable_roles:
            require_choice("trainable_roles", role, ("message", "action"))
        for name in ("lora_r", "lora_alpha", "max_prompt_tokens", "max_candidate_tokens"):
            require_at_least(name, getattr(self, name), 1)
        for width in self.critic_hiddens:
            require_at_least("critic_hiddens", width, 1)
        if not self.temperature > 0:
            raise UserError(f"`temperature` is {self.temperature!r} but must be larger than 0 (1 is the paper's).")
        if not 0.0 <= self.lora_dropout < 1.0:
            raise UserError(f"`lora_dropout` is {self.lora_dropout!r} but must be in [0, 1).")


@dataclass(frozen=True)
class CommunicationSettings(FromMapping):
    """How agents talk.

    Attributes:
        messages: `"student"`: written by the message adapter (Verco). `"teacher"`: by a teacher that sees the
            whole game. Controls (ours): `"none"`, `"constant"`: always `constant_message`, `"shuffled"`:
            student messages of other moments and agents. `"menu"`: the message adapter chooses among the phrases of
            `message_menu` (FAMA).
        max_message_words: Longest message in words, >= 1; longer ones are cut. Verco: 10.
        message_temperature: 0 for greedy decoding, otherwise the sampling temperature. Verco is silent; 0
            (ours).
        constant_message: What every agent says with `messages="constant"`.
        message_menu: What can be said with `messages="menu"`: at least two different phrases.
        train_messages: Whether PPO trains the message adapter, too, on the joint probability of message and action
            (`"student"` or `"menu"`, `message_temperature` 1). Verco: no.
        message_server: Keys of `MessageServer` (`base_url`, `model`, ...): an OpenAI-compatible server, such as vLLM,
            that writes the student's messages in place of the module; `None` for the module itself (ours).
    """

    messages: str = "student"
    max_message_words: int = 10
    message_temperature: float = 0.0
    constant_message: str = "hello"
    message_menu: Sequence[str] = ()
    train_messages: bool = False
    message_server: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        require_choice("messages", self.messages, MESSAGE_MODES)
        require_at_least("max_message_words", self.max_message_words, 1)
        if self.message_temperature < 0:
            raise UserError(f"`message_temperature` is {self.message_temperature!r} but must be 0 (greedy) or larger.")
        object.__setattr__(self, "message_menu", tuple(self.message_menu))
        if self.message_server is not None:
            MessageServer.from_settings(self.message_server)
        self._check_menu()
        self._check_training()
        if len(self.constant_message.split()) > self.max_message_words:
            raise UserError(
                f"`constant_message` is {self.constant_message!r}, which is longer than `max_message_words` "
                f"({self.max_message_words}); shorten it."
            )

    def _check_menu(self) -> None:
        menu = [" ".join(str(phrase).split()) for phrase in self.message_menu]
        if self.messages == "menu" and (len(set(menu)) < 2 or "" in menu or len(set(menu)) < len(menu)):
            raise UserError(
                f"`message_menu` is {list(self.message_menu)!r} but must hold at least two different phrases."
            )
        for phrase in menu:
            if len(phrase.split()) > self.max_message_words:
                raise UserError(
                    f"`message_menu` holds {phrase!r}, which is longer than `max_message_words` "
                    f"({self.max_message_words}); shorten it."
                )

    def _check_training(self) -> None:
        require_choice("train_messages", self.train_messages, (False, True))
        if not self.train_messages:
            return
        if self.messages not in ("student", "menu"):
            raise UserError(f"`train_messages` is true but `messages` is {self.messages!r}; use 'student' or 'menu'.")
        if self.message_temperature != 1:
            raise UserError(
                f"`message_temperature` is {self.message_temperature!r} but must be 1 with `train_messages`: PPO needs "
                "messages that are drawn with the probabilities that it changes."
            )
        if self.message_server is not None:
            raise UserError(
                "`message_server` is set with `train_messages`, but a server does not learn; unset one of both."
            )


def require_at_least(name: str, value: Any, least: int) -> None:
    """Raises a `UserError` unless a setting is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"`{name}` is {value!r} but must be a whole number of at least {least}.")
