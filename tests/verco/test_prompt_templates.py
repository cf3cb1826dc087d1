"""Agents with templates of their own: what is encoded and scored, policy folders elsewhere, and adapters of others."""

from __future__ import annotations

import logging
import shutil

import numpy as np
import pytest
import torch
from hostile import change
from toys import ColourTalk, randomise, register, words_of, write_talker

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.engines import ENGINES
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.prompts import SHIPPED
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.verco.encoding import (
    MESSAGE_IDS,
    MessageEncoder,
    ObservationEncoder,
    TextObservation,
)
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker
from rllib_llm_comm.verco.policy import load_adapter_of
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings

PHRASES = ("wait", "do nothing", "get the tomato", "do nothing")
HEARD = {"bob": "bring the tomato"}
MINE = {"message": "{text}{subgoal} i say to you:", "action": "{text} i may {options}.{subgoal}{heard} so i"}


def view(mask=(True, True, True, False), text="i see a tomato.", subgoal=""):
    return TextObservation(text, PHRASES, mask, subgoal)


@pytest.mark.parametrize("prompts", [*SHIPPED, MINE], ids=lambda one: one if isinstance(one, str) else "mine")
def test_scores_are_those_of_the_plain_engine(prompts):
    network = LanguageNetwork(ModuleSettings(init_seed=0, prompts=prompts))
    randomise(network, "action", std=0.2, seed=1)
    encoder = ObservationEncoder(network.lm.base, network.settings)
    views = [view(), view((True, False, True, True)), view((True, True, True, True), "i wait."), view(subgoal="cook")]
    rows = [encoder.encode(one, HEARD) for one in views]
    batch = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    with torch.no_grad():
        inputs = (batch["prompt_ids"], batch["candidate_ids"], batch["action_mask"])
        fast, plain = (
            ENGINES[name].scores(network.lm, *inputs, candidate_words=batch["candidate_words"], role="action")
            for name in ("fast", "plain")
        )
    torch.testing.assert_close(fast, plain, atol=1e-3, rtol=1e-4)
    for one, row in zip(views, rows, strict=True):
        allowed = [phrase for phrase, free in zip(PHRASES, one.mask, strict=True) if free]
        expected = network.settings.templates.action(one.text, HEARD, one.subgoal, allowed)
        assert words_of(network.lm.base, row["prompt_ids"]) == expected == encoder.prompt(one, HEARD)


def test_messages_stand_behind_the_template_wherever_they_are_made():
    network = LanguageNetwork(ModuleSettings(init_seed=0, prompts=MINE))
    asked: list[str] = []

    def write(prompts, **how):
        asked.extend(prompts)
        return ["hello"] * len(prompts)

    protocol = MessageProtocol(CommunicationSettings())
    protocol.speak([Speaker("alice", view(subgoal="cook"), {}, templates=network.settings.templates)], write)
    prompt = "i see a tomato. my subgoal: cook. i say to you:"
    assert asked == [prompt]
    encoder = MessageEncoder(network.lm.base, 160, 5, templates=network.settings.templates)
    row = encoder.encode(view(subgoal="cook"), Written("", ()))[MESSAGE_IDS]
    assert words_of(network.lm.base, row) == prompt


@pytest.fixture(scope="module")
def written_once(tmp_path_factory):
    """A policy whose prompts are of a folder that is gone."""
    register()
    place = tmp_path_factory.mktemp("talker")
    (folder := place / "mine").mkdir()
    for name, text in MINE.items():
        (folder / f"{name}.txt").write_text(text + "\n")
    written = write_talker(place / "policy", prompts=str(folder), max_prompt_tokens=128)
    before = decisions(load_policy(written))
    shutil.rmtree(folder)
    return written, before


@pytest.fixture
def talker(written_once, tmp_path):
    return shutil.copytree(written_once[0], tmp_path / "checkpoint" / "policy")


def decisions(policy):
    observations, _ = ColourTalk().reset(seed=3)
    policy.reset(seed=3)
    return policy.act(observations, explore=False), observations


def test_a_policy_plays_with_its_own_prompts_where_their_folder_is_not(talker, written_once):
    before, observations = written_once[1]
    kept = read_manifest(talker).model_config["prompts"]
    assert kept["action"] == MINE["action"] and kept["heard"] == " {speaker} says: {message}."
    policy = load_policy(talker)
    after, _ = decisions(policy)
    for agent, seen in observations.items():
        assert after[agent].prompt == before[agent].prompt
        assert after[agent].prompt.startswith(f"{seen['text']} i may {', '.join(seen['candidates'])}.")
        np.testing.assert_array_equal(after[agent].probabilities, before[agent].probabilities)
        assert after[agent].said == before[agent].said
    default = LanguageNetwork(ModuleSettings(init_seed=0))
    assert default.settings.templates.action("a") != policy.network.settings.templates.action("a")


def test_policies_from_before_have_the_default(talker):
    config = read_manifest(talker).model_config
    change(talker.parent, model_config={name: value for name, value in config.items() if name != "prompts"})
    prompt = decisions(load_policy(talker))[0]["alice"].prompt
    assert prompt.endswith(" next i") and " i may " not in prompt


@pytest.mark.parametrize("prompts", ["/etc", 3, {"action": "{text.__class__}"}])
def test_a_strangers_prompts_read_no_folder_and_run_nothing(talker, prompts):
    change(talker.parent, "model_config", prompts=prompts)
    with pytest.raises(UserError, match="`prompts`"):
        load_policy(talker)


def lines(caplog):
    return [record.getMessage() for record in caplog.records if "other prompts" in record.getMessage()]


def test_adapters_of_other_prompts_are_told_once(talker, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("rllib_llm_comm.verco.policy._told", set())
    size = {"init_seed": 1, "max_prompt_tokens": 128}
    network = LanguageNetwork(ModuleSettings(**size))
    same = LanguageNetwork(ModuleSettings(prompts={"message": MINE["message"]}, **size))
    with caplog.at_level(logging.WARNING):
        load_adapter_of(same, talker)  # another action prompt is nothing to the message adapter
        assert lines(caplog) == []
        load_adapter_of(network, talker)
        load_adapter_of(network, talker)
        (line,) = lines(caplog)
        assert "message" in line and "action" not in line and str(talker) in line and "\n" not in line
        load_adapter_of(network, talker / "adapters" / "message")  # the adapter alone knows whose it is
        assert len(lines(caplog)) == 2
        shutil.copytree(talker / "adapters" / "message", tmp_path / "alone")
        load_adapter_of(network, tmp_path / "alone")
        assert len(lines(caplog)) == 2
    assert read_manifest(talker).model_config["prompts"]["message"] == MINE["message"]
