"""The code of the onion-soup kitchens that recordings were asked about."""

from __future__ import annotations

import gzip
import json

from rllib_llm_comm.sama.code_index import CodeIndex, split_code
from rllib_llm_comm.sama.shipped_cassettes import recording


def kitchen_code() -> CodeIndex:
    """The code of the onion-soup kitchens that recordings are asked about, to search in.

    It is a copy beside the cassettes and not the code of today, as a prompt quotes it: with another code a recording
    would answer questions that nobody asks any more. So models that are recorded later are asked the same, too.
    """
    with gzip.open(recording("any").parent / "kitchen_source.json.gz", "rt", encoding="utf-8") as file:
        sources: dict[str, str] = json.load(file)["files"]
    return CodeIndex(piece for name, source in sorted(sources.items()) for piece in split_code(source, name))
