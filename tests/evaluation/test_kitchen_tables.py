"""Cross-play of kitchens in arrays: the same scores, game by game, as games that are played one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation import kitchen_tables
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from tests.evaluation.kitchens import AI, SUBGOALS, write_cook, write_follower

KITCHEN = {"layout": "cramped_room", "horizon": 40, "observe": ["vector"]}
SIZES = {"planes": 26 * 5 * 4, "features": 96}


def cook(folder, seed, vector="planes"):
    return write_cook(folder / f"{vector}_{seed}", SIZES[vector], seed, sharp=300, vector=vector, **KITCHEN)


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
        seated = frozenset() if cross._tables is None else cross._tables.seated
        found.append((cross.play().scores, seated))
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
        (AI, {"layout": "asymmetric_advantages", "wanted": "pot"}), (AI, {"action_level": "goal"}),
        (AI, {"swap_roles": True, "observe": ["vector"]}), (SUBGOALS, {"observe": ["vector"]}),
    ],
)  # fmt: skip
def test_other_games_in_a_kitchen_are_played_one_by_one(env, settings):
    cross = CrossPlay(["stay"], None, CrossPlaySettings(env=env, env_config=settings, episodes=1))
    assert not cross._tables.seated


def test_kitchens_that_scripted_cooks_do_not_know_are_told():
    tomatoes = CrossPlaySettings(env=AI, env_config={"layout": "cramped_room_tomato", "dynamics": "new"}, episodes=1)
    with pytest.raises(UserError, match="three onions"):
        CrossPlay(["scripted"], None, tomatoes).play()


def test_progress_counts_every_pair_once(cooks):
    told = []
    cross = CrossPlay(cooks, {"a": ["stay"]}, CrossPlaySettings(episodes=1, env_config={"horizon": 20}))
    cross.play(lambda number, total: told.append((number, total)))
    assert told == [(number, 8) for number in range(1, 9)]
    assert np.isfinite(cross.play().matrix(0, "a")).all()


RING = {"layout": "coordination_ring", "horizon": 40}
SHORT = {"horizon": 25}
FOLLOWER = {**RING, "observe": ["entities", "state"], "action_level": "goal_cell"}


@pytest.fixture(scope="module")
def followers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("followers")
    how = {"sharp": 3000, "critic": {"critic_observation": "state"}, **FOLLOWER}
    paths = [write_follower(folder / str(seed), seed=seed, **how) for seed in range(2)]
    return [{"policy": path, "name": f"emma {seed}"} for seed, path in enumerate(paths)]


@pytest.fixture(scope="module")
def strangers_of_followers(followers, tmp_path_factory):
    one, folder = followers[0]["policy"], tmp_path_factory.mktemp("strangers") / "cook"
    cook = write_cook(folder, 26 * 5 * 5, sharp=300, vector="planes", **RING)
    return {
        "cooks": [{"policy": cook, "name": "cook"}, "random"],
        "scripted": [{"policy": "scripted", "noise": 0.3, "name": "noisy"}],
        "followers": [
            {"policy": one, "noise": 0.2, "pauses": 0.1, "name": "noisy emma"},
            {"policy": one, "greedy": True, "name": "greedy emma"},
        ],
    }


def planned(players, partners, planning, env_config=None, **settings):
    """As `both_ways`, under a planner."""
    steps = {"action_level": "primitive", "commit": False, "shaping": 0.5, **(env_config or {})}
    (arrays, seated), (single, _) = both_ways(
        players, partners, env_config=steps, planning={"planner": "scripted", **planning}, **settings
    )
    return arrays, single, seated


@pytest.mark.parametrize(
    ("settings", "planning"),
    [
        ({"metric": "return", "env_config": SHORT}, {"subgoal_reward": 0.25}),
        ({"metric": "plans", "env_config": {"commit": True}}, {"patience": 7, "replan": "all"}),
        ({"metric": "subgoals_completed", "greedy": True, "seed": 5, "env_config": SHORT}, {"subgoals_to": ["alice"]}),
    ],
)
def test_games_are_those_of_one_pair_at_a_time(followers, strangers_of_followers, settings, planning, monkeypatch):
    monkeypatch.setattr(kitchen_tables, "PLANNED_AT_ONCE", 12)  # environments are used again
    arrays, single, seated = planned(followers, strangers_of_followers, planning, **settings)
    assert len(seated) == 7
    assert arrays == single and list(arrays) == list(single)
    assert len({score for scores in single.values() for score in scores}) > 2


@pytest.mark.parametrize(
    ("planning", "env_config"),
    [
        ({"planner": {"name": "disturbed", "share": 0.5}}, {}),
        ({"in_vector": True}, {"observe": ["entities", "state", "vector"], "vector": "planes"}),
    ],
)
def test_other_planners_play_one_pair_at_a_time(followers, planning, env_config):
    arrays, single, seated = planned(followers[:1], None, planning, {**env_config, "horizon": 10}, episodes=1)
    assert not seated and arrays == single


def test_a_follower_of_another_kitchen_is_refused_before_the_first_game(followers):
    env_config = {"action_level": "primitive", "layout": "cramped_room"}
    how = CrossPlaySettings(env_config=env_config, planning={"planner": "scripted"})
    with pytest.raises(UserError, match="'emma 0' .* 4 x 5 cells .* 5 x 5"):
        CrossPlay(followers, {"x": ["random"]}, how)
