"""Behaviour cloning from games in the format of Overcooked-AI: agreement on held-out states, the folder, refusals."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from rllib_llm_comm import load_policy
from rllib_llm_comm.baselines.numeric.behavior_cloning import (
    CloningSettings,
    clone_players,
    half_of,
    read_demonstrations,
)
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.rollout import evaluate, play
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import make_partner
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from tests.cli.command import succeeds
from tests.episodes import Noting
from tests.refusal import refused

AI = "rllib_llm_comm/overcooked_ai-v0"
WAYS = ([0, -1], [0, 1], [1, 0], [-1, 0], [0, 0], "interact")
SAVED = Path(__file__).parents[1] / "data" / "overcooked_ai_saved.json.gz"


def thing(cell, item):
    """An object as the first version of the original writes it."""
    told = {"name": item.kind, "position": list(cell)}
    return told if item.kind != "soup" else {**told, "state": ["onion", item.onions, max(item.tick, 0)]}


def original_state(kitchen):
    players = []
    for cook in map(kitchen.cook, range(2)):
        held = None if cook.held is None else thing(cook.cell, cook.held)
        players.append({"position": list(cook.cell), "orientation": WAYS[cook.facing], "held_object": held})
    return {"players": players, "objects": [thing(*one) for one in kitchen.items().items()], "timestep": kitchen.time}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Four games of two scripted cooks, of whom one makes mistakes, as the original would save them."""
    games = {"ep_states": [], "ep_actions": [], "mdp_params": {"layout_name": "cramped_room", "old_dynamics": True}}
    one = make_partner(PartnerSettings(policy="scripted"), None)
    two = make_partner(PartnerSettings(policy="scripted", noise=0.05), None)
    env = make_env(AI, layout="cramped_room", horizon=400, observe=["vector"])
    for seed in range(7):
        states, actions = [], []

        def note(decisions, states=states, actions=actions):
            states.append(original_state(env.kitchen))
            actions.append([WAYS[decisions[agent].action] for agent in ("alice", "bob")])

        play(SeatedPolicy({"alice": one, "bob": two}), episodes=1, seed=seed, env=env, observers=[Noting(note)])
        games["ep_states"].append(states)
        games["ep_actions"].append(actions)
    path = tmp_path_factory.mktemp("games") / "games.json"
    path.write_text(json.dumps(games), encoding="utf-8")
    return path


def test_a_clone_of_a_scripted_cook_agrees_on_held_out_states(recorded, tmp_path):
    demonstrations = read_demonstrations(recorded)
    assert demonstrations.env_config["layout"] == "cramped_room" and demonstrations.env_config["dynamics"] == "old"
    env = make_env(AI, layout="cramped_room", observe=["vector"])
    observations, _ = env.reset(seed=0)
    np.testing.assert_array_equal(demonstrations.vectors[0][0, 1], observations["bob"]["vector"])
    found = clone_players(demonstrations, tmp_path / "clone", CloningSettings(players="0", epochs=60))
    assert found.decisions == (2000, 800)
    assert found.agreement >= 0.9 > 0.6 > found.most_common
    assert found.cross_entropy < 0.6
    clone = load_policy(tmp_path / "clone")
    assert clone.manifest.algorithm == "BehaviorCloning"
    vectors, actions = demonstrations.vectors[-1][:, 0], demonstrations.actions[-1][:, 0]
    clone.reset(seed=0)
    chosen = [clone.act({"alice": {"vector": vector}}, explore=False)["alice"] for vector in vectors]
    assert np.mean([one.action for one in chosen] == actions) > 0.85
    assert all(np.isnan(one.value) for one in chosen)  # nobody taught it values
    assert evaluate(clone, episodes=2).return_mean >= 0
    partner = {"policy": str(tmp_path / "clone"), "name": "clone"}
    found = CrossPlay([partner], {"good": ["scripted"]}, CrossPlaySettings(episodes=1)).play()
    assert found.with_group("good").value >= 60


def test_a_partner_is_shown_what_it_was_trained_to_see(recorded, tmp_path):
    """A clone reads 96 features also where the game shows the learner its planes."""
    clone_players(read_demonstrations(recorded), tmp_path / "clone", CloningSettings(epochs=1))
    partner = make_partner(PartnerSettings(policy=str(tmp_path / "clone")), load_policy)
    chances = []
    for vector in ("features", "planes"):
        env = make_env(AI, layout="cramped_room", observe=["vector"], vector=vector, horizon=30)
        seen = []
        seated = SeatedPolicy({"alice": partner, "bob": make_partner(PartnerSettings(policy="scripted"), None)})
        note = lambda decisions, seen=seen: seen.append(decisions["alice"].probabilities)  # noqa: E731
        play(seated, episodes=1, env=env, observers=[Noting(note)])
        chances.append(np.stack(seen))
    np.testing.assert_allclose(*chances)


def test_seeds_fix_a_clone(recorded, tmp_path):
    demonstrations = read_demonstrations(recorded)
    found = [clone_players(demonstrations, tmp_path / str(k), CloningSettings(epochs=1, seed=k // 2)) for k in range(3)]
    assert found[0].cross_entropy == found[1].cross_entropy != found[2].cross_entropy


def test_two_clones_share_no_game(recorded, tmp_path):
    whole = read_demonstrations(recorded)
    halves = [half_of(whole, half) for half in ("first", "second")]
    assert [len(half.actions) for half in halves] == [4, 3]
    used = [id(game) for half in halves for game in half.vectors]
    assert sorted(used) == sorted(map(id, whole.vectors)) and half_of(whole, "all") is whole
    clone = clone_players(whole, tmp_path / "second", CloningSettings(half="second", epochs=1))
    assert (clone.games, sum(clone.decisions)) == (3, 2400)
    assert load_policy(tmp_path / "second").manifest.provenance["half"] == "second"
    one = dataclasses.replace(whole, vectors=whole.vectors[:1], actions=whole.actions[:1])
    with refused("half"):
        clone_players(one, tmp_path / "none", CloningSettings(half="second"))


def test_games_that_the_original_itself_saved(tmp_path):
    saved = json.loads(gzip.decompress(SAVED.read_bytes()))
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(saved if "ep_states" in saved else next(iter(saved.values()))), encoding="utf-8")
    demonstrations = read_demonstrations(path)
    assert demonstrations.vectors[0].shape[1:] == (2, 96)


@pytest.mark.parametrize(
    ("content", "cause"), [("[]", "read"), ("{", "read"), ('{"ep_states": [], "ep_actions": []}', "decisions")]
)
def test_what_is_no_file_of_games(content, cause, tmp_path):
    (tmp_path / "games.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"games.json.* {cause}"):
        read_demonstrations(tmp_path / "games.json")


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 0), ("epochs", 0), ("held_out", 0.9), ("players", "2"), ("batch_size", True)]
)
def test_settings_out_of_their_range(name, value):
    with refused(name, None):
        CloningSettings(**{name: value})


def test_the_command(recorded, tmp_path):
    done = succeeds("clone", str(recorded), "clone", "--epochs", "1", "--players", "1", cwd=tmp_path)
    assert "7 games, 2000 decisions learned, 800 held out" in done.stdout
    assert load_policy(tmp_path / "clone").manifest.provenance["held_out"] == 800
