"""PPO on the joint probability of message and action: free text and a menu."""

from __future__ import annotations

import pytest
import torch
from toys import talkers

from rllib_llm_comm import load_policy
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

MENU = ["i see red", "i see blue", "i see green"]
KINDS = {"free": {"messages": "student"}, "menu": {"messages": "menu", "message_menu": MENU}}


def config(kind, **training):
    talk = {**KINDS[kind], "train_messages": True, "message_temperature": 1.0, "max_message_words": 3}
    return talkers(**training).communication(**talk)


def weights(algo):
    module = algo.learner_group._learner.module["shared"].unwrapped()
    return {name: p.detach().clone() for name, p in module.network.lm.named_adapter_parameters()}


@pytest.mark.parametrize(
    ("kind", "runners", "epochs"), [("free", 0, 1), ("menu", 0, 1), pytest.param("menu", 1, 2, marks=pytest.mark.slow)]
)
def test_both_adapters_learn(kind, runners, epochs, tmp_path):
    with running(config(kind, num_epochs=epochs).env_runners(num_env_runners=runners)) as algo:
        before = weights(algo) if runners == 0 else None
        for iteration in range(2):
            learned = algo.train()["learners"]["shared"]
            assert float(learned["ratio_first_minibatch"]) < 1e-5
            assert float(learned["message_entropy"]) > 0
            if iteration == 0 and epochs == 1:  # one step, before which message and action have their old probability
                assert abs(float(learned["kl"])) < 1e-6 and float(learned["clip_fraction"]) == 0
        if before is not None:
            after = weights(algo)
            for role in ("message", "action"):
                assert any(not torch.equal(before[n], after[n]) for n in before if n.startswith(f"{role}."))
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    policy = load_policy(path)
    observations, _ = policy.env().reset(seed=0)
    policy.reset(seed=0)
    decisions = policy.act(observations, explore=False)
    if kind == "menu":
        assert all(decision.said in MENU for decision in decisions.values())
    policy.reset(seed=1)
    again = policy.act(observations, explore=False)  # greedy: nothing is drawn
    assert [d.said for d in decisions.values()] == [d.said for d in again.values()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_protocol_emerges_from_a_menu():
    """Each agent sees what the other must name, and both are paid alike: with trained messages they tell."""
    algo = (
        config("menu", train_batch_size_per_learner=512, minibatch_size=128, num_epochs=4, lr=1e-2, target_kl=None)
        .training(gamma=0.0)
        .language_model(temperature=1.0)
        .environment(env_config={"length": 8, "busy": (1, 1), "shared": True})
        .env_runners(num_envs_per_env_runner=8)
        .build_algo()
    )
    best = 0.0
    with running(algo):
        for _ in range(40):
            results = algo.train()
            best = max(best, results["env_runners"]["team_return_mean"] / 8)
            if best > 0.6:
                break
    assert best > 0.55  # without messages: one in three
