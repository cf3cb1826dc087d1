"""Messages written by a server, such as vLLM, that holds the base model with the message adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rllib_llm_comm.chat.endpoint import check_address, read_key, shown
from rllib_llm_comm.errors import UserError, did_you_mean
from rllib_llm_comm.language.message_words import TOKENS_PER_WORD, limit_words

_SETTINGS = ("base_url", "model", "api_key_env", "timeout", "max_retries", "prompts_per_request")


class MessageServer:
    """Asks a server for messages by OpenAI's completions protocol.

    The server continues prompts as they are; it must hold the same base model and, under the name `model`, the message
    adapter of this run: `vllm serve BASE --enable-lora --lora-modules message=.../policy/adapters/message`.

    Args:
        base_url: Address of the API, such as `"http://127.0.0.1:8000/v1"`.
        model: The adapter's name at the server.
        api_key_env: Name of the environment variable with the key; a local server needs none.
        timeout: Seconds until a request counts as lost, > 0.
        max_retries: Repetitions after 429, 5xx, time-outs and broken connections, with growing pauses, >= 0.
        prompts_per_request: Prompts sent in one request, >= 1.
    """

    def __init__(
        self,
        base_url: str,
        model: str = "message",
        api_key_env: str = "OPENAI_API_KEY",
        timeout: float = 60.0,
        max_retries: int = 5,
        prompts_per_request: int = 64,
    ) -> None:
        check_address(base_url)
        bounds = (
            ("timeout", timeout, 0.001),
            ("max_retries", max_retries, 0),
            ("prompts_per_request", prompts_per_request, 1),
        )
        for name, value, least in bounds:
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise UserError(f"`message_server.{name}` is {value!r} but must be a number of at least {least:g}.")
        self.base_url, self.model, self.api_key_env = base_url, model, api_key_env
        self.timeout, self.max_retries, self.prompts_per_request = timeout, max_retries, prompts_per_request

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> MessageServer:
        """The server of the setting `message_server`.

        Raises:
            UserError: If a key is unknown, the address is missing or a value is not allowed.
        """
        for name in settings:
            if name not in _SETTINGS:
                raise UserError(
                    f"`message_server` has the key {name!r}; known are {', '.join(_SETTINGS)}."
                    f"{did_you_mean(str(name), _SETTINGS)}"
                )
        if "base_url" not in settings:
            raise UserError("`message_server` has no `base_url`; give the address of the server's API.")
        return cls(**settings)

    def write(
        self, prompts: Sequence[str], *, max_words: int = 10, temperature: float = 0.0, seed: int | None = None
    ) -> list[str]:
        """Messages behind prompts; each distinct prompt is sent once when nothing is random.

        Args:
            prompts: Filled message prompts.
            max_words: Upper bound on a message's words; longer ones are cut.
            temperature: 0 for greedy decoding.
            seed: Handed to the server.

        Raises:
            UserError: If the server does not answer, or not with one text per prompt.
        """
        asked = list(dict.fromkeys(prompts)) if temperature == 0 else list(prompts)
        texts: list[str] = []
        for start in range(0, len(asked), self.prompts_per_request):
            texts += self._ask(asked[start : start + self.prompts_per_request], max_words, temperature, seed)
        messages = [limit_words(text, max_words) for text in texts]
        if temperature > 0:
            return messages
        by_prompt = dict(zip(asked, messages, strict=True))
        return [by_prompt[prompt] for prompt in prompts]

    def _ask(self, prompts: list[str], max_words: int, temperature: float, seed: int | None) -> list[str]:
        import openai

        from rllib_llm_comm.chat.request_retries import BoundedHttp

        secret = read_key(self.api_key_env, self.base_url)
        client = openai.OpenAI(
            api_key=secret, base_url=self.base_url, timeout=self.timeout,
            max_retries=self.max_retries, http_client=BoundedHttp(self.timeout, _holds_texts),
        )  # fmt: skip
        try:
            with client:
                answer = client.completions.create(
                    model=self.model, prompt=prompts, max_tokens=max_words * TOKENS_PER_WORD, temperature=temperature,
                    stop=["\n"], seed=seed,
                )  # fmt: skip
        except openai.APIStatusError as error:
            words = shown(str(error.body or ""), secret)
            raise self._failed(f"answered with status {error.status_code}{f' ({words})' if words else ''}") from None
        except openai.OpenAIError as error:
            raise self._failed(f"did not answer ({type(error).__name__})") from None
        texts = {choice.index: choice.text for choice in answer.choices or []}
        if sorted(texts) != list(range(len(prompts))) or not all(isinstance(text, str) for text in texts.values()):
            raise self._failed(f"gave {len(texts)} texts for {len(prompts)} prompts")
        # JSON may hold half a surrogate pair, which no tokenizer takes.
        return [texts[index].encode("utf-8", "replace").decode() for index in range(len(prompts))]

    def _failed(self, what: str) -> UserError:
        return UserError(
            f"`message_server` at {self.base_url} {what}; start it with the base model and the message adapter under "
            f"the name {self.model!r}, or leave `message_server` out."
        )


def _holds_texts(body: bytes) -> bool:
    """True if a body is an answer of OpenAI's completions protocol; the number of texts in it does not matter."""
    try:
        choices = json.loads(body)["choices"]
        return all(type(choice["index"]) is int and isinstance(choice["text"], str) for choice in choices or ())
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
