"""Models of a hub: whether one is there, asked once."""

from __future__ import annotations

_PATIENCE = 10.0
_CONFIG = "config.json"


def find_on_hub(name: str) -> None:
    """Looks for a model of the hub in the cache, then asks the hub once: transformers would ask for half a minute.

    Args:
        name: Its hub id.

    Raises:
        ValueError: If the hub knows none of this name, or does not answer within ten seconds.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    try:
        if not isinstance(try_to_load_from_cache(name, _CONFIG), str):
            get_hf_file_metadata(hf_hub_url(name, _CONFIG), timeout=_PATIENCE)
    except Exception as error:  # of the hub's client and of the HTTP library that it has at the moment
        raise ValueError(str(error) or type(error).__name__) from error
