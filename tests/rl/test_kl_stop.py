"""The stop of policy updates on the KL divergence."""

from __future__ import annotations

import pytest
import torch

from rllib_llm_comm.rl.multi_agent_ppo_learner import KLStop, approximate_kl


def test_approximate_kl():
    log_ratio = torch.tensor([0.0, 0.5])
    assert float(approximate_kl(log_ratio)) == pytest.approx((0.0 + (2.718281828**0.5 - 1 - 0.5)) / 2, rel=1e-5)
    assert float(approximate_kl(torch.randn(1000) * 0.1)) >= 0


def test_a_policy_rests_from_the_first_minibatch_beyond_the_target_until_the_next_update():
    stop = KLStop()
    assert [stop.check("a", kl, 0.05) for kl in (0.04, 0.05, 0.06, 0.01)] == [False, False, True, True]
    assert stop.stopped("a") and not stop.stopped("b")
    stop.begin_update()
    assert not stop.stopped("a")
    assert not stop.check("a", 9.0, None)
