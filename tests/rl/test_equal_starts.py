"""Games side by side that begin alike in groups, under RLlib's own EnvRunner."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pettingzoo.env_registry import registration

import rllib_llm_comm.envs  # noqa: F401  (registers our games)
from rllib_llm_comm.envs.interface import DURATION
from rllib_llm_comm.rl.rllib_adapter import START, EqualStarts, ParallelEnvAdapter

ORDERS = {"recipe": ["tomato salad", "lettuce salad", "onion salad"], "told_to": ["alice"]}
KITCHEN = {**ORDERS, "map_name": "B", "start": "random", "max_game_steps": 6}
GAMES = [
    ("rllib_llm_comm/overcooked_text-v0", KITCHEN),
    ("rllib_llm_comm/door-v0", {}),
    ("rllib_llm_comm/referential-v0", {}),
]


def games(env_id, settings, count=4, size=2, seed=0, runner=0):
    starts = EqualStarts(count, size, seed, runner)
    adapters = [ParallelEnvAdapter(registration.spec("parallel", env_id).make(**settings)) for _ in range(count)]
    for number, adapter in enumerate(adapters):
        adapter.start_with(starts, number)
    return adapters


def told(observations):
    return {agent: str(seen["text"]) for agent, seen in observations.items()}


def finish(adapter):
    for _ in range(100):
        actions = {agent: int(np.flatnonzero(seen["action_mask"])[0]) for agent, seen in adapter.shown.items()}
        adapter.shown, _, terminateds, truncateds, _ = adapter.step(actions)
        if terminateds["__all__"] or truncateds["__all__"]:
            return
    raise AssertionError("no end")


@pytest.mark.parametrize(("env_id", "settings"), GAMES, ids=[env_id for env_id, _ in GAMES])
def test_neighbours_begin_alike_and_groups_and_rounds_differ(env_id, settings):
    adapters = games(env_id, settings)
    seen, names = [], []
    for _ in range(4):
        shown = []
        for adapter in adapters:
            adapter.shown, infos = adapter.reset()
            shown.append(told(adapter.shown))
            names.append({info[START] for info in infos.values()})
        assert shown[0] == shown[1] and shown[2] == shown[3]
        seen += [shown[0], shown[2]]
        for adapter in adapters:
            finish(adapter)
    assert all(len(own) == 1 for own in names)
    flat = [next(iter(own)) for own in names]
    assert flat[0::2] == flat[1::2] and len(set(flat)) == 8  # four rounds of two groups
    assert any(one != other for one, other in zip(seen[0::2], seen[1::2], strict=True))
    assert any(one != other for one, other in itertools.pairwise(seen[0::2]))


def test_a_game_that_is_done_waits_and_the_round_ends_with_the_last():
    adapters = games(*GAMES[1])
    for adapter in adapters:
        adapter.shown, infos = adapter.reset()
        assert all(info[DURATION] == 0 for info in infos.values())
    first = infos["alice"][START]
    for adapter in adapters[:3]:
        finish(adapter)
        assert adapter.reset() == ({}, {})  # as RLlib resets a game that is over
        assert adapter.step({}) == ({}, {}, {"__all__": False}, {"__all__": False}, {})
    finish(adapters[3])
    assert all(adapter.reset(seed=5)[0] for adapter in adapters)
    names = {adapter._start.name for adapter in adapters}
    assert names == {"0/2/0", "0/2/1"} and first == "0/1/1"


def seeds(rounds_played=3, **settings):
    starts, found = EqualStarts(4, 2, **settings), []
    for _ in range(rounds_played):
        found += [starts.begin(game).seed for game in range(4)]
        for game in range(4):
            starts.end(game)
    return found


def test_starts_are_told_by_seed_runner_group_and_round():
    assert seeds(seed=1) == seeds(seed=1)
    every = [set(seeds(seed=1)), set(seeds(seed=2)), set(seeds(seed=1, runner=1)), set(seeds(seed=1, rounds=3))]
    assert all(len(own) == 6 for own in every)
    assert len(set.union(*every)) == 24
    assert seeds(seed=1)[4:] == seeds(2, seed=1, rounds=1)  # games that are made anew go on
    assert seeds(seed=None) != seeds(seed=None)


@pytest.mark.parametrize("ended", [[1], range(4)])
@pytest.mark.parametrize("played", [0, 40])
def test_a_reset_begins_a_round_for_all_also_in_the_middle_and_a_run_that_goes_on_has_other_starts(played, ended):
    steps = iter([played])  # asked for once
    starts = EqualStarts(4, 2, 0, played=lambda: next(steps))
    for number in (played + 1, played + 2):
        assert {starts.begin(game).name for game in range(4)} == {f"0/{number}/0", f"0/{number}/1"}
        for game in ended:
            starts.end(game)


def test_groups_divide_the_games():
    with pytest.raises(ValueError, match="groups of 3"):
        EqualStarts(4, 3)
