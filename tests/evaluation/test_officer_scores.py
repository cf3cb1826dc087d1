"""Games of officers in lockstep are those that are played one by one."""

from __future__ import annotations

import json

import pytest
import torch

from rllib_llm_comm.baselines.red.officer_cloning import write_officer
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork, OfficerSettings
from rllib_llm_comm.baselines.red.officer_policy import orders_together
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.minirts.commanders.command_level import make_commander
from rllib_llm_comm.evaluation import officers
from rllib_llm_comm.evaluation.officers import OfficerScoreSettings, play_side_by_side

SEEDS = range(5)


@pytest.fixture(scope="module")
def executors(tmp_path_factory):
    """Names of officers: two untrained networks that order most of the time."""
    folders = []
    for seed, width in enumerate((8, 16)):
        network = OfficerNetwork(OfficerSettings(filters=4, width=width, words=4, keys=4, init_seed=seed)).eval()
        with torch.no_grad():
            network.go_on[-1].bias.fill_(-3.0)
        folder = tmp_path_factory.mktemp("officers") / str(seed)
        folders.append(str(write_officer(folder, network, "BehaviorCloning", {}, {})))
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
    # probability. 10 games have a few thousand draws.
    settings = OfficerScoreSettings(executor=executors[kind], max_tick=1500, opponent="simple")
    asked = [(name, seed) for name in ("random", "oracle") for seed in SEEDS]
    envs, found = [settings.env() for _ in range(4)], {}
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


def test_a_game_draws_the_same_whoever_else_plays(executors):
    settings = OfficerScoreSettings(executor=executors["trained"])
    states = []
    for others in ((), (7, 8, 9)):
        envs = [settings.env() for _ in (4, *others)]
        for env, seed in zip(envs, (4, *others), strict=True):
            env.reset(seed=seed)
        for _ in range(3):
            orders_together([env.executor for env in envs])
        states.append(envs[0].executor.snapshot()[-1])
    assert torch.equal(*states)


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


def test_no_games_at_once_are_refused():
    with pytest.raises(UserError, match="`side_by_side` is 0"):
        OfficerScoreSettings(side_by_side=0)
