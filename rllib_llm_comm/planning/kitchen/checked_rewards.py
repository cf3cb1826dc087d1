"""Reward code that a chat model writes for a subgoal of a kitchen, held against the game's own test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.envs.overcooked_ai.manual import manual as manual_of
from rllib_llm_comm.envs.overcooked_ai.manual import map_facts
from rllib_llm_comm.envs.overcooked_ai.names import COOKS
from rllib_llm_comm.envs.overcooked_ai.plain_state import plain_state
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen
from rllib_llm_comm.envs.overcooked_ai.subgoals import Subgoal, library
from rllib_llm_comm.planning.kitchen.reward_agreement import Transition, measure_agreement
from rllib_llm_comm.planning.manuals.manual import read_manual
from rllib_llm_comm.planning.rewards.reward_code import write_reward
from rllib_llm_comm.planning.rewards.sandbox import RefusedCodeError


def told_manual(kitchen: Kitchen, manual: str = "") -> str:
    """The game in words for whoever writes reward code.

    Args:
        kitchen: The kitchen.
        manual: File of a manual; empty: the game's own.
    """
    if manual:
        return f"{read_manual(manual)} {' '.join(map_facts(kitchen.layout))}"
    return " ".join(manual_of(kitchen.layout))


def checked_reward(
    model: ChatModel,
    kitchen: Kitchen,
    text: str,
    subgoal: Subgoal,
    manual: str,
    transitions: Sequence[Transition],
    least: float,
) -> tuple[str, dict[str, Any]]:
    """Reward code of a subgoal, if it agrees with the game's own test, and how it compares.

    Args:
        model: The chat model.
        kitchen: The kitchen.
        text: The subgoal in words.
        subgoal: The subgoal.
        manual: The game in words.
        transitions: Steps in which code and test are compared.
        least: Least share of judgements that agree, in [0, 1].

    Returns:
        The code, empty if there is none to be used; and `subgoal`, `kept`, `why` not, `share` and `agreement`.

    Raises:
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    agent = COOKS[0] if subgoal in library(kitchen.layout, 0) else COOKS[1]
    try:
        reward = write_reward(model, text, plain_state(kitchen), agent=agent, manual=manual)
    except (AnswerError, RefusedCodeError) as error:
        return "", {"subgoal": text, "kept": False, "why": str(error)}
    found = measure_agreement(reward, subgoal, transitions)
    kept = found.share >= least and not found.refused
    why = "" if kept else f"it was refused in {found.refused} steps" if found.refused else "it agrees too little"
    row = {"subgoal": text, "kept": kept, "why": why, "share": round(found.share, 4), "agreement": asdict(found)}
    return reward.source if kept else "", row
