"""Diverse states of a game that a chat model proposes, checked by the game and de-duplicated by a text encoder.

SAMA (Section 3.2) lets its model propose diverse states, and asks for goals and subgoals in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from rllib_llm_comm.chat.answers import UnusableError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.purposes import MANUAL
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import game_of
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.sama.nearest import directions
from rllib_llm_comm.sama.planner_forms import with_entries
from rllib_llm_comm.sama.planning_game import PlanningGame, State
from rllib_llm_comm.sama.preparation import GamePreparation, preparation_of
from rllib_llm_comm.sama.subgoal_dataset import digest_of


def propose_states(
    model: ChatModel, game: PlanningGame, count: int, *, manual: str, seed: int = 0, known: Sequence[str] = ()
) -> list[State]:
    """States that a chat model proposes; what it leaves open is drawn. It is asked again where one is impossible.

    Args:
        model: The chat model.
        game: The game; it is left in one of the states.
        count: Number of states that are asked for.
        manual: The game in words.
        seed: Of what is drawn, such as the places where cooks stand.
        known: States of before in words, from which the new ones are to differ.

    Raises:
        AnswerError: If both answers hold impossible states.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing, or no states of this game can be proposed.
    """
    how = preparation_of(game)
    form = require_form(how)

    def check(answer: Any) -> None:
        problems = [why for state in answer.states if (why := how.impossible(state))]
        if problems:
            raise UnusableError(*dict.fromkeys(problems))

    others = ["\n\nThese are there already; propose others:", *(f"\n- {words}" for words in known)] if known else []
    told = {"manual": manual, "parts": how.parts(), "course": how.course, "known": "".join(others)}
    prompt = fill(__package__, "propose_states", count=count, **told)
    answer: Any = ask_for(model, prompt, with_entries(form, "states", count), check=check, purpose=MANUAL)
    rng = np.random.default_rng(seed)
    return [how.put(state, rng) for state in answer.states]


def require_form(how: GamePreparation) -> type[BaseModel]:
    """The form of proposed states.

    Args:
        how: A game's preparation.

    Raises:
        UserError: If a model cannot propose states of this game.
    """
    if how.form is None:
        record = game_of(how.game.env.unwrapped)
        raise UserError(
            f"`states_by` is 'model', but no model can propose states of the game {record.name if record else '?'!r}; "
            "set it to 'random'."
        )
    return how.form


def distinct(
    states: Sequence[State],
    words: Callable[[State], str],
    apart: float,
    text_encoder: str = "embedded",
    known: Sequence[str] = (),
) -> dict[str, State]:
    """States whose words differ: of those nearer to an earlier one than allowed, none is kept.

    Args:
        states: The states.
        words: Gives a state in words.
        apart: Least distance to all that are kept, as 1 minus the cosine of mean token vectors, in [0, 2]; 0 keeps all
            that differ in their words.
        text_encoder: See `rllib_llm_comm.language.text_encoder.load_text_encoder`.
        known: States of before in words, which count as kept.

    Returns:
        The states by a digest of their words, in their order.
    """
    texts = [*known, *map(words, states)]
    vectors = directions(texts, text_encoder) if apart and texts else None
    kept = {digest_of(text): number for number, text in enumerate(known)}
    for number, text in enumerate(texts[len(known) :], len(known)):
        digest = digest_of(text)
        far = vectors is None or not kept or 1 - float((vectors[list(kept.values())] @ vectors[number]).max()) >= apart
        if digest not in kept and far:
            kept[digest] = number
    return {digest: states[number - len(known)] for digest, number in kept.items() if number >= len(known)}
