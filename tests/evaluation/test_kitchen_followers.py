"""Cross-play of EMMA's cooks under a planner, side by side: the same games as one pair after the other."""

from __future__ import annotations

import pytest
import torch

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.evaluation import kitchen_tables
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, PolicyManifest
from rllib_llm_comm.sama.emma.inputs import emma_space
from rllib_llm_comm.sama.emma.network import EmmaNetwork
from rllib_llm_comm.sama.emma.settings import EmmaSettings

AI, SUBGOALS = "rllib_llm_comm/overcooked_ai-v0", "rllib_llm_comm/overcooked_ai_subgoals-v0"
LAYOUT = "coordination_ring"
PLANES = 26 * 5 * 5


def follower(folder, seed):
    """An EMMA of random weights whose goals are of very different chances."""
    settings = {"observe": ["entities", "state"], "action_level": "goal_cell", "layout": LAYOUT, "horizon": 40}
    env = subgoal_env(**settings)
    how = EmmaSettings(width=6, filters=5, hiddens=[8], init_seed=seed, critic_observation="state")
    space = emma_space("alice", env.observation_space("alice"), env.action_space("alice"), how)
    sizes = {
        "symbols": int(space["frames"].high.max()) + 1,
        "shape": list(space["frames"].shape[1:3]),
        "actions": int(env.action_space("alice").n),
        "state_size": space["critic_state"].shape[0],
    }
    network = EmmaNetwork(how, encoder=load_text_encoder(), **sizes)
    with torch.no_grad():
        network.actor.head.weight *= 3000
    manifest = PolicyManifest("EMMA", {**how.to_dict(), **sizes}, {}, SUBGOALS, settings, kind=GROUNDED)
    return str(write_policy(folder / f"emma_{seed}", network_file(network), manifest))


def cook(folder):
    network = NumericNetwork(NumericSettings(init_seed=3, hiddens=[16]), PLANES, 6)
    with torch.no_grad():
        network.actor[-1].weight *= 300
    model = {**network.settings.to_dict(), "size": PLANES, "actions": 6, "critic_size": None}
    settings = {"layout": LAYOUT, "observe": ["vector"], "vector": "planes", "horizon": 40}
    manifest = PolicyManifest("SelfPlayPPO", model, {}, AI, settings, kind=NUMERIC)
    return str(write_policy(folder / "cook", network_file(network), manifest))


@pytest.fixture(scope="module")
def followers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("followers")
    return [{"policy": follower(folder, seed), "name": f"emma {seed}"} for seed in range(2)]


@pytest.fixture(scope="module")
def strangers(followers, tmp_path_factory):
    folder, one = tmp_path_factory.mktemp("strangers"), followers[0]["policy"]
    return {
        "cooks": [{"policy": cook(folder), "name": "cook"}, "random"],
        "scripted": [{"policy": "scripted", "noise": 0.3, "name": "noisy"}],
        "followers": [
            {"policy": one, "noise": 0.2, "pauses": 0.1, "name": "noisy emma"},
            {"policy": one, "greedy": True, "name": "greedy emma"},
        ],
    }


def both_ways(players, partners, planning=None, **settings):
    """Scores of each seating in arrays and one pair at a time, and those who play in arrays."""
    steps = {"action_level": "primitive", "commit": False, "shaping": 0.5, **settings.pop("env_config", {})}
    planning = {"planner": "scripted", **(planning or {})}
    found, seated = [], frozenset()
    for arrays in (True, False):
        how = CrossPlaySettings(env_config=steps, planning=planning, arrays=arrays, **{"episodes": 2, **settings})
        cross = CrossPlay(players, partners, how)
        seated = cross._tables.seated if arrays else seated
        found.append(cross.play().scores)
    return (*found, seated)


@pytest.mark.parametrize(
    ("settings", "planning"),
    [
        ({"metric": "return"}, {"subgoal_reward": 0.25}),
        ({"metric": "plans", "env_config": {"commit": True}}, {"patience": 7, "replan": "all"}),
        ({"metric": "subgoals_completed", "greedy": True, "seed": 5}, {"subgoals_to": ["alice"]}),
    ],
)
def test_games_are_those_of_one_pair_at_a_time(followers, strangers, settings, planning, monkeypatch):
    monkeypatch.setattr(kitchen_tables, "PLANNED_AT_ONCE", 12)  # environments are used again
    arrays, single, seated = both_ways(followers, strangers, planning, **settings)
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
    arrays, single, seated = both_ways(
        followers[:1], None, planning, episodes=1, env_config={**env_config, "horizon": 10}
    )
    assert not seated and arrays == single


def test_a_follower_of_another_kitchen_is_refused_before_the_first_game(followers):
    how = CrossPlaySettings(
        env_config={"action_level": "primitive", "layout": "cramped_room"}, planning={"planner": "scripted"}
    )
    with pytest.raises(UserError, match="'emma 0' cannot play here: .* 4 x 5 cells .* was trained with 5 x 5"):
        CrossPlay(followers, {"x": ["random"]}, how)
