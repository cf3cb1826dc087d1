"""Games of officers in lockstep are those that are played one by one; one unit on command; their files."""

from __future__ import annotations

import json

import pytest
import torch

from rllib_llm_comm.baselines.red.officer_cloning import write_officer
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork, OfficerSettings
from rllib_llm_comm.baselines.red.officer_policy import orders_together
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.commanders import make_commander
from rllib_llm_comm.evaluation import officers
from rllib_llm_comm.evaluation.columns import from_columns, to_columns
from rllib_llm_comm.evaluation.officers import (
    OfficerScoreSettings,
    OfficerTaskSettings,
    games_as_columns,
    games_by_seed,
    officer_tasks,
    play_side_by_side,
)

SEEDS = range(3)


def write_untrained(folder, go_on, width=8, seed=0):
    """Writes an untrained officer; the higher `go_on`, the more rarely it orders something new."""
    network = OfficerNetwork(OfficerSettings(filters=4, width=width, words=4, keys=4, init_seed=seed)).eval()
    with torch.no_grad():
        network.go_on[-1].bias.fill_(go_on)
    return str(write_officer(folder, network, "BehaviorCloning", {}, {}))


@pytest.fixture(scope="module")
def executors(tmp_path_factory):
    """Names of officers: two untrained networks that order most of the time."""
    place = tmp_path_factory.mktemp("officers")
    folders = [write_untrained(place / str(seed), -3.0, width, seed) for seed, width in enumerate((8, 16))]
    return {"scripted": "scripted", "trained": f"trained:{folders[0]}", "switch": "switch:" + ":".join(folders)}


def alone(env, name, seed):
    """The game by the environment's own steps."""
    env.reset(seed=seed)
    commander = make_commander(name, env.executor, env.commands, seed)
    while env.agents:
        env.step({agent: env.commands.index(commander(number)) for number, agent in enumerate(env.agents)})
    result = (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player)
    return {"result": result, "ticks": env.game.tick}


@pytest.mark.parametrize("kind", ["scripted", "trained", "switch"])
def test_games_in_lockstep_end_as_each_does_alone(executors, kind):
    # Rounding may differ by the size of the batch: a game would differ if a drawn number lay within some 1e-7 of a
    # probability. 6 games have a few thousand draws.
    settings = OfficerScoreSettings(executor=executors[kind], max_tick=1500, opponent="simple")
    asked = [(name, seed) for name in ("random", "oracle") for seed in SEEDS]
    envs, found = [settings.env() for _ in range(2 * len(SEEDS) - 2)], {}  # two games have to wait
    for name, seed, figures in play_side_by_side(envs, asked):
        found[name, seed] = figures
    env = settings.env()
    assert set(found) == set(asked)
    assert {game: alone(env, *game) for game in asked} == found


def positions(env):
    return env.game.tick, [(unit.ref, unit.cell, unit.order, unit.hp) for unit in env.team.own], env.whole()


@pytest.mark.parametrize("kind", ["trained", "switch"])
def test_orders_of_games_that_are_asked_together_are_those_of_each_alone(executors, kind):
    settings, decisions, given = OfficerScoreSettings(executor=executors[kind]), 12, 0
    together, apart = ([settings.env() for _ in SEEDS] for _ in range(2))
    for seed, (one, other) in enumerate(zip(together, apart, strict=True)):
        one.reset(seed=seed)
        other.reset(seed=seed)
    for _ in range(decisions):
        for number, env in enumerate([*together, *apart]):
            # In every second game alice's peasants mine, so that a switch asks both of its officers.
            env.executor.command(0, env.commands[number % len(SEEDS) % 2])
        orders = orders_together([env.executor for env in together])
        assert orders == [env.executor.give_orders() for env in apart]
        given += sum(map(len, orders))
        for env, of_game in zip([*together, *apart], [*orders, *orders], strict=True):
            env.advance(of_game)
    assert given > decisions
    assert [positions(env) for env in together] == [positions(env) for env in apart]


class KilledError(Exception):
    """What ends a call in the middle."""


def test_a_call_that_is_cut_off_goes_on_and_keeps_what_was_played(executors, tmp_path, monkeypatch):
    settings = OfficerScoreSettings(
        executor=executors["trained"], commanders=("none", "random:0.5"), games=4, max_tick=300, side_by_side=3
    )
    whole = officers.officer_scores(settings)
    path = tmp_path / "kept.json"
    monkeypatch.setattr(officers, "_SAVE_AFTER", -1.0)  # each game is written at once

    def killed(done, total):
        if done == 4:
            raise KilledError

    with pytest.raises(KilledError):
        officers.officer_scores(settings, path, killed)
    kept = json.loads(path.read_text())
    assert kept["played"]["none"]["seeds"] == [[0, 3]] and kept["played"]["random:0.5"] == {"seeds": []}
    assert set(kept["summary"]) == {"none"}
    kept["played"]["none"]["ticks"][0] = 123  # to tell it from one that is played anew
    path.write_text(json.dumps(kept))
    counted: list[int] = []
    went_on = officers.officer_scores(settings, path, lambda done, total: counted.append(done))
    assert counted == [4, 5, 6, 7, 8]
    assert went_on["played"]["none"].pop("0")["ticks"] == 123
    assert json.loads(path.read_text())["summary"].keys() == whole["summary"].keys()
    del whole["played"]["none"]["0"]
    assert went_on["played"] == whole["played"] and list(went_on["played"]["none"]) == ["1", "2", "3"]
    more = settings.replace(games=5, side_by_side=1)
    assert officers.officer_scores(more, path)["summary"]["random:0.5"]["games"] == 5
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]


MADE = {"games": 3, "side_by_side": 4}


def test_scripted_officers_make_what_they_are_told_and_nothing_else():
    found = officer_tasks(OfficerTaskSettings(**MADE))["units"]
    assert list(found) == ["spearman", "swordman", "cavalry", "dragon", "archer", "catapult"]
    for one in found.values():
        assert one["building"] == one["told"] == 1.0 and one["not_told"] == 0.0
        assert one["games"] == 6 and one["told_games"] == one["not_told_games"] == 3


def test_too_few_decisions_are_too_few():
    # A building takes 5 decisions behind the way to it, a spearman 4.
    few = officer_tasks(OfficerTaskSettings(units=["spearman"], decisions=3, **MADE))["units"]["spearman"]
    assert few["building"] == 0.0 and "told" not in few
    enough = officer_tasks(OfficerTaskSettings(units=["spearman"], decisions=12, **MADE))["units"]["spearman"]
    assert enough["building"] == enough["told"] == 1.0


def test_an_untrained_officer_makes_nothing_and_is_the_same_alone_and_beside_others(tmp_path):
    folder = write_untrained(tmp_path / "officer", go_on=6.0)  # it lets everything go on
    settings = {"executor": f"trained:{folder}", "units": ["archer"], "games": 2, "decisions": 8}
    one, other = (officer_tasks(OfficerTaskSettings(side_by_side=n, **settings))["units"] for n in (1, 4))
    assert one == other and one["archer"]["building"] == 0.0


@pytest.mark.parametrize("units", [["elephant"], ["archer", "archer"]])
def test_settings_that_cannot_be_are_refused(units):
    with pytest.raises(UserError, match=f"`units` .*{units[0]}"):
        OfficerTaskSettings(units=units)


ROWS = [
    {"seed": 3, "return": 1.0, "metrics": {"won": 1.0, "share": 0.25}},
    {"seed": 5, "return": -0.5, "metrics": {"won": 0.0}, "seconds": 2.5},
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], [], [{"seed": 1, "metrics": {}}, {"seed": 2, "metrics": {"a": "b"}}]])
def test_rows_come_back_from_a_file(rows):
    assert from_columns(json.loads(json.dumps(to_columns(rows))), len(rows)) == rows


def test_whole_numbers_are_short_a_name_is_said_once_and_a_column_of_another_length_is_refused():
    assert json.dumps(to_columns(ROWS)["metrics"]) == '{"won": [1, 0], "share": [0.25, null]}'
    with pytest.raises(ValueError, match="zip"):
        from_columns({"seed": [1, 2], "return": [0.5]}, 2)


@pytest.mark.parametrize("seeds", [[], [0], [7, 8, 9], [1, 3, 4, 100]])
def test_games_by_seed_come_back(seeds):
    games = {str(seed): {"result": seed % 3 - 1, "ticks": seed} for seed in seeds}
    assert games_by_seed(json.loads(json.dumps(games_as_columns(games)))) == games
