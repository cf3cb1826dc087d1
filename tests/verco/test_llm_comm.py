"""The RLModule: what it holds, sends and computes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from toys import batch_of, language_model, randomise

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericModule
from rllib_llm_comm.baselines.red.red import OfficerModule
from rllib_llm_comm.baselines.value.value_decomposition import JointQModule
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.emma.emma import EmmaModule
from rllib_llm_comm.verco.encoding import encoded_space
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.settings import LanguageModelSettings


def build_spec(inference_only=False, **settings):
    config = language_model(init_seed=0, **settings)
    return RLModuleSpec(
        module_class=LLMCommModule,
        observation_space=encoded_space(LanguageModelSettings.from_mapping(config), 3),
        action_space=gym.spaces.Discrete(3),
        model_config=config,
        inference_only=inference_only,
    )


def build(inference_only=False, **settings):
    return build_spec(inference_only, **settings).build()


@pytest.fixture(scope="module")
def module():
    return build()


def test_only_adapters_and_critic_are_registered_and_saved(module):
    adapters = sum(p.numel() for _, p in module.core.lm.named_adapter_parameters())
    critic = sum(p.numel() for p in module.core.critic.parameters())
    assert sum(p.numel() for p in module.parameters()) == adapters + critic
    state = module.get_state()
    assert sum(array.nbytes for array in state.values()) == 4 * (adapters + critic)
    assert all(name.startswith(("adapters.message/", "adapters.action/", "critic.")) for name in state)
    base = sum(p.numel() for p in module.core.lm.base.model.parameters())
    assert base > 0 and not any("embed" in name or "lm_head" in name for name in state)


def test_inference_only_module_has_no_critic_and_takes_a_synced_state(module):
    runner = build(inference_only=True)
    state = module.get_state(inference_only=True)
    assert set(state) == set(runner.get_state()) and not any("critic" in name for name in state)
    runner.set_state(state)
    with pytest.raises(ValueError, match="misses"):
        runner.set_state({})


def test_only_the_named_roles_are_trained():
    for roles, critic in ((("action",), True), (("message",), False)):
        module = build(trainable_roles=list(roles), train_critic=critic)
        trained = {name.split(".")[1].split("/")[0] for name, p in module.named_parameters() if p.requires_grad}
        assert {name for name in trained if name in ("message", "action")} == set(roles)
        assert bool(module.critic_parameters()) == critic
    assert not any(p.requires_grad for p in module.core.lm.base.model.parameters())


def test_language_model_stays_in_eval_mode_and_in_place(module):
    module.train()
    assert not module.core.lm.peft_model.training
    before = next(module.core.lm.model.parameters()).data_ptr()
    module.to(torch.device("cpu")).to(torch.float64)
    assert next(module.core.lm.model.parameters()).data_ptr() == before
    assert all(p.dtype == torch.float32 for p in module.parameters())


def test_rollout_and_training_agree_and_masked_actions_have_no_chance(module):
    randomise(module.core, "action")
    batch = {Columns.OBS: batch_of(module.core, 8)}
    mask = batch[Columns.OBS]["action_mask"].clone()
    mask[::2, 1] = 0
    batch[Columns.OBS]["action_mask"] = mask
    rollout = module.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS]
    trained = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    assert trained.requires_grad and not rollout.requires_grad
    torch.testing.assert_close(rollout, trained.detach(), atol=1e-5, rtol=1e-5)
    distribution = module.get_exploration_action_dist_cls().from_logits(rollout)
    assert torch.all(rollout.softmax(-1)[mask == 0] == 0)
    assert torch.isfinite(distribution.entropy()).all()


def test_set_state_leaves_unchanged_weights_alone(module):
    runner = build()
    runner.set_state(module.get_state())
    prompt = ["you see red. i say:"]
    runner.write_messages(prompt)
    stamp = runner.core.lm.stamp("message")
    state = module.get_state()
    name = next(n for n in state if n.startswith("adapters.action/"))
    state[name] = state[name] + 1.0
    runner.set_state(state)
    assert runner.core.lm.stamp("message") == stamp
    np.testing.assert_array_equal(runner.get_state()[name], state[name])


def test_values_use_given_features_or_make_their_own(module):
    batch = {Columns.OBS: batch_of(module.core)}
    own = module.compute_values(batch)
    given = module.compute_values({**batch, "critic_features": module.critic_features(batch)})
    torch.testing.assert_close(own, given)


def test_unknown_setting_is_refused_with_a_hint():
    with pytest.raises(UserError, match="Did you mean 'lora_r'"):
        build(lora_rr=4)


class Unfinished(LLMCommModule):
    """A module of somebody whose set-up has a fault."""

    def setup(self):
        super().setup()
        self.core.no_such_part()


def test_a_fault_in_a_set_up_is_told_as_it_is():
    """RLlib takes an AttributeError for a module of an earlier version."""
    spec = build_spec()
    spec.module_class = Unfinished
    with pytest.raises(RuntimeError, match="Unfinished cannot be set up: .* no attribute 'no_such_part'"):
        spec.build()


@pytest.mark.parametrize("module_class", [NumericModule, EmmaModule, OfficerModule, JointQModule])
def test_every_module_tells_its_faults(module_class):
    class Broken(module_class):
        def setup(self):
            raise AttributeError("'Space' object has no attribute 'spaces'")

    space = gym.spaces.Box(0, 1, (3,), np.float32)
    spec = RLModuleSpec(
        module_class=Broken, observation_space=space, action_space=gym.spaces.Discrete(3), model_config={}
    )
    with pytest.raises(RuntimeError, match="Broken cannot be set up: .* no attribute 'spaces'"):
        spec.build()
