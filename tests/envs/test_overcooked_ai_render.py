"""Pictures of the onion-soup kitchens."""

import numpy as np
import pytest
from random_kitchens import EVERY_GAME

from rllib_llm_comm.envs.overcooked_ai.render import ansi, rgb_array
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen

POT, COUNTER = (2, 0), (0, 0)
READY = ["soup", 3, 0, 20]


def scene(facing=0, held=None, objects=(), time=5, dynamics="old"):
    """The cramped room; alice, at (1, 2), faces and holds what is asked for, bob stands at (3, 1)."""
    kitchen = SoupKitchen("cramped_room", dynamics)
    players = [[1, 2, facing, held], [3, 1, 0, None]]
    kitchen.restore({"t": time, "players": players, "objects": [[*cell, *item] for cell, item in objects]})
    return kitchen


def pot(onions, tick=-1):
    return scene(objects=[(POT, ["soup", onions, 0, tick])])


FAMILIES = {
    "facing": [scene(facing=way) for way in range(4)],
    "facing with something in hand": [scene(facing=way, held=["dish"]) for way in range(4)],
    "held": [scene(held=held) for held in (None, ["onion"], ["dish"], READY, ["soup", 1, 0, 20], ["soup", 2, 0, 20])],
    "onions in the pot": [scene(), *(pot(onions) for onions in (1, 2, 3))],
    "cooking": [pot(3), *(pot(3, tick) for tick in range(1, 21))],
    "onions of a soup that cooks": [pot(onions, 7) for onions in (1, 2, 3)],
    "onions of a soup that is ready": [pot(onions, 20) for onions in (1, 2, 3)],
    "on a counter": [scene(), *(scene(objects=[(COUNTER, item)]) for item in (["onion"], ["dish"], READY))],
    "which counter": [scene(objects=[(cell, ["onion"])]) for cell in (COUNTER, (1, 0), (4, 2))],
    "held or on a counter": [scene(held=["onion"]), scene(objects=[(COUNTER, ["onion"])])],
}


def play(kitchen, steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        kitchen.step(rng.integers(6, size=2))
        yield kitchen


@pytest.mark.parametrize("draw", [lambda k: rgb_array(k).tobytes(), ansi], ids=["rgb_array", "ansi"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_differs_looks_different(draw, family):
    pictures = [draw(kitchen) for kitchen in FAMILIES[family]]
    assert len(set(pictures)) == len(pictures)


@pytest.mark.parametrize(("layout", "dynamics"), [*EVERY_GAME, (["XOX", "P1D", "X2X", "XSX"], "old")], ids=str)
def test_drawings_keep_their_size_change_nothing_and_are_the_same_again(layout, dynamics):
    kitchen, twin = SoupKitchen(layout, dynamics, horizon=150), SoupKitchen(layout, dynamics, horizon=150)
    height, width = kitchen.layout.height, kitchen.layout.width
    for score, now in enumerate(play(kitchen, 150)):
        if score % 10 < 9:
            continue
        before, picture, drawing = now.state.copy(), rgb_array(now, score), ansi(now, score)
        assert picture.shape == (64 * height + 32, 64 * width, 3) and picture.dtype == np.uint8
        assert {len(row) for row in drawing.splitlines()[1 : 1 + height]} == {7 * width}
        np.testing.assert_array_equal(now.state, before)
        twin.restore(now.snapshot())
        np.testing.assert_array_equal(rgb_array(twin, score), picture)
        assert ansi(twin, score) == drawing
    assert kitchen.over


def test_the_longest_pot_fits_its_cell():
    assert "Pooo:19" in ansi(pot(3, 1)).splitlines()[1]


def test_ansi_names_step_score_and_what_cooks_hold():
    drawing = ansi(scene(facing=2, held=["soup", 1, 0, 20], time=37), 40)
    for line in (
        "cramped_room, step 37 of 400, score 40",
        "alice faces east and holds a soup of 1 onion",
        "bob faces north and holds nothing",
    ):
        assert line in drawing.splitlines()
    assert "bob faces east and holds an onion" in ansi(scene(2, ["onion"]), names=("bob", "alice"))


def test_step_score_and_names_change_the_strip_below():
    kitchen = scene(held=["onion"])
    first = rgb_array(kitchen, 20)
    pictures = [rgb_array(kitchen, 40), rgb_array(scene(held=["onion"], time=38), 20)]
    for picture in pictures:
        np.testing.assert_array_equal(picture[:-32], first[:-32])
    pictures += [first, rgb_array(kitchen, 20, names=("bob", "alice"))]
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)


@pytest.mark.parametrize("horizon", [1, 400, 10**9])
def test_the_status_line_keeps_a_margin(horizon):
    kitchen = SoupKitchen("cramped_room", horizon=horizon)
    strip = rgb_array(kitchen, 10**6)[-32:]
    paper = strip[0, 0]
    assert (strip[:, :8] == paper).all() and (strip[:, -8:] == paper).all()
    columns = (strip != paper).any((0, 2))
    inked = np.flatnonzero(columns)
    assert np.diff(inked).max() >= 8  # a gap between step and score


def test_a_picture_can_be_changed_without_harm():
    kitchen = scene()
    picture = rgb_array(kitchen)
    expected = picture.copy()
    picture[:] = 0
    np.testing.assert_array_equal(rgb_array(kitchen), expected)
