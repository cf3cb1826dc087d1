"""Address and key of an OpenAI-compatible endpoint."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.trust import is_local

_MOST_SHOWN = 300
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

    Args:
        text: Its words.
        secret: The key.
    """
    hidden = text.replace(secret, "[key]") if len(secret) > 4 else text
    plain = _LIKE_A_KEY.sub("[key]", "".join(mark if mark.isprintable() else " " for mark in hidden))
    line = " ".join(plain.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN].rstrip()} ..."


def check_address(base_url: Any) -> None:
    """Refuses what is no address, and addresses with a password in them.

    Raises:
        UserError: Says what is wrong.
    """
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise UserError(f"`base_url` is {base_url!r} but must begin with http:// or https://.")
    if "@" in urlsplit(base_url).netloc:
        raise UserError("`base_url` holds a password; take it out and name the key's variable in `api_key_env`.")
