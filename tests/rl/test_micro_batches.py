"""Minibatches that are computed in parts: every part once, and the step of the whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from loop import Loop
from toys import talkers

from rllib_llm_comm import TWOSOMEConfig, VercoConfig
from rllib_llm_comm.verco.verco import VercoLearner

TALK = {"messages": "student", "train_messages": True, "message_temperature": 1.0, "max_message_words": 3}
NAMES = ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction", "vf_explained_var", "total_loss", "message_kl",
         "message_entropy", "minibatches", "policy_steps", "ratio_first_minibatch", "roll_out_ratio_error")  # fmt: skip


class Steps(VercoLearner):
    """Notes the gradients of every step before they are clipped."""

    def build(self):
        self.seen = []
        super().build()

    def postprocess_gradients(self, gradients):
        self.seen.append({name: gradients[p].clone() for name, p in self.named() if p in gradients})
        return super().postprocess_gradients(gradients)

    def named(self):
        return [(name, p) for name, p in self.module["shared"].named_parameters() if p.requires_grad]


class Squared(Steps):
    """An actor's loss that is no mean over rows."""

    def actor_objective(self, minibatch, terms):
        return super().actor_objective(minibatch, terms) ** 2


def updated(most_tokens, make=VercoConfig, talk=None, learner=None, model=None, **training):
    """A loop after one update, its results, and the tokens of every part that was computed with gradients."""
    sizes = {"train_batch_size_per_learner": 12, "lr": 1e-2, "target_kl": None}
    config = (
        talkers(make, {"busy": (1, 3), "length": 5}, **{**sizes, **training})
        .language_model(micro_batch_tokens=most_tokens, **(model or {}))
        .env_runners(rollout_fragment_length=6)
    )
    if "advantages" in training:
        config.env_runners(batch_mode="complete_episodes")
    if talk is not None:
        config.communication(**talk)
    learner = learner or type("Noted", (Steps, config.get_default_learner_class()), {})
    loop = Loop(config.learners(learner_class=learner))
    parts, network = [], loop.module.network
    scores = network._engine.scores

    def counted(model, prompts, candidates, mask, **kwargs):
        if torch.is_grad_enabled():
            rows = torch.unique(torch.cat([prompts, candidates.flatten(1), mask], 1), dim=0)[:, : -mask.shape[1]]
            parts.append(int((rows >= 0).sum()))
        return scores(model, prompts, candidates, mask, **kwargs)

    network._engine = dataclasses.replace(network._engine, scores=counted)
    return loop, loop.update(), parts


def require_equal(parts, whole):
    """The same gradients in all steps, and the same results."""
    (ours, found, _), (theirs, wanted, _) = parts, whole
    assert len(ours.learner.seen) == len(theirs.learner.seen) == found["minibatches"]
    for own, other in zip(ours.learner.seen, theirs.learner.seen, strict=True):
        assert own.keys() == other.keys()
        for name, gradient in other.items():
            torch.testing.assert_close(own[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
    assert {name for name in NAMES if name in found} == {name for name in NAMES if name in wanted}
    for name in NAMES:
        if name in wanted:
            np.testing.assert_allclose(found[name], wanted[name], atol=1e-5, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("most_tokens", "settings"),
    [
        (70, {"entropy_coeff": 0.1}),
        (1, {"minibatch_size": 7, "target_kl": 0.01}),
        (50, {"make": TWOSOMEConfig, "advantages": "grpo", "group_size": 2, "group_by": "prompt"}),
        (90, {"talk": TALK, "message_entropy_coeff": 0.05, "message_kl_coeff": 0.5}),
        (1, {"talk": TALK, "message_credit": "team", "num_epochs": 1}),
        (90, {"talk": {**TALK, "messages": "menu", "message_menu": ["red", "blue"]}, "minibatch_size": 9}),
    ],
    ids=str,
)
def test_parts_make_the_step_of_the_whole_and_each_is_computed_once(most_tokens, settings):
    whole, parts = updated(None, **settings), updated(most_tokens, **settings)
    require_equal(parts, whole)
    if "target_kl" in settings:
        assert 0 < parts[1]["policy_steps"] < parts[1]["minibatches"]
    assert len(parts[2]) > len(whole[2]) and max(parts[2]) < max(whole[2])
    if "menu" not in str(settings) and "talk" not in settings:  # messages lie between equal texts
        assert sum(parts[2]) == sum(whole[2])


def test_an_own_loss_is_computed_as_a_whole():
    """Its gradients are no sum over parts, so each part waits for the backward pass of all."""
    whole, parts = (updated(most, learner=Squared, num_epochs=1) for most in (None, 70))
    require_equal(parts, whole)
    assert sum(parts[2]) == 2 * sum(whole[2])


def test_an_own_loss_that_is_a_mean_over_rows_is_computed_in_parts():
    class Weighted(Steps):
        mean_over_rows = True

        def surrogate(self, minibatch, ratio, advantages):
            return 2.0 * super().surrogate(minibatch, ratio, advantages)

        def actor_objective(self, minibatch, terms):
            own = minibatch.out["action_dist_inputs"].clamp(min=-10).square().sum(-1).mean()
            return super().actor_objective(minibatch, terms) + 0.1 * own

    whole, parts, plain = (updated(most, learner=own, num_epochs=1) for most, own in
                           ((None, Weighted), (70, Weighted), (70, Steps)))  # fmt: skip
    require_equal(parts, whole)
    assert sum(parts[2]) == sum(whole[2]) and len(parts[2]) > len(whole[2])
    ours, plains = (
        sum(float(one.square().sum()) for one in loop.learner.seen[0].values()) for loop in (parts[0], plain[0])
    )
    assert ours > 4 * plains


def test_in_half_precision_ratios_are_those_of_the_parts():
    loop, results, parts = updated(70, model={"dtype": "bfloat16", "temperature": 0.3}, minibatch_size=11)
    assert results["ratio_first_minibatch"] < 1e-5 < results["roll_out_ratio_error"] < 0.5
    epochs = loop.config.num_epochs
    assert len(parts) > results["minibatches"] * (epochs + 1) // epochs
