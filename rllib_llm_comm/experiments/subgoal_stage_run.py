"""The data set of subgoals of a stage: a planner's goals and subgoals in states that a chat model proposes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.chat_model import ChatCounters, ChatModel
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.planners import WITH_MODEL, make_planner
from rllib_llm_comm.sama.planning_game import State
from rllib_llm_comm.sama.preparation import open_game
from rllib_llm_comm.sama.subgoals.dataset import SubgoalDataset, distinct, propose_states, words_of

STATES_BY = BY_MODEL, RANDOM = ("model", "random")


def planner_without_chat(planner: Mapping[str, Any], chat: Mapping[str, Any]) -> None:
    """Checks a planner whose chat model is given apart.

    Args:
        planner: Settings of `make_planner`.
        chat: Settings of the chat model.

    Raises:
        UserError: If the planner asks no chat model, names one itself, or a setting is not allowed.
    """
    if "chat" in planner or "cassette" in planner:
        raise UserError("`chat` is given for the whole stage; leave it away here.")
    if planner.get("name") not in WITH_MODEL:
        raise UserError(f"`name` is {planner.get('name')!r} but must ask a chat model: {', '.join(WITH_MODEL)}.")
    # A chat model that nobody asks: settings are checked without loading one.
    make_planner(dict(planner), _Nobody())


def run_subgoals(
    model: ChatModel,
    target: Path,
    *,
    env: str,
    settings: Mapping[str, Any],
    planner: Mapping[str, Any],
    states: int,
    states_by: str,
    apart: float,
    text_encoder: str,
    seed: int = 0,
) -> dict[str, Any]:
    """Asks a planner in diverse states and writes the data set.

    Args:
        model: The chat model.
        target: File of the data set; what it holds is not asked for again.
        env: Id of the game's environment.
        settings: Its settings.
        planner: Settings of `make_planner`, without `chat`.
        states: States in which the planner is asked.
        states_by: "model" or "random".
        apart: Least distance between the words of two proposed states.
        text_encoder: The encoder that compares them.
        seed: Of the states.

    Returns:
        Figures of the data set; `proposed` states and those that stayed after de-duplication (`distinct`).

    Raises:
        ChatError: If a request failed for good.
        UserError: If the user has to do something first.
    """
    data = SubgoalDataset(open_game(env, settings, seed), planner, seed, model, states_by=states_by)
    proposed = states
    if states_by == BY_MODEL:
        given, proposed = _proposed(model, data, planner, states, apart, text_encoder)
        data.given, states = given, len(given)
    if target.exists():
        data.take_over(read_text(target))
    with counting_bar(f"asking in {settings.get('layout', env)}") as progress:
        there = data.ask(states, partial(write_atomically, target), progress)
    summary = data.summary()
    say(
        f"{proposed} states, {there} of them distinct: {summary['subgoals']} subgoals, {summary['goals']} goals, "
        f"{summary['refused']} refusals, {summary['failed']} without an answer. Data set: {short_path(target)}"
    )
    if not summary["subgoals"]:
        raise UserError(
            f"The planner gave no subgoal in {there} states; mend `config.planner` or give another chat model."
        )
    return {"proposed": proposed, "distinct": there, **summary}


def _proposed(
    model: ChatModel, data: SubgoalDataset, planner: Mapping[str, Any], count: int, apart: float, text_encoder: str
) -> tuple[dict[str, State], int]:
    game, manual = data.game, str(planner.get("manual", ""))
    told = f"{read_manual(manual)}\n{game.scenario()}" if manual else game.manual()
    proposed = propose_states(model, game, count, manual=told, seed=data.seed)
    return distinct(proposed, partial(words_of, game), apart, text_encoder), len(proposed)


class _Nobody:
    """Stands for a chat model while settings are checked."""

    def __init__(self) -> None:
        self.counters = ChatCounters()

    def complete(self, prompt: str, system: str = "") -> str:
        """Never called."""
        raise NotImplementedError

    def recall(self, prompt: str, system: str = "") -> str | None:
        """Nothing is kept."""
        return None

    def remember(self, prompt: str, answer: str, system: str = "") -> None:
        """Nothing is kept."""
