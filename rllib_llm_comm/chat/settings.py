"""Settings of chat models: behind OpenAI's protocol, and in this process; and of servers that write messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import Self

from rllib_llm_comm.chat.chat_model import TOKENS
from rllib_llm_comm.chat.endpoint import check_address
from rllib_llm_comm.core.errors import LARGEST, UserError, require_choice
from rllib_llm_comm.core.settings import Settings, settings_of

MOST_CONCURRENT = 64
# Parameters that the client itself answers for: they say whom and what to ask, and bound the cost.
_OWN: Mapping[str, str] = {
    "model": "model",
    "messages": "",
    "stream": "",
    "n": "",
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
}

REGISTERED: dict[str, Callable[..., Any]] = {}
"""Makers of chat models of one's own, by the name that `local` gives (`local_chat.register_local_chat`)."""
WITHOUT_EFFECT = frozenset(
    {
        "api_key_env", "ask_ahead", "budget", "cache_dir", "max_concurrent", "max_retries", "price_per_million_input",
        "price_per_million_output", "requests_per_minute", "timeout",
    }
)  # fmt: skip
"""Settings of `ChatSettings` that change no answer: what was asked goes on with other values."""

Name = Annotated[str, Field(min_length=1, pattern=r"\S")]
_Tokens = Annotated[int, Field(ge=1)]


def _free(extra: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Refuses further parameters that the client itself sets.

    Raises:
        UserError: Says what is wrong.
    """
    for name in extra or ():
        if name in _OWN:
            remedy = f"give `{_OWN[name]}` instead" if _OWN[name] else "omit it"
            raise UserError(f"`extra_body` holds `{name}`, which the client sets itself; {remedy}.")
    return extra


def _by_purpose(max_tokens: Any) -> Any:
    """Refuses bounds for a purpose that there is not."""
    for purpose in max_tokens if isinstance(max_tokens, Mapping) else ():
        require_choice("max_tokens", purpose, TOKENS)
    return max_tokens


class ServerSettings(Settings):
    """How a server with OpenAI's protocol is asked (all defaults ours)."""

    model: Name
    """The model's name at the server."""
    base_url: Annotated[str, AfterValidator(check_address)] | None = None
    """Address of the API, e.g. `"http://127.0.0.1:8000/v1"`; `None` for OpenAI's own."""
    api_key_env: Name = "OPENAI_API_KEY"
    """Name of the environment variable with the key. A server on this machine or in a private network needs none."""
    max_retries: int = Field(default=5, ge=0, le=LARGEST)
    """Repetitions, with growing pauses, after 408, 409, 429, 5xx, time-outs, broken connections, and answers that are
    no completion."""


class AnswerSettings(Settings):
    """How a chat model answers (all defaults ours)."""

    temperature: float = Field(default=0.0, ge=0, le=2)
    """0: the likeliest words, the same each time as far as a server can."""
    forms: bool = True
    """Whether an answer with a JSON schema is written by it. A server is asked to (`response_format`), one that refuses
    that without it; a local model is held to it (`decoding.fill_form`). Otherwise the model has to write the braces
    itself."""


class ChatSettings(AnswerSettings, ServerSettings):
    """Settings of `ChatClient`, as they stand in YAML files under `chat` and `teacher` (all defaults ours)."""

    timeout: float = Field(default=30.0, gt=0)
    """Seconds until a request counts as lost."""
    requests_per_minute: float = Field(default=60, gt=0)
    """Requests are spread evenly so that no more are sent; by all clients of the same server, model and key on this
    machine together (`rllib_llm_comm.chat.client.SharedRate`)."""
    max_concurrent: int = Field(default=1, ge=1, le=MOST_CONCURRENT)
    """Questions that are under way at once, within one rate and one budget; as many games under a planner are played
    side by side."""
    ask_ahead: int = Field(default=1, ge=0, le=MOST_CONCURRENT)
    """Games, and states of a preparation, that are begun beyond `max_concurrent`: while one goes on, the questions of
    the others wait in line. It costs no question more."""
    budget: Annotated[float, Field(gt=0)] | None = None
    """Money that may be spent, all clients of the `cache_dir` together; `None` for no bound."""
    price_per_million_input: float = Field(default=0.0, ge=0)
    """Price of a million tokens sent."""
    price_per_million_output: float = Field(default=0.0, ge=0)
    """Price of a million tokens received."""
    max_tokens: Annotated[_Tokens | Mapping[str, _Tokens] | None, AfterValidator(_by_purpose)] = None
    """Most tokens of an answer, thoughts before it included, at least 1: one number, or numbers by purpose
    (`chat_model.TOKENS`, which also holds the defaults). Sent as `max_completion_tokens` where the server wants
    that."""
    cache_dir: str | Path | Literal[False] | None = None
    """Answers and spent money are kept in this folder; `None` keeps nothing, unless the caller has a folder of its own
    (`ChatClient.keep_answers`); `False` keeps nothing at all."""
    extra_body: Annotated[Mapping[str, Any] | None, AfterValidator(_free)] = None
    """Further parameters of each request, such as `{"reasoning_effort": "low"}`."""

    @model_validator(mode="after")
    def _require_price(self) -> Self:
        if self.budget is not None and self.price_per_million_input == 0 and self.price_per_million_output == 0:
            raise UserError(
                f"`budget` is {self.budget!r} but no price is known; give `price_per_million_input` and "
                "`price_per_million_output`, or omit `budget`."
            )
        return self


class LocalChatSettings(AnswerSettings):
    """Settings of `LocalChat`."""

    local: Name
    """`"smollm2"` (`language.model_sources.smollm2_folder`), a folder with a Hugging Face model, or a hub id."""
    max_tokens: int = Field(default=200, ge=1, le=LARGEST)
    """Most tokens that the model writes per answer."""
    seed: int = Field(default=0, ge=0)
    """Of sampling; each question draws on its own."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """See `rllib_llm_comm.language.base_model.load_base_model`."""
    device: str = "auto"
    """A torch device, or "auto": "cuda" where there is one, else "cpu"."""
    cache_dir: str | Path | None = None
    """Answers are kept here; `None` keeps nothing."""


class Recorded(Settings):
    """Where the answers of a chat model are recorded."""

    cassette: Name | SkipJsonSchema[Path] | None = None
    """The recording, to which answers to new questions are added; without a chat model it is only played back."""
    note: str = ""
    """Of a new recording how it is made."""


class AskedChat(Recorded, ChatSettings):
    """A chat model behind a server, a recording, or both."""

    model: Name | None = None  # type: ignore[assignment]
    """The model's name at the server."""

    @model_validator(mode="after")
    def _require_somebody(self) -> Self:
        if self.model is None and self.cassette is None:
            raise UserError(
                "`model` is missing; name the model at the server, or give `local` or a `cassette` to play back.",
                "missing",
            )
        return self


class AskedLocalChat(Recorded, LocalChatSettings):
    """A chat model in this process, and maybe a recording."""


class AskedOwnChat(Recorded):
    """A chat model of one's own, with the settings that its maker takes."""

    model_config = ConfigDict(extra="allow")

    local: Name = Field(json_schema_extra=lambda schema: schema.update(enum=list(REGISTERED)))
    """The name under which it is registered."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        bases = (Recorded, settings_of(REGISTERED[self.local]))
        # With all keys that may be given, so that errors list them.
        whole = create_model("OwnChatSettings", __base__=bases, local=(str, ...))
        whole.checked("chat", {"local": self.local, **(self.model_extra or {})})
        return self


def _asked(chat: Any) -> str:
    """Which of these settings of a chat model are."""
    local = chat.get("local") if isinstance(chat, Mapping) else None
    kind = AskedChat if local is None else AskedOwnChat if local in list(REGISTERED) else AskedLocalChat
    return kind.__name__


class MessageServerSettings(ServerSettings):
    """Settings of `MessageServer`, as they stand in YAML files under `message_server` (all defaults ours)."""

    base_url: Annotated[str, AfterValidator(check_address)] = Field(examples=["http://127.0.0.1:8000/v1"])
    """Address of the API."""
    model: Name = "message"
    """The adapter's name at the server."""
    timeout: float = Field(default=60.0, gt=0)
    """Seconds until a request counts as lost."""
    prompts_per_request: int = Field(default=64, ge=1, le=LARGEST)
    """Prompts sent in one request."""
    adapter_folder: Name | None = None
    """Folder that the server reads under the same path, for adapters that it is asked to load; `None`: the server was
    started with the adapter."""

    @field_validator("adapter_folder")
    @classmethod
    def _a_folder(cls, value: str | None) -> str | None:
        if value is not None and Path(value).exists() and not Path(value).is_dir():
            raise UserError(f"`adapter_folder` is {value!r}, which is no folder.")
        return value


if TYPE_CHECKING:
    Chat = dict[str, Any]
    MessageWriter = dict[str, Any]
else:
    Chat = Annotated[
        Annotated[AskedChat, Tag("AskedChat")]
        | Annotated[AskedLocalChat, Tag("AskedLocalChat")]
        | Annotated[AskedOwnChat, Tag("AskedOwnChat")],
        Discriminator(_asked),
        AfterValidator(Settings.as_given),
        SerializeAsAny(),  # a mapping now, no model any more
    ]
    MessageWriter = Annotated[MessageServerSettings, AfterValidator(Settings.as_given), SerializeAsAny()]


class AskingChat(Settings):
    """Settings of something that asks a chat model."""

    chat: Chat = Field(examples=["chat: {model: gpt-4o}"])
    """The chat model, as of `open_chat`: `model` and `base_url` of any endpoint with OpenAI's protocol, `local`, or
    `cassette`, a file or a recording that comes with the package."""
