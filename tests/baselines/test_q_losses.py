"""Value decomposition in plain torch: games whose values are known exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from team_games import (
    TWO_STEP,
    endless,
    episode,
    greedy,
    memory_game,
    memory_seen,
    plain,
    table,
    tensors,
    train,
    two_step,
)

from rllib_llm_comm.baselines.value.joint_game import PER_OBSERVATION, EpisodeBuffer, joined, last_actions
from rllib_llm_comm.baselines.value.q_network import CLOSED, QSettings, QTeam, epsilon_greedy, open_values
from rllib_llm_comm.baselines.value.value_decomposition import TeamLoss, ValueTraining

STATES = np.eye(3)


@pytest.mark.parametrize(
    ("mixer", "updates", "values", "earned"),
    [("vdn", 400, [[-1.5, 2.5], [2.5, 6.5]], 7), ("qmix", 600, TWO_STEP[1], 8)],
)
def test_vdn_ends_the_two_step_game_with_7_and_qmix_with_8(mixer, updates, values, earned):
    team, _ = train(two_step(), plain(mixer=mixer), updates, lr=1e-3)
    np.testing.assert_allclose(table(team, STATES[2]), values, atol=0.6)
    where = 1 + greedy(team, [STATES[0]] * 2)[0]
    assert TWO_STEP[where - 1][tuple(greedy(team, [STATES[where]] * 2))] == earned


def test_agents_that_learn_alone_see_means_over_the_other():
    team, _ = train(two_step(), plain(mixer="none"), 400, lr=2e-3)
    seen = torch.tensor(STATES[2], dtype=torch.float32).expand(1, 1, 2, 3)
    values = team.unroll(seen, torch.full((1, 1, 2), -1)).values[0, 0]
    np.testing.assert_allclose(values.detach(), [[0.5, 4.5]] * 2, atol=0.6)


@pytest.mark.parametrize("recurrent", [True, False])
def test_only_agents_with_a_memory_play_what_they_saw_at_first(recurrent):
    team, _ = train(memory_game(), plain(recurrent=recurrent, mixer="vdn"), 250, lr=2e-3, batch=32, copy_every=25)
    right = []
    for bit in (0, 1):
        seen = torch.tensor(memory_seen(bit)[:6], dtype=torch.float32)[None]
        values = team.unroll(seen, torch.full((1, 6, 2), -1)).values[0, -1]
        right += (values.argmax(-1) == bit).tolist()
    # Without memory both bits look alike in the last step, so each agent is right once.
    assert sum(right) == (4 if recurrent else 2)


def test_an_episode_cut_by_a_time_limit_is_bootstrapped():
    team, _ = train(endless(2), plain(mixer="vdn"), 400, gamma=0.9, lr=1e-3, copy_every=7)
    # Without the value of the last state no value could exceed 1 + 0.9 + ... + 0.9^9 = 6.51.
    np.testing.assert_allclose(table(team, [1.0]), 10.0, atol=0.3)


def small_team(**settings):
    return QTeam(QSettings(**{"width": 8, "init_seed": 3, **settings}), 3, 4, 2, 6).eval()


def random_episode(rng, steps, terminated=True):
    masks = (rng.random((steps + 1, 2, 4)) < 0.6).astype(np.int8)
    masks[..., 0] = 1
    return episode(
        rng.normal(size=(steps + 1, 2, 3)), rng.integers(0, 4, (steps, 2)), rng.normal(size=steps), terminated, 4, masks
    )


@pytest.mark.parametrize("mixer", ["vdn", "qmix"])
@pytest.mark.parametrize("td_lambda", [0.0, 0.6])
def test_the_loss_is_that_of_a_plain_loop_over_episodes(mixer, td_lambda):
    rng = np.random.default_rng(0)
    episodes = [random_episode(rng, 5), random_episode(rng, 2, terminated=False), random_episode(rng, 3)]
    live, target, gamma = small_team(mixer=mixer), small_team(mixer=mixer, init_seed=4), 0.9
    loss, report = TeamLoss(ValueTraining(gamma=gamma, td_lambda=td_lambda))(live, target, tensors(joined(episodes)))
    errors = []
    for one in episodes:
        steps = len(one["rewards"])
        ours, theirs = (step_by_step(team, one) for team in (live, target))
        targets = np.zeros(steps)
        for t in reversed(range(steps)):
            best = np.where(one["action_mask"][t + 1] != 0, ours[t + 1], -np.inf).argmax(-1)
            later = total(target, theirs[t + 1][range(2), best], one["state"][t + 1])
            if td_lambda and t + 1 < steps:
                later = (1 - td_lambda) * later + td_lambda * targets[t + 1]
            targets[t] = one["rewards"][t] + gamma * (1 - one["terminated"][t]) * later
            errors.append(total(live, ours[t][range(2), one["actions"][t]], one["state"][t]) - targets[t])
    assert float(loss.detach()) == pytest.approx(float(np.mean(np.square(errors))), rel=1e-4)
    assert report["td_loss"] == float(loss.detach())


def step_by_step(team, one):
    """Values (T + 1, n, A), one step at a time, each agent's memory carried along from zeros."""
    memory, last, values = team.initial_memory(1), torch.full((1, 1, 2), -1), []
    for t, seen in enumerate(one["seen"]):
        with torch.no_grad():
            out = team.unroll(torch.tensor(seen)[None, None], last, memory)
        values.append(out.values[0, 0].numpy())
        memory = out.memory
        if t < len(one["actions"]):
            last = torch.tensor(one["actions"][t])[None, None]
    return np.stack(values)


def total(team, values, state):
    with torch.no_grad():
        return float(team.total(torch.tensor(values), torch.tensor(state)))


def test_the_mixer_grows_with_every_agents_value():
    mixer = small_team(mixer="qmix")
    values = torch.randn(50, 2, requires_grad=True)
    (slopes,) = torch.autograd.grad(mixer.total(values, torch.randn(50, 6)).sum(), values)
    assert (slopes >= 0).all() and (slopes > 0).any()


def test_an_agent_that_is_not_asked_keeps_its_memory_and_its_last_action():
    team, seen = small_team(), torch.randn(1, 4, 2, 3)
    active = torch.ones(1, 4, 2)
    active[0, 1:3, 1] = 0
    actions = torch.tensor([[[1, 1], [2, 2], [3, 3]]])
    before = last_actions(actions, active)
    assert before[0].tolist() == [[-1, -1], [1, 1], [2, 1], [3, 1]]
    out = team.unroll(seen, before, active=active)
    alone = team.unroll(seen[:, [0, 3]], before[:, [0, 3]])  # the second agent as if the steps between were not
    torch.testing.assert_close(out.values[:, 3, 1], alone.values[:, 1, 1])
    torch.testing.assert_close(out.memory[:, 1], alone.memory[:, 1])
    assert not torch.allclose(out.memory[:, 0], alone.memory[:, 0])


def test_closed_actions_are_never_played():
    torch.manual_seed(0)
    values = torch.randn(200, 3, 5) + torch.tensor([0, 0, 0, 0, 9.0])
    masks = torch.tensor([1, 0, 1, 1, 0]).expand_as(values)
    assert (open_values(values, masks)[..., 4] == CLOSED).all()
    for epsilon in (0.0, 0.5, 1.0):
        drawn = epsilon_greedy(values, masks, epsilon)
        assert set(drawn.unique().tolist()) == {0, 2, 3}
    best = open_values(values, masks).argmax(-1)
    kept = (epsilon_greedy(values, masks, 0.3) == best).float().mean()
    assert 0.75 < float(kept) < 0.85  # 0.7 + 0.3 / 3


def test_without_ids_agents_with_equal_views_act_equally():
    seen = torch.randn(1, 6, 1, 3).expand(1, 6, 2, 3)
    for ids in (False, True):
        values = small_team(agent_ids=ids).unroll(seen, torch.full((1, 6, 2), -1)).values
        assert torch.allclose(values[..., 0, :], values[..., 1, :], atol=1e-6) is not ids


def test_the_buffer_keeps_the_latest_and_goes_on_equally_after_a_restore():
    buffer = EpisodeBuffer(3, seed=1)
    buffer.add([random_episode(np.random.default_rng(k), k) for k in range(1, 6)])
    assert len(buffer) == 3 and sorted(buffer.sample(3)["filled"].sum(1).tolist()) == [3, 4, 5]
    state = buffer.get_state()
    again, empty = EpisodeBuffer(3), EpisodeBuffer(3)
    again.set_state(state)
    empty.set_state(buffer.get_state(episodes=False))
    for name, values in buffer.sample(2).items():
        np.testing.assert_array_equal(values, again.sample(2)[name] if name == "seen" else values)
    assert len(again) == 3 and len(empty) == 0


@pytest.mark.parametrize("length", [1, 4, 9])
def test_pieces_are_cut_out_of_all_steps_alike_and_end_as_their_episodes_do(length):
    episodes = [random_episode(np.random.default_rng(k), 6, terminated=k == 0) for k in range(2)]
    buffer, drawn, ended = EpisodeBuffer(2, seed=0), np.zeros(6), set()
    buffer.add(episodes)
    for _ in range(600):
        batch = buffer.sample(2, length)
        for row, rewards in enumerate(batch["rewards"]):
            steps = int(batch["filled"][row].sum())
            whole = next(one for one in episodes if rewards[0] in one["rewards"])
            start = int(np.flatnonzero(whole["rewards"] == rewards[0])[0])
            assert 1 <= steps <= length and (steps == length or start == 0 or start + steps == 6)
            for name, values in whole.items():
                some = steps + (name in PER_OBSERVATION)
                np.testing.assert_array_equal(batch[name][row][:some], values[start : start + some])
            drawn[start : start + steps] += 1
            ended.add((start + steps == 6, float(batch["terminated"][row].sum())))
    assert ended == {(False, 0.0), (True, 0.0), (True, 1.0)}
    np.testing.assert_allclose(drawn / drawn.mean(), 1.0, atol=0.15)
