"""Questions to a base model on planning in the five onion-soup kitchens, which are in no corpus.

python -m tools.embedded_model.soup_probe --model embedded_soup
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from tools.embedded_model.probe import ask, run
from tools.embedded_model.soup_corpus import Moment, kind_of, moments, saying


def probe(name: str, questions: int = 300, seed: int = 1_000_003) -> dict[str, float]:
    """Accuracies of a base model on moments of the five kitchens.

    Args:
        name: A base model's name or path.
        questions: Number of each kind.
        seed: Must differ from the corpus' seed.

    Returns:
        `act`: share of moments in which it plans as the rules do. `act_kind`: in which what is done is the same, at
        whatever place. `told`: as `act`, knowing one cook and what the other seat says. `say`: share of messages that
        tell what the own cook is told. `act_by_chance`: a uniform draw.
    """
    model = AdaptedModel(load_base_model(name))
    rng = np.random.default_rng(seed)
    found = list(islice(moments(rng, LAYOUT_NAMES), questions * 3))[::3]
    talked = [moment for moment in found if moment.others_subgoal]
    texts = generate_messages(model, [message_prompt(moment.own) for moment in found], role=None)
    result = {
        "act": ask(model, [_question(moment, moment.text) for moment in found]),
        "act_kind": ask(model, [_question(moment, moment.text) for moment in found], same=_same_kind),
        "told": ask(model, [_question(moment, moment.own, heard=True) for moment in talked]),
        "say": float(np.mean([text == saying(m.answer) for text, m in zip(texts, found, strict=True)])),
        "act_by_chance": float(np.mean([1 / len(moment.allowed) for moment in found])),
    }
    return {name: round(value, 3) for name, value in result.items()}


def _question(moment: Moment, text: str, heard: bool = False) -> tuple[str, list[str], int]:
    said = {moment.other: saying(moment.others_subgoal)} if heard else {}
    return action_prompt(text, said), list(moment.allowed), moment.allowed.index(moment.answer)


def _same_kind(one: str, other: str) -> bool:
    return kind_of(one) == kind_of(other)


if __name__ == "__main__":
    run(probe, __doc__)
