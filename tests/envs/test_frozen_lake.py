"""The frozen lake: its rules, and the PettingZoo environment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_play import play
from test_every_game import VARIANTS

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.frozen_lake import parallel_env
from rllib_llm_comm.envs.frozen_lake.rules import (
    ACTION_NAMES,
    ARRIVED,
    FELL,
    STEPS,
    WALKS,
    Lake,
    get_layout,
    random_layout,
)
from rllib_llm_comm.envs.interface import solved
from tests.refusal import refused

STAY, LEFT, DOWN, RIGHT, UP = range(5)
WIDE = ["1..2", "....", "b..a"]


def lake(rows=None, **settings) -> Lake:
    made = Lake(get_layout(rows or WIDE), **settings)
    made.reset(np.random.default_rng(0))
    return made


def walk(game: Lake, *actions: tuple[int, int]) -> list[tuple[int, int]]:
    return [game.step(pair).rewards for pair in actions]


# ---- rules -------------------------------------------------------------------------------------------------


def test_actions_go_where_their_names_say():
    for action, name in enumerate(ACTION_NAMES):
        game = lake(["...", ".1.", "2ab"])
        game.step([action, STAY])
        dx, dy = {"stay": (0, 0), "left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[name]
        assert game.cells[0] == (1 + dx, 1 + dy)


def test_the_edge_holds_and_the_reward_comes_once():
    game = lake()
    assert walk(game, (UP, RIGHT), (DOWN, DOWN), (DOWN, DOWN)) == [(0, 0)] * 3
    assert game.cells == [(0, 2), (3, 2)] and game.fates == [WALKS, WALKS]  # each on the other's target
    assert walk(game, (UP, UP), (RIGHT, STAY), (RIGHT, UP), (RIGHT, STAY), (DOWN, LEFT)) == [(0, 0)] * 4 + [(1, 0)]
    assert walk(game, (UP, STAY)) == [(0, 0)] and game.cells[0] == (3, 2) and game.fates[0] == ARRIVED


def test_walkers_neither_meet_nor_change_places_but_follow():
    game = lake(["12.", "...", "b.a"])
    assert game.step([RIGHT, LEFT]).events == (("blocked",), ("blocked",))
    assert game.step([RIGHT, STAY]).events == (("blocked",), ())
    assert game.cells == [(0, 0), (1, 0)]
    assert game.step([RIGHT, RIGHT]).events == ((), ())
    assert game.cells == [(1, 0), (2, 0)]
    game = lake(["1.2", "...", "b.a"])
    assert game.step([RIGHT, LEFT]).events == (("blocked",), ("blocked",)) and game.cells == [(0, 0), (2, 0)]


def test_who_is_out_stays_and_is_in_nobodys_way():
    game = lake(["1H2", "...", "b.a"])
    assert game.step([RIGHT, STAY]).events == (("fell",), ()) and game.fates == [FELL, WALKS]
    assert game.step([LEFT, LEFT]).events == ((), ("fell",)) and game.cells == [(1, 0), (1, 0)]
    assert game.over and game.out and not game.solved
    game = lake(["1.2", "...", "b.a"], assignment="either")
    walk(game, (STAY, DOWN), (STAY, DOWN))
    assert game.fates == [WALKS, ARRIVED] and game.own == [(1,), (0,)]
    assert walk(game, (DOWN, UP), (DOWN, UP)) == [(0, 0), (1, 0)] and game.solved


def test_a_taken_target_is_no_target():
    game = lake(["1.2", "...", "b.a"], assignment="either")
    walk(game, (STAY, DOWN), (STAY, DOWN), (RIGHT, STAY), (DOWN, STAY), (RIGHT, STAY))
    assert walk(game, (DOWN, STAY)) == [(0, 0)] and game.fates[0] == WALKS and game.cells[0] == game.cells[1]


@pytest.mark.parametrize("slip", [0.4, 1.0])
@pytest.mark.parametrize("action", [LEFT, DOWN, RIGHT, UP])
def test_slips_go_to_both_sides_as_often_as_told(slip, action):
    game = lake(["2....", ".....", "..1..", ".....", "b...a"], slip=slip)
    rng, steps = np.random.default_rng(1), 2000
    seen = dict.fromkeys(STEPS, 0)
    for _ in range(steps):
        game.reset(rng)
        result = game.step([action, STAY])
        dx, dy = game.cells[0][0] - 2, game.cells[0][1] - 2
        seen[dx, dy] += 1
        assert ("slipped" in result.events[0]) == ((dx, dy) != STEPS[action])
    dx, dy = STEPS[action]
    assert seen[dx, dy] / steps == pytest.approx(1 - slip, abs=0.04)
    assert seen[dy, dx] / steps == pytest.approx(slip / 2, abs=0.04)
    assert seen[-dy, -dx] / steps == pytest.approx(slip / 2, abs=0.04)


def test_who_stays_does_not_slip():
    game = lake(slip=1.0)
    for _ in range(20):
        assert game.step([STAY, STAY]).events == ((), ()) and game.cells == [(0, 0), (3, 0)]


@given(st.integers(0, 10_000), st.floats(0, 1), st.sampled_from(["fixed", "either", "drawn"]))
def test_invariants_of_random_games(seed, slip, assignment):
    rng = np.random.default_rng(seed)
    game = Lake(random_layout(5, 0.25, rng), slip, assignment, horizon=40)
    game.reset(rng)
    total = 0
    while not game.over:
        before, fates = list(game.cells), list(game.fates)
        result = game.step(rng.integers(5, size=2))
        total += sum(result.rewards)
        for i in range(2):
            moved = abs(game.cells[i][0] - before[i][0]) + abs(game.cells[i][1] - before[i][1])
            assert moved <= (fates[i] == WALKS) and game.layout.inside(game.cells[i])
            assert (game.fates[i] == FELL) == (game.cells[i] in game.layout.holes)
        if fates == [WALKS, WALKS]:
            assert game.cells[0] != game.cells[1] and game.cells != before[::-1]
    assert total == game.fates.count(ARRIVED)
    twin = Lake(game.layout, slip, assignment, horizon=40)
    twin.restore(game.snapshot())
    assert twin.snapshot() == game.snapshot() and twin.over


@given(st.integers(0, 1000), st.integers(3, 12), st.floats(0, 0.3))
def test_random_lakes_have_their_holes_and_ways(seed, size, holes):
    drawn = random_layout(size, holes, np.random.default_rng(seed))
    assert len(drawn.holes) == round(holes * size * size) and drawn.solvable()
    assert len({*drawn.starts, *drawn.targets, *drawn.holes}) == 4 + len(drawn.holes)


@pytest.mark.parametrize("name", ["4x4", "8x8"])
def test_named_lakes_are_solved_by_shortest_ways(name):
    """One after the other, so that nobody is in the way; the distances tell how long it takes."""
    game = Lake(get_layout(name))
    for i in range(2):
        way = game.layout.distances(game.layout.targets[i])
        needed = way[game.layout.starts[i]]
        for _ in range(needed):
            x, y = game.cells[i]
            action = next(a for a, (dx, dy) in enumerate(STEPS) if way.get((x + dx, y + dy), 99) == way[x, y] - 1)
            game.step([action, STAY] if i == 0 else [STAY, action])
        assert game.fates[i] == ARRIVED
    assert game.solved


def test_bad_rows_and_bad_snapshots_get_one_sentence():
    for rows in ([], ["1.2", "ba"], ["1.2", "b.b"], ["1x2", "b.a"], ["1H2", "HH.", "b.a"], ["1.2b" + "." * 40 + "a"]):
        with refused("layout"):
            get_layout(rows)
    game = lake()
    for broken in ({"t": -1}, {"cells": [[9, 9], [0, 0]]}, {"fates": ["flies", "walks"]}, {"own": [[2], [0]]}):
        with pytest.raises(UserError, match="no state of the lake"):
            game.restore({**game.snapshot(), **broken})
    with pytest.raises(UserError, match="no state of the lake"):
        game.restore({})


# ---- environment -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", VARIANTS["frozen_lake"])
def test_observations_tell_both_places_and_no_more(settings):
    env = parallel_env(**settings)
    for observations, rewards, *_ in play(env, np.random.default_rng(0)):
        for i, agent in enumerate(("alice", "bob")):
            seen = observations[agent]
            assert env.observation_space(agent).contains(seen) and rewards[agent] in (0.0, 1.0)
            numbers = [*env.lake.cells[i], *env.lake.cells[1 - i]]
            if "vector" in seen:
                assert seen["vector"].tolist() == numbers
            if "text" in seen:
                words = seen["text"].replace(",", "").replace(".", "").split()
                assert [int(word) for word in words if word.isdigit()] == numbers
                assert len(set(seen["candidates"])) == 5
            assert seen["action_mask"].tolist() == [1] + [int(env.lake.fates[i] == WALKS)] * 4


def test_nothing_tells_where_holes_and_targets_are():
    """All lakes of one size and one start look alike."""
    one = parallel_env(layout=["1.2", "H..", "b.a"])
    two = parallel_env(layout=["1.2", "..a", "bH."])
    assert (one.task, one.brief) == (two.task, two.brief)
    first, second = (env.reset(seed=0)[0]["alice"] for env in (one, two))
    assert first["text"] == second["text"] and first["vector"].tolist() == second["vector"].tolist()


def test_ends_are_told_apart():
    env = parallel_env(layout=WIDE, horizon=4)
    env.reset(seed=0)
    for _ in range(4):
        result = env.step({"alice": STAY, "bob": STAY})
    assert all(result[3].values()) and not any(result[2].values()) and env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})
    env = parallel_env(layout=["1.2", "...", "a.b"], horizon=2)
    env.reset(seed=0)
    env.step({"alice": DOWN, "bob": DOWN})
    _, rewards, terminated, truncated, infos = env.step({"alice": DOWN, "bob": DOWN})
    assert all(terminated.values()) and not any(truncated.values()) and rewards == {"alice": 1.0, "bob": 1.0}
    assert infos["bob"]["task_success"] and infos["bob"]["episode_metrics"]["score"] == 2.0
    env = parallel_env(layout=["1.2", "H.H", "b.a"])
    env.reset(seed=0)
    _, _, terminated, _, infos = env.step({"alice": DOWN, "bob": DOWN})
    assert all(terminated.values()) and not solved(True, infos)  # both fall


def test_random_lakes_change_unless_fixed():
    env, fixed = parallel_env(layout="random"), parallel_env(layout="random", layout_seed=4)
    lakes = [(env.reset(seed=seed), env.lake.layout)[1] for seed in (0, 1, 0)]
    assert lakes[0] == lakes[2] != lakes[1]
    assert len({(fixed.reset(seed=seed), fixed.lake.layout)[1] for seed in range(3)}) == 1
    assert env.reset() and env.lake.layout != lakes[2]


def test_what_differs_looks_different():
    pictures = []
    for own, fates, cells in [
        ([(0,), (1,)], [WALKS, WALKS], [(0, 0), (1, 0)]),
        ([(1,), (0,)], [WALKS, WALKS], [(0, 0), (1, 0)]),
        ([(0, 1), (0, 1)], [WALKS, WALKS], [(0, 0), (1, 0)]),
        ([(0,), (1,)], [FELL, WALKS], [(1, 1), (1, 0)]),
        ([(0,), (1,)], [FELL, FELL], [(1, 1), (1, 1)]),
        ([(0,), (1,)], [ARRIVED, WALKS], [(3, 3), (1, 0)]),
        ([(0,), (1,)], [WALKS, WALKS], [(3, 3), (1, 0)]),
    ]:
        env = parallel_env()
        env.reset(seed=0)
        env.lake.restore({"t": 3, "cells": cells, "fates": fates, "own": own})
        rgb = env.render("rgb_array")
        assert rgb.shape == (4 * 64 + 32, 4 * 64, 3) and rgb.dtype == np.uint8
        pictures.append((rgb.tobytes(), env.render("ansi")))
    assert all(len(set(kind)) == len(pictures) for kind in zip(*pictures, strict=True))
