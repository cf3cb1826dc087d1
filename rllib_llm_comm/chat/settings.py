"""Settings of a chat model behind OpenAI's protocol."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rllib_llm_comm.chat.chat_model import check_tokens
from rllib_llm_comm.chat.endpoint import check_address
from rllib_llm_comm.core.errors import UserError, require_whole

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


@dataclass(frozen=True)
class ChatSettings:
    """Settings of `ChatClient`, as they stand in YAML files under `chat` and `teacher` (all defaults ours).

    Attributes:
        model: The model's name at the server.
        base_url: Address of the API, e.g. `"http://127.0.0.1:8000/v1"`; `None` (default) for OpenAI's own.
        api_key_env: Name of the environment variable with the key. Default OPENAI_API_KEY. A server on this machine or
            in a private network needs none.
        timeout: Seconds until a request counts as lost, > 0. Default 30.
        max_retries: Repetitions after 408, 409, 429, 5xx, time-outs, broken connections, and answers that are no chat
            completion, >= 0. Default 5.
        requests_per_minute: Requests are spread evenly so that no more are sent, > 0; by all clients of the same
            server, model and key on this machine together (`rllib_llm_comm.chat.shared.SharedRate`). Default 60.
        max_concurrent: Questions that are under way at once, from 1 to 64, within one rate and one budget; as many
            games under a planner are played side by side. Default 1.
        ask_ahead: Games, and states of a preparation, that are begun beyond `max_concurrent`, from 0 to 64: while one
            goes on, the questions of the others wait in line. It costs no question more. Default 1.
        budget: Money that may be spent, all clients of the `cache_dir` together, > 0; `None` (default) for no bound.
        price_per_million_input: Price of a million tokens sent, >= 0. Default 0.
        price_per_million_output: Price of a million tokens received, >= 0. Default 0.
        temperature: 0 (default; same words each time, as far as the server can) to 2.
        max_tokens: Most tokens of an answer, thoughts before it included, >= 1: one number, or numbers by purpose
            (`purposes.TOKENS`, which also holds the defaults). Sent as `max_completion_tokens` where the server wants
            that.
        cache_dir: Answers and spent money are kept in this folder; `None` (default) keeps nothing, unless the caller
            has a folder of its own (`ChatClient.keep_answers`); `False` keeps nothing at all.
        extra_body: Further parameters of each request, such as `{"reasoning_effort": "low"}`. Default none.
        forms: True (default) if the server is asked to write answers by their JSON schema (`response_format`) where
            there is one; a server that refuses that is asked without it.

    Raises:
        UserError: If a value is not allowed.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout: float = 30.0
    max_retries: int = 5
    requests_per_minute: float = 60
    max_concurrent: int = 1
    ask_ahead: int = 1
    budget: float | None = None
    price_per_million_input: float = 0.0
    price_per_million_output: float = 0.0
    temperature: float = 0.0
    max_tokens: int | Mapping[str, int] | None = None
    cache_dir: str | os.PathLike[str] | Literal[False] | None = None
    extra_body: Mapping[str, Any] | None = None
    forms: bool = True

    def __post_init__(self) -> None:
        self._check_names()
        self._check_numbers()
        check_tokens(self.max_tokens)
        check_extra_body({} if self.extra_body is None else self.extra_body)

    @classmethod
    def names(cls) -> list[str]:
        """Names of all settings."""
        return [field.name for field in dataclasses.fields(cls)]

    def _check_names(self) -> None:
        for name, text in (("model", self.model), ("api_key_env", self.api_key_env)):
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"`{name}` is {text!r} but must be a name.")
        if self.base_url is not None:
            check_address(self.base_url)
        if (
            self.cache_dir is not None
            and self.cache_dir is not False
            and not isinstance(self.cache_dir, str | os.PathLike)
        ):
            raise UserError(f"`cache_dir` is {self.cache_dir!r} but must be a folder, or false to keep nothing.")
        if not isinstance(self.forms, bool):
            raise UserError(f"`forms` is {self.forms!r} but must be true or false.")

    def _check_numbers(self) -> None:
        bounds: tuple[tuple[str, Any, float, float, bool], ...] = (
            ("timeout", self.timeout, 0, math.inf, True),
            ("max_retries", self.max_retries, 0, math.inf, False),
            ("requests_per_minute", self.requests_per_minute, 0, math.inf, True),
            ("budget", 1 if self.budget is None else self.budget, 0, math.inf, True),
            ("price_per_million_input", self.price_per_million_input, 0, math.inf, False),
            ("price_per_million_output", self.price_per_million_output, 0, math.inf, False),
            ("temperature", self.temperature, 0, 2, False),
        )
        for name, value, low, high, open_ in bounds:
            number = isinstance(value, int) if name == "max_retries" else isinstance(value, int | float)
            if not number or isinstance(value, bool) or not (low < value if open_ else low <= value) or value > high:
                kind = "a whole number" if name == "max_retries" else "a number"
                upper = f" and at most {high:g}" if high < math.inf else ""
                raise UserError(
                    f"`{name}` is {value!r} but must be {kind} {'above' if open_ else 'from'} {low:g}{upper}."
                )
        require_whole("max_concurrent", self.max_concurrent, 1, MOST_CONCURRENT)
        require_whole("ask_ahead", self.ask_ahead, 0, MOST_CONCURRENT)
        if self.budget is not None and self.price_per_million_input == 0 and self.price_per_million_output == 0:
            raise UserError(
                f"`budget` is {self.budget!r} but no price is known; give `price_per_million_input` and "
                "`price_per_million_output`, or leave `budget` out."
            )


def check_extra_body(extra: Any) -> None:
    """Refuses further parameters that are none, or that the client itself sets.

    Raises:
        UserError: Says what is wrong.
    """
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        raise UserError(f"`extra_body` is {extra!r} but must be a mapping of request parameters.")
    for name in extra:
        if name in _OWN:
            remedy = f"give `{_OWN[name]}` instead" if _OWN[name] else "leave it out"
            raise UserError(f"`extra_body` holds `{name}`, which the client sets itself; {remedy}.")
