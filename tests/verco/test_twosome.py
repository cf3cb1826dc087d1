"""TWOSOME: Verco's module without messages, and the published settings."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from hostile import change
from toys import talkers

from rllib_llm_comm import TWOSOMEConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.experiments.packaged_examples import examples
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")


def test_trains_in_silence(tmp_path):
    with running(talkers(TWOSOMEConfig, {"length": 6})) as algo:
        results = algo.train()
        assert float(results["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
        assert "message_words" not in results["env_runners"]
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        policy = load_policy(path)
        algo.restore_from_path(path)
        manifest = json.loads((tmp_path / "checkpoint/policy/policy.json").read_text())
        change(tmp_path / "checkpoint", model_config={**manifest["model_config"], "lora_r": 99})
        with refused("lora_r"):
            algo.restore_from_path(path)
        change(tmp_path / "checkpoint", algorithm="Verco", model_config=manifest["model_config"])
        with pytest.raises(UserError, match="checkpoint of Verco"):
            algo.restore_from_path(path)
    assert policy.manifest.algorithm == "TWOSOME"
    assert policy.network.settings.score_normalization == "word"
    observations, _ = policy.env().reset(seed=0)
    assert all(decision.said == "" and not decision.heard for decision in policy.act(observations).values())


def test_learns_to_do_what_the_text_says():
    """Both agents name the colour that their text tells: one in three at first, nearly all of 16 at the end."""
    with running(
        talkers(TWOSOMEConfig, {"length": 6})
        .environment(env_config={"length": 8, "obvious": True})
        .language_model(temperature=1.0)
        .env_runners(num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=256, num_epochs=4, lr=5e-3, target_kl=None, gamma=0.0)
    ) as algo:
        chance, most, returns = 16 / 3, 16, []
        while len(returns) < 10 and not np.mean(returns[-3:] or [0]) > 0.8 * most:
            returns.append(algo.train()["env_runners"]["episode_return_mean"])
    assert returns[0] < chance + 2
    assert np.mean(returns[-3:]) > 0.8 * most


def test_messages_and_unknown_systems_are_refused():
    with refused("published", "choice"):
        TWOSOMEConfig().published("gpt")
    with refused("messages"):
        talkers(TWOSOMEConfig, {"length": 6}).communication(messages="student").validate()


@pytest.mark.parametrize("system", ["twosome", "glam"])
def test_published_settings_are_those_of_the_file(system):
    made = TWOSOMEConfig().published(system)
    stage = yaml.safe_load(examples()[f"{system}_llama7b"].read_text())[system]
    for name, value in stage["config"].items():
        own = getattr(made, name, None)
        if name in ("lr", "critic_lr", "score_normalization", "lora_r", "lora_alpha", "target_kl", "num_epochs"):
            assert own == pytest.approx(value) if isinstance(value, float) else own == value, name
