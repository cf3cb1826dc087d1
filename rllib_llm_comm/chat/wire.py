"""The wire to a server: OpenAI's package with its own time-outs and repetitions, and one hook around each request.

The package repeats what may pass: statuses and broken connections. `Exchange` is the hook: it books each request,
limits the size and time of its answer, and tells the package of an answer that is none (a page in HTML or half a
document under status 200) as of a gateway with the same trouble.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import openai

from rllib_llm_comm.chat.endpoint import shown
from rllib_llm_comm.core.errors import UserError, without_passwords

_MAX_BODY_BYTES = 1 << 20
_MOST_TOKENS = 2**40
_MAX_SHOWN = 4096  # much more than errors show in the end, so that no key is cut in two
_LATE = "time-out"
_LARGE = f"an answer larger than {_MAX_BODY_BYTES >> 20} MiB"
_STREAM = "a stream of pieces, which it was not asked for; turn streaming off at the server"
_RETRIED = frozenset({408, 409, 429})
# Statuses by which a server says that it did nothing: all of 4xx but a time-out, and "unavailable".
_BUSY = 503
_PROXY_WANTS_A_USER = 407
# Errors of the HTTP library before anything was sent.
_NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"})
_BODY_HEADERS = frozenset({"content-encoding", "content-length", "content-type", "transfer-encoding"})
QUOTA = "insufficient_quota"
_TEXTS: Mapping[str, str] = {"text": "text", "output_text": "text", "refusal": "refusal"}


@dataclass(frozen=True)
class Completion:
    """Answer of a server.

    Attributes:
        text: The answer; empty if there is none, as where there are only thoughts.
        cut: Whether it ended because it became too long.
        sent: Tokens of the question, if the server counts.
        received: Tokens of the answer, if the server counts.
        unread: Kinds of its parts that are neither text nor thoughts.
        instead: What the server sent in place of an answer, `"refusal"`, `"filter"` or `"calls"`; empty if it sent one,
            or nothing but thoughts.
    """

    text: str
    cut: bool
    sent: int | None
    received: int | None
    unread: tuple[str, ...] = ()
    instead: str = ""


class LostError(Exception):
    """No usable answer came, repetitions included; its text never holds the key.

    Attributes:
        requests: Requests sent.
    """

    def __init__(self, trouble: str, requests: int) -> None:
        super().__init__(trouble)
        self.requests = requests


class RefusedError(Exception):
    """The server does not want this request.

    Attributes:
        status: Its HTTP status.
        code: Its name for the trouble, such as "insufficient_quota"; may be empty.
        text: Its words; may hold the key.
    """

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.code, self.text = status, code, text


class _Stop(BaseException):  # noqa: N818  (no error for users)
    """Carries an error through the package, which would repeat any `Exception`.

    Attributes:
        error: The error.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class BoundedHttp(openai.DefaultHttpxClient):
    """The package's own HTTP client, whose requests go through the exchange of their thread.

    Args:
        timeout: Seconds until a request counts as lost, whatever trickles in.

    Attributes:
        own: Holds the `exchange`.
    """

    def __init__(self, timeout: float) -> None:
        # A connection of its own for each request: only of a new one the socket is told, which the deadline shuts.
        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(max_keepalive_connections=0)
        super().__init__(timeout=timeout, limits=limits)
        self._longest, self.own = timeout, threading.local()

    def send(self, request: Any, **options: Any) -> Any:  # type: ignore[override]
        """Sends a request, to nowhere else than it says."""
        options |= {"stream": True, "follow_redirects": False}
        exchange: Exchange = self.own.exchange
        return exchange.run(request, lambda: super(BoundedHttp, self).send(request, **options), self._longest)


def open_sdk(secret: str, base_url: str | None, timeout: float, max_retries: int) -> tuple[openai.OpenAI, BoundedHttp]:
    """OpenAI's client for a server, and its HTTP client; arguments as of `Wire`.

    Raises:
        UserError: If a variable of the environment, for proxies or certificates, holds what cannot be used.
    """
    try:
        http = BoundedHttp(timeout)
    except Exception as error:
        fault = _certificate_fault() if isinstance(error, OSError) else _proxy_fault()
        if not fault:
            raise
        raise UserError(fault) from None
    sdk = openai.OpenAI(api_key=secret, base_url=base_url, timeout=timeout, max_retries=max_retries, http_client=http)
    return sdk, http


class Exchange:
    """A question, with as many requests as the package sends for it.

    Args:
        read: Makes of a body what was asked for; `None` if it is none.
        what: Name of that.
        begin: Called before each request; what it raises ends the exchange.
        end: Called after each request with the answer, if there is a usable one, and whether the request surely costs
            nothing: it never left, or the server refused it.
        secret: The key, which no trouble shows.

    Attributes:
        answer: What was asked for.
        trouble: Failure of the latest request.
        blame: What the environment has to do with it.
        requests: Requests sent.
        status: The server's own status of the latest answer.
        refused: The refusal, if the server does not want this question.
    """

    def __init__(
        self,
        read: Callable[[bytes], Any],
        what: str,
        begin: Callable[[], None] = lambda: None,
        end: Callable[[Any, bool], None] = lambda answer, free: None,
        secret: str = "",
    ) -> None:
        self._read, self._what, self._begin, self._end, self._secret = read, what, begin, end, secret
        self.answer: Any = None
        self.trouble = self.blame = ""
        self.requests = self.status = 0
        self.refused: RefusedError | None = None

    def run(self, request: Any, send: Callable[[], Any], longest: float) -> Any:
        """One request; gives the package a response that it repeats, reports or takes.

        Raises:
            _Stop: If the package must not repeat it.
        """
        try:
            self._begin()
        except Exception as error:
            raise _Stop(error) from None
        self.requests += 1
        self.answer, self.refused, self.trouble = None, None, ""
        free = False
        guard = _Deadline(longest)
        request.extensions = {**request.extensions, "trace": guard.trace}
        try:
            response = send()
            try:
                self.blame = _blame(request.url, guard.met)
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _MAX_BODY_BYTES:
                        break
                free = self._judge(response, bytes(body))
            finally:
                response.close()
        except Exception as error:
            name = type(error).__name__
            free = name in _NEVER_SENT
            self.blame = _blame(request.url, guard.met, error)
            late = "Timeout" in name or guard.passed
            self.trouble = _LATE if late else "no connection" if free else f"broken answer, {name}"
            raise
        finally:
            guard.cancel()
            self._end(self.answer, free)
        status = self.status
        if status < 300 and self.trouble:  # told to the package as the gateway's status with the same trouble
            status, body = 502, bytearray()
        headers = [(name, value) for name, value in response.headers.items() if name.lower() not in _BODY_HEADERS]
        headers.append(("content-type", "application/json"))
        if self.refused is not None or self.trouble in (_LARGE, _STREAM):
            headers.append(("x-should-retry", "false"))
        return type(response)(status, headers=headers, content=bytes(body), request=request)

    def failure(self) -> Exception:
        """The error for the latest request."""
        return self.refused or LostError(f"{self.trouble or 'no answer'}{self.blame}", self.requests)

    def _judge(self, response: Any, body: bytes) -> bool:
        """Notes the answer, or what is wrong with it; returns whether the request is free."""
        self.status = status = int(response.status_code)
        if 300 <= status < 400:
            # A request that is sent on is paid for once more, and unseen; the question goes to anybody.
            where = response.headers.get("location", "nowhere")
            text = f"it sends requests on to {where[:_MAX_SHOWN]}; if you trust that address, give it as `base_url`"
            self.trouble, self.refused = f"HTTP {status}: {text}", RefusedError(status, "", text)
            return True
        if status >= 400:
            code, text = _told(body[:_MAX_BODY_BYTES])
            if status == _PROXY_WANTS_A_USER:
                text = f"nobody was let{self.blame or ' through a proxy'}; write its user and password into the address"
            self.trouble = f"HTTP {status}: {shown(text, self._secret)}"
            if code == QUOTA or not (status in _RETRIED or status >= 500):
                self.refused = RefusedError(status, code, text)
            return (status < 500 and status != 408) or status == _BUSY
        if len(body) > _MAX_BODY_BYTES:
            self.trouble = _LARGE
            return False
        self.answer = self._read(body)
        if self.answer is None:
            told = shown(body[:_MAX_SHOWN].decode("utf-8", "replace"), self._secret)
            streams = body.lstrip().startswith((b"data:", b"event:"))
            self.trouble = _STREAM if streams else f"something that is no {self._what}: {told}"
        return False


class Wire:
    """Sends questions to one server.

    Args:
        secret: The key.
        base_url: Address of the API; `None` for OpenAI's own.
        timeout: Seconds until a request counts as lost.
        max_retries: Repetitions.
    """

    def __init__(self, secret: str, base_url: str | None, timeout: float, max_retries: int) -> None:
        self._secret = secret
        self._sdk, self._http = open_sdk(secret, base_url, timeout, max_retries)

    def send(
        self, body: dict[str, Any], begin: Callable[[], None], end: Callable[[Completion | None, bool], None]
    ) -> Completion:
        """The answer to a question.

        The errors of the package hold headers and so the key; none is chained.

        Args:
            body: The request: `model`, `messages` and anything else that the server takes.
            begin: As of `Exchange`.
            end: As of `Exchange`.

        Raises:
            RefusedError: If the server does not want it.
            LostError: If no usable answer came.
            UserError: From `begin`.
        """
        exchange = self._http.own.exchange = Exchange(read_completion, "chat completion", begin, end, self._secret)
        rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
        failure: Exception | None = None
        try:
            with self._sdk.chat.completions.with_streaming_response.create(
                model=body["model"], messages=body["messages"], extra_body=rest
            ):
                pass
        except _Stop as stop:
            failure = stop.error
        except Exception:  # the package's and the HTTP library's own
            failure = exchange.failure()
        if failure is not None:
            raise failure
        completion: Completion = exchange.answer
        return completion


class _Deadline:
    """Shuts a request's connection when its time is up: a trickle never meets the time-out of a single read.

    Args:
        seconds: From now.

    Attributes:
        passed: Whether the time was up before `cancel`.
        met: Host and port of the server or the proxy that was connected to.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self.met: tuple[str, int] | None = None
        self._socket: Any = None
        self._timer = threading.Timer(seconds, self._shut)
        self._timer.daemon = True
        self._timer.start()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Notes the place and the socket of a new connection, as the HTTP library tells it."""
        if event.endswith(".connect_tcp.started"):
            self.met = info["host"], info["port"]
        stream = info.get("return_value")
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")) and stream is not None:
            self._socket = stream.get_extra_info("socket")
            if self.passed:
                self._shut()

    def cancel(self) -> None:
        """Ends the watch."""
        self._timer.cancel()

    def _shut(self) -> None:
        self.passed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # closed by then
                self._socket.shutdown(socket.SHUT_RDWR)


def read_completion(body: bytes) -> Completion | None:
    """The answer in a response, or `None` if it is no chat completion."""
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        text, unread = _text_of(choice["message"])
        usage = document.get("usage")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    usage = usage if isinstance(usage, dict) else {}
    return Completion(
        text=text.encode("utf-8", "replace").decode(),  # JSON may hold half a surrogate pair, which no file takes
        cut=choice.get("finish_reason") == "length",
        sent=_count(usage.get("prompt_tokens")),
        received=_count(usage.get("completion_tokens")),
        unread=unread,
        instead=_instead(choice),
    )


def _instead(choice: Mapping[str, Any]) -> str:
    """What stands in place of an answer, as of `Completion.instead`."""
    message = choice["message"]
    calls, refusal = message.get("tool_calls"), message.get("refusal")
    if message.get("content"):
        return ""
    if isinstance(refusal, str) and refusal:
        return "refusal"
    if choice.get("finish_reason") == "content_filter":
        return "filter"
    return "calls" if isinstance(calls, list) and len(calls) > 1 else ""


def _text_of(message: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Text of a message, and the kinds of its parts that are neither text nor thoughts.

    Raises:
        TypeError: If it has no content of any known form.
        KeyError: If it has none at all, and nothing that stands in its place.
    """
    if message.get("content") is None:
        if not set(message) & {"content", "reasoning", "reasoning_content", "refusal", "tool_calls"}:
            raise KeyError("content")
        refusal = message.get("refusal")  # thoughts apart leave no text
        return (refusal if isinstance(refusal, str) else _called(message)), ()
    content = message["content"]
    texts, unread = [], set()
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = str(part.get("type", "text"))
        text = part.get(_TEXTS.get(kind, ""))
        text = text.get("value") if isinstance(text, dict) else text
        if "think" in kind or "reason" in kind or part.get("thought") is True:
            continue
        if isinstance(text, str):
            texts.append(text)
        else:
            unread.add(kind)
    return "".join(texts) or _called(message), tuple(sorted(unread))


def _called(message: Mapping[str, Any]) -> str:
    """Arguments of the only tool call of a message without text: some models fill a form so; else nothing."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or len(calls) != 1 or not isinstance(calls[0], Mapping):
        return ""
    function = calls[0].get("function")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    return json.dumps(arguments) if isinstance(arguments, Mapping) else arguments if isinstance(arguments, str) else ""


def _count(value: Any) -> int | None:
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
    return value if counts else None


def _told(body: bytes) -> tuple[str, str]:
    """Code and words of an error, as OpenAI's protocol or anybody else puts them."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return "", text
    error = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(error, dict):
        return "", str(error)
    words = error.get("message") or error.get("detail") or text
    return str(error.get("code") or ""), words if isinstance(words, str) else json.dumps(words)


# ---- proxies and certificates of the environment ------------------------------------------------------------------


_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_SOCKS = ("socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}


def _certificate_fault() -> str:
    for name, value in _given("ssl_cert_file"):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=value)
        except OSError as error:
            why = "holds no certificate" if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
            return f"`{name}` is {value!r}, which {why}; give a file with certificates in PEM format, or unset it."
    for name, value in _given("sslkeylogfile"):
        try:
            open(value, "a").close()
        except OSError as error:
            return f"`{name}` is {value!r} but cannot be written to ({error.strerror}); correct or unset it."
    return ""


def _proxy_fault() -> str:
    for name, value in _given(*_PROXIES):
        address = value if "://" in value else f"http://{value}"
        try:
            openai.DefaultHttpxClient(proxy=address, trust_env=False).close()
        except Exception as error:
            told = f"`{name}` is {without_passwords(value)!r}"
            if isinstance(error, ImportError):
                return f"{told}, a SOCKS proxy, which needs `pip install socksio`; install it, or unset the variable."
            schemes = ", ".join(f"{scheme}://" for scheme in (*_PORTS, *_SOCKS))
            return f"{told} but must be an address such as http://host:3128 that begins with one of {schemes}."
    for name, value in _given("no_proxy"):
        return f"`{name}` is {without_passwords(value)!r} but must be names of servers with commas between."
    return ""


def _given(*names: str) -> Iterator[tuple[str, str]]:
    """Variables that are set, by names in small letters; such a name goes before its twin in capitals."""
    for name in sorted(os.environ, reverse=True):
        if name.lower() in names and os.environ[name]:
            yield name, os.environ[name]


def _blame(url: Any, met: tuple[str, int] | None, error: Exception | None = None) -> str:
    """What the environment has to do with a failed request, to be told behind the failure.

    Args:
        url: Address of the request, as the HTTP library has it.
        met: Host and port that were connected to, or were to be; `None` if it did not come to that.
        error: The failure; `None` if there was an answer.

    Returns:
        Words that go on a sentence; empty if it has nothing to do with it.
    """
    why = _untrusted(error)
    if why:
        given = [f"`{name}` is {value!r}" for name, value in _given("ssl_cert_file", "ssl_cert_dir")]
        remedy = "name a file with the right certificates in `SSL_CERT_FILE`"
        return f": its certificate is not trusted ({why}); {', '.join([*given, remedy])}"
    host = url.raw_host.decode()
    if met is None or met == (host, url.port or _PORTS.get(url.scheme)):
        return ""
    for name, value in (*_given(f"{url.scheme}_proxy"), *_given("all_proxy")):
        told = f", which answers {str(error)[:3]}" if type(error).__name__ == "ProxyError" else ""
        return (
            f" through the proxy {without_passwords(value)} of `{name}`{told}; correct or unset the variable, or name "
            f"{host} in `NO_PROXY`"
        )
    return ""


def _untrusted(error: BaseException | None) -> str:
    """Why a certificate was refused; empty if none was."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return ""
