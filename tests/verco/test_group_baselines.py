"""Group baselines: exact values by hand, and real roll-outs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from loop import Loop
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from toys import ColourTalk, door_talkers, talkers

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.rllib_adapter import START, register_parallel_env
from rllib_llm_comm.rl.train_batch import discounted_sum
from rllib_llm_comm.verco.advantages import group_advantages, returns_to_go
from tests.refusal import refused


def estimate(returns, groups, episodes, leave_out=True, by_std=False):
    columns = [np.array(column) for column in (returns, groups, episodes)]
    return group_advantages(*columns, leave_out=leave_out, by_std=by_std)


def test_returns_are_discounted_by_game_steps():
    # G2 = 4; G1 = 2 + .5^1 * 4 = 4; G0 = 1 + .5^3 * 4 = 1.5
    found = returns_to_go(np.array([1.0, 2.0, 4.0]), np.array([3.0, 1.0, 2.0]), 0.5)
    np.testing.assert_allclose(found, [1.5, 4.0, 4.0])


def test_equal_returns_teach_nothing_and_are_told():
    for leave_out, by_std in ((True, False), (False, False), (False, True)):
        found = estimate([2.0, 2.0, 1.0, 3.0, 5.0], [0, 0, 1, 1, 2], [0, 1, 2, 3, 4], leave_out, by_std)
        assert found.advantages[:2].tolist() == [0, 0] and found.advantages[4] == 0
        assert found.level.tolist() == [True, True, False, False, False]
        assert np.abs(found.advantages[2:4]).min() > 0


def test_an_episode_that_meets_a_group_twice_is_left_out_as_a_whole():
    # Episode 0 with 1 and 5, episode 1 with 3: the baseline of both rows of episode 0 is 3, that of episode 1 is 3.
    found = estimate([1.0, 5.0, 3.0, 8.0, 9.0], [0, 0, 0, 1, 1], [0, 0, 1, 2, 2])
    np.testing.assert_allclose(found.advantages, [-2, 2, 0, 0, 0])
    assert found.alone.tolist() == [False, False, False, True, True]  # twice the same episode is nobody else


class Uneven(ColourTalk):
    """Ends when an agent first names a colour right, so that episodes last as long as they are bad."""

    def step(self, actions):
        found = super().step(actions)
        if max(found[1].values()) >= 1.0 and self.agents:
            self.agents = []
            found[2].update(dict.fromkeys(self.possible_agents, True))
        return found


def config(env=ColourTalk, env_config=None, games=6, **training):
    register_parallel_env(f"toys/groups_{env.__name__}", entry=env)
    groups = {"advantages": "rloo", "group_size": 3, "num_epochs": 3, "lr": 5e-4, "gamma": 0.9}
    return (
        talkers(env_config=env_config or {}, **{"train_batch_size_per_learner": 1024, **groups, **training})
        .environment(f"toys/groups_{env.__name__}", disable_env_checking=True)
        .env_runners(num_envs_per_env_runner=games, batch_mode="complete_episodes")
    )


def by_agent(episodes):
    """(start, agent) -> [(discounted return, decisions)], and all of them in the order of a batch's rows."""
    table, order = {}, []
    for episode in episodes:
        for agent, single in sorted(episode.agent_episodes.items()):
            # Game steps of busy times are discounted one by one, all from the first decision on.
            steps = [r for info in single.get_infos(slice(1, len(single) + 1)) for r in info["step_rewards"]]
            key = (single.get_infos(0)[START], agent)
            table.setdefault(key, []).append(discounted_sum(steps, 0.9))
            order.append((key, table[key][-1], len(single)))
    return table, order


def expected(episodes, how):
    table, order = by_agent(episodes)
    values, lengths = [], []
    for key, own, count in order:
        others = list(table[key])
        if how == "rloo":
            others.remove(own)
        advantage = own - np.mean(others)
        if how == "grpo":
            advantage /= max(1e-4, np.std(others))
        values.append(np.full(count, advantage))
        lengths.append(count)
    if how == "grpo":
        mean = np.mean(lengths)
        values = [value * mean / count for value, count in zip(values, lengths, strict=True)]
    return np.concatenate(values)


HOW = {
    "rloo": {},
    "grpo": {"advantages": "grpo"},
    "dr_grpo": {"advantages": "grpo", "normalize_by_std": False, "normalize_by_length": False},
}


@pytest.mark.parametrize("how", HOW)
def test_advantages_of_real_roll_outs_over_several_pieces(how):
    loop = Loop(config(env_config={"busy": (1, 3), "length": 7, "pay_busy": 0.1}, **HOW[how]))
    episodes = [*loop.runner.sample(), *loop.runner.sample()]  # as RLlib fills a batch
    assert len(episodes) == 12
    table, _ = by_agent(episodes)
    assert len(table) == 8 and all(len(own) == 3 for own in table.values())  # 2 rounds x 2 groups x 2 agents
    want = expected(episodes, how)
    batch = loop.batch(episodes)
    assert "value_targets" not in batch and "vf_preds" not in batch and "loss_mask" not in batch
    np.testing.assert_allclose(batch["advantages"].numpy(), want, atol=1e-5)
    assert np.abs(want).max() > 0.1


def test_groups_over_two_runners():
    loop = Loop(config())
    weights = loop.learner.get_state(components="rl_module", inference_only=True)
    episodes = []
    for number in (1, 2):
        runner = MultiAgentEnvRunner(config=loop.config, worker_index=number)
        runner.set_state(weights)
        episodes += runner.sample()
    table, _ = by_agent(episodes)
    assert {start.split("/")[0] for start, _ in table} == {"1", "2"}
    assert len(table) == 8 and all(len(own) == 3 for own in table.values())
    shuffled = [episodes[k] for k in np.random.default_rng(0).permutation(len(episodes))]
    want = expected(shuffled, "rloo")
    np.testing.assert_allclose(loop.batch(shuffled)["advantages"].numpy(), want, atol=1e-5)


def test_groups_are_whole_also_where_bad_episodes_last_longer():
    """RLlib alone plays good games again and throws away the long ones."""
    loop = Loop(config(env=Uneven, env_config={"length": 30}))
    for _ in range(3):
        episodes = loop.runner.sample()
        assert len(episodes) == 6 and len({episode.env_t for episode in episodes}) > 1
        table, _ = by_agent(episodes)
        assert len(table) == 4 and all(len(own) == 3 for own in table.values())


def test_prompts_are_groups():
    loop = Loop(config(group_by="prompt", env_config={"length": 5}))
    episodes = loop.runner.sample()
    keys, togo = [], []
    for number, episode in enumerate(episodes):
        for agent, single in sorted(episode.agent_episodes.items()):
            rows = single.get_observations(slice(0, len(single)))
            rewards = single.get_rewards()
            for t in range(len(single)):
                shown = (rows["prompt_ids"][t].tobytes(), rows["action_mask"][t].tobytes())
                keys.append((number, agent, shown))
                togo.append(discounted_sum(rewards[t:], 0.9))
    want = []
    for (number, agent, shown), value in zip(keys, togo, strict=True):
        others = [v for (n, a, s), v in zip(keys, togo, strict=True) if (a, s) == (agent, shown) and n != number]
        want.append(value - np.mean(others) if others else 0.0)
    assert 0.0 < np.mean([value == 0.0 for value in want]) < 1.0
    np.testing.assert_allclose(loop.batch(episodes)["advantages"].numpy(), want, atol=1e-5)


def test_an_update_has_no_critic_and_counts_the_lonely_and_cut_episodes_are_refused():
    loop = Loop(config(target_kl=None))
    names = set(loop.learner._named_optimizers)
    assert names == {"shared_actor"} and not loop.module.critic_parameters()
    before = {n: p.clone() for n, p in loop.module.named_parameters()}
    results = loop.update()
    assert results["ratio_first_minibatch"] < 1e-5 and "vf_loss" not in results
    assert results["policy_steps"] == results["minibatches"] == 3
    assert results["group_alone"] == results["group_alone_share"] == 0
    changed = {n for n, p in loop.module.named_parameters() if not torch.equal(p, before[n])}
    assert changed and all("action/" in name for name in changed)
    episodes = loop.runner.sample()
    partial = [e for e in episodes if e.agent_episodes["bob"].get_infos(0)[START].endswith("/0")] + episodes[-1:]
    decisions = sum(len(single) for single in partial[-1].agent_episodes.values())
    results = loop.update(partial)
    assert results["group_alone"] == decisions
    assert results["group_alone_share"] == pytest.approx(decisions / len(loop.trained["advantages"]))
    alone = loop.trained["advantages"][-decisions:]
    assert len(partial) == 4 and not alone.any() and loop.trained["advantages"].any()
    pieces = loop.runner.sample(num_timesteps=12)
    with pytest.raises(UserError, match="`batch_mode`"):
        loop.batch(pieces)


def test_the_kl_stop_leaves_nothing_to_do():
    results = Loop(config(target_kl=1e-7, num_epochs=5)).update()
    assert results["policy_steps"] == 1 and results["minibatches"] == 5


def test_behind_a_prompt_nobody_can_say_what_its_message_was_worth():
    settings = door_talkers(advantages="rloo", group_by="prompt", message_credit="team")
    settings.communication(train_messages=True, message_temperature=1.0).env_runners(batch_mode="complete_episodes")
    with refused("group_by"):
        settings.validate()
    settings.training(message_credit="speaker").validate()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"advantages": "rlo"}, "`advantages` .*Did you mean"), ({"group_size": 1}, "`group_size`"),
        ({"group_size": 4}, "`num_envs_per_env_runner` .* multiple of `group_size`"),
        ({"batch_mode": "truncate_episodes"}, "`batch_mode` .* `advantages`"),
        ({"num_learners": 2, "minibatch_size": 8}, "`num_learners` .* `advantages`"),
        ({"advantages": "gae", "critic_hiddens": None}, "`critic_hiddens`"),
        ({"group_size": 1, "group_by": "prompt"}, None), ({"advantages": "gae", "group_size": 4}, None),
    ],
)  # fmt: skip
def test_bad_values_are_refused(values, words):
    settings = config().update_from_dict(values)
    with pytest.raises(UserError, match=words) if words else contextlib.nullcontext():
        settings.validate()
