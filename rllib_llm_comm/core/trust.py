"""What data may not name unless the user vouches for it: code, readers that unpickle, and secrets.

Experiment files, studies and records come from anybody and are read as data. Code is named by a text such as
`package.module.Class` or `package.module:function`. It is used only where the user has named its module (`--import`),
or has said that the data can be trusted (`--trust`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

READERS = frozenset(
    {
        "extra_python_environs_for_driver",  # environment variables of processes, such as LD_PRELOAD
        "extra_python_environs_for_worker",
        "input_filesystem_kwargs",
        "input_read_method",
        "input_read_method_kwargs",
        "iter_batches_kwargs",
        "map_batches_kwargs",  # among them `runtime_env`, which installs and starts things
        "output_filesystem_kwargs",
        "output_write_method",
        "output_write_method_kwargs",
        "prelearner_buffer_kwargs",
    }
)
"""RLlib's settings that unpickle what they read, or hand anything on to what runs code, whatever their value is."""
DATA = "input_"
"""RLlib's setting for recorded episodes, in which its own reader unpickles columns."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "OPENAI_API_KEY": ("api.openai.com",),
    "ANTHROPIC_API_KEY": ("api.anthropic.com",),
    "CEREBRAS_API_KEY": ("api.cerebras.ai",),
    "DASHSCOPE_API_KEY": ("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
    "DEEPSEEK_API_KEY": ("api.deepseek.com",),
    "FIREWORKS_API_KEY": ("api.fireworks.ai",),
    "GEMINI_API_KEY": ("generativelanguage.googleapis.com",),
    "GROQ_API_KEY": ("api.groq.com",),
    "HF_TOKEN": ("router.huggingface.co",),
    "MISTRAL_API_KEY": ("api.mistral.ai",),
    "MOONSHOT_API_KEY": ("api.moonshot.ai", "api.moonshot.cn"),
    "NVIDIA_API_KEY": ("integrate.api.nvidia.com",),
    "OPENROUTER_API_KEY": ("openrouter.ai",),
    "TOGETHER_API_KEY": ("api.together.xyz", "api.together.ai"),
    "XAI_API_KEY": ("api.x.ai",),
}
"""Environment variables with keys of chat servers -> the hosts that a file may have them sent to."""
_DEFAULT_KEY = "OPENAI_API_KEY"
_ANY_KEY = "_API_KEY"
_CODE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*(-v\d+)?")  # an environment may have a version
_WORD = re.compile(r"[\w-]*")
_PLACES = ("zoo:", "hf:", "people:", "trained:")

_vouched_modules: set[str] = set()


def vouch_for(modules: Iterable[str]) -> None:
    """Notes modules that the user has named: data may name what is in them, in this process.

    Args:
        modules: Dotted names.
    """
    _vouched_modules.update(modules)


def is_vouched_for(name: str) -> bool:
    """True if a text names something in a module that the user has named.

    Args:
        name: Such as `package.module.Class` or `package.module:function`.
    """
    return any(name.startswith((f"{module}.", f"{module}:")) for module in _vouched_modules)


def names_code(text: str) -> bool:
    """True for `module:function`, which the user has not named.

    `zoo:` and `hf:` begin names of checkpoints, `people:` paths of sessions, `trained:` checkpoints of planners.
    """
    return bool(_CODE.fullmatch(text)) and not text.startswith(_PLACES) and not is_vouched_for(text)


def is_word(text: str) -> bool:
    """True for a text that cannot be the path of a module or file: letters, digits, `_` and `-` alone."""
    return bool(_WORD.fullmatch(text))


def texts_in(value: Any) -> Iterator[str]:
    """All texts in plain data, keys included."""
    return (text for _, text in placed_texts(value))


def placed_texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The same, each with the name of the setting that it stands in.

    Args:
        value: Texts, numbers, lists and mappings of such.
        place: Name of the whole; empty for none.
    """
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            own = f"{place}.{key}" if place else str(key)
            yield from placed_texts(key, own)
            yield from placed_texts(item, own)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from placed_texts(item, place)


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The texts, numbers and the like in plain data, each with the name of the setting that it stands in.

    Args:
        value: Texts, numbers, lists and mappings of such.
        place: Name of the whole; empty for none.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item, place)
    else:
        yield place, value


def _mappings_in(value: Any, place: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if isinstance(value, Mapping):
        yield place, value
        for name, item in value.items():
            yield from _mappings_in(item, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _mappings_in(item, f"{place}[{number}]")


def evaluated_in(value: Any, place: str) -> Iterator[str]:
    """Places in plain data of `{eval: TEXT}`, whose text Ray Tune evaluates as Python.

    Args:
        value: Settings, such as an experiment.
        place: Their name.
    """
    return (f"{where}.eval" for where, found in _mappings_in(value, place) if "eval" in found)


def trusted_in(value: Any, place: str) -> Iterator[str]:
    """Places in plain data of `trust`, by which a checkpoint that it names would be trusted; only the user says so."""
    return (f"{where}.trust" for where, found in _mappings_in(value, place) if found.get("trust"))


def secrets_in(value: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Environment variables that plain data would have sent to where they do not belong.

    A key goes to the hosts of its provider (`KEYS`). One whose name ends in `_API_KEY` goes to this machine and private
    networks, too.

    Args:
        value: Settings, such as the `config:` of a stage.
        place: Their name.

    Yields:
        Place of the setting, name of the variable, and address.
    """
    for where, found in _mappings_in(value, place):
        if "base_url" in found or "api_key_env" in found:
            keys = list(_options(found.get("api_key_env", _DEFAULT_KEY)))
            urls: list[str | None] = [*_options(found.get("base_url"))]
            for url in urls or [None]:
                for key in keys:
                    if not _belongs(key, url):
                        yield where, key, url or f"https://{KEYS[_DEFAULT_KEY][0]}"


def _options(value: Any) -> Iterator[str]:
    """The texts that a setting may have, by itself or in a search space."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _options(item)


def _belongs(key: str, url: str | None) -> bool:
    if url is None:  # OpenAI's own, or what the user's environment says
        return key == _DEFAULT_KEY
    if is_local(url):
        return key.endswith(_ANY_KEY)
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and parts.hostname in KEYS.get(key, ())


def is_local(url: str) -> bool:
    """True if an address lies on this machine or in a private network."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # An address of a tunnel leads to a public one, whatever the range that it lies in.
    tunnel = isinstance(address, ipaddress.IPv6Address) and (address.teredo or address.sixtofour)
    return address.is_private and not tunnel
