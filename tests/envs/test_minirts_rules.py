"""The strategy game: golden data, orders, exact snapshots, fog, caps and the scripted opponents."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.golden import GoldenReport, check_golden
from rllib_llm_comm.envs.minirts import golden as minirts
from rllib_llm_comm.envs.minirts.engine import opponents, rts_game, state
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, RTSSettings
from rllib_llm_comm.envs.minirts.engine.units import ARCHER, BARRACK, DRAGON, PEASANT, SPEARMAN, TOWN_HALL

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "minirts_golden.jsonl.gz"
# Whole games that differ if the samples of a straight line are one less, or if only finished producers count.
RARE = DATA / "minirts_golden_rare.jsonl.gz"


@pytest.mark.parametrize(("path", "episodes"), [(GOLDEN, 291), (RARE, 27)])
def test_equals_the_original(path, episodes):
    report = check_golden(path)
    assert (report.game, report.episodes) == ("minirts", episodes)
    assert report.ok, report.mismatches[:3]


@pytest.fixture(scope="module")
def recorded():
    """The first recorded episode of each kind, as text."""
    found = {}
    with gzip.open(GOLDEN, "rt") as lines:
        for line in lines:
            found.setdefault(re.search(r'"kind": ?"(\w+)"', line)[1], line)
    return found


@pytest.mark.parametrize(
    ("kind", "field", "change"),
    [
        ("map", "units", lambda e: e["units"][0].__setitem__(2, 1)),
        ("script", "units", lambda e: e["states"][1]["units"][0].__setitem__(5, 7)),
        ("script", "money", lambda e: e["states"][1].__setitem__("money", [1, 2])),
        ("duel", "end_tick", lambda e: e.__setitem__("end_tick", e["end_tick"] + 9)),
        ("move", "end", lambda e: e.__setitem__("end", [1, 2])),
        ("gather", "income", lambda e: e.__setitem__("income", 1)),
        ("build", "events", lambda e: e["events"].pop()),
        ("train", "events", lambda e: e["events"].pop()),
        ("game", "end_tick", lambda e: e.__setitem__("end_tick", e["end_tick"] + 1)),
        ("result", "winner", lambda e: e.__setitem__("winner", 1 - e["winner"])),
    ],
)
def test_each_difference_is_found(kind, field, change, recorded):
    episode = json.loads(recorded[kind])
    change(episode)
    report = GoldenReport()
    minirts.replay(episode, report)
    assert field in {mismatch.field for mismatch in report.mismatches}


def test_unknown_kinds_get_one_sentence(tmp_path):
    path = tmp_path / "golden.jsonl"
    path.write_text('{"id": "x-1", "kind": "siege"}\n')
    with pytest.raises(UserError, match="siege"):
        check_golden(path)


def test_a_snapshot_is_exact():
    game = RTSGame(3, RTSSettings(opponents=("medium", "strong")))
    game.run(2000)
    taken = game.snapshot()
    game.run(1500)
    once = game.record.copy()
    game.restore(taken)
    game.run(1500)
    assert game.record.tobytes() == once.tobytes()
    other = RTSGame(8, RTSSettings(opponents=("medium", "strong")))
    other.run(700)
    other.restore(taken)
    other.run(1500)
    assert other.record.tobytes() == once.tobytes()


def test_steps_do_not_matter_and_seeds_do():
    ends = []
    for seed, step in ((5, 1), (5, 700), (6, 700)):
        game = RTSGame(seed, RTSSettings(opponents=("simple", "medium")))
        for _ in range(2100 // step):
            game.run(step)
        ends.append(game.record.tobytes())
    assert ends[0] == ends[1] != ends[2]


def test_fog_hides_walkers_and_remembers_buildings():
    own = [(0, TOWN_HALL, 5, 5), (0, PEASANT, 10, 5)]
    units = [*own, (1, TOWN_HALL, 16, 5), (1, PEASANT, 15, 6), (1, PEASANT, 30, 30)]
    game = RTSGame.scenario(units, (500, 500))
    assert [unit.name for unit in game.seen_enemies(0)] == ["TOWN_HALL", "PEASANT"]
    game.step([rts_game.move(game.units(0)[1], 2, 5)], 150)
    assert [unit.name for unit in game.seen_enemies(0)] == ["TOWN_HALL"]
    assert game.explored(0)[5, 16] and not game.visible(0)[5, 16]


def test_orders_that_cannot_be_are_refused():
    game = RTSGame.scenario([(0, TOWN_HALL, 5, 5), (0, PEASANT, 10, 5), (1, PEASANT, 30, 30), (1, TOWN_HALL, 26, 26)])
    hall, peasant = game.units(0)
    for wrong in (
        rts_game.move(hall, 1, 1),
        rts_game.train(peasant, SPEARMAN),
        rts_game.build(peasant, SPEARMAN, 3, 3),
        rts_game.Order(0, game.units(1)[0].ref, 5, x=1, y=1),
    ):
        with pytest.raises(UserError, match="order"):
            game.step([wrong], 1)
    assert game.step([rts_game.attack(peasant, game.units(1)[0])], 1) == ["done"]


def test_the_cap_gives_the_money_back():
    units = [(0, TOWN_HALL, 5, 5), (0, PEASANT, 10, 5), (1, TOWN_HALL, 26, 26)]
    game = RTSGame.scenario(units, (100, 100), settings=RTSSettings(unit_cap=2, max_tick=0))
    game.step([rts_game.train(game.units(0)[0], PEASANT)], 10)
    assert game.money(0) == 50
    game.run(100)
    assert (game.money(0), len(game.units(0))) == (100, 2)


def test_a_cancelled_building_goes_and_is_refunded():
    game = RTSGame.scenario([(0, TOWN_HALL, 5, 5), (0, PEASANT, 10, 5), (1, TOWN_HALL, 26, 26)], (300, 300))
    game.step([rts_game.build(game.units(0)[1], BARRACK, 14, 5)], 60)
    assert (game.money(0), [unit.finished for unit in game.units(0)]) == (150, [True, True, False])
    game.step([rts_game.move(game.units(0)[1], 5, 10)], 1)
    assert (game.money(0), len(game.units(0))) == (300, 2)


def test_units_never_stand_in_each_other():
    game = RTSGame(11, RTSSettings(opponents=("medium", "medium_tower")))
    while not game.over and game.tick < 4000:
        game.run(97)
        places = np.array([(unit.x, unit.y) for unit in game.units()])
        gaps = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + 9 * np.eye(len(places))
        assert gaps.min() >= 0.7199


def test_the_cell_of_a_place_is_rounded_in_float64():
    below_half = float(np.nextafter(np.float32(0.5), np.float32(0)))
    game = RTSGame.scenario([(0, PEASANT, below_half, below_half)])
    assert game.units(0)[0].cell == (0, 0)
    assert game.visible(0).tolist() == RTSGame.scenario([(0, PEASANT, 0, 0)]).visible(0).tolist()


def test_the_step_of_a_bullet_is_divided_first():
    """A step is the way times (0.2 / length), each operation in float32; (way / length) times 0.2 often differs."""
    different = 0
    for x, y in np.random.default_rng(0).uniform(1.5, 3.5, (20, 2)).astype(np.float32):
        units = [(0, DRAGON, 0.3, 0.3), (0, TOWN_HALL, 20, 20), (1, TOWN_HALL, float(x), float(y))]
        game = RTSGame.scenario(units, (100, 100))
        game.record["last_attack"][0, 0] = -99
        game.step([rts_game.attack(game.units()[0], game.units(1)[0])], 1)
        start = game.record["b_x"][0, 0], game.record["b_y"][0, 0]
        game.run(1)
        dx, dy = x - start[0], y - start[1]
        length = np.sqrt(dx * dx + dy * dy)
        assert game.record["b_x"][0, 0] == start[0] + dx * (np.float32(0.2) / length)
        assert game.record["b_y"][0, 0] == start[1] + dy * (np.float32(0.2) / length)
        different += game.record["b_y"][0, 0] != start[1] + dy / length * np.float32(0.2)
    assert different > 0


@pytest.mark.parametrize("name", ["weak", "medium:KNIGHT", "strong:ARCHER", "simple:ARCHER+DRAGON"])
def test_unknown_opponents_get_one_sentence(name):
    with pytest.raises(UserError, match="`opponent"):
        RTSGame(0, RTSSettings(opponents=(None, name)))


def test_opponents_with_several_types_make_them():
    game = RTSGame(2, RTSSettings(opponents=("medium2:SPEARMAN+ARCHER", "medium3")))
    assert opponents.drawn(game.record, 0).types == (SPEARMAN, ARCHER)
    assert len(set(opponents.drawn(game.record, 1).types)) == 3
    made = set()
    while not game.over and game.tick < 6000:
        game.run(50)
        made |= {unit.type for unit in game.units(0)}
    assert {SPEARMAN, ARCHER} <= made


def test_changed_sources_are_compiled_anew(tmp_path, monkeypatch):
    folder = Path(state.__file__).parent
    for path in folder.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(state, "__file__", str(tmp_path / "state.py"))
    before = state.fingerprint()
    assert state.fingerprint() == before
    for name in ("movement.py", "units.py"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n# Changed.\n")
        assert state.fingerprint() != before
        before = state.fingerprint()
