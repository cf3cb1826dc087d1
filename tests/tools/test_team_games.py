"""Small games of teams: their rules, and what value decomposition makes of them."""

import json
import sys

import pytest
import torch

from tools.team_games.__main__ import hunt, main, posts_team
from tools.team_games.corridor import CELLS, Corridor
from tools.team_games.posts import Posts
from tools.team_games.predator_prey import CATCH, HUNTERS, PAID, STAY, PredatorPrey
from tools.team_games.training import earned


def hunt_at(hunters, prey):
    """A game in which everybody stands where it is told."""
    game = PredatorPrey()
    game.begin(1)
    game._places = torch.tensor([[*hunters, *prey]])
    return game


def test_posts_pay_where_all_stand_apart():
    game = Posts()
    game.begin(2)
    paid, over = game.step(torch.tensor([[0, 1, 2, 3], [0, 1, 2, 2]]))
    assert paid.tolist() == [1.0, 0.0] and not over.any()
    seen, state, _ = game.see()
    assert seen[1, 3].tolist() == [0, 0, 1, 0, 0.25, 0.25, 0.5, 0] and state.shape == (2, game.state_size)


def test_the_corridor_pays_once_both_are_at_its_end():
    game = Corridor()
    game.begin(1)
    for step in range(1, CELLS + 1):
        paid, over = game.step(torch.tensor([[1, 1 if step > 1 else 2]]))
        assert bool(over) == bool(paid) == (step == CELLS)


def test_one_hunter_catches_nothing_and_two_are_paid_and_gone():
    corners = [[0, 0], [0, 2], [4, 0], [4, 4]]
    game = hunt_at(corners, [[0, 1], [2, 2]])
    _, _, mask = game.see()
    assert mask[0, :, CATCH].tolist() == [1, 1, 0, 0]
    stay = [STAY] * 2
    paid, over = game.step(torch.tensor([[CATCH, STAY, *stay]]))
    assert paid.item() == 0 and not over
    game = hunt_at(corners, [[0, 1], [2, 2]])
    paid, over = game.step(torch.tensor([[CATCH, CATCH, *stay]]))
    assert paid.item() == PAID and not over
    seen, state, mask = game.see()
    assert mask[0, 0].tolist() == [0, 0, 0, 0, 1, 0] and not seen[0, 0].any() and seen[0, 2].any()
    assert state[0, :25].sum() == 2 and state[0, 25:].sum() == 1


def test_nobody_walks_into_another_one_or_off_the_board():
    torch.manual_seed(0)
    game = PredatorPrey()
    game.begin(64)
    for _ in range(30):
        _, _, mask = game.see()
        game.step(torch.multinomial(mask.flatten(0, 1), 1).reshape(64, HUNTERS))
        for places, here in zip(game._places, game._here, strict=True):
            cells = [tuple(place) for place, there in zip(places.tolist(), here, strict=True) if there]
            assert len(set(cells)) == len(cells) and all(0 <= x < 5 for cell in cells for x in cell)


def test_without_ids_a_team_that_takes_its_best_never_parts():
    assert earned(Posts(), posts_team("LDSA", ids=False, rounds=5)) == 0.0


def test_the_command_keeps_what_other_games_have_told(tmp_path, monkeypatch):
    target = tmp_path / "told.json"
    target.write_text(json.dumps({"posts": [1]}))
    command = ["--game", "corridor", "--seeds", "1", "--rounds", "2", "--json", str(target)]
    monkeypatch.setattr(sys, "argv", ["team_games", *command])
    main()
    told = json.loads(target.read_text())
    systems = ["QMIX", "MASER", "MASER as released"]
    assert told["posts"] == [1] and [row["system"] for row in told["corridor"]] == systems
    assert all(row["episodes_to_ten"] is None for row in told["corridor"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VDN", "QMIX", "LDSA", "ROMA", "MASER"])
def test_with_ids_all_learn_to_part(name):
    reached = earned(Posts(), posts_team(name, ids=True)) / Posts.steps
    assert reached >= 0.95, f"{name} earns {reached:.3f} per step"


@pytest.mark.slow
def test_without_ids_drawn_roles_part_agents():
    earned_by = {name: earned(Posts(), posts_team(name, ids=False)) / Posts.steps for name in ("ROMA", "QMIX")}
    assert earned_by["ROMA"] > 0.2 and earned_by["QMIX"] == 0.0, earned_by


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VDN", "QMIX"])
def test_hunters_learn_to_hunt_together(name):
    reached = hunt(name)
    assert reached >= 0.95, f"{name} earns {reached:.3f} of the most"
