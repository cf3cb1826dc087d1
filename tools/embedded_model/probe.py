"""Questions to a base model on sensible actions and on following messages. `python -m tools.embedded_model.probe`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from rllib_llm_comm.envs.overcooked_text.cooks import Saying, choose, say, understand, word
from rllib_llm_comm.envs.overcooked_text.observation_text import RIGHT, SHELF, Option, View, describe_view, phrase
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from rllib_llm_comm.language.scoring import encode_candidates, score_candidates
from tools.embedded_model.kitchens import FOODS, HELD_OUT_FOODS, options, random_view

Question = tuple[str, list[str], int]


def follow_question(rng: np.random.Generator, foods: tuple[str, ...]) -> Question:
    """Several things on the shelf, empty hands, and a partner who asks for one of them."""
    while True:
        view = replace(random_view(rng, foods), holding=None)
        possible = options(view)
        wanted = [i for i, o in enumerate(possible) if o.kind == "get" and o.place == SHELF]
        if view.room == RIGHT and len(wanted) >= 2:
            break
    answer = int(rng.choice(wanted))
    thing = possible[answer].item
    assert thing is not None
    speaker = "bob" if view.name != "bob" else "alice"
    asked = word(Saying("bring", thing.name), rng)
    return action_prompt(describe_view(view), {speaker: asked}), [phrase(o) for o in possible], answer


def act_question(rng: np.random.Generator, foods: tuple[str, ...]) -> Question:
    """A made-up kitchen, nobody speaks: what does the scripted cook do?"""
    while True:
        view = random_view(rng, foods)
        possible: list[Option] = options(view)
        if len(possible) >= 3:
            break
    return action_prompt(describe_view(view)), [phrase(o) for o in possible], choose(view, possible)


def ask(model: AdaptedModel, questions: Sequence[Question], same: Callable[[str, str], bool] = str.__eq__) -> float:
    """Share of questions whose most probable candidate is the wanted one, or the same in another sense."""
    right = 0
    for prompt, candidates, answer in questions:
        head, tails = encode_candidates(model.base, prompt, candidates)
        width = max(map(len, tails))
        ids = torch.tensor([[tail + [PAD] * (width - len(tail)) for tail in tails]])
        with torch.no_grad():
            scores = score_candidates(model, torch.tensor([head]), ids, torch.ones(1, len(tails)), role=None)
        right += same(candidates[int(scores[0].argmax())], candidates[answer])
    return right / len(questions)


def _speak(model: AdaptedModel, views: Sequence[View]) -> float:
    texts = generate_messages(model, [message_prompt(describe_view(v)) for v in views], role=None)
    return float(np.mean([understand(t) == say(v) for t, v in zip(texts, views, strict=True)]))


def probe(name: str, questions: int = 300, seed: int = 1_000_003) -> dict[str, float]:
    """Accuracies of a base model on prompts that were in no corpus.

    Args:
        name: A base model's name or path.
        questions: Number of each kind.
        seed: Must differ from the corpus' seed.

    Returns:
        For the corpus' foods (`seen`) and for the games' foods (`held_out`): `follow` (a partner asks for one of
        several things on the shelf), `act` (the scripted cook's step), `say` (the scripted cook's message).
    """
    model = AdaptedModel(load_base_model(name))
    result = {}
    makers: dict[str, Callable[[np.random.Generator, tuple[str, ...]], Question]] = {
        "follow": follow_question,
        "act": act_question,
    }
    for group, foods in (("seen", FOODS), ("held_out", HELD_OUT_FOODS)):
        for kind, make in makers.items():
            rng = np.random.default_rng(seed)
            result[f"{kind}_{group}"] = round(ask(model, [make(rng, foods) for _ in range(questions)]), 3)
        rng = np.random.default_rng(seed)
        result[f"say_{group}"] = round(_speak(model, [random_view(rng, foods) for _ in range(questions)]), 3)
    return result


def run(
    asked: Callable[[str, int], dict[str, float]], description: str, arguments: Sequence[str] | None = None
) -> None:
    """The command of a probe: asks a base model and writes what it answered as JSON.

    Args:
        asked: The probe.
        description: Of the command.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default="embedded", help="base model's name, path or hub id")
    parser.add_argument("--questions", type=int, default=300)
    options_ = parser.parse_args()
    sys.stdout.write(json.dumps(asked(options_.model, options_.questions), indent=2) + "\n")


if __name__ == "__main__":
    run(probe, __doc__)
