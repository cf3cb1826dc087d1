"""Policies published on a hub and loaded from it, against a server on this machine that speaks its protocol."""

import json
import socket

import numpy as np
import pytest
from hub_server import HubServer
from huggingface_hub import constants

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.policies.array_policy import ArrayPolicy
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from tests.refusal import refused


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub on this machine, and a cache of its own."""
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        for name, value in {"HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(tmp_path / "cache")}.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", "hf_token_of_nobody")
        yield server


def test_language_agents_come_back_as_they_were_and_later_without_a_network(hub, monkeypatch):
    policy = load_policy("zoo:door")
    address = policy.push_to_hub("ann/door", figures={"return": 0.98}, licence="apache-2.0")
    assert address.startswith(f"{hub.url}/ann/door/commit/")
    names = set(hub.repos["ann/door"])
    assert {"policy.json", "README.md", "critic.safetensors", "adapters/action/adapter_model.safetensors"} <= names
    again = load_policy("hf:ann/door")
    env = policy.env()
    figures = [evaluate(one, episodes=8, seed=3, env=env).returns for one in (policy, again)]
    assert figures[0] == figures[1]
    assert again.manifest.env_config == policy.manifest.env_config
    digest = again.network.lm.base.sha256
    assert f"`embedded`, sha256 `{digest}`" in hub.repos["ann/door"]["README.md"].decode()
    assert again.manifest.base_model_sha256 == digest
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_policy("hf:ann/door").manifest.algorithm == "Verco"
    with pytest.raises(UserError, match="fetched"):
        load_policy("hf:ann/other")


def test_a_network_comes_back_and_its_card_says_what_it_is(hub):
    policy = load_policy("zoo:soup_cramped_room")
    policy.push_to_hub("ann/soup", private=True)
    assert "ann/soup" in hub.private
    card = hub.repos["ann/soup"]["README.md"].decode()
    assert card.startswith("---\nlibrary_name: rllib_llm_comm\n") and 'load_policy("hf:ann/soup")' in card
    assert "SelfPlayPPO" in card and "No figures were given" in card and "license:" not in card
    again = load_policy("hf:ann/soup")
    assert isinstance(again, ArrayPolicy)
    observations, _ = again.env().reset(seed=0)
    one, other = (p.act(observations, explore=False)["alice"].probabilities for p in (policy, again))
    assert np.array_equal(one, other)


def spoil(policy, **fields):
    for name, value in fields.items():
        object.__setattr__(policy.manifest, name, value)


def test_only_what_it_takes_to_play_and_figures_are_published(hub, tmp_path):
    policy = load_policy("zoo:door")
    secret = {"base_url": "http://10.0.0.7:9/v1", "model": "m", "api_key_env": "MY_SECRET"}
    talk = {"message_server": secret, "constant_message": "carol jones", "message_menu": ["a", "b"]}
    samples = [{"prompt": "you see", "label": "my name is carol jones", "message": "red"}]
    spoil(
        policy,
        provenance={
            "training_iteration": 3, "labels": "/home/ann/labels", "samples": samples, "held_out": {"carol jones": 1},
            "demonstrations": "/home/ann/games", "trained_with": {"subgoal_file": "/home/ann/s.json"}, "score": 1.5,
            "cloning": {"host": socket.gethostname()}, "somebody_elses": "carol jones", "decisions": [3, "carol jones"],
            "message_checkpoint": "/home/ann/sft",
        },
        teacher={"name": "people", "sessions": ["/home/ann/p01"], **secret},
        planning={"planner": {"name": "chat", **secret}},
        communication={**policy.communication.to_dict(), **talk},
    )  # fmt: skip
    policy.push_to_hub("ann/door")
    everything = b"".join(hub.repos["ann/door"].values())
    for word in (b"10.0.0.7", b"MY_SECRET", b"hf_token", b"/home/", b"carol", b"people"):
        assert word not in everything
    told = json.loads(hub.repos["ann/door"]["policy.json"])
    assert told["teacher"] is None and told["planning"] is None
    assert told["provenance"] == {"training_iteration": 3, "score": 1.5}
    again = load_policy("hf:ann/door").communication
    assert again.messages == "student" and again.message_menu == ()
    spoil(policy, model_config={**policy.manifest.model_config, "base_model": "/home/ann/llama"})
    with refused("base_model"):
        policy.push_to_hub("ann/llama")
    officer = load_policy("zoo:red_officer")
    (tmp_path / "officer").mkdir()
    spoil(officer, env_config={**officer.manifest.env_config, "executor": f"trained:{tmp_path / 'officer'}"})
    with refused("env_config.executor"):
        officer.push_to_hub("ann/officer")
    assert "ann/officer" not in hub.repos
    spoil(officer, env_config={**officer.manifest.env_config, "executor": "trained:hf:ann/other"})
    officer.push_to_hub("ann/officer")
    assert b"trained:hf:ann/other" in b"".join(hub.repos["ann/officer"].values())


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"algorithm": "Verco of ~/work"}, "algorithm"),
        ({"env_config": {"told_to": ["/home/ann"]}}, "env_config.told_to"),
        ({"env_config": {"a": ["people.csv"]}}, "env_config.a"),
        ({"env_config": {"a": {"b": {"..": 1}}}}, "env_config.a.b"),
        ({"env_config": {"a": {"b": "see C:\\Users\\ann"}}}, "env_config.a.b"),
        ({"env_config": {"a": {"file:///etc": 1}}}, "env_config.a"),
        ({"planning": {"planner": {"name": "http://10.0.0.7"}}}, "planning.planner.name"),
    ],
)
def test_places_of_this_machine_are_never_published(fields, name, hub):
    policy = load_policy("zoo:door")
    spoil(policy, **fields)
    with pytest.raises(UserError, match=f"`{name}` .* place"):
        policy.push_to_hub("ann/door")
    assert "ann/door" not in hub.repos


def test_html_in_names_is_text_in_the_card(hub):
    policy = load_policy("zoo:soup_cramped_room")
    spoil(policy, algorithm="<img src=x onerror=alert(1)> [a](javascript:b)")
    policy.push_to_hub("ann/soup", figures={"<script>x</script>|y": 1.0})
    card = hub.repos["ann/soup"]["README.md"].decode()
    assert "<img" not in card and "<script" not in card and "](javascript" not in card and "&lt;img src=x" in card


def test_the_manifest_comes_first_and_nothing_is_fetched_but_its_policys_files(hub):
    load_policy("zoo:door").push_to_hub("eve/door")
    repo = hub.repos["eve/door"]
    for name in (
        "adapters/third/adapter_model.safetensors", "huge.safetensors", "alice/critic.safetensors", "modeling.py",
        "algorithm_state.pkl", "adapters/action/adapter_model.bin",
    ):  # fmt: skip
        repo[name] = b"x"
    hub.asked.clear()
    load_policy("hf:eve/door")
    fetched = [path.split("/resolve/")[1].split("/", 1)[1] for way, path in hub.asked if "/resolve/" in path]
    assert fetched[0] == "policy.json" and set(fetched) == {
        "policy.json", "critic.safetensors", *(f"adapters/{role}/{name}" for role in ("message", "action")
        for name in ("adapter_config.json", "adapter_model.safetensors")),
    }  # fmt: skip
    hub.told_sizes["eve/other", "critic.safetensors"] = 10**12
    for manifest, cause in (
        (b" " * (5 * 2**20), "at most"),
        (b"[" * 10**6, "deeply"),
        (b'{"agents": ["../.."]}', "plain names"),
        (json.dumps({"agents": [f"a{n}" for n in range(65)]}).encode(), "at most 64"),
        (repo["policy.json"], "bytes"),
    ):
        hub.repos["eve/other"] = {**repo, "policy.json": manifest}
        hub.asked.clear()
        with pytest.raises(UserError, match=cause):
            load_policy("hf:eve/other")
        assert not [path for _, path in hub.asked if path.endswith("safetensors")]


def test_a_policy_replaces_the_one_that_was_there(hub):
    load_policy("zoo:door").push_to_hub("ann/mine")
    hub.repos["ann/mine"]["notes.txt"] = b"of the user"
    load_policy("zoo:soup_cramped_room").push_to_hub("ann/mine")
    assert set(hub.repos["ann/mine"]) == {"README.md", "network.safetensors", "policy.json", "notes.txt"}
    assert isinstance(load_policy("hf:ann/mine"), ArrayPolicy)


def test_what_cannot_be_fetched_or_published_is_told_in_a_sentence(hub):
    for name in ("hf:", "hf:door", "hf:a/b/c", "hf:../x", "hf:a/b@"):
        with pytest.raises(UserError, match="repository"):
            load_policy(name)
    with pytest.raises(UserError, match="'hf:ann/nothing'"):
        load_policy("hf:ann/nothing")
    hub.repos["ann/empty"] = {"README.md": b"hello"}
    with pytest.raises(UserError, match=r"policy\.json"):
        load_policy("hf:ann/empty")
    door = load_policy("zoo:door")
    for arguments, told in (
        ({"repo": "no name"}, ("", "invalid", "'no name'")), ({"repo": "ann"}, ("", "invalid", "user/name")),
        ({"licence": "mit\nx: y"}, ("licence",)),
        ({"figures": {"return": "1.3"}}, ("figures['return']",)), ({"figures": [1.3]}, ("figures",)),
    ):  # fmt: skip
        with refused(*told):
            door.push_to_hub(**{"repo": "ann/door", **arguments})
    assert set(hub.repos) == {"ann/empty"}, "nothing is made on the hub before"
    assert PartnerSettings(policy="hf:ann/door").kind == "checkpoint"
