"""Planners that a checkpoint recorded: which of them reach beyond this program (`policies.recorded_settings`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.language.base_model import EMBEDDED
from rllib_llm_comm.language.model_sources import SMOLLM2
from rllib_llm_comm.policies.recorded_settings import has_no_text, model_stays_inside, packaged_models
from rllib_llm_comm.sama.planners import WITH_MODEL
from rllib_llm_comm.sama.recordings import recordings

_LOCAL_CHATS = (SMOLLM2,)


def stays_inside(planner: Any) -> bool:
    """True if a planner that a checkpoint recorded asks no server, reads no file and fetches no model.

    Args:
        planner: As of `make_planner`.
    """
    if planner is None or isinstance(planner, str):
        return planner not in WITH_MODEL
    if not isinstance(planner, Mapping):
        return False
    name, rest = planner.get("name"), {key: value for key, value in planner.items() if key != "name"}
    if name == "cassette":
        return rest.get("cassette") in recordings() and _asks_plainly(rest, "cassette")
    if name in WITH_MODEL:
        chat = rest.get("chat")
        if not isinstance(chat, Mapping) or not model_stays_inside(chat.get("local"), _LOCAL_CHATS):
            return False
        return has_no_text({**chat, "local": None}) and _asks_plainly(rest, "chat")
    inner = rest.pop("planner", None)
    return stays_inside(inner) and has_no_text(rest)


def _asks_plainly(settings: Mapping[str, Any], whom: str) -> bool:
    """True if questions to a chat model are made without files and models from elsewhere."""
    if not model_stays_inside(settings.get("text_encoder", EMBEDDED), packaged_models("text_encoder")):
        return False
    words = ("menu", "nearest", "text_encoder", whom)
    return not settings.get("manual") and has_no_text({k: v for k, v in settings.items() if k not in words})
