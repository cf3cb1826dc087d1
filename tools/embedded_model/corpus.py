"""The embedded model's corpus: what it reads before it meets any game.

Six kinds of documents, each a prompt and an answer:

* *next step*: a made-up kitchen (`kitchens.py`), what the others said, and what a sensible cook does next (all
  kinds of steps about as often); one answer in eight is random, so that the prior stays soft;
* *request*: a made-up kitchen whose cook has free hands and is asked for one of the things on the shelf;
* *message*: a made-up kitchen and what its cook says;
* *recipes*: short sentences on foods, among them the foods of the games;
* *questions*: what lies or is held where, answered from a sentence or two, again with the foods of the games;
* *dialogues*: a request and the answer to it, without a kitchen around.

The foods of the games (tomato, lettuce, onion) occur in the last three kinds only (the *held* variant): what to do with
them in a kitchen has to be carried over from other foods or learnt by reinforcement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rllib_llm_comm.envs.overcooked_text.cooks import Saying, choose, say, word
from rllib_llm_comm.envs.overcooked_text.observation_text import (
    BOWL,
    LEFT,
    SHELF,
    Option,
    View,
    describe_view,
    dish_name,
    phrase,
)
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from tools.embedded_model.kitchens import COOKS, FOODS, HELD_OUT_FOODS, options, random_view

NOISE = 0.125
REQUEST_NOISE = 0.05
STEP_KINDS = ("get", "get", "fill", "add", "place", "counter", "walk", "chop", "serve", "wait")
_TRIES = 60
_KINDS = ("next step", "request", "message", "recipe", "question", "dialogue")
_SHARES = (0.4, 0.2, 0.16, 0.05, 0.1, 0.09)


@dataclass(frozen=True)
class Document:
    """A prompt and its answer; training weighs the answer's tokens more.

    Attributes:
        kind: One of the four kinds.
        prompt: The beginning.
        answer: The text that follows after one blank.
    """

    kind: str
    prompt: str
    answer: str


def documents(count: int, seed: int) -> Iterator[Document]:
    """Random documents.

    Args:
        count: Number.
        seed: The same seed gives the same documents.
    """
    rng = np.random.default_rng(seed)
    makers = {
        "next step": next_step,
        "request": request,
        "message": message,
        "recipe": recipe,
        "question": question,
        "dialogue": dialogue,
    }
    for _ in range(count):
        kind = str(rng.choice(_KINDS, p=_SHARES))
        yield makers[kind](rng)


def heard_words(rng: np.random.Generator, view: View, foods: tuple[str, ...] = FOODS) -> dict[str, Saying]:
    """Messages of the other cooks: often none, else a request or a word on their own work."""
    others = [name for name in COOKS if name != view.name]
    speakers = others[: int(rng.choice([0, 1, 2], p=[0.35, 0.55, 0.1]))]
    shelf = [i.name for i in view.shelf]
    things = 3 * shelf + [i.name for i in view.counter or ()] + [*view.dish, BOWL]
    heard = {}
    for speaker in speakers:
        thing = str(rng.choice(things)) if rng.random() < 0.9 else str(rng.choice(foods))
        kind = str(
            rng.choice(["bring", "carry", "chop", "fill", "serve", "wait"], p=[0.6, 0.2, 0.08, 0.04, 0.03, 0.05])
        )
        heard[speaker] = Saying(kind, thing if kind in ("bring", "carry", "chop") else "")
    return heard


def _kitchen_for(rng: np.random.Generator, kind: str) -> tuple[View, list[Option], dict[str, Saying], int]:
    """A made-up kitchen in which the cook's choice is of this kind, or any kitchen if none turns up soon."""
    for _ in range(_TRIES):
        view = random_view(rng)
        possible = options(view)
        if not any(option.kind == kind for option in possible):
            continue
        heard = heard_words(rng, view)
        best = choose(view, possible, list(heard.values()))
        if possible[best].kind == kind:
            break
    else:
        view = random_view(rng)
        possible, heard = options(view), heard_words(rng, view)
        best = choose(view, possible, list(heard.values()))
    return view, possible, heard, best


def next_step(rng: np.random.Generator) -> Document:
    """A made-up kitchen and what its cook does next; all kinds of steps are about as frequent."""
    view, possible, heard, best = _kitchen_for(rng, str(rng.choice(STEP_KINDS)))
    taken = int(rng.integers(len(possible))) if rng.random() < NOISE else best
    said = {speaker: word(saying, rng) for speaker, saying in heard.items()}
    return Document("next step", action_prompt(describe_view(view), said), phrase(possible[taken]))


def request(rng: np.random.Generator) -> Document:
    """A made-up kitchen whose cook is asked for something on the shelf, and gets it."""
    while True:
        view = replace(random_view(rng), holding=None)
        possible = options(view)
        wanted = [i for i, o in enumerate(possible) if o.kind == "get" and o.place == SHELF]
        if view.room != LEFT and wanted:
            break
    answer = int(rng.choice(wanted))
    thing = possible[answer].item
    assert thing is not None
    taken = int(rng.integers(len(possible))) if rng.random() < REQUEST_NOISE else answer
    speaker = str(rng.choice([name for name in COOKS if name != view.name]))
    said = {speaker: word(Saying("bring", thing.name), rng)}
    return Document("request", action_prompt(describe_view(view), said), phrase(possible[taken]))


def message(rng: np.random.Generator) -> Document:
    """A made-up kitchen and what its cook says."""
    view = random_view(rng)
    return Document("message", message_prompt(describe_view(view)), word(say(view), rng))


def _any_food(rng: np.random.Generator) -> str:
    pool = HELD_OUT_FOODS if rng.random() < 0.4 else FOODS
    return str(rng.choice(pool))


def recipe(rng: np.random.Generator) -> Document:
    """A recipe or a short question on a food."""
    food = _any_food(rng)
    dish = sorted({food, *(_any_food(rng) for _ in range(int(rng.integers(0, 3))))})
    name = dish_name(dish)
    pairs = [
        (f"a {name} needs", f"{', '.join(f'chopped {f}' for f in dish)} and a bowl"),
        (f"to make a {name}", f"chop the {food}"),
        (f"what is in a bowl of {' and '.join(dish)}?", f"chopped {food}"),
        (f"what can i do with a raw {food}?", f"chop the {food}"),
        (
            f"where does the raw {food} go?",
            f"put the raw {food} on the {rng.choice(['first', 'second'])} board",
        ),
        (f"where does the chopped {food} go?", f"put my chopped {food} into the bowl"),
        (f"where is the raw {food}?", f"get the raw {food} from the {rng.choice(['shelf', 'counter'])}"),
        (f"is the {food} a food?", "yes"),
    ]
    return Document("recipe", *pairs[int(rng.integers(len(pairs)))])


def question(rng: np.random.Generator) -> Document:
    """One or two facts on foods and a question to which one of them is the answer."""
    facts: dict[str, str] = {}
    for subject in rng.permutation(["counter", "shelf", "first board", "second board", *COOKS])[:2]:
        item = f"{rng.choice(['raw', 'chopped'])} {_any_food(rng)}"
        facts[str(subject)] = item
    subject = str(rng.choice(list(facts)))
    told = [f"{s} holds {item}" if s in COOKS else f"{s}: {item}" for s, item in facts.items()]
    asked = f"what does {subject} hold?" if subject in COOKS else f"what is on the {subject}?"
    return Document("question", f"{'. '.join(told)}. {asked}", facts[subject])


def dialogue(rng: np.random.Generator) -> Document:
    """A request and the answer to it."""
    speaker, listener = (str(name) for name in rng.permutation(COOKS)[:2])
    thing = _any_food(rng) if rng.random() < 0.85 else BOWL
    asked = word(Saying("bring", thing), rng)
    answer = f"i bring the {thing}" if rng.random() < 0.5 else f"{speaker} asks for the {thing}"
    return Document("dialogue", f"{speaker} says: {asked}. {listener} says:", answer)
