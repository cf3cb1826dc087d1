"""Reward code that a chat model writes for a subgoal, held against the game's own test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.planning_game import PlanningGame
from rllib_llm_comm.sama.preparation import Transition
from rllib_llm_comm.sama.rewards.reward_agreement import measure_agreement
from rllib_llm_comm.sama.rewards.reward_code import write_reward
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError


def told_manual(game: PlanningGame, manual: str = "") -> str:
    """The game in words for whoever writes reward code.

    Args:
        game: The game.
        manual: File of a manual; empty: the game's own.
    """
    return f"{read_manual(manual)} {game.scenario()}" if manual else game.manual()


def checked_reward(
    model: ChatModel, game: PlanningGame, subgoal: str, manual: str, transitions: Sequence[Transition], least: float
) -> tuple[str, dict[str, Any]]:
    """Reward code of a subgoal, if it agrees with the game's own test, and how it compares.

    Args:
        model: The chat model.
        game: The game; the moment that it is in is the example that the model is shown.
        subgoal: The subgoal in the words of the game's library.
        manual: The game in words.
        transitions: Steps in which code and test are compared.
        least: Least share of judgements that agree, in [0, 1].

    Returns:
        The code, empty if there is none to be used; and `subgoal`, `kept`, `why` not, `share` and `agreement`.

    Raises:
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    agent = next(agent for agent in game.agents if subgoal in game.library(agent))
    try:
        how: dict[str, Any] = {"agent": agent, "manual": manual, "since": game.counts_since}
        reward = write_reward(model, subgoal, game.plain(game.state()), **how)
    except (AnswerError, RefusedCodeError) as error:
        return "", {"subgoal": subgoal, "kept": False, "why": str(error)}
    found = measure_agreement(reward, game, subgoal, transitions)
    kept = found.share >= least and not found.refused
    why = "" if kept else f"it was refused in {found.refused} steps" if found.refused else "it agrees too little"
    row = {"subgoal": subgoal, "kept": kept, "why": why, "share": round(found.share, 4), "agreement": asdict(found)}
    return reward.source if kept else "", row
