"""The warning about a policy that closes before it has seen a reward."""

from __future__ import annotations

import types

import pytest

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.rl.callbacks import WarnOfClosing

ALGORITHM = types.SimpleNamespace(config=VercoConfig())


def result(entropy, best):
    return {"learners": {"shared": {"entropy": entropy}, "__all_modules__": {}}, "env_runners": best}


@pytest.mark.parametrize(
    ("best", "told"),
    [([{}, {}, {}], 1), ([{"episode_return_max": -0.1}] * 3, 1), ([{"episode_return_max": 0.2}, {}, {}], 0)],
)
def test_it_warns_once_where_no_reward_came(caplog, best, told):
    callback = WarnOfClosing()
    for entropy, own in zip((0.5, 0.06, 0.04), best, strict=True):
        callback.on_train_result(algorithm=ALGORITHM, result=result(entropy, own))
    callback.on_train_result(algorithm=ALGORITHM, result=result(0.01, {}))
    assert sum("advantage_floor" in record.getMessage() for record in caplog.records) == told


def test_without_a_critic_it_names_no_setting_of_one(caplog):
    config = VercoConfig().training(advantages="grpo")
    callback = WarnOfClosing()
    for entropy in (0.5, 0.04):
        callback.on_train_result(algorithm=types.SimpleNamespace(config=config), result=result(entropy, {}))
    assert "`entropy_coeff` (now 0.01)" in caplog.text
    assert "advantage_floor" not in caplog.text and "critic_warmup" not in caplog.text


def test_every_language_algorithm_has_it():
    config = VercoConfig().environment("rllib_llm_comm/overcooked_text-v0").communication(messages="none")
    config.validate()
    assert WarnOfClosing in config.callbacks_class
