"""Trained messages and those that were taught: the reference, the weight of the drift, and old states."""

from __future__ import annotations

import pytest
import torch
from loop import Loop
from toys import door_talkers, randomise

from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.verco.verco import adapted_kl_coeff


def config(model=None, **training):
    sizes = {"train_batch_size_per_learner": 64, "message_lr": 5e-3, "target_kl": None}
    return (
        door_talkers(**{**sizes, **training})
        .language_model(**(model or {}))
        .communication(train_messages=True, message_temperature=1.0, max_message_words=2)
        .env_runners(num_envs_per_env_runner=4, rollout_fragment_length=8)
    )


def weights(module, role):
    return {n.split(".", 1)[1]: p.detach().clone() for n, p in module.network.lm.named_adapter_parameters(role)}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


def test_the_reference_is_frozen_and_stays_with_the_learner_and_a_policy_folder_carries_it(tmp_path):
    loop = Loop(config())
    module = loop.module
    start = weights(module, "message")
    assert equal(start, weights(module, "reference"))
    first = loop.update()
    assert first["message_kl"] >= 0 and first["message_entropy"] > 0 and first["message_kl_coeff"] == pytest.approx(0.1)
    results = loop.update()
    assert equal(start, weights(module, "reference")) and not equal(start, weights(module, "message"))
    assert results["message_kl"] > 0
    # Runners hold and get the two adapters that act, and nothing else.
    runner = loop.runner.module["shared"].unwrapped()
    assert runner.network.lm.roles == ("message", "action")
    sent = loop.learner.get_state(components="rl_module", inference_only=True)["rl_module"]["shared"]
    kept = loop.learner.get_state(components="rl_module")["rl_module"]["shared"]
    assert {name.split("/")[0] for name in sent} == {"adapters.message", "adapters.action"}
    assert {name.split("/")[0].split(".")[0] for name in kept} == {"adapters", "critic", "reference"}
    for name, content in module.export_policy().files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    held = read_weights(tmp_path / "adapters/reference/adapter_model.safetensors")
    trained = read_weights(tmp_path / "adapters/message/adapter_model.safetensors")
    assert held.keys() == trained.keys() and any(not torch.equal(held[name], trained[name]) for name in held)
    assert sorted(float(t.sum()) for t in held.values()) == sorted(float(t.sum()) for t in start.values())
    silent = Loop(config().communication(train_messages=False)).module.export_policy()
    assert not any("reference" in name for name in silent.files)


def test_the_loss_holds_messages_near_the_reference_and_open():
    def updated(drift, entropy):
        loop = Loop(config(message_kl_coeff=drift, message_entropy_coeff=entropy, num_epochs=1))
        randomise(loop.module.network, "message", std=0.3, seed=5)  # far from the reference
        loop.sync()
        return loop.update()

    plain, held, opened = updated(0.0, 0.0), updated(0.5, 0.0), updated(0.0, 0.5)
    assert held["message_kl"] > 0.1 and opened["message_entropy"] > 0.1
    assert held["total_loss"] - plain["total_loss"] == pytest.approx(0.5 * held["message_kl"], rel=1e-3)
    assert opened["total_loss"] - plain["total_loss"] == pytest.approx(-0.5 * opened["message_entropy"], rel=1e-3)


def test_adapted_weight():
    # Ziegler et al.: the error is cut to 20 %, the weight changes by at most 2 %.
    assert adapted_kl_coeff(0.1, kl=9.0, target=1.0) == pytest.approx(0.102)
    assert adapted_kl_coeff(0.1, kl=0.0, target=1.0) == pytest.approx(0.098)
    assert adapted_kl_coeff(0.1, kl=1.1, target=1.0) == pytest.approx(0.101)


def test_the_weight_adapts_and_survives_a_restore():
    loop = Loop(config(message_kl_coeff=0.5, message_kl_target=1e-6))
    seen = [loop.update()["message_kl_coeff"] for _ in range(3)]
    assert seen[0] == pytest.approx(0.5) and seen[-1] == pytest.approx(seen[-2] * 1.02) and seen[-1] > 0.5
    state = loop.learner.get_state(components="rl_module")
    other = Loop(config(message_kl_coeff=0.5, message_kl_target=1e-6))
    other.learner.set_state(state)
    assert other.update()["message_kl_coeff"] == pytest.approx(seen[-1] * 1.02)
    assert equal(weights(other.module, "reference"), weights(loop.module, "reference"))


def test_a_state_without_a_reference_takes_its_message_adapter():
    loop, other = Loop(config()), Loop(config())
    randomise(loop.module.network, "message", seed=5)
    state = loop.learner.get_state(components="rl_module")
    module = state["rl_module"]["shared"]
    state["rl_module"]["shared"] = {name: value for name, value in module.items() if not name.startswith("reference")}
    other.learner.set_state(state)
    for role in ("message", "reference"):
        assert equal(weights(other.module, role), weights(loop.module, "message"))


def test_dropout_leaves_trained_messages_alone():
    loop = Loop(config({"lora_dropout": 0.5}, num_epochs=1))
    randomise(loop.module.network, "message", std=0.3, seed=5)
    loop.sync()
    loop.runner.sample()  # the first messages of the next roll-out are drawn with these weights
    results = loop.update()
    assert abs(results["kl"]) < 1e-6 and results["clip_fraction"] == 0
