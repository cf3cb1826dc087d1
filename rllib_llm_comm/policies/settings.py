"""Settings of the language-model module and of the communication, as plain data."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError, did_you_mean, require_choice, shown
from rllib_llm_comm.language.chat_template import PLAIN, PROMPT_DATE, PROMPT_FORMATS, check_prompt_date
from rllib_llm_comm.language.precision import DTYPE_NAMES, KEPT_DTYPES, QUANTIZATIONS
from rllib_llm_comm.language.prompt_sets import DEFAULT, PromptSet, read_prompts
from rllib_llm_comm.language.prompts import PromptTemplates

OTHER_MOMENTS, OTHER_FACT, SWAPPED = "other_moments", "other_fact", "swapped"
MESSAGE_MODES = ("none", "student", "teacher", OTHER_MOMENTS, OTHER_FACT, "constant", "menu", SWAPPED)
DRAWN = (OTHER_MOMENTS, OTHER_FACT)
"""Controls whose messages are drawn from those that the message adapter wrote elsewhere."""
WRITTEN = ("student", "menu", *DRAWN, SWAPPED)
"""Modes in which the message adapter, or a server in its place, writes."""
_EARLIER_NAME = "shuffled"  # of both controls that draw, by what the game told
_ENGINES = ("fast", "plain")
AUTOCASTS = ("none", "bfloat16")
_NORMALIZATIONS = ("sum", "token", "word")

# Bounds of sizes (ours): far beyond what anybody needs, near enough that a typo or a strange checkpoint is told at once
# instead of filling the memory.
MOST_LAYERS, MOST_WIDTH = 16, 65536
_RANGES = {
    "lora_r": (1, 4096),
    "lora_alpha": (1, 10**6),
    "max_prompt_tokens": (1, 2**17),
    "max_candidate_tokens": (1, 2**13),
    "prefix_cache_mb": (0, 2**20),
    "trunk_cache_mb": (0, 2**20),
}
_MOST_TARGETS = 1000
_MOST_MODEL_LAYERS = 10**4
_MOST_WORDS = 1000
_MOST_PHRASES = 1000
_MODULE = re.compile(r"[\w.-]+")

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
    """Settings of an `LLMCommModule`: its `model_config`.

    Attributes:
        base_model: `"embedded"`, `"embedded_minirts"`, `"smollm2"`, a folder with a Hugging Face causal language model
            (safetensors), or a hub id. Verco: LLaMA-7B.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`: how the frozen weights are held. TWOSOME: float16.
        quantization: `"none"`, or `"8bit"` or `"4bit"`: how the frozen linear maps are held; needs the extra
            `quantized` (bitsandbytes). `dtype` is what they are computed in (ours).
        device: Device of base, adapters and critic: `"cpu"`, `"cuda"`, `"cuda:1"`, ... or `"auto"` (a GPU
            where this process sees one).
        lora_r: Rank of both adapters, 1 to 4096. TWOSOME: 8; Verco is silent.
        lora_alpha: LoRA scale numerator, 1 to 10**6. TWOSOME: 16; Verco is silent.
        lora_dropout: In [0, 1); used by supervised training only, because with dropout the first PPO ratio
            would not be 1. 0 by default (ours).
        lora_target_modules: `"all-linear"` (ours) or names of linear maps; TWOSOME: q_proj and v_proj.
        lora_layers: `"all"` (Verco, TWOSOME), or a number k >= 1, at most that of the model's layers: only the k layers
            next to the output have adapters. What lies below them, the trunk, is then computed once per text for
            messages, actions and critic (ours).
        critic_hiddens: Widths of the critic's hidden layers, at most 16 of 1 to 65536. TWOSOME: 1024, 512; Verco:
            "MLP"; (128, 128) (ours). `None`: there is no critic, and values are not a number.
        prompts: `"default"` (ours), `"twosome"` or `"verco"`, each also with `_options` (the action prompt lists the
            allowed candidates), a folder with template files, or texts by template. Texts are what is kept, also in
            checkpoints.
        prompt_format: `"plain"` (Verco, TWOSOME): prompts as they are. `"chat"` (ours): in the chat template of a
            chat-tuned model's tokenizer; the last words of the prompt begin the model's answer.
        prompt_date: The day that a chat template with a date shows, as YYYY-MM-DD (ours). It is kept with the
            checkpoint, so that a policy scores the same on every day.
        score_normalization: `"sum"` (Verco Eq. 3), `"token"` or `"word"` (TWOSOME).
        temperature: > 0, at most 10**6; candidate scores are divided by it before the softmax. 1 is Verco Eq. 3; larger
            values give a softer start.
        max_prompt_tokens: Width of the prompt arrays, 1 to 131072; a longer prompt is an error, never cut (ours).
        max_candidate_tokens: Width of the candidate arrays, 1 to 8192; a longer phrase is an error (ours).
        engine: `"fast"`, or `"plain"`: every candidate behind its own prompt, nothing packed, folded or remembered.
            Many times slower and the same up to rounding; to check the fast one when in doubt (ours).
        prefix_cache_mb: Most megabytes of keys and values of earlier prompts that are kept per adapter while acting,
            >= 0. 256 is plenty for small models; LLaMA-7B needs half a megabyte per token (ours).
        trunk_cache_mb: With `lora_layers` k: most megabytes that are kept of the trunk, from roll-out to update, for
            all roles and policies of a process together, >= 0 (ours). Half of them are for hidden states, one array per
            token of prompts and candidates; the other half for keys and values of prompts.
        trunk_cache_dtype: `"same"`: kept as computed; `"bfloat16"` or `"int8"`: smaller and not exact (ours).
        micro_batch_tokens: Most tokens of distinct texts whose activations are held at once in an update, or `None`. A
            minibatch with more is computed in parts whose gradients are added up; the step is the same. With several
            Learners each part is computed once more in the backward pass (ours).
        gradient_checkpointing: True if an update keeps the inputs of layers only and computes the rest again in the
            backward pass (ours).
        autocast: `"none"`, or `"bfloat16"`: matrix products in bfloat16 whatever the weights' dtype (ours).
        trainable_roles: Adapters that are trained: `("action",)` in PPO, `("message",)` in supervised
            training.
        train_critic: True if the critic is trained.
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
    lora_layers: int | str = "all"
    critic_hiddens: Sequence[int] | None = (128, 128)
    prompts: PromptSet = DEFAULT
    prompt_format: str = PLAIN
    prompt_date: str = PROMPT_DATE
    score_normalization: str = "sum"
    temperature: float = 1.0
    max_prompt_tokens: int = 256
    max_candidate_tokens: int = 32
    engine: str = "fast"
    prefix_cache_mb: int = 256
    trunk_cache_mb: int = 512
    trunk_cache_dtype: str = "same"
    micro_batch_tokens: int | None = None
    gradient_checkpointing: bool = False
    autocast: str = "none"
    trainable_roles: Sequence[str] = ("action",)
    train_critic: bool = True
    init_seed: int | None = None

    def __post_init__(self) -> None:
        if self.critic_hiddens is not None:
            require_whole_numbers("critic_hiddens", self.critic_hiddens, MOST_LAYERS, MOST_WIDTH)
            object.__setattr__(self, "critic_hiddens", tuple(self.critic_hiddens))
        elif self.train_critic is True:
            raise UserError("`critic_hiddens` is None but PPO trains a critic; set it to [128, 128], for example.")
        if not isinstance(self.trainable_roles, list | tuple):
            raise UserError(
                f"`trainable_roles` is {shown(self.trainable_roles)} but must be a list such as ['action']."
            )
        object.__setattr__(self, "trainable_roles", tuple(self.trainable_roles))
        self._check_targets()
        self._check_layers()
        for name in ("base_model", "device"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise UserError(f"`{name}` is {shown(getattr(self, name))} but must be a text that is not empty.")
        require_choice("dtype", self.dtype, DTYPE_NAMES)
        require_choice("engine", self.engine, _ENGINES)
        require_choice("quantization", self.quantization, QUANTIZATIONS)
        require_choice("autocast", self.autocast, AUTOCASTS)
        require_choice("trunk_cache_dtype", self.trunk_cache_dtype, KEPT_DTYPES)
        for name in ("gradient_checkpointing", "train_critic"):
            require_choice(name, getattr(self, name), (False, True))
        object.__setattr__(self, "prompts", read_prompts(self.prompts))
        require_choice("prompt_format", self.prompt_format, PROMPT_FORMATS)
        object.__setattr__(self, "prompt_date", str(self.prompt_date))  # YAML reads a day as a date
        check_prompt_date(self.prompt_date)
        require_choice("score_normalization", self.score_normalization, _NORMALIZATIONS)
        for role in self.trainable_roles:
            require_choice("trainable_roles", role, ("message", "action"))
        for name, (least, most) in _RANGES.items():
            require_whole(name, getattr(self, name), least, most)
        if self.micro_batch_tokens is not None:
            require_whole("micro_batch_tokens", self.micro_batch_tokens, 1, 2**31)
        require_seed("init_seed", self.init_seed)
        require_number("temperature", self.temperature, 0, 1e6, above=True)
        require_number("lora_dropout", self.lora_dropout, 0, 1)
        if self.lora_dropout == 1:
            raise UserError(f"`lora_dropout` is {self.lora_dropout!r} but must be in [0, 1).")

    @functools.cached_property
    def templates(self) -> PromptTemplates:
        """The prompts, ready to be filled."""
        assert not isinstance(self.prompts, str)
        return PromptTemplates(self.prompts)

    def _check_targets(self) -> None:
        targets = self.lora_target_modules
        if targets == "all-linear":
            return
        named = isinstance(targets, list | tuple) and 0 < len(targets) <= _MOST_TARGETS
        if not named or not all(isinstance(one, str) and _MODULE.fullmatch(one) for one in targets):
            raise UserError(
                f"`lora_target_modules` is {shown(targets)} but must be 'all-linear' or a list of names such as "
                "['q_proj', 'v_proj']."
            )
        object.__setattr__(self, "lora_target_modules", tuple(targets))

    def _check_layers(self) -> None:
        layers = self.lora_layers
        whole = isinstance(layers, int) and not isinstance(layers, bool) and 1 <= layers <= _MOST_MODEL_LAYERS
        if layers != "all" and not whole:
            raise UserError(
                f"`lora_layers` is {shown(layers)} but must be 'all' or a whole number of at least 1: how many layers "
                "next to the output have adapters."
            )


@dataclass(frozen=True)
class CommunicationSettings(FromMapping):
    """Settings of the messages between agents.

    Attributes:
        messages: `"student"`: written by the message adapter (Verco). `"teacher"`: by a teacher that sees the
            whole game. Controls (ours): `"none"`, `"constant"`: always `constant_message`; `"other_moments"`: what was
            written at other moments and by other agents, in any episode; `"other_fact"`: what was written where
            another fact was told, only in games that tell several. `"menu"`: the message adapter chooses among the
            phrases of `message_menu` (FAMA). `"swapped"` (ours, not in training): the student's sentences with the
            words by which private facts differ exchanged in a circle.
        max_message_words: Longest message in words, 1 to 1000; longer ones are cut. Verco: 10.
        message_temperature: 0 for greedy decoding, otherwise the sampling temperature, at most 100. Verco is silent; 0
            (ours).
        constant_message: Message of every agent with `messages="constant"`.
        message_menu: Possible messages with `messages="menu"`: at least two different phrases.
        train_messages: True if PPO trains the message adapter, too, on the joint probability of message and action
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
        require_message_mode("messages", self.messages)
        require_whole("max_message_words", self.max_message_words, 1, _MOST_WORDS)
        require_number("message_temperature", self.message_temperature, 0, 100, hint=" (greedy)")
        if not isinstance(self.constant_message, str):
            raise UserError(f"`constant_message` is {shown(self.constant_message)} but must be a text.")
        if not isinstance(self.message_menu, list | tuple) or len(self.message_menu) > _MOST_PHRASES:
            raise UserError(f"`message_menu` is {shown(self.message_menu)} but must be a list of phrases.")
        object.__setattr__(self, "message_menu", tuple(self.message_menu))
        if self.message_server is not None:
            if not isinstance(self.message_server, Mapping):
                raise UserError(f"`message_server` is {shown(self.message_server)} but must be a mapping.")
            MessageServer.from_settings(self.message_server)
        self._check_menu()
        self._check_training()
        if len(self.constant_message.split()) > self.max_message_words:
            raise UserError(
                f"`constant_message` is {self.constant_message!r}, which is longer than `max_message_words` "
                f"({self.max_message_words}); shorten it."
            )

    def _check_menu(self) -> None:
        for phrase in self.message_menu:
            if not isinstance(phrase, str):
                raise UserError(
                    f"`message_menu` holds {shown(phrase)}, which is no text; put it in quotes (YAML reads yes and no "
                    "as true and false)."
                )
        menu = [" ".join(phrase.split()) for phrase in self.message_menu]
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


def require_message_mode(name: str, value: Any) -> None:
    """Raises a `UserError` unless a setting is a message mode.

    Args:
        name: The setting.
        value: Its value.
    """
    if value == _EARLIER_NAME:
        raise UserError(
            f"`{name}` is {value!r}, the earlier name of two controls; use {OTHER_MOMENTS!r} (messages of other "
            f"moments and episodes), or {OTHER_FACT!r} where the game tells several facts (messages about another one)."
        )
    require_choice(name, value, MESSAGE_MODES)


def require_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raises a `UserError` unless a setting is a whole number in its range.

    Args:
        name: The setting.
        value: Its value.
        least: The smallest allowed.
        most: The largest allowed; `None` for no bound.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" + ("" if most is None else f" and at most {most}")
        raise UserError(f"`{name}` is {shown(value)} but must be a whole number {allowed}.")


def require_whole_numbers(name: str, values: Any, longest: int, most: int) -> None:
    """Raises a `UserError` unless a setting is a list of whole numbers from 1 to `most`.

    Args:
        name: The setting.
        values: Its value.
        longest: Most entries.
        most: The largest allowed entry.
    """
    if not isinstance(values, list | tuple) or len(values) > longest:
        raise UserError(f"`{name}` is {shown(values)} but must be a list of at most {longest} whole numbers.")
    for value in values:
        require_whole(name, value, 1, most)


def require_number(name: str, value: Any, least: float, most: float, *, above: bool = False, hint: str = "") -> None:
    """Raises a `UserError` unless a setting is a number in its range.

    Args:
        name: The setting.
        value: Its value.
        least: The smallest allowed.
        most: The largest allowed.
        above: True if `least` itself is not allowed.
        hint: Meaning of the smallest value.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most or (above and value == least):
        allowed = f"{'larger than' if above else 'of at least'} {least:g}{hint} and at most {most:g}"
        raise UserError(f"`{name}` is {shown(value)} but must be a number {allowed}.")


def require_seed(name: str, value: Any) -> None:
    """Raises a `UserError` unless a setting is a seed that torch takes, or `None`."""
    if value is not None:
        require_whole(name, value, -(2**63), 2**63 - 1)
