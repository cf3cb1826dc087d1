"""Software that nobody here wrote plays every game, or fails by the limit of its own that the docs tell."""

from __future__ import annotations

import json

import pytest

from tools.client_runs import CLIENTS, GAMES, Client, Game
from tools.foreign_clients import BEGIN, FAILS, JSON, LIMITED, PAGE, WORKS, outcome, with_tables

AGAIN = "run `python -m tools.foreign_clients`, which writes docs/guides/elsewhere.md and its figures anew"


def pairs() -> list:
    return [
        pytest.param(client, game, marks=[pytest.mark.clients] if client.heavy else [], id=f"{client.name}-{game.name}")
        for client in CLIENTS
        for game in GAMES
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("client", "game"), pairs())
def test_a_client_plays_a_game_or_shows_its_limit(client, game):
    if client.missing:
        pytest.skip(f"{client.name} is not installed; `pip install -e '.[clients,heavy]'` brings it")
    found = outcome(client, game)
    assert found["status"] == (LIMITED if game.name in client.limits else WORKS), found["told"]


def test_the_docs_show_results_of_all_clients_on_all_games():
    found, page = json.loads(JSON.read_text()), PAGE.read_text()
    assert BEGIN in page
    played = [(one["client"], one["game"]) for one in found["results"]]
    assert played == [(c.name, g.name) for c in CLIENTS for g in GAMES], AGAIN
    assert with_tables(page, found) == page, AGAIN
    for client, game in ((client, game) for client in CLIENTS for game in GAMES):
        status = next(o["status"] for o in found["results"] if (o["client"], o["game"]) == (client.name, game.name))
        assert status == (LIMITED if game.name in client.limits else WORKS), AGAIN


def test_a_client_that_breaks_is_told_and_not_taken_for_its_limit():
    def broken(game: Game) -> str:
        raise ValueError("no such game")

    limits = dict(next(client for client in CLIENTS if client.limits).limits)
    client = Client("broken", "pettingzoo", "MIT", "`env`", broken, limits=limits)
    door = next(game for game in GAMES if game.name in limits)
    assert outcome(client, door) | {"seconds": 0} == {
        "client": "broken", "game": door.name, "status": FAILS, "told": "ValueError: no such game", "seconds": 0,
    }  # fmt: skip
