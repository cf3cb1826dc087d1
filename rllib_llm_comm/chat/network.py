"""What the environment says about the network: proxies and certificates, and who is to blame when nothing connects."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rllib_llm_comm.core.errors import UserError, without_passwords

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_SOCKS = ("socks5", "socks5h")
_PORTS = {"http": 80, "https": 443}

Made = TypeVar("Made")


def build_client(make: Callable[[], Made]) -> Made:
    """An HTTP client, which reads the environment's proxies and certificates when it is built.

    Args:
        make: Builds it.

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
