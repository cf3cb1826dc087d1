"""Loss terms on numbers worked out by hand."""

from __future__ import annotations

import functools

import pytest
import torch

from rllib_llm_comm.baselines.numeric.mappo import huber_loss
from rllib_llm_comm.rl.multi_agent_ppo import approximate_kl, clipped_surrogate, explained_variance, value_loss


def test_clipped_surrogate():
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.0])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0, 2.0])
    # min(1.5, 1.2), min(-1.5, -1.2), min(.5, .8), min(-.5, -.8), 2
    by_hand = [1.2, -1.5, 0.5, -0.8, 2.0]
    assert clipped_surrogate(ratio, advantages, 0.2).tolist() == pytest.approx(by_hand)


def test_no_gradient_beyond_the_clip():
    ratio = torch.tensor([1.5, 0.5], requires_grad=True)
    clipped_surrogate(ratio, torch.tensor([1.0, -1.0]), 0.2).sum().backward()
    assert ratio.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("delta", [None, 10.0])
def test_loss_of_clipped_values_is_the_plain_loop(mode, clip, delta):
    def loss(error):
        if delta is None:
            return error**2
        return error**2 / 2 if abs(error) <= delta else delta * (abs(error) - delta / 2)

    torch.manual_seed(0)
    values, old, targets = torch.randn(200) * 3, torch.randn(200), torch.randn(200) * 10
    total = 0.0
    for value, was, target in zip(values.tolist(), old.tolist(), targets.tolist(), strict=True):
        losses = [loss(value - target)]
        if clip is not None:
            losses.append(loss(was + min(max(value - was, -clip), clip) - target))
        total += (max if mode == "max" else min)(losses)
    assert (values - targets).abs().max() > 10 > (values - targets).abs().min()
    penalty = torch.square if delta is None else functools.partial(huber_loss, delta=delta)
    assert float(value_loss(values, old, targets, clip, mode, penalty)) == pytest.approx(total / 200, rel=1e-5)


def test_explained_variance():
    targets = torch.tensor([1.0, 2.0, 3.0])
    assert float(explained_variance(targets, targets)) == 1.0
    assert float(explained_variance(targets, torch.full((3,), 2.0))) == 0.0
    assert torch.isfinite(explained_variance(torch.ones(3), torch.zeros(3)))


def test_approximate_kl():
    log_ratio = torch.tensor([0.0, 0.5])
    assert float(approximate_kl(log_ratio)) == pytest.approx((0.0 + (2.718281828**0.5 - 1 - 0.5)) / 2, rel=1e-5)
    assert float(approximate_kl(torch.randn(1000) * 0.1)) >= 0
