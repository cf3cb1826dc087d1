"""The translation of a game: a translator of states, and actions in words, both checked by the game."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.chat_model import ChatModel, begun_at_once
from rllib_llm_comm.chat.turns import side_by_side
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.sama.manuals.manual import read_manual
from rllib_llm_comm.sama.preparation import GamePreparation, open_game, preparation_of
from rllib_llm_comm.sama.subgoals.dataset import diverse_states
from rllib_llm_comm.sama.translation import CodeIndex, Told, to_json, translate_actions, write_translator

_TRIED = 20
_SHOWN = 3
_TRUTHS = ("true", "false", "unclear")


def run_translation(
    model: ChatModel,
    target: Path,
    *,
    env: str,
    settings: Mapping[str, Any],
    manual: str = "",
    code: Sequence[str] = (),
    pieces: int = 1,
    states: int = 200,
    actions: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Lets a chat model write a translator, measures it on random states, and lets it tell the effects of actions.

    Args:
        model: The chat model.
        target: File of the translation.
        env: Id of the game's environment.
        settings: Its settings.
        manual: Manual that the model is shown; empty: the game's own.
        code: Python files of the game; none: those that its preparation names.
        pieces: Pieces of code that the model is shown.
        states: States in which the translator is checked; fewer where the game has no more that differ in words.
        actions: States in which actions are told.
        seed: Of the states.

    Returns:
        Counts of true, false and unclear sentences about `states`, and of the effects of actions.

    Raises:
        AnswerError: If the model writes no translator that works.
        ChatError: If a request failed for good.
        UserError: If a file cannot be read, or the user has to do something first.
    """
    game = open_game(env, settings, seed)
    how = preparation_of(game)
    index = CodeIndex.of_files(map(Path, code)) if code else how.code()
    found = list(diverse_states(game, max(states, _TRIED), seed).values())
    told_manual = f"{read_manual(manual)}\n{game.scenario()}" if manual else game.manual()
    write = partial(write_translator, model, game, found[:_TRIED], index, manual=told_manual, pieces=pieces)
    # The translator is one question, the effects of actions in each state are another.
    tell = [partial(_effects, model, how, index, pieces, one) for one in range(seed, seed + actions)]
    asks: list[Callable[[], Any]] = [write, *tell]
    translator, *told_effects = side_by_side(lambda ask: ask(), asks, begun_at_once(model))
    effects, unusable = _joined(told_effects)
    sums, examples, looked_at = Told(), [], found[:states]
    with counting_bar("checking sentences") as progress:
        for number, state in enumerate(looked_at, 1):
            told = translator.told(game, state)
            sums += told
            if number <= _SHOWN:
                examples.append({"state": game.plain(state), "words": translator.words(game, state)})
            progress(number, len(looked_at))
    figures = {
        "states": len(looked_at),
        "sentences_true": len(sums.true),
        "sentences_false": len(sums.false),
        "sentences_unclear": len(sums.unclear),
        "actions_true": len(effects["true"]),
        "actions_false": len(effects["false"]),
        "actions_unclear": len(effects["unclear"]),
        "actions_unusable": unusable,
    }
    write_atomically(target, to_json(translator, **how.origin(), figures=figures, examples=examples, actions=effects))
    say(
        f"{len(looked_at)} states: {figures['sentences_true']} sentences true, {figures['sentences_false']} false, "
        f"{figures['sentences_unclear']} not understood. The translator is in {short_path(target)}."
    )
    return figures


def _effects(
    model: ChatModel, how: GamePreparation, index: CodeIndex, pieces: int, seed: int
) -> dict[str, dict[str, str]] | None:
    """Effects of the first agent's actions in a random state, checked; `None` without a usable answer."""
    agent, state = how.game.agents[0], how.draw(np.random.default_rng(seed))
    actions, beside = how.actions(state, agent), how.beside(state, agent)
    if not actions:
        return {}
    try:
        shown = how.game.plain(state)
        found = translate_actions(model, index, shown, agent, actions, beside=beside, pieces=pieces)
    except AnswerError:
        return None
    return {name: getattr(found, name) for name in _TRUTHS}


def _joined(effects: Sequence[dict[str, dict[str, str]] | None]) -> tuple[dict[str, list[str]], int]:
    """The effects of all states by their truth, and the number of states without an answer."""
    told: dict[str, list[str]] = {name: [] for name in _TRUTHS}
    for found in effects:
        for name, words in (found or {}).items():
            told[name] += [f"{action}: {said}" for action, said in words.items()]
    return told, sum(found is None for found in effects)
