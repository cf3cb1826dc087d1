"""Address and key of an OpenAI-compatible endpoint, and what the environment says about the way to it."""

from __future__ import annotations

import base64
import functools
import os
import re
import ssl
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from rllib_llm_comm.core.errors import UserError, without_passwords
from rllib_llm_comm.core.errors import shown as quoted
from rllib_llm_comm.core.trust import is_local

_MOST_SHOWN = 300
_MOST_CHECKED = 4096
_RUN, _LEAST_RUN = 8, 4
_LONGEST_ADDRESS = 2000
_LIKE_A_KEY = re.compile(r"(?i)\bbearer\s+\S+|\b(?:sk|pk|gsk|key)[-_][\w*.-]{6,}")


def read_key(api_key_env: str, base_url: str | None) -> str:
    """The key, read from an environment variable; a server on this machine or in a private network needs none.

    Args:
        api_key_env: Name of the variable.
        base_url: Address of the API; `None` for OpenAI's own.

    Raises:
        UserError: If the variable is not set or holds what cannot be a key.
    """
    secret = os.environ.get(api_key_env, "").strip()
    if not secret and base_url is not None and is_local(base_url):
        secret = "none"
    if not secret:
        raise UserError(
            f"`api_key_env` is {api_key_env!r} but this environment variable is not set; export it with the "
            "key of the chat model, or give the `base_url` of a local server, which needs none."
        )
    if not (secret.isascii() and secret.isprintable()):
        raise UserError(
            f"`api_key_env` is {api_key_env!r} but this environment variable holds characters that no key "
            "has; export the key again, without blanks or line ends."
        )
    return secret


def shown(text: str, secret: str) -> str:
    """Text of a server, fit for an error: one short line without the key or anything that looks like one.

    Returns:
        The line; where the text may hold the key in disguise, only that it was left out.
    """
    text = text[:_MOST_CHECKED]
    if len(secret) > 4:
        if holds_key(text.replace(secret, " "), secret):
            return "(its words are left out, since they may hold the key)"
        text = text.replace(secret, "[key]")
    plain = _LIKE_A_KEY.sub("[key]", "".join(mark if mark.isprintable() else " " for mark in without_passwords(text)))
    line = " ".join(plain.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN].rstrip()} ..."


def holds_key(text: str, secret: str) -> bool:
    """True if a text may hold a part of a key, be it spaced, reversed, in other case, or encoded."""
    told = {_folded(text), _folded(unquote(text))}
    return any(run in one for run in _runs(secret) for one in told)


@functools.lru_cache(maxsize=8)
def _runs(secret: str) -> frozenset[str]:
    """Runs of a key's letters and digits as they may stand in a text, in both directions.

    A run is eight characters of the key, or what is made of them. A key with next to no letters and digits has the
    empty run, which stands in every text.
    """
    runs: set[str] = set()
    for key in (secret.encode(), secret.encode()[::-1]):
        encoded = [(key.hex(), 2 * _RUN)]
        for before in range(3):  # a user, say, stands before the key; his bytes shift its digits in base 64
            digits = base64.urlsafe_b64encode(bytes(before) + key).decode()
            encoded.append((digits[-(-before * 8 // 6) : (before + len(key)) * 8 // 6], _RUN * 8 // 6 + 1))
        for form, size in [(key.decode(), _RUN), *encoded]:
            line = _folded(form)
            size = min(size, len(line))
            runs.update(line[start : start + size] for start in range(len(line) - size + 1))
    runs |= {run[::-1] for run in runs}
    return (
        frozenset(run for run in runs if len(run) >= _LEAST_RUN)
        if len(_folded(secret)) >= _LEAST_RUN
        else frozenset([""])
    )


def _folded(text: str) -> str:
    return re.sub("[^0-9a-z]", "", unicodedata.normalize("NFKD", text).lower())


def check_address(base_url: Any) -> str:
    """The address; refuses what is no address, and addresses with a password in them.

    Raises:
        UserError: Says what is wrong.
    """
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        told = without_passwords(repr(base_url))
        raise UserError(f"`base_url` is {told} but must begin with http:// or https://.")
    if without_passwords(base_url) != base_url:
        raise UserError("`base_url` holds a password; take it out and name the key's variable in `api_key_env`.")
    try:
        right = bool(urlsplit(base_url).hostname) and urlsplit(base_url).port != 0
    except ValueError:
        right = False
    if (
        not right
        or len(base_url) > _LONGEST_ADDRESS
        or any(mark.isspace() or not mark.isprintable() for mark in base_url)
    ):
        raise UserError(f"`base_url` is {quoted(base_url)} but must be an address such as http://127.0.0.1:8000/v1.")
    return base_url


_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_SOCKS = ("socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}

Made = TypeVar("Made")


def build_client(make: Callable[[], Made]) -> Made:
    """An HTTP client, which reads the environment's proxies and certificates when it is built.

    Raises:
        UserError: If a variable holds what it cannot use.
    """
    try:
        return make()
    except Exception as error:
        fault = _certificate_fault() if isinstance(error, OSError) else _proxy_fault()
        if not fault:
            raise
        raise UserError(fault) from None


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
    import openai

    for name, value in _given(*_PROXIES):
        address = value if "://" in value else f"http://{value}"
        try:
            openai.DefaultHttpxClient(proxy=address, trust_env=False).close()
        except Exception as error:
            shown = f"`{name}` is {without_passwords(value)!r}"
            if isinstance(error, ImportError):
                return f"{shown}, a SOCKS proxy, which needs `pip install socksio`; install it, or unset the variable."
            schemes = ", ".join(f"{scheme}://" for scheme in (*_PORTS, *_SOCKS))
            return f"{shown} but must be an address such as http://host:3128 that begins with one of {schemes}."
    for name, value in _given("no_proxy"):
        return f"`{name}` is {without_passwords(value)!r} but must be names of servers with commas between."
    return ""


def _given(*names: str) -> Iterator[tuple[str, str]]:
    """Variables that are set, by names in small letters; such a name goes before its twin in capitals."""
    for name in sorted(os.environ, reverse=True):
        if name.lower() in names and os.environ[name]:
            yield name, os.environ[name]


def blame(url: Any, met: tuple[str, int] | None, error: Exception | None = None) -> str:
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
