"""The corpus of the embedded model that plans in onion-soup kitchens, and that model."""

from itertools import islice

import numpy as np
import pytest

from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES, get_layout
from rllib_llm_comm.language.base_model import EMBEDDED_SOUP, load_base_model
from rllib_llm_comm.sama.planner_seats import KitchenSeats
from tools.embedded_model.soup_corpus import documents, kind_of, moments, random_rows, saying


@pytest.fixture(scope="module")
def corpus():
    return list(documents(400, 0))


def test_made_up_kitchens_are_none_of_the_five_and_soup_is_served_in_them():
    rng = np.random.default_rng(0)
    known = {get_layout(name).rows for name in LAYOUT_NAMES}
    made = [random_rows(rng) for _ in range(20)]
    assert known.isdisjoint(get_layout(rows).rows for rows in made)
    assert len({tuple(rows) for rows in made}) == 20


def test_answers_are_among_what_is_allowed_and_nearly_all_kinds_occur(corpus):
    found = list(islice(moments(np.random.default_rng(0)), 200))
    assert all(moment.answer in moment.allowed and len(moment.allowed) > 1 for moment in found)
    assert all(moment.other.capitalize() in moment.text for moment in found)
    assert not any(f"{moment.other.capitalize()} holds" in moment.own for moment in found)
    assert len({kind_of(document.answer) for document in corpus if document.kind != "message"}) >= 8


def test_seats_say_what_their_own_cook_is_told(corpus):
    told = [moment for moment in islice(moments(np.random.default_rng(2)), 100) if moment.others_subgoal]
    assert told and all(saying(moment.others_subgoal).startswith("i ") for moment in told)
    heard = [d for d in corpus if d.kind == "talk" and " says: " in d.prompt]
    assert heard


def test_what_a_seat_reads_is_short_for_the_shipped_model():
    seats = KitchenSeats(game={"layout": "counter_circuit"})
    seen, _ = seats.reset(seed=0)
    base = load_base_model(EMBEDDED_SOUP)
    text = seen["alice"]["text"]
    assert len(base.encode(text)) < 2 * len(text.split())
    assert all(len(base.encode(one)) < 2 * len(one.split()) for one in seen["alice"]["candidates"])
