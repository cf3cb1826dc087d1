"""A frugal client for language models behind OpenAI's chat protocol, hosted or local."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import threading
import time
from email.utils import parsedate_to_datetime
from typing import Any

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.language.accounts import ChatCounters, count_in_scopes
from rllib_llm_comm.language.chat_cache import AnswerCache, SpendingLedger, request_key
from rllib_llm_comm.language.endpoint import check_address, read_key

logger = logging.getLogger(__name__)

_MAX_BODY_BYTES = 1 << 20
_MAX_CHARACTERS_PER_TOKEN = 16
_MAX_WAIT = 60.0
_FIRST_WAIT = 0.5
_RETRIED = frozenset({408, 409, 429})


class ChatError(RuntimeError):
    """A request failed for good. Its text never holds the key, nor what the server said."""


class _Passing(Exception):  # noqa: N818  (not an error for users: tells the retry loop to go on)
    """A trouble that may pass."""

    def __init__(self, what: str, wait: float | None = None) -> None:
        super().__init__(what)
        self.wait = wait


class ChatClient:
    """Asks a chat model; repeats after passing troubles, keeps answers, and stays within a rate and a budget.

    The key is read from an environment variable at the first request; it is in no file, log, error or pickle.

    Attributes:
        counters: What was done so far.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        timeout: float = 30.0,
        max_retries: int = 5,
        requests_per_minute: float = 60,
        budget: float | None = None,
        price_per_million_input: float = 0.0,
        price_per_million_output: float = 0.0,
        temperature: float = 0.0,
        max_tokens: int = 200,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Keeps the settings; nothing is sent yet.

        Args:
            model: The model's name at the server.
            base_url: Address of the API, e.g. `"http://127.0.0.1:8000/v1"`; `None` for OpenAI's own.
            api_key_env: Name of the environment variable with the key. A server on this machine or in a private
                network needs none.
            timeout: Seconds until a request counts as lost, > 0.
            max_retries: Repetitions after 429, 5xx, time-outs and broken connections, >= 0.
            requests_per_minute: Requests are spread evenly so that no more are sent, > 0.
            budget: Money that may be spent, all clients of the `cache_dir` together; `None` for no bound.
            price_per_million_input: Price of a million tokens sent, >= 0.
            price_per_million_output: Price of a million tokens received, >= 0.
            temperature: 0 (same words each time, as far as the server can) to 2.
            max_tokens: Most tokens of an answer, >= 1.
            cache_dir: Answers and spent money are kept here; `None` keeps nothing.

        Raises:
            UserError: If a setting is not allowed.
        """
        _check(
            model, base_url, api_key_env, timeout, max_retries, requests_per_minute, budget, price_per_million_input,
            price_per_million_output, temperature, max_tokens,
        )  # fmt: skip
        self.model, self.base_url, self.api_key_env = model, base_url, api_key_env
        self.timeout, self.max_retries, self.requests_per_minute = timeout, max_retries, requests_per_minute
        self.budget = budget
        self.prices = (price_per_million_input / 1e6, price_per_million_output / 1e6)
        self.temperature, self.max_tokens, self.cache_dir = temperature, max_tokens, cache_dir
        self.counters = ChatCounters()
        self._cache = AnswerCache(cache_dir)
        self._begin()

    def _begin(self) -> None:
        """What a copy in another process needs anew."""
        self._ledger = SpendingLedger(self.cache_dir)
        self._sdk: Any = None
        self._lock = threading.RLock()
        self._next_start = 0.0

    def __repr__(self) -> str:
        return f"ChatClient(model={self.model!r}, base_url={self.base_url!r}, api_key_env={self.api_key_env!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_ledger", "_sdk", "_lock", "_next_start")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def complete(self, prompt: str, system: str = "") -> str:
        """The model's answer; calls from several threads take turns.

        Args:
            prompt: What the user says.
            system: What the model is told before.

        Returns:
            The text, at most some characters per token of `max_tokens` long.

        Raises:
            UserError: If the budget is spent or the key is missing.
            ChatError: If no answer came after all repetitions.
        """
        request, key = self._request(prompt, system)
        with self._lock:
            answer = self._cache.get(key)
            if answer is None:
                with self._cache.claim(key):
                    answer = self._cache.get(key)  # another process may just have paid for it
                    if answer is None:
                        return self._pay(request, key)
            self._count(cached=1)
            return answer

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The answer to a question if it is kept, else `None`; nothing is sent.

        Args:
            prompt: See `complete`.
            system: See `complete`.
        """
        answer = self._cache.get(self._request(prompt, system)[1])
        if answer is not None:
            self._count(cached=1)
        return answer

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer that came in another way, such as in a batch.

        Args:
            prompt: The question that it answers.
            answer: The answer.
            system: See `complete`.
        """
        self._cache.put(self._request(prompt, system)[1], answer)

    def _request(self, prompt: str, system: str) -> tuple[dict[str, Any], str]:
        """What is sent, and its key in the cache."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        request = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        return request, request_key({"base_url": self.base_url, **request})

    def _count(self, **amounts: float) -> None:
        self.counters.add(**amounts)
        count_in_scopes(**amounts)

    def _pay(self, request: dict[str, Any], key: str) -> str:
        try:
            answer = self._ask(request)
        except ChatError:
            self._count(failures=1)
            raise
        self._cache.put(key, answer)
        return answer

    def _ask(self, request: dict[str, Any]) -> str:
        secret = self._connect()
        size = sum(len(str(m["content"]).encode("utf-8", "replace")) + 16 for m in request["messages"])
        # A token is at least a byte, so this is the most that the request can cost.
        most = size * self.prices[0] + self.max_tokens * self.prices[1]
        for attempt in range(self.max_retries + 1):
            self._reserve(most)
            cost = 0.0
            try:
                self._wait_for_turn()
                self._count(requests=1)
                answer, tokens = self._send(request, size)
                self._count(input_tokens=tokens[0], output_tokens=tokens[1])
                cost = tokens[0] * self.prices[0] + tokens[1] * self.prices[1]
                return answer.replace(secret, "[key]") if len(secret) > 8 else answer
            except _Passing as trouble:
                what, wait = str(trouble), trouble.wait
            finally:
                self._count(cost=cost)
                self._ledger.add(cost - most)
            if attempt < self.max_retries:
                self._count(retries=1)
                if wait is None:
                    wait = min(_MAX_WAIT, _FIRST_WAIT * 2**attempt)
                # Jitter only lengthens: the server's own Retry-After is never undercut.
                wait *= random.uniform(1.0, 1.5)
                logger.info("Chat model %s: %s; trying again in %.1f s.", self.model, what, wait)
                time.sleep(wait)
        raise ChatError(f"The chat model {self.model!r} gave no answer after {self.max_retries + 1} requests ({what}).")

    def _connect(self) -> str:
        secret = read_key(self.api_key_env, self.base_url)
        if self._sdk is None:
            import openai

            self._sdk = openai.OpenAI(api_key=secret, base_url=self.base_url, timeout=self.timeout, max_retries=0)
        return secret

    def _reserve(self, most: float) -> None:
        """Books a request's highest cost before it is sent, so that a killed process cannot overspend."""
        with self._ledger.claim():
            spent = 0.0 if self.budget is None else self._ledger.spent
            if self.budget is not None and spent + most > self.budget:
                raise UserError(
                    f"`budget` is {self.budget:g} but {spent:.4g} is spent and the next request may cost {most:.2g}; "
                    "raise `budget` to go on (answers in `cache_dir` stay free)."
                )
            self._ledger.add(most)

    def _wait_for_turn(self) -> None:
        now = time.monotonic()
        if self._next_start > now:
            time.sleep(self._next_start - now)
        self._next_start = max(now, self._next_start) + 60.0 / self.requests_per_minute

    def _send(self, request: dict[str, Any], size: int) -> tuple[str, tuple[int, int]]:
        """One request; the errors of the package hold headers and server text, so they are not chained."""
        import openai

        failure: Exception | None = None
        body = b""
        try:
            with self._sdk.chat.completions.with_streaming_response.create(**request) as response:
                body = _read_bounded(response, self.timeout)
        except (_Passing, ChatError) as error:
            failure = error
        except openai.APITimeoutError:
            failure = _Passing("time-out")
        except openai.APIStatusError as error:
            failure = self._judge(error)
        except openai.APIConnectionError:
            failure = _Passing("no connection")
        except Exception as error:  # the HTTP library's own, while the body is read
            failure = _Passing(f"broken answer, {type(error).__name__}")
        if failure is not None:
            raise failure
        return self._unpack(body, size)

    def _judge(self, error: Any) -> Exception:
        status = int(error.status_code)
        if (status in _RETRIED or status >= 500) and error.code != "insufficient_quota":
            return _Passing(f"HTTP {status}", _retry_after(error.response.headers.get("retry-after")))
        hint = {401: "; is the key right?", 403: "; is the key allowed this?", 404: "; is the model's name right?"}
        return ChatError(f"The chat model {self.model!r} refused the request: HTTP {status}{hint.get(status, '')}")

    def _unpack(self, body: bytes, size: int) -> tuple[str, tuple[int, int]]:
        try:
            document = json.loads(body)
            answer = document["choices"][0]["message"]["content"]
            if not isinstance(answer, str):
                answer = ""  # a refusal or a tool call has no content
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            raise ChatError(f"The chat model {self.model!r} sent something that is no chat completion.") from None
        usage = document.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        # Servers that do not count are booked at the upper bound.
        sent = _count(usage.get("prompt_tokens"), size)
        received = _count(usage.get("completion_tokens"), self.max_tokens)
        return answer[: self.max_tokens * _MAX_CHARACTERS_PER_TOKEN], (sent, received)


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise


def _read_bounded(response: Any, timeout: float) -> bytes:
    deadline = time.monotonic() + timeout
    body = bytearray()
    for chunk in response.iter_bytes(1 << 14):
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise ChatError(f"The chat model's answer is larger than {_MAX_BODY_BYTES >> 20} MiB.")
        if time.monotonic() > deadline:  # a trickle never meets the time-out of a single read
            raise _Passing("time-out")
    return bytes(body)


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header (a number or a date), within bounds."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), _MAX_WAIT) if math.isfinite(seconds) else None


def _check(
    model: str, base_url: str | None, api_key_env: str, timeout: float, max_retries: int, rate: float,
    budget: float | None, price_in: float, price_out: float, temperature: float, max_tokens: int,
) -> None:  # fmt: skip
    for name, text in (("model", model), ("api_key_env", api_key_env)):
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"`{name}` is {text!r} but must be a name.")
    if base_url is not None:
        check_address(base_url)
    bounds: tuple[tuple[str, Any, float, float, bool], ...] = (
        ("timeout", timeout, 0, math.inf, True),
        ("max_retries", max_retries, 0, math.inf, False),
        ("requests_per_minute", rate, 0, math.inf, True),
        ("budget", 1 if budget is None else budget, 0, math.inf, True),
        ("price_per_million_input", price_in, 0, math.inf, False),
        ("price_per_million_output", price_out, 0, math.inf, False),
        ("temperature", temperature, 0, 2, False),
        ("max_tokens", max_tokens, 0, math.inf, True),
    )
    for name, value, low, high, open_ in bounds:
        number = isinstance(value, int) if name in ("max_retries", "max_tokens") else isinstance(value, int | float)
        if not number or isinstance(value, bool) or not (low < value if open_ else low <= value) or value > high:
            kind = "a whole number" if name in ("max_retries", "max_tokens") else "a number"
            upper = f" and at most {high:g}" if high < math.inf else ""
            raise UserError(f"`{name}` is {value!r} but must be {kind} {'above' if open_ else 'from'} {low:g}{upper}.")
    if budget is not None and price_in == 0 and price_out == 0:
        raise UserError(
            f"`budget` is {budget!r} but no price is known; give `price_per_million_input` and "
            "`price_per_million_output`, or leave `budget` out."
        )
