"""Diverse states of a kitchen that a chat model proposes, checked by the game and de-duplicated by a text encoder.

SAMA (Section 3.2) lets its model propose diverse states, and asks for goals and subgoals in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rllib_llm_comm.chat.answers import UnusableError, ask_for
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.chat.purposes import MANUAL
from rllib_llm_comm.envs.overcooked_ai.kernel import IDLE
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.envs.overcooked_ai.subgoals import SOUP, holdable, pots_in_use
from rllib_llm_comm.language.prompt_files import fill
from rllib_llm_comm.planning.kitchen.subgoal_dataset import digest_of
from rllib_llm_comm.planning.nearest import directions
from rllib_llm_comm.planning.planner_forms import with_entries
from rllib_llm_comm.planning.planning_game import PlanningGame, State

_NOTHING = "nothing"
_STARTED = COOK_TIME // 2


class Holding(BaseModel):
    """Content of a player's hands."""

    model_config = ConfigDict(json_schema_extra={"description": "What a player holds."})

    player: str
    holds: str


class PotContent(BaseModel):
    """Content of a pot."""

    model_config = ConfigDict(json_schema_extra={"description": "What is in a pot."})

    pot: str
    onions: int = Field(ge=0, le=FULL)
    cooks: Literal["no", "yes", "ready"] = "no"


class ProposedState(BaseModel):
    """A situation."""

    players: list[Holding]
    pots: list[PotContent]


class ProposedStates(BaseModel):
    """Situations that differ."""

    states: list[ProposedState]


def propose_states(
    model: ChatModel, game: Any, count: int, *, manual: str, seed: int = 0, known: Sequence[str] = ()
) -> list[State]:
    """States that a chat model proposes; where cooks stand is drawn. It is asked again where one is impossible.

    Args:
        model: The chat model.
        game: The kitchen; it is left in one of the states.
        count: Number of states that are asked for.
        manual: The game in words.
        seed: Of the places where cooks stand.
        known: States of before in words, from which the new ones are to differ.

    Raises:
        AnswerError: If both answers hold impossible states.
        ChatError: If a request failed for good.
        UserError: If the budget is spent or the key is missing.
    """
    kitchen = game.env.unwrapped.kitchen
    layout, names = kitchen.layout, places_of(kitchen.layout).names
    pots = {names[cell]: cell for cell in pots_in_use(layout)}
    kinds = holdable(layout)

    def check(answer: ProposedStates) -> None:
        problems = [why for state in answer.states if (why := _impossible(state, kinds, list(pots)))]
        if problems:
            raise UnusableError(*dict.fromkeys(problems))

    prompt = fill(
        __package__,
        "propose_states",
        manual=manual,
        agents=", ".join(COOKS),
        things=", ".join([_NOTHING, *sorted(kinds[0] | kinds[1])]),
        pots=", ".join(pots),
        count=count,
        known="".join(["\n\nThese are there already; propose others:", *(f"\n- {words}" for words in known)])
        if known
        else "",
    )
    answer = ask_for(model, prompt, with_entries(ProposedStates, "states", count), check=check, purpose=MANUAL)
    rng, found = np.random.default_rng(seed), []
    for state in answer.states:
        snapshot = random_snapshot(layout, kitchen.dynamics, rng)
        for player, agent in enumerate(COOKS):
            snapshot["players"][player][3] = _thing({one.player: one.holds for one in state.players}[agent])
        content = [(pots[one.pot], one) for one in state.pots if one.onions]
        snapshot["objects"] = [[*cell, SOUP, one.onions, 0, _tick(one)] for cell, one in content]
        kitchen.restore(snapshot)
        found.append(game.state())
    return found


def _impossible(state: ProposedState, kinds: Sequence[frozenset[str]], pots: Sequence[str]) -> str:
    """Reason against a proposed state; empty if it is possible."""
    if sorted(one.player for one in state.players) != sorted(COOKS):
        return f"each of {', '.join(COOKS)} must be named once in a situation"
    for one in state.players:
        if one.holds not in {_NOTHING, *kinds[COOKS.index(one.player)]}:
            return f"{one.player} can never hold {one.holds!r}"
    for pot in state.pots:
        if pot.pot not in pots:
            return f"there is no pot {pot.pot!r}, only {', '.join(pots)}"
        if (pot.onions == FULL) != (pot.cooks != "no"):
            return f"a pot with {pot.onions} onions cannot have cooks: {pot.cooks!r}"
    return "" if len({pot.pot for pot in state.pots}) == len(state.pots) else "a pot is named twice in a situation"


def _thing(kind: str) -> list[Any] | None:
    if kind == _NOTHING:
        return None
    return [SOUP, FULL, 0, COOK_TIME] if kind == SOUP else [kind]


def _tick(pot: PotContent) -> int:
    return {"no": IDLE, "yes": _STARTED, "ready": COOK_TIME}[pot.cooks]


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


def words_of(game: PlanningGame, state: State) -> str:
    """A state in the game's own words, agents included.

    Args:
        game: The game.
        state: The state.
    """
    return "\n".join([game.situation(state), *(game.situation_of(state, agent) for agent in game.agents)])
