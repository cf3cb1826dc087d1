"""Pictures of the strategy game: fog, both sides, replay pages."""

from __future__ import annotations

import numpy as np
from minirts_play import moments, played

from rllib_llm_comm.envs.drawing import COOK_COLOURS
from rllib_llm_comm.envs.minirts import render
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame, attack
from rllib_llm_comm.envs.minirts.engine.units import (
    ARCHER,
    CATAPULT,
    CAVALRY,
    DRAGON,
    HP,
    IS_ARMY,
    IS_MOBILE,
    PEASANT,
    SPEARMAN,
    STABLE,
    SWORDMAN,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.render import sprite
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.words import KINDS


def map_lines(drawing: str) -> list[str]:
    return drawing.splitlines()[1:33]


def test_characters_show_what_the_side_knows_and_no_more():
    env, *snapshots = moments()
    known = 0
    for snapshot in snapshots:
        env.restore(snapshot)
        rows = map_lines(env.draw_ansi())
        assert [len(row) for row in rows] == [64] * 32
        small = {(x, y) for y, row in enumerate(rows) for x in range(32) if row[2 * x].islower()}
        hidden = {u.cell for u in env.game.units(1)} - {u.cell for u in env.team.enemies}
        assert small <= {u.cell for u in env.team.enemies} and not small & hidden
        known += len(small)
        dark = {(x, y) for y, row in enumerate(rows) for x in range(32) if row[2 * x] == " "}
        assert all(not env.game.explored(0)[y, x] for x, y in dark)
    assert known > 5


def test_pixels_have_one_size_show_the_fog_and_what_each_side_knows():
    env, first, *_ = moments()
    env.restore(first)
    picture = env.draw_rgb()
    assert picture.shape == (876, 1152, 3) and picture.dtype == np.uint8
    light = render.rgb_array(env.game)
    seen = np.kron(env.game.visible(0), np.ones((24, 24), bool))
    brightness = picture[:768, :768].astype(int).sum(axis=2) - light[:768, :768].astype(int).sum(axis=2)
    assert brightness[~seen].mean() < -60
    assert abs(brightness[seen].mean()) < 5
    ours, theirs = picture[:384, 768:], picture[384:768, 768:]  # the maps that both sides know
    assert (ours != theirs).any()
    for player, known in ((0, ours), (1, theirs)):
        never = np.kron(~env.game.explored(player), np.ones((12, 12), bool))[12:-12, 12:-12]
        assert known[12:-12, 12:-12][never].mean() < 45


def crowd() -> tuple[RTSGame, Side]:
    """A fight of 50 units, beside peasants and buildings of both sides."""
    kinds = (SPEARMAN, SWORDMAN, CAVALRY, ARCHER, DRAGON, CATAPULT)
    units = [(p, kinds[i % 6], 11 + 5 * p + i % 5 * 0.9, 10 + i // 5 * 0.9) for p in range(2) for i in range(25)]
    units += [(p, kind, 3 + 24 * p, 5 + 4 * i) for p in range(2) for i, kind in enumerate((TOWN_HALL, STABLE))]
    units += [(p, PEASANT, 7 + 20 * p, 4 + 2 * i) for p in range(2) for i in range(4)]
    game = RTSGame.scenario(units, (0, 0))
    foes = {player: [unit for unit in game.units(player) if IS_ARMY[unit.type]] for player in range(2)}
    orders = [attack(unit, foes[1 - player][i]) for player in range(2) for i, unit in enumerate(foes[player])]
    game.step(orders, 90)
    return game, Side(game, 0, 2)


def test_a_crowd_can_be_read():
    game, side = crowd()
    picture, units = render.rgb_array(game, side), game.units()
    assert len(units) >= 60
    hurt = [unit for unit in units if unit.hp < HP[unit.type]]
    bars = 0
    for unit in hurt:
        x, y = (round((place + 0.5) * 24) for place in (unit.x, unit.y))
        here = picture[y - 16 : y - 10, max(0, x - 9) : x + 9].astype(int).reshape(-1, 3)
        bars += any((abs(here - colour).sum(1) == 0).sum() > 3 for colour in ((110, 230, 90), (150, 30, 30)))
    assert len(hurt) > 20 and bars == len(hurt)
    owners = 0
    for unit in units:
        if IS_MOBILE[unit.type]:
            x, y = (round((place + 0.5) * 24) for place in (unit.x, unit.y))
            colour = (196, 52, 52) if unit.player else COOK_COLOURS[side.owner(unit)]
            owners += bool((abs(picture[y - 14 : y + 14, x - 14 : x + 14].astype(int) - colour[:3]).sum(2) == 0).any())
    assert owners >= 0.95 * sum(bool(IS_MOBILE[unit.type]) for unit in units)
    paper = picture[-8:, -8:].reshape(-1, 3)
    assert (picture[768:, -8:] == paper[0]).all() and (picture[768:822, 8:1000] != paper[0]).any()


def test_every_type_has_its_own_drawing_for_each_commander():
    drawings = [np.array(sprite(kind, colour, 24)) for kind in KINDS for colour in COOK_COLOURS[:2]]
    assert all(drawing[..., 3].max() == 255 for drawing in drawings)
    assert len({drawing.tobytes() for drawing in drawings}) == len(drawings)


def test_jobs_and_colours_are_shown():
    env, _ = list(played("oracle", seed=0, decisions=30))[-1]
    assert "alice has" in env.draw_ansi() and "mine" in env.draw_ansi()
