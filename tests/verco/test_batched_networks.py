"""Agents with a policy each speak and choose in one batch, and say and do what each would alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from toys import ColourTalk, language_model, randomise, talkers

from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.mixed_batch import MixedBatch
from rllib_llm_comm.language.multi_lora import Rows
from rllib_llm_comm.policies.decision import Request
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import Partner
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.verco import language_network
from rllib_llm_comm.verco.language_network import BatchedNetworks, LanguageNetwork
from rllib_llm_comm.verco.policy import LanguagePolicy
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings


@pytest.fixture
def passes(monkeypatch):
    """The role of every forward pass."""
    found = []
    decoder = AdaptedModel.decoder

    def noted(model, **inputs):
        found.append(model._active)
        return decoder(model, **inputs)

    monkeypatch.setattr(AdaptedModel, "decoder", noted)
    return found


def apart(monkeypatch):
    monkeypatch.setattr(language_network, "_mixed", lambda networks: None)


def roll_out(greedy=False, busy=(1, 2), games=2, **talk):
    config = talkers(env_config={"busy": busy, "length": 7}).communication(max_message_words=4, **talk)
    config.multi_agent(policies="per_agent").env_runners(num_envs_per_env_runner=games).validate()
    runner = MultiAgentEnvRunner(config=config, worker_index=0)
    for seed, agent in enumerate(("alice", "bob")):
        for role in ("message", "action"):
            randomise(runner.module[agent].unwrapped().network, role, std=0.5, seed=seed)
    found = []
    for episode in runner.sample(num_timesteps=50, explore=not greedy):
        for agent, single in sorted(episode.agent_episodes.items()):
            found.append((agent, np.asarray(single.get_actions()), single.get_observations()["prompt_ids"]))
    return found


@pytest.mark.parametrize(
    ("greedy", "talk"),
    [
        (True, {}),
        (True, {"message_temperature": 1.0}),
        (False, {"train_messages": True, "message_temperature": 1.0}),
        (False, {"messages": "menu", "message_menu": ["i see red", "i see blue", "i see green"]}),
    ],
    ids=["greedy", "sampled", "trained", "menu"],
)
def test_a_roll_out_in_one_batch_is_that_of_a_pass_per_agent(greedy, talk, monkeypatch, passes):
    together = roll_out(greedy, **talk)
    assert any(isinstance(role, Rows) for role in passes)
    apart(monkeypatch)
    passes.clear()
    one_by_one = roll_out(greedy, **talk)
    assert not any(isinstance(role, Rows) for role in passes)
    assert len(together) == len(one_by_one) > 8
    for (agent, actions, heard), (other, wanted, expected) in zip(together, one_by_one, strict=True):
        assert agent == other
        np.testing.assert_array_equal(actions, wanted)
        np.testing.assert_array_equal(heard, expected)


def test_where_all_speak_there_is_no_pass_of_one_and_the_mixed_batch_of_networks_is_made_once(passes, monkeypatch):
    made = []
    monkeypatch.setattr(language_network, "MixedBatch", lambda models: made.append(1) or MixedBatch(models))
    roll_out(busy=(1, 1), message_temperature=1.0)
    assert len(made) == 2  # for messages and for scores
    assert "message" not in passes and sum(isinstance(role, Rows) for role in passes) > 50


@pytest.mark.parametrize("trained", [False, True])
def test_many_rows_of_a_small_model_have_a_pass_per_network(trained, passes, monkeypatch):
    talk = {"message_temperature": 1.0, "train_messages": trained}
    roll_out(busy=(1, 1), games=4, **talk)
    assert passes.count("message") > 50
    passes.clear()
    monkeypatch.setattr(language_network, "_SMALL", 16)
    roll_out(busy=(1, 1), games=4, **talk)
    assert trained or "message" not in passes  # the probabilities of trained messages are a pass per network


def network(seed, **settings):
    made = LanguageNetwork(ModuleSettings.from_mapping({**language_model(), "init_seed": 0, **settings}))
    for role in ("message", "action"):
        randomise(made, role, std=0.5, seed=seed)
    return made


def policy(temperature=0.0, **settings):
    networks = {agent: network(seed, **settings.get(agent, {})) for seed, agent in enumerate(("alice", "bob"))}
    talk = CommunicationSettings(message_temperature=temperature, max_message_words=4)
    return LanguagePolicy(networks, talk, PolicyManifest("language", "Verco", {}, agents=("alice", "bob")))


def decided(made, seeds=(0, 1), steps=6):
    env, found = ColourTalk(length=steps), []
    made.reset(seed=3)
    observations, _ = env.reset(seed=0)
    memories = [made.begin(seed) for seed in seeds]
    for memory in memories:
        memory.env = env
    while env.agents:
        found += (answers := made.act_together([Request(memory, observations) for memory in memories]))
        observations = env.step({agent: one.action for agent, one in answers[0].items()})[0]
    return found


def require_equal(found, wanted):
    """The same is said and done; probabilities differ by rounding."""
    for one, other in zip(found, wanted, strict=True):
        for agent in ("alice", "bob"):
            assert (one[agent].said, one[agent].action) == (other[agent].said, other[agent].action)
            np.testing.assert_allclose(one[agent].probabilities, other[agent].probabilities, atol=1e-4)


CUT = {"lora_layers": 1}


@pytest.mark.parametrize(("temperature", "own"), [(0.0, {}), (1.0, CUT)])
def test_a_loaded_policy_in_one_batch_decides_as_one_by_one(temperature, own, monkeypatch, passes):
    together = decided(policy(temperature, alice=own, bob=own))
    assert any(isinstance(role, Rows) for role in passes)
    apart(monkeypatch)
    require_equal(together, decided(policy(temperature, alice=own, bob=own)))


@pytest.mark.parametrize(("engine", "menu"), [("plain", ()), ("fast", ("i see red", "i see blue", "i see green"))])
def test_what_is_sampled_in_a_game_does_not_depend_on_the_games_beside_it(engine, menu):
    both = {"engine": engine}
    made = policy(1.0, alice=both, bob=both)
    if menu:
        talk = CommunicationSettings(messages="menu", message_menu=list(menu), message_temperature=1.0)
        made = LanguagePolicy({one: made.network_of(one) for one in ("alice", "bob")}, talk, made.manifest)
    together = decided(made, (0, 1, 2), steps=4)[1::3]
    alone = decided(made, (1,), steps=4)
    assert len({one[agent].said for one in alone for agent in one}) > 2
    require_equal(together, alone)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"engine": "plain"}), ({}, {"lora_r": 4}), ({}, {"score_normalization": "token"}), ({}, CUT),
        (CUT, {**CUT, "trunk_cache_dtype": "bfloat16"}),
    ],
)  # fmt: skip
def test_who_cannot_share_a_batch_is_asked_alone(one, other, passes):
    decided(policy(alice=one, bob=other), steps=1)
    assert passes and not any(isinstance(role, Rows) for role in passes)


def test_temperatures_may_differ_and_so_may_the_number_of_candidates(passes):
    made = policy(bob={"temperature": 3.0})
    alice, bob = made.network_of("alice"), made.network_of("bob")
    arrays = [
        {"prompt_ids": torch.randint(3, 30, (2, 9)), "candidate_ids": torch.randint(3, 30, (2, count, 3)),
         "candidate_words": torch.ones(2, count), "action_mask": torch.ones(2, count)}
        for count in (3, 5)
    ]  # fmt: skip
    BatchedNetworks([alice, bob]).score_ahead([(alice, arrays[0]), (bob, arrays[1])])
    assert [isinstance(role, Rows) for role in passes] == [True]
    for own, batch in ((alice, arrays[0]), (bob, arrays[1])):
        assert not own.unscored(batch)
        torch.testing.assert_close(own.remembered_logits(batch), own.logits(batch), atol=1e-4, rtol=1e-4)


def test_the_critic_is_asked_when_somebody_reads_a_value(passes):
    made = policy()
    found = decided(made)
    assert None not in passes
    values = [one[agent].value for one in found for agent in ("alice", "bob")]
    assert None in passes and np.isfinite(values).all() and len(set(values)) > 2


def seated(loaded, **settings):
    """One seat for each policy."""
    made = {agent: Partner(PartnerSettings(policy=agent, **settings), one) for agent, one in loaded.items()}
    return SeatedPolicy(made)


def alone(seed, temperature=0.0, **settings):
    """A policy of one network on the base of all."""
    talk = CommunicationSettings(message_temperature=temperature, max_message_words=4)
    return LanguagePolicy(network(seed, **settings), talk, PolicyManifest("language", "Verco", {}))


@pytest.mark.parametrize(("mistakes", "temperature"), [({}, 0.0), ({"noise": 0.2, "word_noise": 0.3}, 1.0)])
def test_checkpoints_in_the_seats_of_a_game_share_a_pass(mistakes, temperature, monkeypatch, passes):
    def played():
        return decided(seated({"alice": alone(0, temperature), "bob": alone(1, temperature)}, **mistakes))

    together = played()
    counts = Counter("shared" if isinstance(role, Rows) else role for role in passes)
    passes.clear()
    apart(monkeypatch)
    require_equal(together, played())
    by_each = Counter(map(str, passes))
    assert counts["shared"] > 0 == sum(isinstance(role, Rows) for role in passes)
    assert counts["action"] < by_each["action"]
    # Sampled words are drawn by each policy.
    assert counts["message"] == by_each["message"] if temperature else counts["message"] < by_each["message"]
