"""Drift of trained messages against hand-made cases: equal adapters, and adapters that differ."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from toys import ENV_ID, ColourTalk, language_model, randomise, register
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.communication import PROMPTS, TurnRecorder, measure, measure_drift
from rllib_llm_comm.evaluation.rollout import play
from rllib_llm_comm.language.adapters import MESSAGE, REFERENCE
from rllib_llm_comm.language.engines import plain_scores
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.verco.encoding import encode_menu
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import LanguagePolicy, base_model_digest, policy_files
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings
from tests.refusal import refused

TALK = CommunicationSettings(max_message_words=3, message_temperature=1.0, train_messages=True)
MENU = ("i see red", "i see blue", "nothing")


def network_of(seed=2, reference=True, **settings):
    model = ModuleSettings.from_mapping(language_model(init_seed=1, **settings))
    network = LanguageNetwork(model, reference=reference)
    randomise(network, MESSAGE, std=0.5, seed=seed)
    return network


def manifest_of(network, talk=TALK, **env_config):
    register()
    return PolicyManifest(
        "Verco", network.settings.to_dict(), talk.to_dict(), env=ENV_ID, env_config={"length": 3, **env_config},
        base_model_digest=base_model_digest(network.lm.base),
    )  # fmt: skip


def policy_of(network, talk=TALK):
    return LanguagePolicy(network, talk, manifest_of(network, talk))


def drifted_by(std, seed=2):
    """A network whose messages have changed since its reference was kept; by 0 they have not."""
    network = network_of(seed)
    network.keep_reference()
    if std:
        randomise(network, MESSAGE, std=std, seed=9)
    return network


def spoken(count=12):
    seen = [ColourTalk().reset(seed=seed)[0] for seed in range(count)]
    return [(agent, views[agent]) for views in seen for agent in ("alice", "bob")]


def next_tokens(network, role, ids):
    """Log-probabilities (T, V) of the token behind each position, one row at a time."""
    with torch.no_grad(), network.lm.use(role):
        hidden = network.lm.hidden_states(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long))
        return network.lm.token_logits(hidden)[0].double().log_softmax(-1)


def test_equal_adapters_have_not_drifted():
    found = measure_drift(policy_of(drifted_by(0)), spoken(), lambda message: None if "red" in message else "x")
    assert found.kl == pytest.approx(0.0, abs=1e-6) and found.kl_per_token == pytest.approx(0.0, abs=1e-6)
    assert found.new_words == found.new_words_reference and found.unreadable == found.unreadable_reference
    assert found.messages == 24
    assert measure_drift(policy_of(drifted_by(0)), spoken(3) * 100).messages == PROMPTS < 600  # not more are judged


def test_the_divergence_is_that_of_a_direct_computation():
    network = drifted_by(0.2)
    rows, policy = spoken(6), policy_of(network)
    found = measure_drift(policy, rows, seed=5)
    prompts = [message_prompt(seen["text"]) for _, seen in rows]
    drawn = network.draw_messages(prompts, max_words=3, temperature=1.0, seed=5)
    direct, tokens = [], 0
    for prompt, message in zip(prompts, drawn, strict=True):
        start = network.lm.base.encode(prompt)
        ids = [*start, *message.ids]
        ours, theirs = (next_tokens(network, role, ids)[len(start) - 1 : -1] for role in (MESSAGE, REFERENCE))
        direct.append(float((ours.exp() * (ours - theirs)).sum()))
        tokens += len(message.ids)
    assert found.kl == pytest.approx(np.mean(direct), rel=1e-3) and found.kl > 0.05
    assert found.kl_per_token == pytest.approx(np.sum(direct) / tokens, rel=1e-3)


def test_new_words_are_those_that_the_taught_adapter_does_not_use():
    network = drifted_by(1.0)
    rows, policy = spoken(), policy_of(network)
    found = measure_drift(policy, rows, lambda message: "yes" if len(message) % 2 else "", seed=1)
    prompts = [message_prompt(seen["text"]) for _, seen in rows]
    known = {w for m in network.draw_messages(prompts, max_words=3, role=REFERENCE) for w in m.text.split()}
    for role, new, unreadable in (
        (MESSAGE, found.new_words, found.unreadable),
        (REFERENCE, found.new_words_reference, found.unreadable_reference),
    ):
        drawn = network.draw_messages(prompts, max_words=3, temperature=1.0, seed=1, role=role)
        texts = [message.text for message in drawn if message.text]
        assert texts and new == np.mean([bool(set(text.split()) - known) for text in texts])
        assert unreadable == np.mean([len(text) % 2 == 0 for text in texts])
    assert measure_drift(policy, rows).unreadable is None


def test_of_a_menu_it_is_the_divergence_of_the_choice():
    network = drifted_by(0.3)
    talk = TALK.replace(messages="menu", message_menu=MENU)
    rows = spoken(5)
    found = measure_drift(policy_of(network, talk), rows)
    phrases = torch.from_numpy(encode_menu(network.lm.base, MENU))[None]
    direct = []
    for _, seen in rows:
        prompt = torch.tensor([network.lm.base.encode(message_prompt(seen["text"]))])
        ours, theirs = (
            plain_scores(network.lm, prompt, phrases, torch.ones(1, 3, dtype=torch.bool), role=role).log_softmax(-1)
            for role in (MESSAGE, REFERENCE)
        )
        direct.append(float((ours.exp() * (ours - theirs)).sum()))
    assert found.kl == pytest.approx(np.mean(direct), rel=1e-3) and found.kl > 1e-3
    assert (found.kl_per_token, found.new_words, found.unreadable) == (None, None, None)


def test_agents_with_networks_of_their_own_are_measured_apart():
    calm, wild = drifted_by(0), drifted_by(0.3, seed=3)
    rows = spoken(6)
    both = measure_drift(LanguagePolicy({"alice": calm, "bob": wild}, TALK, manifest_of(calm)), rows)
    alone = measure_drift(LanguagePolicy({"bob": wild}, TALK, manifest_of(calm)), rows[1::2], seed=1)
    assert both.kl == pytest.approx(alone.kl / 2, rel=1e-4) and alone.kl > 0.05


@pytest.mark.parametrize(
    ("reference", "talk"),
    [(False, {}), (True, {"messages": "none"}), (True, {"messages": "constant"}), (True, {"messages": "teacher"})],
)
def test_without_a_reference_or_messages_of_its_own_there_is_none(reference, talk):
    network = network_of(reference=reference)
    settings = TALK.replace(**{"train_messages": not talk, **talk})
    assert measure_drift(policy_of(network, settings), spoken(2)) is None
    assert measure_drift(policy_of(network), []) is None


def saved(network, folder, talk=TALK):
    return write_policy(folder, policy_files(network), manifest_of(network, talk))


def drifted(tmp_path, reference=True):
    """A trained checkpoint, and that of the adapter that its training began with."""
    network = network_of(reference=reference)
    taught = saved(network_of(reference=False), tmp_path / "taught" / "policy", CommunicationSettings())
    network.keep_reference()
    randomise(network, MESSAGE, std=0.4, seed=9)
    return saved(network, tmp_path / "trained" / "policy"), taught


def figures(policy):
    turns = TurnRecorder()
    play(policy, episodes=3, seed=0, observers=[turns])
    return measure(policy, turns).to_json()


def test_a_checkpoint_carries_its_reference_and_a_damaged_one_is_refused(tmp_path):
    trained, taught = drifted(tmp_path)
    assert (trained / "adapters/reference/adapter_model.safetensors").is_file()
    assert not (taught / "adapters/reference").exists()
    carried = figures(load_policy(trained))["drift"]
    assert carried["kl"] > 0.05 and carried["messages"] > 10
    assert carried["new_words"] is not None and carried["unreadable"] is None  # the toy has no parser
    assert figures(load_policy(taught))["drift"] is None
    weights = trained / "adapters/reference/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UserError, match="adapter_model.safetensors"):
        load_policy(trained)
    (trained / "adapters/reference/adapter_config.json").unlink()
    with pytest.raises(UserError, match="reference"):
        load_policy(trained)


def test_a_reference_can_be_given(tmp_path):
    trained, taught = drifted(tmp_path, reference=False)
    assert figures(load_policy(trained))["drift"] is None
    other, _ = drifted(tmp_path / "other")
    expected = figures(load_policy(other))["drift"]
    for reference in (taught, taught.parent, taught / "adapters" / "message"):
        assert figures(load_policy(trained, reference=reference))["drift"] == expected
    assert figures(load_policy(other, reference=trained))["drift"]["kl"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("words", "share"), [("i wait here", 1.0), ("bowl onion bowl", 0.0)])
def test_sentences_of_the_game_count_as_understood_whatever_they_name(words, share):
    """A sentence that names no thing is one; a heap of words that does is none."""
    talk = CommunicationSettings(messages="constant", constant_message=words)
    network = LanguageNetwork(ModuleSettings(max_prompt_tokens=200))
    manifest = PolicyManifest(
        "Verco", network.settings.to_dict(), talk.to_dict(), env="rllib_llm_comm/overcooked_text-v0",
        env_config={"map_name": "B", "max_game_steps": 8}, base_model_digest=base_model_digest(network.lm.base),
    )  # fmt: skip
    found = figures(LanguagePolicy(network, talk, manifest))
    assert found["understood"] == share and found["messages"] > 3


def test_a_reference_for_agents_that_say_nothing_is_refused(tmp_path):
    network = NumericNetwork(NumericSettings(), 3, 2, None)
    manifest = PolicyManifest("MAPPO", {"size": 3, "actions": 2, "critic_size": None}, {}, kind="numeric")
    folder = write_policy(tmp_path / "policy", network_file(network), manifest)
    with refused("reference"):
        load_policy(folder, reference="anything")


def test_the_command(tmp_path):
    def run(path, *options):
        target = tmp_path / "figures.json"
        done = CliRunner().invoke(cli, ["evaluate", str(path), "--episodes", "3", "--json", str(target), *options])
        return done, json.loads(target.read_text()) if done.exit_code == 0 else None

    trained, taught = drifted(tmp_path, reference=False)
    done, told = run(trained, "--communication")
    assert told["communication"]["drift"] is None and "carries no reference" in " ".join(done.output.split())
    done, told = run(trained, "--communication", "--reference", str(taught))
    assert told["communication"]["drift"]["kl"] > 0.05 and "drift" in done.output
    done, _ = run(trained, "--communication", "--reference", str(tmp_path / "nowhere"))
    assert isinstance(done.exception, UserError) and "There is no checkpoint at" in str(done.exception)
