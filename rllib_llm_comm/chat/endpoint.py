"""Address and key of an OpenAI-compatible endpoint, and texts that do not show the key."""

from __future__ import annotations

import base64
import functools
import os
import re
import unicodedata
from typing import Any
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
