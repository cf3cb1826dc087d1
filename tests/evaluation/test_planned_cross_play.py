"""Cross-play of cooks that a planner tells what to do, with partners that are trained with other actions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hostile import write_checkpoint
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.overcooked_ai.actions import own_actions
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import subgoal_env
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, PolicyManifest
from rllib_llm_comm.sama.emma.network import EmmaNetwork, EmmaSettings, emma_space

AI, SUBGOALS = "rllib_llm_comm/overcooked_ai-v0", "rllib_llm_comm/overcooked_ai_subgoals-v0"
STEPS = {"action_level": "primitive", "commit": False}
FOLLOWER = {"observe": ["entities"], "action_level": "goal_cell", "commit": True, "subgoals": "sampled", "horizon": 60}


@pytest.fixture(scope="module")
def follower(tmp_path_factory):
    """An untrained EMMA."""
    env, how = subgoal_env(**FOLLOWER), EmmaSettings(width=6, filters=5, hiddens=[8], init_seed=0)
    space = emma_space("alice", env.observation_space("alice"), env.action_space("alice"), how)
    actions, shape = int(env.action_space("alice").n), space["frames"].shape[1:3]
    symbols = int(space["frames"].high.max()) + 1
    net = EmmaNetwork(how, symbols, shape, actions, state_size=0, encoder=load_text_encoder())
    model = {**how.to_dict(), "symbols": symbols, "shape": list(shape), "actions": actions, "state_size": 0}
    manifest = PolicyManifest("EMMA", model, {}, SUBGOALS, FOLLOWER, kind=GROUNDED)
    return str(write_policy(tmp_path_factory.mktemp("follower") / "policy", network_file(net), manifest))


@pytest.fixture(scope="module")
def cook(tmp_path_factory):
    """An untrained cook of single steps, whose settings tell a default that the follower's leave away."""
    network = NumericNetwork(NumericSettings(init_seed=3, hiddens=[8]), 26 * 5 * 4, 6)
    model = {**network.settings.to_dict(), "size": 26 * 5 * 4, "actions": 6, "critic_size": None}
    settings = {"observe": ["vector"], "vector": "planes", "dynamics": "old", "horizon": 60}
    manifest = PolicyManifest("SelfPlayPPO", model, {}, AI, settings, kind=NUMERIC)
    return str(write_policy(tmp_path_factory.mktemp("cook") / "policy", network_file(network), manifest))


@pytest.mark.parametrize("level", ["goal_cell", "goal"])
def test_goals_in_single_steps_make_the_same_game(level):
    """The environment's own goals and those of two cooks that carry theirs out: every state is the same."""
    common = {"layout": "coordination_ring", "horizon": 200, "commit": True, "observe": ["vector"]}
    theirs, single = make_env(AI, action_level=level, **common), make_env(AI, **common)
    theirs.reset(seed=5)
    single.reset(seed=5)
    cooks = {
        agent: own_actions(single, agent, {"action_level": level}, np.random.default_rng(5)) for agent in single.agents
    }
    rng, expected = np.random.default_rng(0), []
    while single.agents:
        actions = {}
        for agent, one in cooks.items():
            if one.free():
                actions[agent] = int(rng.choice(np.flatnonzero(one.mask())))
                one.choose(actions[agent])
        if actions:
            assert not expected, "a cook was asked in one of the two only"
            theirs.step(actions)
            expected = list(theirs.passed[1:])
        single.step({agent: one.action() for agent, one in cooks.items()})
        assert np.array_equal(single.kitchen.state, expected.pop(0))
    assert not theirs.agents and single.kitchen.time == 200


def test_who_trusts_a_cross_play_trusts_what_its_planner_recorded_too(follower, tmp_path):
    server = {"base_url": "http://127.0.0.1:9", "model": "m"}
    path = write_checkpoint(tmp_path, communication={"message_server": server})
    for trust, why in ((False, "recorded `message_server`"), (True, "was trained in .* and not as a planner")):
        settings = CrossPlaySettings(planning={"planner": f"trained:{path}"}, trust=trust)
        with pytest.raises(UserError, match=why):
            CrossPlay([follower], None, settings)


def test_a_follower_with_itself_plays_as_it_does_without_partners(follower):
    settings = CrossPlaySettings(
        episodes=2, metric="plans", env_config=STEPS, planning={"planner": "scripted", "patience": 10}
    )
    cross = CrossPlay([{"policy": follower, "name": "emma"}], None, settings)
    told = cross.play().to_json()
    alone = play_planned(
        load_policy(follower), planning=settings.planning, episodes=2, env_config={"commit": False}, num_envs=2
    )
    assert told["games"][0]["scores"] == [episode.metrics["plans"] for episode in alone]
    assert told["planning"] == {"planner": "scripted", "patience": 10}
    assert told["notes"] == ["emma: told by the planner 'scripted', which plans for all seats."]
    assert told["env_config"]["action_level"] == "primitive" and "subgoals" not in told["env_config"]


def test_a_follower_beside_cooks_of_single_steps(follower, cook, tmp_path):
    (tmp_path / "partners.json").write_text(json.dumps({"cooks": [{"policy": cook, "name": "cook"}, "scripted"]}))
    words = ["crossplay", f"emma={follower}", "--partners", "partners.json", "--episodes", "1", "--metric", "plans"]
    words += ["--planner", "scripted", "--env-config", json.dumps(STEPS), "--json", "cross.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "told by the planner" in done.output and "dynamics" not in done.output
    found = json.loads((tmp_path / "cross.json").read_text())
    assert len(found["games"]) == 5
    assert all(game["scores"][0] >= 2 for game in found["games"])  # a plan at the start, and more


def test_goals_of_its_own_are_no_game_for_a_cook_of_single_steps(follower, cook):
    settings = CrossPlaySettings(episodes=1, planning={})
    with pytest.raises(
        UserError, match="`action_level` is 'goal_cell' but 'alice' is held by .* set `action_level` to 'pri"
    ):
        CrossPlay([follower, cook], None, settings)


def test_somebody_has_to_read_subgoals(cook):
    with pytest.raises(UserError, match="none of the players and partners reads subgoals"):
        CrossPlay([cook], None, CrossPlaySettings(planning={"planner": "scripted"}))
