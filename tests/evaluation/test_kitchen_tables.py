"""Cross-play of kitchens in arrays: the same scores, game by game, as games that are played one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation import kitchen_tables
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest

AI = "rllib_llm_comm/overcooked_ai-v0"
KITCHEN = {"layout": "cramped_room", "horizon": 40, "observe": ["vector"]}
SIZES = {"planes": 26 * 5 * 4, "features": 96}


def cook(folder, seed, vector="planes", **settings):
    """A policy of a random network whose actions are of very different chances."""
    network = NumericNetwork(NumericSettings(init_seed=seed, hiddens=[16, 16]), SIZES[vector], 6)
    with torch.no_grad():
        network.actor[-1].weight *= 300
    model = {**network.settings.to_dict(), "size": SIZES[vector], "actions": 6, "critic_size": None}
    env_config = {**KITCHEN, "vector": vector, **settings}
    manifest = PolicyManifest("SelfPlayPPO", model, {}, kind=NUMERIC, env=AI, env_config=env_config)
    return str(write_policy(folder / f"{vector}_{seed}", network_file(network), manifest))


def walker(env, agent, rng):
    return lambda seen: int(rng.integers(6))


@pytest.fixture(scope="module")
def cooks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cooks")
    return [{"policy": cook(folder, seed), "name": f"cook {seed}"} for seed in range(2)]


@pytest.fixture
def strangers(cooks):
    """Every kind of partner that is played in arrays."""
    one = cooks[0]["policy"]
    return {
        "networks": [
            {"policy": one, "noise": 0.2, "name": "noisy"},
            {"policy": one, "pauses": 0.3, "greedy": True, "name": "greedy, pausing"},
            {"policy": one, "greedy": True, "name": "greedy"},
        ],
        "others": ["random", "stay", {"policy": "random", "pauses": 0.5, "name": "half asleep"}],
        "scripted": [
            "scripted",
            {"policy": "scripted", "noise": 0.3, "habit": "dishes_only", "name": "noisy dishes"},
            {"policy": "scripted", "pauses": 0.5, "habit": "onions_only", "name": "lazy onions"},
        ],
    }


def both_ways(players, partners=None, **settings):
    """Scores of each seating, and the numbers of those who play in arrays: in arrays, and one by one."""
    found = []
    for arrays in (True, False):
        cross = CrossPlay(players, partners, CrossPlaySettings(arrays=arrays, **{"episodes": 2, **settings}))
        found.append((cross.play().scores, frozenset() if cross._tables is None else cross._tables.seated))
    return found


@pytest.mark.parametrize(
    "settings", [{"metric": "return"}, {"metric": "shaped", "greedy": True, "seed": 7, "episodes": 1}]
)
def test_scores_are_those_of_games_one_by_one(cooks, strangers, settings, monkeypatch):
    monkeypatch.setattr(kitchen_tables, "GAMES_AT_ONCE", 9)
    (arrays, seated), (single, nobody) = both_ways(
        [cooks[0], {"policy": "scripted", "name": "cook 2"}], strangers, env_config={"shaping": 0.5}, **settings
    )
    assert len(seated) == 2 + 9 and not nobody
    assert list(arrays) == list(single)
    assert arrays == single
    assert len({score for scores in single.values() for score in scores}) > 5  # shaped rewards tell games apart


def test_soups_that_are_served_count(strangers):
    players = [{"policy": "scripted", "name": "one"}]
    env = {"env": AI, "env_config": {**KITCHEN, "horizon": 120}, "episodes": 1}
    for metric, soup in (("soups", 1), ("score", 20)):
        (arrays, _), (single, _) = both_ways(players, {"s": strangers["scripted"][1:2]}, metric=metric, **env)
        assert arrays == single and single[0, 0][0] >= 2 * soup


def test_who_cannot_sit_there_plays_the_other_way(cooks, tmp_path):
    features = {"policy": cook(tmp_path, 5, "features"), "name": "features"}
    partners = {
        "odd": [features, {"policy": f"{__name__}:walker", "name": "walker"}],
        "words": [{"policy": "stay", "speech": "scripted", "name": "speaker"}],
    }
    (arrays, seated), (single, _) = both_ways(cooks[:1], partners, metric="shaped", episodes=1)
    assert seated == {0}
    assert arrays == single and list(arrays) == list(single)


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (AI, {"layout": "asymmetric_advantages", "wanted": "pot"}),
        (AI, {"action_level": "goal"}),
        (AI, {"swap_roles": True, "observe": ["vector"]}),
        ("rllib_llm_comm/overcooked_ai_subgoals-v0", {"observe": ["vector"]}),
    ],
)
def test_other_games_in_a_kitchen_are_played_one_by_one(env, settings):
    cross = CrossPlay(["stay"], None, CrossPlaySettings(env=env, env_config=settings, episodes=1))
    assert not cross._tables.seated


def test_errors_are_the_same(cooks):
    with pytest.raises(UserError, match="`metric` is 'gold'"):
        CrossPlay(cooks, None, CrossPlaySettings(metric="gold", episodes=1)).play()
    tomatoes = CrossPlaySettings(env=AI, env_config={"layout": "cramped_room_tomato", "dynamics": "new"}, episodes=1)
    with pytest.raises(UserError, match="The scripted cooks are for kitchens in which three onions"):
        CrossPlay(["scripted"], None, tomatoes).play()


def test_progress_counts_every_pair_once(cooks):
    told = []
    cross = CrossPlay(cooks, {"a": ["stay"]}, CrossPlaySettings(episodes=1, env_config={"horizon": 20}))
    cross.play(lambda number, total: told.append((number, total)))
    assert told == [(number, 8) for number in range(1, 9)]
    assert np.isfinite(cross.play().matrix(0, "a")).all()
