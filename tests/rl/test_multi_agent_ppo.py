"""The PPO learner on real roll-outs of the toy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from loop import Loop
from toys import talkers

from rllib_llm_comm.language.engines import ENGINES
from rllib_llm_comm.rl.train_batch import discounted_sum, semi_markov_gae


def config(env_config=None, fragment=10, **training):
    sizes = {"train_batch_size_per_learner": 3 * fragment, "num_epochs": 3, "lr": 5e-4}
    made = talkers(env_config=env_config or {}, **{**sizes, **training})
    return made.env_runners(num_envs_per_env_runner=3, rollout_fragment_length=fragment)


def test_first_ratio_is_one_and_frozen_parts_stay():
    loop = Loop(config())
    base = {n: p.clone() for n, p in loop.module.network.lm.base.model.named_parameters()}
    before = {n: p.clone() for n, p in loop.module.named_parameters()}
    for _ in range(2):
        results = loop.update()
        assert results["ratio_first_minibatch"] < 1e-5
        assert results["policy_steps"] == results["minibatches"] == 3
        assert np.isfinite([results[k] for k in ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction")]).all()
    for name, parameter in loop.module.network.lm.base.model.named_parameters():
        assert torch.equal(parameter, base[name]), name
    changed = {n for n, p in loop.module.named_parameters() if not torch.equal(p, before[n])}
    assert not any("message/" in name for name in changed)
    assert any("action/" in name for name in changed) and any("critic" in name for name in changed)


@pytest.mark.parametrize(("dtype", "minibatch_size"), [("float32", None), ("bfloat16", None), ("bfloat16", 11)])
def test_first_ratio_is_one_also_in_half_precision_and_with_actions_that_outlast_a_fragment(dtype, minibatch_size):
    """In half precision it is taken from the arithmetic of the update."""
    settings = config({"busy": (2, 5), "length": 13}, fragment=7, minibatch_size=minibatch_size, target_kl=None)
    loop = Loop(settings.language_model(temperature=0.3, dtype=dtype))
    apart, older = [], []
    for _ in range(4):
        results = loop.update()
        assert results["ratio_first_minibatch"] < 1e-5
        apart.append(results["roll_out_ratio_error"])
        older.append(results["older_weights_share"])
    assert 0 < max(older) < 0.5
    assert dtype == "float32" or 1e-3 < max(apart) < 0.5


def test_where_memory_is_too_small_the_update_is_the_same_in_smaller_parts(caplog):
    def updates(most_tokens):
        loop = Loop(config({"busy": (2, 5)}, fragment=6, lr=1e-2, num_epochs=1))
        loop.module.network._engine = ENGINES["plain"]  # in the update, where the hook sees every token

        def too_many(embedding, inputs):
            if torch.is_grad_enabled() and inputs[0].numel() > most_tokens:
                raise torch.cuda.OutOfMemoryError("out of memory")

        hook = loop.module.network.lm.model.get_input_embeddings().register_forward_pre_hook(too_many)
        try:
            return loop, [loop.update()]
        finally:
            hook.remove()

    whole, wanted = updates(10**9)
    parts, found = updates(1500)
    assert whole.module.network.micro_batch_tokens is None and parts.module.network.micro_batch_tokens < 2000
    assert "micro_batch_tokens" in caplog.text
    for name in ("policy_loss", "entropy", "kl", "minibatches", "policy_steps"):
        np.testing.assert_allclose([one[name] for one in found], [one[name] for one in wanted], atol=1e-5)
    for (name, own), (_, other) in zip(parts.module.named_parameters(), whole.module.named_parameters(), strict=True):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("terminate", [False, True])
def test_advantages_and_bootstrap_values(terminate):
    settings = config({"busy": (1, 3), "length": 7, "pay_busy": 0.1, "terminate": terminate}, gamma=0.9, lambda_=0.8)
    loop = Loop(settings)
    episodes = loop.runner.sample()
    network = loop.module.network
    targets, advantages = [], []
    for episode in episodes:
        for _, single in sorted(episode.agent_episodes.items()):
            rows = single.get_observations(slice(0, len(single) + 1))
            with torch.no_grad():  # every state's value by its own text, the last one's too
                values = network.values({"critic_ids": torch.from_numpy(rows["critic_ids"])}).numpy()
            infos = single.get_infos(slice(1, len(single) + 1))
            advantage, target = semi_markov_gae(
                np.array([discounted_sum(info["step_rewards"], 0.9) for info in infos]),
                np.array([info["duration"] for info in infos]),
                values,
                single.is_terminated,
                0.9,
                0.8,
            )
            targets.append(target)
            advantages.append(advantage)
    advantages = np.concatenate(advantages)
    decisions = sum(len(s) for e in episodes for s in e.agent_episodes.values())
    ended = [s.is_terminated for e in episodes for s in e.agent_episodes.values() if e.is_done]
    paid = [s.get_return() for e in episodes for s in e.agent_episodes.values()]
    batch = loop.batch(episodes)
    assert [s.get_return() for e in episodes for s in e.agent_episodes.values()] == paid
    assert all(len(column) == decisions for key, column in batch.items() if key != "obs")
    assert "loss_mask" not in batch
    np.testing.assert_allclose(batch["value_targets"].numpy(), np.concatenate(targets), atol=1e-5)
    np.testing.assert_allclose(
        batch["advantages"].numpy(), (advantages - advantages.mean()) / advantages.std(), atol=1e-4
    )
    assert ended and all(flag == terminate for flag in ended)


@pytest.mark.parametrize("learners", [0, 2])
def test_kl_stop_rests_the_actor_and_not_the_critic(learners):
    """With several it is computed and its loss multiplied by 0, on which an optimizer would go on by its momentum."""
    loop = Loop(config(target_kl=1e-7, num_epochs=5))
    vars(loop.learner.config)["num_learners"] = learners
    forwards = []
    inner = loop.module.network.logits
    loop.module.network.logits = lambda observations: (forwards.append(1), inner(observations))[1]
    before = [p.clone() for p in loop.module.critic_parameters()]
    results = loop.update()
    assert results["policy_steps"] == 1 and results["minibatches"] == 5
    assert learners or len(forwards) == 2  # the first step, and the one that found the ratio too far away
    steps = {name: opt.state[next(iter(opt.state))]["step"] for name, opt in loop.learner._named_optimizers.items()}
    assert int(steps["shared_actor"]) == 1 and int(steps["shared_critic"]) == 5
    assert not torch.equal(before[0], loop.module.critic_parameters()[0])
    assert loop.update()["policy_steps"] == 1  # it rests until the next update, and no longer


def test_two_optimizers_with_their_own_rates_and_annealing():
    loop = Loop(config(lr=1e-3, critic_lr=4e-3, anneal=300, num_epochs=1))
    rates, left, decisions = [], [], 0
    for _ in range(3):
        left.append(1.0 - decisions / 300)
        loop.update()
        decisions += len(loop.trained["actions"])
        rates.append([opt.param_groups[0]["lr"] for opt in loop.learner._named_optimizers.values()])
    assert decisions < 300
    np.testing.assert_allclose(rates, np.outer(left, [1e-3, 4e-3]))
    while decisions < 300:  # where `stop: {decisions: 300}` ends the run
        loop.update()
        decisions += len(loop.trained["actions"])
    loop.update()
    assert {opt.param_groups[0]["lr"] for opt in loop.learner._named_optimizers.values()} == {0.0}
    groups = [opt.param_groups[0] for opt in loop.learner._named_optimizers.values()]
    assert all(g["eps"] == 1e-5 and g["weight_decay"] == 0.0 for g in groups)


def test_schedules_count_decisions_and_go_on_in_a_restored_learner():
    settings = config(entropy_coeff=[[0, 0.1], [200, 0.0]], target_kl=[[0, 1.0], [20, 1e-12]], lr=1e-2)
    loop = Loop(settings)
    first = loop.update()
    decisions = len(loop.trained["actions"])
    assert decisions > 20 and first["policy_steps"] == 3
    assert first["curr_entropy_coeff"] == pytest.approx(0.1 * (1 - decisions / 200))
    restored = Loop(settings)
    restored.learner.set_state(loop.learner.get_state())
    restored.sync()
    second = restored.update()
    both = decisions + len(restored.trained["actions"])
    assert second["curr_entropy_coeff"] == pytest.approx(0.1 * max(0.0, 1 - both / 200))
    assert second["policy_steps"] == 1  # the target has fallen to nothing


def test_at_first_the_critic_learns_alone():
    loop = Loop(config(critic_warmup=1))
    before = {name: value.clone() for name, value in loop.module.named_parameters()}
    assert loop.update()["policy_steps"] == 0
    changed = {name for name, value in loop.module.named_parameters() if not torch.equal(value, before[name])}
    assert changed and all("critic" in name for name in changed)
    assert loop.update()["policy_steps"] == 3


def test_one_step_clips_gradients_apart_weighs_losses_and_divides_advantages_by_the_floor_at_least():
    loop = Loop(config(grad_clip=1e-3, entropy_coeff=0.0, vf_loss_coeff=0.25, advantage_floor=10.0, num_epochs=1))
    results = loop.update()
    for parameters in (loop.module.actor_parameters(), loop.module.critic_parameters()):
        norm = torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()
        assert float(norm) <= 1e-3 * 1.01
    assert results["total_loss"] == pytest.approx(results["policy_loss"] + 0.25 * results["vf_loss"], rel=1e-5)
    std = results["advantage_std"]
    assert 0 < std < 10
    assert float(loop.trained["advantages"].std(correction=0)) == pytest.approx(std / 10, rel=1e-4)


def test_minibatches_use_every_decision_once():
    loop = Loop(config(minibatch_size=8, num_epochs=2))
    episodes = loop.runner.sample()
    decisions = sum(len(s) for e in episodes for s in e.agent_episodes.values())
    results = loop.update(episodes)
    assert 2 <= results["minibatches"] <= 2 * -(-decisions // 8)
    assert results["num_module_steps_trained"] == 2 * decisions
