"""The translation of a kitchen: a translator of states, and actions in words, both checked by the game."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.chat_model import ChatModel
from rllib_llm_comm.envs import overcooked_ai
from rllib_llm_comm.envs.overcooked_ai.names import COOKS
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.files import write_atomically
from rllib_llm_comm.planning.action_translation import translate_actions
from rllib_llm_comm.planning.code_index import CodeIndex
from rllib_llm_comm.planning.games.overcooked_ai import KitchenPlanning
from rllib_llm_comm.planning.kitchen.action_translation import primitive_actions, surroundings
from rllib_llm_comm.planning.kitchen.recorded_code import kitchen_code
from rllib_llm_comm.planning.manuals.manual import read_manual
from rllib_llm_comm.planning.planning_game import planning_game
from rllib_llm_comm.planning.state_translator import Told, to_json, write_translator
from rllib_llm_comm.planning.subgoal_dataset import diverse_states

_TRIED = 20
_SHOWN = 3


def run_translation(
    model: ChatModel,
    target: Path,
    *,
    layout: str,
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
        layout: The kitchen.
        manual: Manual that the model is shown; empty: the game's own.
        code: Python files of the game; none: the recorded copy.
        pieces: Pieces of code that the model is shown.
        states: States in which the translator is checked.
        actions: States in which actions are told.
        seed: Of the states.

    Returns:
        Counts of true, false and unclear sentences about `states`, and of the effects of actions.

    Raises:
        AnswerError: If the model writes no translator that works.
        ChatError: If a request failed for good.
        UserError: If a file cannot be read, or the user has to do something first.
    """
    env = overcooked_ai.parallel_env(layout=layout, observe=["entities"], action_level="goal_cell")
    env.reset(seed=seed)
    game = planning_game(env)
    index = CodeIndex.of_files(map(Path, code)) if code else kitchen_code()
    found = list(diverse_states(game, max(states, _TRIED), seed).values())
    told_manual = f"{read_manual(manual)}\n{game.scenario()}" if manual else game.manual()
    translator = write_translator(model, game, found[:_TRIED], index, manual=told_manual, pieces=pieces)
    sums, examples = Told(), []
    with counting_bar("checking sentences") as progress:
        for number, state in enumerate(found[:states], 1):
            told = translator.told(game, state)
            sums += told
            if number <= _SHOWN:
                examples.append({"state": game.plain(state), "words": translator.words(game, state)})
            progress(number, states)
    effects, unusable = _effects(model, layout, index, pieces, range(seed, seed + actions))
    figures = {
        "states": states,
        "sentences_true": len(sums.true),
        "sentences_false": len(sums.false),
        "sentences_unclear": len(sums.unclear),
        "actions_true": len(effects["true"]),
        "actions_false": len(effects["false"]),
        "actions_unclear": len(effects["unclear"]),
        "actions_unusable": unusable,
    }
    write_atomically(target, to_json(translator, layout=layout, figures=figures, examples=examples, actions=effects))
    say(
        f"{states} states: {figures['sentences_true']} sentences true, {figures['sentences_false']} false, "
        f"{figures['sentences_unclear']} not understood. The translator is in {short_path(target)}."
    )
    return figures


def _effects(
    model: ChatModel, layout: str, index: CodeIndex, pieces: int, seeds: Sequence[int]
) -> tuple[dict[str, list[str]], int]:
    """Effects of the first cook's actions in random states, checked, and the number of states without an answer."""
    told: dict[str, list[str]] = {"true": [], "false": [], "unclear": []}
    unusable = 0
    for seed in seeds:
        env = overcooked_ai.parallel_env(layout=layout, observe=["entities"], action_level="goal_cell")
        env.reset(seed=0)
        env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
        game = planning_game(env)
        assert isinstance(game, KitchenPlanning)
        state, agent = game.state(), COOKS[0]
        actions, beside = primitive_actions(game, state, agent), surroundings(game, state, agent)
        try:
            found = translate_actions(model, index, game.plain(state), agent, actions, beside=beside, pieces=pieces)
        except AnswerError:
            unusable += 1
            continue
        for name, words in told.items():
            words += [f"{action}: {said}" for action, said in getattr(found, name).items()]
    return told, unusable
