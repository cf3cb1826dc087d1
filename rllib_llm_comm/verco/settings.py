"""Settings of language-model agents and of their messages, as plain data; known without Ray."""

from __future__ import annotations

import datetime
import functools
import re
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from rllib_llm_comm.chat.settings import MessageWriter
from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.core.settings import FreshWeights, Settings, Several
from rllib_llm_comm.language.chat_template import PROMPT_DATE, check_prompt_date
from rllib_llm_comm.language.prompts import DEFAULT, PromptTemplates, read_prompts

OTHER_MOMENTS, OTHER_FACT, SWAPPED = "other_moments", "other_fact", "swapped"
MessageMode = Literal["none", "student", "teacher", "other_moments", "other_fact", "constant", "menu", "swapped"]
MESSAGE_MODES: tuple[str, ...] = get_args(MessageMode)
SHUFFLED = (OTHER_MOMENTS, OTHER_FACT)
"""Controls whose messages are drawn from those that the message adapter wrote elsewhere."""
WRITTEN_WORD_BY_WORD = ("student", *SHUFFLED, SWAPPED)
"""Kinds of messages for which the message adapter writes freely, unless there is a `message_menu`."""
WRITTEN_BY_ADAPTER = ("menu", *WRITTEN_WORD_BY_WORD)
"""Modes in which the message adapter, or a server in its place, writes."""
_MODULE = re.compile(r"[\w.-]+")


class BaseModelSettings(Settings):
    """A base model, how it is held, and what it is asked."""

    base_model: str = Field("embedded", min_length=1)
    """`"embedded"`, `"embedded_minirts"`, `"embedded_soup"`, `"smollm2"`, a folder with a Hugging Face causal
    language model (safetensors), or a hub id. Verco: LLaMA-7B."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """How the frozen weights are held; `"auto"` (ours): bfloat16 on a GPU, float32 elsewhere. TWOSOME: float16."""
    quantization: Literal["none", "8bit", "4bit"] = "none"
    """How the frozen linear maps are held, if not as `dtype`, which is then what they are computed in; needs the extra
    `quantized` (bitsandbytes) (ours)."""
    device: str = Field("cpu", min_length=1)
    """Device of base, adapters and critic: `"cpu"`, `"cuda"`, `"cuda:1"`, ... or `"auto"` (a GPU where this process
    sees one)."""
    prompts: str | dict[str, Any] = DEFAULT
    """`"default"` (ours), `"twosome"` or `"verco"`, each also with `_options` (the action prompt lists the allowed
    candidates), a folder with template files, or texts by template. Texts are what is kept, also in checkpoints."""
    prompt_format: Literal["plain", "chat"] = "plain"
    """`"plain"` (Verco, TWOSOME): prompts as they are. `"chat"` (ours): in the chat template of a chat-tuned model's
    tokenizer; the last words of the prompt begin the model's answer."""
    prompt_date: str = PROMPT_DATE
    """The day that a chat template with a date shows, as YYYY-MM-DD (ours). It is kept with the checkpoint, so that a
    policy scores the same on every day."""

    @field_validator("prompt_date", mode="before")
    @classmethod
    def _day(cls, value: Any) -> Any:
        if not isinstance(value, str | datetime.date):
            return value
        check_prompt_date(str(value))
        return str(value)  # YAML reads a day as a date

    @field_validator("prompts")
    @classmethod
    def _texts(cls, value: Any) -> dict[str, str]:
        return read_prompts(value)


class LanguageModelSettings(BaseModelSettings):
    """A language model with its adapters and the critic on it.

    Bounds of sizes (ours) are far beyond what anybody needs, near enough that a typo or a strange checkpoint is told at
    once instead of filling the memory.
    """

    lora_r: int = Field(8, ge=1, le=4096)
    """Rank of both adapters. TWOSOME: 8; Verco is silent."""
    lora_alpha: int = Field(16, ge=1, le=10**6)
    """LoRA scale numerator. TWOSOME: 16; Verco is silent."""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """Used by MessageSFT only, because with dropout the first PPO ratio would not be 1. 0 by default
    (ours)."""
    lora_target_modules: Literal["all-linear"] | Several[str] = Field("all-linear", max_length=1000)
    """`"all-linear"` (ours) or names of linear maps; TWOSOME: q_proj and v_proj."""
    lora_layers: Annotated[int, Field(ge=1, le=10**4)] | Literal["all"] = "all"
    """`"all"` (Verco, TWOSOME), or a number k of at most the model's layers: only the k layers next to the output have
    adapters. What lies below them, the trunk, is then computed once per text for messages, actions and critic
    (ours)."""
    critic_hiddens: Several[Annotated[int, Field(ge=1, le=65536)]] | None = Field((128, 128), max_length=16)
    """Widths of the critic's hidden layers. TWOSOME: 1024, 512; Verco: "MLP"; (128, 128) (ours). `None`: there is no
    critic, and values are not a number."""
    score_normalization: Literal["sum", "token", "word"] = "sum"
    """`"sum"` (Verco Eq. 3), `"token"` or `"word"` (TWOSOME)."""
    temperature: float = Field(1.0, gt=0, le=10**6)
    """Candidate scores are divided by it before the softmax. 1 is Verco Eq. 3; larger values give a softer start."""
    max_prompt_tokens: int = Field(256, ge=1, le=2**17)
    """Width of the prompt arrays, with all that was heard; of a message's labels with the message, too. A longer prompt
    is an error, never cut (ours)."""
    max_candidate_tokens: int = Field(32, ge=1, le=2**13)
    """Width of the candidate arrays; a longer phrase is an error (ours)."""
    engine: Literal["fast", "plain"] = "fast"
    """`"plain"`: every candidate behind its own prompt, nothing packed, folded or remembered. Many times slower and the
    same up to rounding; to check the fast one when in doubt (ours)."""
    compile_layers: bool = True
    """On a GPU, layers are compiled (`torch.compile`) for scores and features, once these have read so many tokens that
    half a minute of compiling pays; the log tells how long it took. False: never (ours)."""
    prefix_cache_mb: int = Field(768, ge=0, le=2**20)
    """Most megabytes of keys and values of earlier prompts that are kept while acting, for all roles and policies of a
    process together. 768 is plenty for small models; LLaMA-7B needs half a megabyte per token (ours)."""
    trunk_cache_mb: int = Field(512, ge=0, le=2**20)
    """With `lora_layers` k: most megabytes that are kept of the trunk, from roll-out to update, for all roles and
    policies of a process together (ours). Half of them are for hidden states, one array per token of prompts and
    candidates; the other half for keys and values of prompts."""
    trunk_cache_dtype: Literal["same", "bfloat16", "int8"] = "same"
    """`"same"`: kept as computed; `"bfloat16"` or `"int8"`: smaller and not exact (ours)."""
    micro_batch_tokens: int | None = Field(None, ge=1, le=2**31)
    """Most tokens of distinct texts whose activations are held at once in an update, or `None`. A minibatch with more
    is computed in parts whose gradients are added up; the step is the same. With several Learners each part is computed
    once more in the backward pass (ours)."""
    gradient_checkpointing: bool = False
    """True if an update keeps the inputs of layers only and computes the rest again in the backward pass (ours)."""
    autocast: Literal["none", "bfloat16"] = "none"
    """`"bfloat16"`: matrix products in bfloat16 whatever the weights' dtype (ours)."""

    @field_validator("lora_target_modules")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if value != "all-linear" and not (value and all(map(_MODULE.fullmatch, value))):
            raise UserError(
                f"`lora_target_modules` is {shown(value)} but must be 'all-linear' or a list of names such as "
                "['q_proj', 'v_proj']."
            )
        return value

    @functools.cached_property
    def templates(self) -> PromptTemplates:
        """The prompts, ready to be filled."""
        return PromptTemplates(read_prompts(self.prompts))


class ModuleSettings(LanguageModelSettings, FreshWeights):
    """Settings of an `LLMCommModule`: its `model_config`; what an algorithm decides beside what a user sets."""

    trainable_roles: Several[Literal["message", "action"]] = ("action",)
    """Adapters that are trained: `"action"` in PPO (with `train_messages` also `"message"`), in
    supervised training that of the algorithm."""
    train_critic: bool = True
    """True if the critic is trained."""

    @model_validator(mode="after")
    def _with_a_critic(self) -> Self:
        if self.critic_hiddens is None and self.train_critic:
            raise UserError("`critic_hiddens` is None but PPO trains a critic; set it to [128, 128], for example.")
        return self


class CommunicationSettings(Settings):
    """Settings of the messages between agents."""

    messages: MessageMode = "student"
    """`"student"`: written by the message adapter (Verco). `"teacher"`: by a teacher that sees the whole game. Controls
    (ours): `"none"`, `"constant"`: always `constant_message`; `"other_moments"`: what was written at other moments and
    by other agents, in any episode; `"other_fact"`: what was written where another fact was told, only in games that
    tell several. `"menu"`: the message adapter chooses among the phrases of `message_menu` (FAMA). `"swapped"` (ours,
    not in training): the student's sentences with the words by which private facts differ exchanged in a circle."""
    max_message_words: int = Field(10, ge=1, le=1000)
    """Longest message in words; longer ones are cut, and so are those with more than four times as many tokens (ours).
    The same in the stages that teach messages. Verco: 10."""
    message_temperature: float = Field(0.0, ge=0, le=100)
    """0 for greedy decoding, otherwise the sampling temperature. Verco is silent; 0 (ours)."""
    constant_message: str = "hello"
    """Message of every agent with `messages="constant"`."""
    message_menu: Several[str] = Field((), max_length=1000)
    """Possible messages with `messages="menu"`: at least two different phrases."""
    train_messages: bool = False
    """True if PPO trains the message adapter, too, on the joint probability of message and action (`"student"` or
    `"menu"`, `message_temperature` 1). Verco: no."""
    message_server: MessageWriter | None = None
    """Keys of `MessageServerSettings` (`base_url`, `model`, ...): an OpenAI-compatible server (vLLM), that writes
    the student's messages in place of the module; `None` for the module itself (ours)."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if len(self.constant_message.split()) > self.max_message_words:
            raise UserError(
                f"`constant_message` is {self.constant_message!r}, which is longer than `max_message_words` "
                f"({self.max_message_words}); shorten it."
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
        if self.train_messages:
            self._require_trainable()
        return self

    def _require_trainable(self) -> None:
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


class MessageCheckpointSettings(CommunicationSettings):
    """Settings of the messages, and the checkpoint from which the message adapter is loaded."""

    message_checkpoint: str | None = None
    """Checkpoint of `MessageSFT` (or of `Verco`), or a PEFT adapter folder, whose message adapter is loaded when the
    algorithm is built. None: a fresh adapter."""
