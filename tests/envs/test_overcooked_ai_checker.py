"""The checker of sentences about the onion soup game, against the state and on free wording."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_kitchens import EVERY_GAME, faced, random_kitchen

from rllib_llm_comm.envs.overcooked_ai import text
from rllib_llm_comm.envs.overcooked_ai.checker import LONGEST, check_sentence
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, POT
from rllib_llm_comm.envs.overcooked_ai.places import STEPS, places_of
from rllib_llm_comm.envs.overcooked_ai.rules import Item, SoupKitchen

Fact = Callable[[SoupKitchen, int], bool]


def facts(kitchen: SoupKitchen, soups: int) -> list[tuple[str, Fact]]:
    """The third-person sentences of a state, each with the fact that it tells, taken from the state, not from text."""
    places = places_of(kitchen.layout)
    told: list[Fact] = []
    for cell in places.fixtures[POT]:
        told.append(lambda k, _, cell=cell: same_pot(kitchen.item(cell), k.item(cell)))
    for cell in places.fixtures[COUNTER]:
        if (was := kitchen.item(cell)) is not None:
            told.append(lambda k, _, cell=cell, was=was: same_item(was, k.item(cell)))
    told.append(lambda k, _, left=kitchen.horizon - kitchen.time: k.horizon - k.time == left)
    told.append(lambda _, n: n == soups)
    sentences = text.state_sentences(kitchen, soups)
    for i in range(2):
        cook, other = kitchen.cook(i), kitchen.cook(1 - i)
        if places.room_names:
            told.append(lambda k, _: True)  # no cook can leave its room
        sees = faced(kitchen, i) == other.cell
        told.append(lambda k, _, i=i, cook=cook, sees=sees: same_pose(k, i, cook, sees))
        told.append(lambda k, _, i=i, held=cook.held: same_item(held, k.cook(i).held))
        sentences += text.cook_sentences(kitchen, i)
    return list(zip(sentences, told, strict=True))


def same_pose(kitchen: SoupKitchen, i: int, cook, sees: bool) -> bool:
    now = kitchen.cook(i)
    cell = (cook.cell[0] + STEPS[cook.facing][0], cook.cell[1] + STEPS[cook.facing][1])
    if now.cell != cook.cell:
        return False
    return faced(kitchen, i) == (kitchen.cook(1 - i).cell if sees else cell)


def same_item(was: Item | None, now: Item | None) -> bool:
    if was is None or now is None:
        return was is now
    # A soup of three onions is called "a soup", which all soups are.
    return was.kind == now.kind and (was.kind != "soup" or was.onions in (3, now.onions))


def same_pot(was: Item | None, now: Item | None) -> bool:
    if was is None or now is None:
        return was is now
    return was.tick == now.tick and (was.onions == now.onions or (was.onions == 3 and was.tick >= 0))


seeds = st.integers(0, 10**6)


@given(st.sampled_from(EVERY_GAME), seeds, seeds, st.integers(0, 3), st.integers(0, 3))
def test_a_sentence_is_true_exactly_where_its_fact_holds(game, seed, other_seed, soups, other_soups):
    kitchen, other = random_kitchen(*game, seed), random_kitchen(*game, other_seed)
    for sentence, fact in facts(kitchen, soups):
        assert fact(kitchen, soups) and check_sentence(kitchen, sentence, soups) is True
        verdict = check_sentence(other, sentence, other_soups)
        assert (verdict is True) == fact(other, other_soups), sentence
        if verdict is None:  # a soup is on a dish, so "a dish" is neither right nor wrong
            assert "dish" in sentence


@given(st.sampled_from(EVERY_GAME), seeds)
def test_what_is_denied_is_false(game, seed):
    kitchen = random_kitchen(*game, seed)
    denied = {" is ": " is not ", " holds ": " does not hold ", " lies ": " is not lying ", " cooks": " does not cook"}
    for sentence, _ in facts(kitchen, 1):
        for word, negated in denied.items():
            if word in sentence and " and " not in sentence and "delivered" not in sentence:
                wrong = sentence.replace(word, negated)
                assert check_sentence(kitchen, wrong, 1) in (False, None), wrong
                if "more step" not in sentence and "a soup" not in sentence:
                    assert check_sentence(kitchen, wrong, 1) is False, wrong


VOCABULARY = "the a no both one other two 3 not is are has holds on in of and , . with pot pots onion onions dish soup \
alice bob cook cooks shared counter counters 1 2 upper right crate stack serving ready empty cooking steps left faces \
can reach you floor 2,3 north room needs more nothing there delivered each neither"


salads = st.lists(st.sampled_from(VOCABULARY.split()), max_size=60).map(" ".join)


@settings(max_examples=25)
@given(st.one_of(salads, st.text(max_size=LONGEST)), seeds)
def test_any_text_is_survived(written, seed):
    kitchen = random_kitchen("forced_coordination", "new", seed)
    assert check_sentence(kitchen, written, 1, speaker=seed % 2) in (True, False, None)


@pytest.mark.parametrize("part", ["the ", "a pot ", "counters 1, ", "is cooking, ", "'", "pot and ", "1,"])
def test_long_texts_take_no_long_time(part):
    kitchen = SoupKitchen()
    start = time.perf_counter()
    check_sentence(kitchen, (part * LONGEST)[:LONGEST])
    assert time.perf_counter() - start < 0.5
    assert check_sentence(kitchen, "The pot is empty." + " " * LONGEST) is None


# Free wording about one scene: alice with a dish faces the upper pot, whose soup is ready; bob with an onion faces the
# lower crate; two onions in the right pot; an onion on shared counter 1, a dish on 3; 280 steps left, 2 soups served.
TRUE = """
Alice is carrying a plate. | ALICE HAS A DISH | Alice isn't empty handed | Chef 1 holds an onion
player 0 is holding a clean plate | One chef is holding an onion, and the other chef is holding a plate.
Alice holds a dish and the other cook holds an onion | No chef is holding a soup
Neither Alice nor Bob is carrying a soup | Nobody has a soup | a chef holds an onion | one cook is carrying a dish
bob does not hold a plate | Bob's hands are not empty | Alice and Bob are holding something
there are two onions in the right pot | The right stove holds 2 onions | The right pot contains two out of three onions
the right pot needs one more onion | The right pot is not full | the left cauldron is ready
The soup in the upper pot is ready | a pot is ready | one of the pots is ready | No pot is cooking
The upper crafting table has a finished onion soup | Upper pot is ready, right pot has two onions
one pot is ready and the other pot has two onions | One onion is on the shared bar
There is one onion on the shared bar, and one plate is on the shared bar | There is no soup on the bar
There isn't an onion on shared counter 2 | There's a plate on a counter | On shared counter 3 there is a plate
The bar has an onion | shared counter 2 is empty | nothing is on shared counter 2 | There are 280 time steps remaining
120 game steps have passed so far. | It is time step 120 | The time is 120 | two soups have been delivered
The team has served 2 onion soups | alice is in the right room | Alice is facing the upper pot | Alice faces a pot
Alice faces north | Bob faces an onion dispenser | Alice can reach both pots | Alice cannot reach any onion crate
Both chefs can reach the shared bar | Alice stands on tile (3,1) | Alice holds a dish and faces the upper pot
The right pot is not ready and bob has an onion
"""
FALSE = """
alice has an onion | Alice is holding nothing | Alice has nothing in her hands | Bob is not carrying anything
Bob has two onions | Alice holds a plated soup | both chefs are holding a plate | Both chefs are empty-handed
neither cook holds an onion | One chef is holding an onion, and the other chef is holding a soup.
Alice and Bob hold onions | Alice's hands are empty | There are three onions in the right pot
the right pot has one onion | there are two onions in the left pot | right pot needs 2 more onions
The soup in the right pot is ready. | The upper pot is cooking | the upper pot will be ready in 5 steps
both pots are ready | all crafting tables are full | The pots are empty
Both crafting tables are making onion soups, and there is one plate on the shared bar.
The upper pot is ready while the other pot is empty | Two completed onion soups are on one crafting table
A crafted onion soup is on a plate on one crafting table | a completed onion soup is on a plate on the serving counter
two onions are on the shared counter | There are no onions on the shared bar | a soup lies on the shared table
shared counter 1 is empty | onions are on shared counters 1 and 2 | there is nothing on shared counter 3
100 steps are left | No game steps have passed so far | It is step 280 | No soups were delivered
bob is in the right room | alice looks at the right pot | Alice is facing Bob | Bob can reach the serving counter
Alice is on floor 1,1 | Alice holds a dish and faces the right pot
"""
UNKNOWN = """
Player 2 holds an onion | the chef holds an onion | the other cook holds an onion | You hold an onion
the pot is ready | The middle pot is empty | Pot 1 is ready | The soup in the right pot isn't ready.
the shared bar is empty | an onion is on counter 1 | one plate is on the sideboard | The pots hold two onions
Bob looks at the onion storage room | Bob is in the kitchen | All pots are not ready | Not all pots are ready
Only one pot is ready | At least one pot is ready | If the right pot is empty, bob holds an onion
Is the right pot empty? | maybe bob holds an onion | Bob thinks alice holds a dish | Alice had a plate
Alice will hold a dish | Alice only holds a dish | Alice holds nothing or a dish | alice has both an onion and a dish
Alice holds a sandwich | Alice holds a dish. It is nice. | soup | bob
"""


@pytest.fixture(scope="module")
def scene():
    kitchen, players = SoupKitchen("forced_coordination"), [[3, 1, 0, ["dish"]], [1, 2, 3, ["onion"]]]
    objects = [[3, 0, "soup", 3, 0, 20], [4, 1, "soup", 2, 0, -1], [2, 1, "onion"], [2, 3, "dish"]]
    kitchen.restore({"t": 120, "players": players, "objects": objects})
    return kitchen


@pytest.mark.parametrize(
    ("sentence", "verdict"),
    [
        (s, v)
        for block, v in ((TRUE, True), (FALSE, False), (UNKNOWN, None))
        for s in re.split(r" \| |\n", block.strip())
    ],
)
def test_free_wording(scene, sentence, verdict):
    assert check_sentence(scene, sentence, 2) is verdict


def test_what_is_not_given_is_unknown(scene):
    assert check_sentence(scene, "two soups have been delivered") is None
    assert check_sentence(scene, "the other cook holds an onion", speaker=0) is True
    assert check_sentence(scene, "your partner holds an onion", speaker=1) is False
    assert check_sentence(scene, "") is check_sentence(scene, " . ") is None


@pytest.mark.parametrize(
    ("onions", "tick", "sentence", "verdict"),
    [
        (2, -1, "The pot holds 2 of 3 onions.", True),
        (2, 5, "The pot holds 2 of 3 onions.", False),
        (2, 5, "There are two onions in the pot.", True),
        (2, 20, "There are two onions in the pot.", None),
        (2, 20, "There is one onion in the pot.", False),
        (2, 20, "The pot is full.", None),
        (3, -1, "The pot is full and does not cook.", True),
        (3, 5, "The pot has a soup.", None),
        (3, 5, "The pot is cooking, with 15 steps left.", True),
    ],
)
def test_onions_of_a_started_soup(onions, tick, sentence, verdict):
    kitchen, players = SoupKitchen("cramped_room", "new"), [[1, 1, 0, None], [2, 1, 0, None]]
    kitchen.restore({"t": 0, "players": players, "objects": [[2, 0, "soup", onions, 0, tick]]})
    assert check_sentence(kitchen, sentence) is verdict
