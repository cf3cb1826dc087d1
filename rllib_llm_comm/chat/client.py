"""A frugal client for language models behind OpenAI's chat protocol, hosted or local."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from rllib_llm_comm.chat.cache import AnswerCache, SpendingLedger, request_key
from rllib_llm_comm.chat.chat_model import ChatAnswer
from rllib_llm_comm.chat.circuit_breaker import MOST_LOST, PAUSE, Breaker
from rllib_llm_comm.chat.dialect import Dialect, check_extra_body
from rllib_llm_comm.chat.endpoint import check_address, read_key, shown
from rllib_llm_comm.chat.purposes import asking, check_tokens, cut_too_early, tokens_for
from rllib_llm_comm.chat.usage import ChatCounters, count_in_scopes
from rllib_llm_comm.errors import UserError

if TYPE_CHECKING:
    from rllib_llm_comm.chat.requests import Completion, LostError, RefusedError, Wire

logger = logging.getLogger(__name__)

_MAX_CHARACTERS_PER_TOKEN = 16
_HINTS = {401: "is the key right?", 403: "is the key allowed this?", 404: "is the model's name right?"}
# Errors that no other question would change: an address that is left, a wrong key, an empty account, an unknown model.
_HOPELESS = frozenset({301, 302, 307, 308, 401, 402, 404})
_OWN_STATE = ("_cache", "_ledger", "_wire", "_secret", "_lock", "_next_start", "_breaker")


class ChatError(RuntimeError):
    """A request failed for good. Its text never holds the key; the server's words are short and on one line."""


class ChatDownError(ChatError, UserError):
    """The server does not answer at all, or refuses whatever it is asked; who needs answers gives up."""


class ChatClient:
    """Asks a chat model; keeps answers, stays within a rate and a budget, and leaves a dead server alone.

    OpenAI's package repeats requests after passing troubles. After three questions in a row without an answer, or at
    once if the key or the model is refused, nothing is asked for a minute (`ChatDownError`); then one question is let
    through.

    **Budget.** The most that a request can cost is booked before it is sent. It is given back if the server refused
    the request (4xx but 408, and 503) or was never reached, and set right if the server answered; it stays after
    time-outs, broken connections, other 5xx, and answers that are cut or too large, since they may be paid for.

    The key is read from an environment variable at the first request; it is in no file, log, error or pickle.

    Attributes:
        counters: Counts so far.
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
        max_tokens: int | Mapping[str, int] | None = None,
        cache_dir: str | os.PathLike[str] | Literal[False] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        forms: bool = True,
    ) -> None:
        """Keeps the settings; nothing is sent yet.

        Args:
            model: The model's name at the server.
            base_url: Address of the API, e.g. `"http://127.0.0.1:8000/v1"`; `None` for OpenAI's own.
            api_key_env: Name of the environment variable with the key. A server on this machine or in a private
                network needs none.
            timeout: Seconds until a request counts as lost, > 0.
            max_retries: Repetitions after 408, 409, 429, 5xx, time-outs, broken connections, and answers that are no
                chat completion, >= 0.
            requests_per_minute: Requests are spread evenly so that no more are sent, > 0.
            budget: Money that may be spent, all clients of the `cache_dir` together; `None` for no bound.
            price_per_million_input: Price of a million tokens sent, >= 0.
            price_per_million_output: Price of a million tokens received, >= 0.
            temperature: 0 (same words each time, as far as the server can) to 2.
            max_tokens: Most tokens of an answer, thoughts before it included, >= 1: one number, or numbers by purpose
                (`purposes.TOKENS`, which also holds the defaults). Sent as `max_completion_tokens` where the server
                wants that.
            cache_dir: Answers and spent money are kept here; `None` keeps nothing, unless whoever asks has a place of
                its own (`keep_answers`); `False` keeps nothing at all.
            extra_body: Further parameters of each request, such as `{"reasoning_effort": "low"}`.
            forms: Whether the server is asked to write answers by their JSON schema (`response_format`) where there is
                one; a server that refuses that is asked without it.

        Raises:
            UserError: If a setting is not allowed.
        """
        _check(
            model, base_url, api_key_env, timeout, max_retries, requests_per_minute, budget, price_per_million_input,
            price_per_million_output, temperature, cache_dir, forms,
        )  # fmt: skip
        check_tokens(max_tokens)
        check_extra_body({} if extra_body is None else extra_body)
        self.model, self.base_url, self.api_key_env = model, base_url, api_key_env
        self.timeout, self.max_retries, self.requests_per_minute = timeout, max_retries, requests_per_minute
        self.budget = budget
        self.prices = (price_per_million_input / 1e6, price_per_million_output / 1e6)
        self.temperature, self.max_tokens, self.cache_dir = temperature, max_tokens, cache_dir
        self.extra_body = dict(extra_body or {})
        self.counters = ChatCounters()
        self._dialect = Dialect(forms)
        self._told_of_cuts = False
        self._begin()

    def _begin(self) -> None:
        """Makes the parts that a copy in another process needs anew."""
        folder = self.cache_dir or None
        self._cache, self._ledger = AnswerCache(folder), SpendingLedger(folder)
        self._wire: Wire | None = None
        self._secret = ""
        self._lock = threading.RLock()
        self._next_start = 0.0
        self._breaker = Breaker()

    def __repr__(self) -> str:
        return f"ChatClient(model={self.model!r}, base_url={self.base_url!r}, api_key_env={self.api_key_env!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _OWN_STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def keep_answers(self, folder: str | os.PathLike[str]) -> None:
        """Keeps answers and spent money in a folder, unless `cache_dir` says anything else; before the first question.

        Args:
            folder: The folder.
        """
        if self.cache_dir is None:
            self.cache_dir = folder
            self._cache, self._ledger = AnswerCache(folder), SpendingLedger(folder)

    def complete(self, prompt: str, system: str = "") -> str:
        """The model's answer; calls from several threads take turns.

        Args:
            prompt: The user's text.
            system: System prompt.

        Returns:
            The text, at most some characters per token of `max_tokens` long; a `ChatAnswer`.

        Raises:
            UserError: If the budget is spent or the key is missing.
            ChatDownError: If the server seems dead.
            ChatError: If no answer came after all repetitions.
        """
        messages, key = self._request(prompt, system)
        with self._lock:
            answer = self._kept(key)
            if answer is None:
                with self._cache.claim(key):
                    answer = self._kept(key)  # another process may just have paid for it
                    if answer is None:
                        return self._pay(messages, key)
            self._count(cached=1)
            return answer

    def recall(self, prompt: str, system: str = "") -> str | None:
        """The answer to a question if it is kept, else `None`; nothing is sent.

        Args:
            prompt: See `rllib_llm_comm.chat.client.ChatClient.complete`.
            system: See `rllib_llm_comm.chat.client.ChatClient.complete`.
        """
        answer = self._kept(self._request(prompt, system)[1])
        if answer is not None:
            self._count(cached=1)
        return answer

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Keeps an answer that came in another way, such as in a batch.

        Args:
            prompt: The question that it answers.
            answer: The answer.
            system: See `rllib_llm_comm.chat.client.ChatClient.complete`.
        """
        self._cache.put(self._request(prompt, system)[1], answer)

    def _request(self, prompt: str, system: str) -> tuple[list[dict[str, str]], str]:
        """The messages, and their key in the cache: the same for every purpose and dialect of the server."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        settings = {
            "model": self.model,
            "messages": messages,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens if isinstance(self.max_tokens, int) else None,
            **({"extra_body": self.extra_body} if self.extra_body else {}),
        }
        return messages, request_key({"base_url": self.base_url, **settings})

    def _kept(self, key: str) -> ChatAnswer | None:
        answer = self._cache.get(key)
        return None if answer is None or cut_too_early(answer, self.max_tokens) else answer

    def _count(self, **amounts: float) -> None:
        self.counters.add(**amounts)
        count_in_scopes(**amounts)

    # ---- asking ------------------------------------------------------------------------------------------

    def _pay(self, messages: list[dict[str, str]], key: str) -> ChatAnswer:
        try:
            if self._breaker.open:
                raise self._down()
            answer = self._ask(messages)
        except ChatError:
            self._count(failures=1)
            raise
        self._breaker.answered()
        self._cache.put(key, answer)
        return answer

    def _ask(self, messages: list[dict[str, str]]) -> ChatAnswer:
        from rllib_llm_comm.chat.requests import LostError, RefusedError

        wire = self._connect()
        tokens = tokens_for(self.max_tokens, asking().purpose)
        while True:
            sent = self._dialect.parameters(tokens, self.temperature, asking(), self.extra_body)
            meter = _Meter(self, _bytes(messages, sent), tokens)
            failure: ChatError
            try:
                completion = wire.send({"model": self.model, "messages": messages, **sent}, meter)
            except LostError as lost:
                failure = self._lost(lost)
            except RefusedError as refused:
                changed = self._dialect.learn(refused.status, refused.text, sent)
                if changed:
                    continue
                failure = self._refused(refused)
            else:
                if found := self._dialect.accepted(sent):
                    logger.warning("Chat model %s: %s", self.model, found)
                return self._answer(completion, tokens)
            raise failure

    def _answer(self, completion: Completion, tokens: int) -> ChatAnswer:
        text = completion.text[: tokens * _MAX_CHARACTERS_PER_TOKEN]
        if len(self._secret) > 8:
            text = text.replace(self._secret, "[key]")
        if completion.cut:
            self._count(truncated=1)
            if not self._told_of_cuts:
                self._told_of_cuts = True
                logger.warning(
                    "Chat model %s: an answer (%s) was cut off after %d tokens; raise `max_tokens`. Further ones are "
                    "only counted.", self.model, asking().purpose, tokens,
                )  # fmt: skip
        return ChatAnswer(text, tokens if completion.cut else 0)

    def _lost(self, lost: LostError) -> ChatError:
        why = shown(str(lost), self._secret)
        self._breaker.lose(why)
        if self._breaker.tripped:
            return self._down()
        asked = "1 request" if lost.requests == 1 else f"{lost.requests} requests"
        return ChatError(f"The chat model {self.model!r} gave no answer after {asked} ({why}).")

    def _refused(self, refused: RefusedError) -> ChatError:
        from rllib_llm_comm.chat.requests import QUOTA

        hint = f"; {_HINTS[refused.status]}" if refused.status in _HINTS else ""
        why = f"HTTP {refused.status}: {shown(refused.text, self._secret)}{hint}"
        if refused.status in _HOPELESS or refused.code == QUOTA:
            self._breaker.lose(why, at_once=True)
            return self._down()
        return ChatError(f"The chat model {self.model!r} refused the request: {why}")

    def _down(self) -> ChatDownError:
        sent = f"up to {self.max_retries + 1} times" if self.max_retries else "once"
        what = (
            "refuses to answer"
            if self._breaker.hopeless
            else f"gave no answer to {MOST_LOST} questions in a row, each sent {sent}"
        )
        return ChatDownError(
            f"The chat model {self.model!r} {what} ({self._breaker.why}). It is left alone for {PAUSE:g} s; once that "
            "is mended, call again."
        )

    def _connect(self) -> Wire:
        self._secret = read_key(self.api_key_env, self.base_url)
        if self._wire is None:
            from rllib_llm_comm.chat.requests import Wire

            self._wire = Wire(self._secret, self.base_url, self.timeout, self.max_retries)
        return self._wire

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


class _Meter:
    """Books the requests of one question; see `rllib_llm_comm.chat.requests.Meter`."""

    def __init__(self, client: ChatClient, size: int, tokens: int) -> None:
        self._client, self._size, self._tokens = client, size, tokens
        # A token is at least a byte, so this is the most that a request can cost.
        self._most = self._price(size, tokens)
        self._requests = 0

    def _price(self, sent: int, received: int) -> float:
        return sent * self._client.prices[0] + received * self._client.prices[1]

    def begin(self) -> None:
        """Waits for its turn and reserves the highest cost."""
        client = self._client
        client._wait_for_turn()
        client._reserve(self._most)
        client._count(requests=1, retries=int(self._requests > 0))
        self._requests += 1

    def end(self, completion: Completion | None, free: bool) -> None:
        """Sets the reservation right as far as the cost is known."""
        client, cost = self._client, 0.0 if free else self._most
        if completion is not None:
            # Servers that do not count are booked at the upper bound.
            sent = self._size if completion.sent is None else completion.sent
            received = self._tokens if completion.received is None else completion.received
            client._count(input_tokens=sent, output_tokens=received)
            cost = self._price(sent, received)
        client._count(cost=cost)
        client._ledger.add(cost - self._most)


def _bytes(messages: list[dict[str, str]], sent: Mapping[str, Any]) -> int:
    """Bytes that a model may be shown: the messages, their frames and a form."""
    form = len(str(sent["response_format"]).encode()) if "response_format" in sent else 0
    return form + sum(len(message["content"].encode("utf-8", "replace")) + 16 for message in messages)


def _check(
    model: str, base_url: str | None, api_key_env: str, timeout: float, max_retries: int, rate: float,
    budget: float | None, price_in: float, price_out: float, temperature: float, cache_dir: Any, forms: Any,
) -> None:  # fmt: skip
    for name, text in (("model", model), ("api_key_env", api_key_env)):
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"`{name}` is {text!r} but must be a name.")
    if base_url is not None:
        check_address(base_url)
    if cache_dir is not None and cache_dir is not False and not isinstance(cache_dir, str | os.PathLike):
        raise UserError(f"`cache_dir` is {cache_dir!r} but must be a folder, or false to keep nothing.")
    if not isinstance(forms, bool):
        raise UserError(f"`forms` is {forms!r} but must be true or false.")
    bounds: tuple[tuple[str, Any, float, float, bool], ...] = (
        ("timeout", timeout, 0, math.inf, True),
        ("max_retries", max_retries, 0, math.inf, False),
        ("requests_per_minute", rate, 0, math.inf, True),
        ("budget", 1 if budget is None else budget, 0, math.inf, True),
        ("price_per_million_input", price_in, 0, math.inf, False),
        ("price_per_million_output", price_out, 0, math.inf, False),
        ("temperature", temperature, 0, 2, False),
    )
    for name, value, low, high, open_ in bounds:
        number = isinstance(value, int) if name == "max_retries" else isinstance(value, int | float)
        if not number or isinstance(value, bool) or not (low < value if open_ else low <= value) or value > high:
            kind = "a whole number" if name == "max_retries" else "a number"
            upper = f" and at most {high:g}" if high < math.inf else ""
            raise UserError(f"`{name}` is {value!r} but must be {kind} {'above' if open_ else 'from'} {low:g}{upper}.")
    if budget is not None and price_in == 0 and price_out == 0:
        raise UserError(
            f"`budget` is {budget!r} but no price is known; give `price_per_million_input` and "
            "`price_per_million_output`, or leave `budget` out."
        )
