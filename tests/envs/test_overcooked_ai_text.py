"""Text of the onion soup kitchens: names, manual, what cooks read, and phrases for actions."""

from __future__ import annotations

import re
import string
import timeit

import pytest
from random_kitchens import EVERY_GAME, copied, faced, random_kitchen

from rllib_llm_comm.envs.overcooked_ai import text
from rllib_llm_comm.envs.overcooked_ai.checker import check_sentence
from rllib_llm_comm.envs.overcooked_ai.kernel import CELLS, INTERACT, STAY
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, FLOOR, LAYOUT_NAMES, POT, Cell, Layout, get_layout
from rllib_llm_comm.envs.overcooked_ai.places import COOKS, STEPS, find_place, places_of, routes_of
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen

every_game = pytest.mark.parametrize(("name", "dynamics"), EVERY_GAME)
DIVIDED = ["XXXXX", "X1X2X", "P X O", "XDSXX"]
NESTED = ["XXXXXXX", "X     X", "X XOX S", "P1X2X D", "X XPX X", "X     X", "XXXXXXX"]
CROWD = ["PPPPPP", "P12  P", "O    D", "XXXXSX"]


def cells(layout: Layout) -> list[Cell]:
    return [(x, y) for y in range(layout.height) for x in range(layout.width)]


@pytest.mark.parametrize("layout", [*LAYOUT_NAMES, DIVIDED, NESTED, CROWD], ids=str)
def test_every_cell_has_one_name_and_is_found_by_it(layout):
    kitchen = get_layout(layout)
    names = [places_of(kitchen).names[cell] for cell in cells(kitchen)]
    assert len(set(names)) == len(names)
    for cell, name in zip(cells(kitchen), names, strict=True):
        assert find_place(kitchen, name) == find_place(kitchen, f"  The {name.upper()}") == cell
        assert name == name.lower() and len(name.split()) <= 3
        usable = any(cell in places_of(kitchen).reachable(start) for start in kitchen.starts)
        assert name.startswith("wall") == (kitchen.kind(cell) != FLOOR and not usable)
    assert find_place(kitchen, "the moon") is None


def test_names_tell_places_apart():
    layouts = ("forced_coordination", "coordination_ring", CROWD, "cramped_room")
    forced, ring, crowd, cramped = (places_of(get_layout(layout)).names for layout in layouts)
    assert (forced[3, 0], forced[4, 1], cramped[2, 0], crowd[1, 0]) == ("upper pot", "right pot", "pot", "pot 1")
    assert (forced[2, 1], forced[2, 3], forced[1, 0]) == ("shared counter 1", "shared counter 3", "side counter 1")
    assert (ring[0, 3], ring[2, 2], crowd[2, 2]) == ("left onion crate", "counter 4", "floor 2,2")


def test_rooms_have_names():
    asymmetric, nested = (places_of(get_layout(name)) for name in ("asymmetric_advantages", NESTED))
    assert asymmetric.room_names[asymmetric.room_of[6, 2]] == "right room"
    assert not places_of(get_layout("counter_circuit")).room_names
    assert nested.room_names[nested.room_of[3, 3]] == "bob's room"


# The manual


@every_game
def test_the_manual_says_who_can_reach_what(name, dynamics):
    layout = get_layout(name)
    sentences = text.manual(layout, dynamics)
    assert all(line.endswith(".") and line.isascii() and len(line) < 150 for line in sentences)
    for i, start in enumerate(layout.starts):
        mask = routes_of(layout).reachable(start)
        said = " ".join(s for s in sentences if s.startswith(f"{COOKS[i].capitalize()} can") or "Both" in s)
        said = re.sub("can reach no [a-z ]+", "", said)
        for cell in cells(layout):
            if layout.kind(cell) not in (FLOOR, COUNTER):
                assert (places_of(layout).names[cell] in said) == bool(mask[cell[1] * layout.width + cell[0]])


def test_the_manual_tells_maps_and_dynamics_apart():
    forced = text.manual(get_layout("forced_coordination"))
    assert "Shared counters 1 to 3 can be reached from both rooms, so things can pass across." in forced
    assert "Only bob can reach side counters 1 and 4." in forced
    assert "No counter can be reached from both rooms." in text.manual(get_layout("asymmetric_advantages"))
    circuit = text.manual(get_layout("counter_circuit"), "new")
    assert "Counters 7 to 10 have floor on opposite sides, so things can pass across." in circuit
    assert any("by itself" in line for line in forced) and not any("by itself" in line for line in circuit)
    old, new = (text.brief(get_layout(NESTED), dynamics) for dynamics in ("old", "new"))
    assert "starts by itself" in old and "empty hands" in new


# What cooks read


def assert_readable(kitchen: SoupKitchen, soups: int) -> None:
    for i in range(2):
        written = text.observation_text(kitchen, i, soups)
        assert len(written) < text.LIMIT and set(written) <= set(string.printable[:95])
        assert written.startswith(f"You are {COOKS[i]}. You ")


def assert_proved(kitchen: SoupKitchen, soups: int) -> None:
    for i in range(2):
        for sentence in [*text.state_sentences(kitchen, soups), *text.cook_sentences(kitchen, i)]:
            assert check_sentence(kitchen, sentence, soups) is True, sentence
        written = text.observation_text(kitchen, i, soups)
        for sentence in written[:-1].split(". "):
            assert check_sentence(kitchen, sentence, soups, speaker=i) is True, sentence


@every_game
def test_text_of_any_state_is_short_and_proved(name, dynamics):
    for seed in range(20):
        kitchen = random_kitchen(name, dynamics, seed)
        assert_readable(kitchen, seed)
        assert_proved(kitchen, seed)


def test_a_huge_kitchen_has_no_longer_text():
    upper = ["X" + "P" * 30 + "X", "XO12" + " " * 27 + "X", "P" * 32]
    kitchen = SoupKitchen([*upper, "S" + " X" * 15 + "X", "D" + "X " * 15 + "X", "X" * 32])
    for pot in places_of(kitchen.layout).fixtures[POT]:
        kitchen.state[CELLS + 3 * (pot[1] * 32 + pot[0]) :][:3] = 3, 2, -1
    assert_readable(kitchen, 3)
    written = text.observation_text(kitchen, 0, 3)
    assert written.endswith("There is more. 400 steps are left. 3 soups are delivered.") and len(written) > 900


def test_an_observation_in_words():
    kitchen = SoupKitchen("forced_coordination")
    objects = [[3, 0, "soup", 3, 0, 8], [2, 1, "onion"], [2, 3, "onion"], [1, 0, "dish"]]
    kitchen.restore({"t": 20, "players": [[3, 1, 0, None], [1, 2, 3, ["onion"]]], "objects": objects})
    assert text.observation_text(kitchen, 1) == (
        "You are bob. You are in the left room. You stand on floor 1,2 and face the lower onion crate. You hold an "
        "onion. Alice is in the right room. Alice stands on floor 3,1 and faces the upper pot. Alice holds nothing. "
        "The upper pot cooks for 12 more steps. The right pot is empty. A dish lies on side counter 1. Onions lie on "
        "shared counters 1 and 3. 380 steps are left. No soup is delivered yet."
    )


def test_an_observation_is_made_fast():
    kitchen = random_kitchen("counter_circuit", "new", 0)
    rounds = timeit.repeat(lambda: text.observation_text(kitchen, 0), number=50, repeat=20)
    assert min(rounds) / 50 < 150e-6  # measured: 25e-6 on a free core


# What actions do


def assert_use_is_told(kitchen: SoupKitchen, i: int, phrase: str) -> None:
    """An interact does what a phrase says to hands, pots and counters; the other cook stays."""
    before, after = copied(kitchen), copied(kitchen)
    result = after.step([INTERACT, STAY] if i == 0 else [STAY, INTERACT])
    cell, held, now = faced(kitchen, i), kitchen.cook(i).held, after.cook(i).held
    place = places_of(kitchen.layout).phrases[cell]
    there, left = before.item(cell), after.item(cell)
    verb = phrase.split()[0]
    if verb in ("take", "fetch"):
        assert held is None and now is not None and left is None
        size = f" of {now.onions} onion{'s' * (now.onions > 1)}" if now.onions in (1, 2) else ""
        article = "an" if now.kind == "onion" else "a"
        assert phrase == f"{verb} {article} {now.kind}{size} from {place}"
    elif verb == "put":
        assert held is not None and now is None
        into_pot = kitchen.layout.kind(cell) == POT
        assert phrase == f"put the {held.kind} {'into' if into_pot else 'on'} {place}"
        assert left.onions == (there.onions if there else 0) + 1 if into_pot else left == held
    elif verb == "fill":
        assert held.kind == "dish" and now == there and there.ready and left is None
        assert phrase == f"fill the dish with the soup from {place}"
    elif verb == "deliver":
        assert now is None and result.events[i] == ("soup_delivery",) and phrase == f"deliver the soup at {place}"
    elif verb == "start":
        assert there.tick < 0 and left.tick == 1 and phrase == f"start cooking in {place}"
    else:
        assert phrase in ("do nothing with your hands", f"wait by {place}")
        waited = copied(kitchen)
        waited.step([STAY, STAY])
        assert after.snapshot() == waited.snapshot()


@every_game
def test_primitive_phrases_tell_what_happens(name, dynamics):
    for seed in range(25):
        kitchen = random_kitchen(name, dynamics, seed)
        for i in range(2):
            phrases = text.primitive_phrases(kitchen, i)
            assert len(set(phrases)) == len(phrases) == 6
            for way, phrase in enumerate(phrases[:4]):
                after = copied(kitchen)
                after.step([way, STAY] if i == 0 else [STAY, way])
                before, now = kitchen.cook(i), after.cook(i)
                verb = "go" if now.cell != before.cell else "turn" if now.facing != before.facing else "keep facing"
                assert phrase == f"{verb} {('north', 'south', 'east', 'west')[way]}"
            assert phrases[4] == "stay"
            assert_use_is_told(kitchen, i, phrases[5])


def brought(kitchen: SoupKitchen, i: int, cell: Cell) -> SoupKitchen | None:
    """The state in which a cook has gone to a cell that it can use, if the other cook is not in the way."""
    there = copied(kitchen)
    for facing, (dx, dy) in enumerate(STEPS):
        beside = (cell[0] - dx, cell[1] - dy)
        places = places_of(kitchen.layout)
        same_room = places.room_of.get(beside) == places.room_of[kitchen.cook(i).cell]
        if same_room and beside != kitchen.cook(1 - i).cell:
            snapshot = there.snapshot()
            snapshot["players"][i][:3] = *beside, facing
            there.restore(snapshot)
            return there
    return None


@every_game
def test_target_phrases_tell_what_happens(name, dynamics):
    layout = get_layout(name)
    for seed in range(4):
        kitchen = random_kitchen(name, dynamics, seed)
        for i in range(2):
            cook, reachable = kitchen.cook(i), routes_of(layout).reachable(kitchen.cook(i).cell)
            phrases = text.target_phrases(kitchen, i, cells(layout))
            assert len(set(phrases)) == len(phrases) and "wait" not in phrases
            for cell, phrase in zip(cells(layout), phrases, strict=True):
                place = places_of(layout).phrases[cell]
                if not reachable[cell[1] * layout.width + cell[0]]:
                    assert phrase == f"stay because {place} is out of reach"
                elif layout.kind(cell) == FLOOR:
                    assert phrase == (f"stay on {place}" if cell == cook.cell else f"go to {place}")
                elif (there := brought(kitchen, i, cell)) is not None:
                    assert_use_is_told(there, i, phrase)
