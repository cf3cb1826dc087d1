"""Messages written by a server, such as vLLM, that holds the base model with the message adapter."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.chat.endpoint import read_key, shown
from rllib_llm_comm.chat.settings import MessageServerSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.language.prompts import limit_words, most_tokens

if TYPE_CHECKING:
    import openai

    from rllib_llm_comm.chat.wire import Exchange

_MISSING = 404
_LOAD, _UNLOAD = "/load_lora_adapter", "/unload_lora_adapter"
_RELOADED = "already"


class MessageServer:
    """Asks a server for messages by OpenAI's completions protocol.

    The server continues prompts as they are; it must hold the same base model and, under the name `model`, the message
    adapter of this run: `vllm serve BASE --enable-lora --lora-modules message=.../policy/adapters/message`. With
    `adapter_folder` the run loads its adapter there itself (`use_adapter`).

    Args:
        base_url: As of `MessageServerSettings`.
        **settings: Its other fields.

    Raises:
        UserError: If a setting is not allowed.
    """

    def __init__(self, base_url: str, **settings: Any) -> None:
        given = MessageServerSettings(base_url=base_url, **settings)
        self.base_url, self.model, self.api_key_env = given.base_url, given.model, given.api_key_env
        self.timeout, self.max_retries = given.timeout, given.max_retries
        self.prompts_per_request = given.prompts_per_request
        folder = given.adapter_folder
        self.adapter_folder = None if folder is None else local_path(folder, "message_server.adapter_folder").resolve()
        self._name = given.model
        self._adapter: Path | None = None

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

    def use_adapter(self, digest: str, folder: Path) -> None:
        """Has the server load an adapter, and forget the one that this object had it load before.

        The adapter's name at the server is `model` and the digest. Others may have loaded it under this name already.
        A server that no longer knows it, such as one that was started anew, is asked to load it again.

        Args:
            digest: Tells the adapter's weights from others.
            folder: The adapter in PEFT's format, where the server finds it.

        Raises:
            UserError: If the server cannot load adapters while it runs, or refuses this one.
        """
        before, self._name, self._adapter = self._name, f"{self.model}-{digest}", folder
        self._load()
        if before not in (self.model, self._name):
            # Another run may have it forgotten already.
            self._post(_UNLOAD, {"lora_name": before}, spared=(400, _MISSING))

    def _load(self) -> None:
        self._post(_LOAD, {"lora_name": self._name, "lora_path": str(self._adapter)}, spared=(), loads=True)

    def _post(self, path: str, body: dict[str, str], spared: tuple[int, ...], loads: bool = False) -> None:
        import openai

        secret = read_key(self.api_key_env, self.base_url)
        client, exchange = self._open(secret, lambda body: True)  # nobody reads what vLLM says of a loaded adapter
        try:
            with client:
                client.post(path, body=body, cast_to=str)
        except openai.APIStatusError as error:
            words = shown(str(error.body or ""), secret)
            if error.status_code in spared or (loads and _RELOADED in words):
                return
            raise UserError(
                f"`message_server` at {self.base_url} does not load adapters (status {error.status_code} of {path}"
                f"{f': {words}' if words else ''}); start vLLM with `--enable-lora` and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True where it reads the same folder, or omit `adapter_folder`."
            ) from None
        except openai.OpenAIError as error:
            raise self._failed(f"did not answer ({exchange.trouble or type(error).__name__}{exchange.blame})") from None

    def _open(self, secret: str, fits: Callable[[bytes], bool]) -> tuple[openai.OpenAI, Exchange]:
        from rllib_llm_comm.chat.wire import Exchange, open_sdk

        client, http = open_sdk(secret, self.base_url, self.timeout, self.max_retries)
        exchange = http.own.exchange = Exchange(lambda body: body if fits(body) else None, "completion", secret=secret)
        return client, exchange

    def _ask(
        self, prompts: list[str], max_words: int, temperature: float, seed: int | None, again: bool = True
    ) -> list[str]:
        import openai

        secret = read_key(self.api_key_env, self.base_url)
        client, exchange = self._open(secret, _holds_texts)
        try:
            with client:
                answer = client.completions.create(
                    model=self._name, prompt=prompts, max_tokens=most_tokens(max_words), temperature=temperature,
                    stop=["\n"], seed=seed,
                )  # fmt: skip
        except openai.APIStatusError as error:
            if error.status_code == _MISSING and self._adapter is not None and again:
                self._load()
                return self._ask(prompts, max_words, temperature, seed, again=False)
            if error.status_code != exchange.status:
                raise self._failed(f"answered with {exchange.trouble}") from None
            words = shown(str(error.body or ""), secret)
            raise self._failed(f"answered with status {error.status_code}{f' ({words})' if words else ''}") from None
        except openai.OpenAIError as error:
            raise self._failed(f"did not answer ({exchange.trouble or type(error).__name__}{exchange.blame})") from None
        texts = {choice.index: choice.text for choice in answer.choices or []}
        if sorted(texts) != list(range(len(prompts))) or not all(isinstance(text, str) for text in texts.values()):
            raise self._failed(f"gave {len(texts)} texts for {len(prompts)} prompts")
        # JSON may hold half a surrogate pair, which no tokenizer takes.
        return [texts[index].encode("utf-8", "replace").decode() for index in range(len(prompts))]

    def _failed(self, what: str) -> UserError:
        return UserError(
            f"`message_server` at {self.base_url} {what}; start it with the base model and the message adapter under "
            f"the name {self._name!r}, or omit `message_server`."
        )


def _holds_texts(body: bytes) -> bool:
    """True if a body is an answer of OpenAI's completions protocol; the number of texts in it does not matter."""
    try:
        choices = json.loads(body)["choices"]
        return all(type(choice["index"]) is int and isinstance(choice["text"], str) for choice in choices or ())
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
