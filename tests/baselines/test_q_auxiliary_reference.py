"""The terms of LDSA, ROMA and MASER beside plain numpy loops over games, agents and steps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from team_games import episode, tensors

from rllib_llm_comm.baselines.value.joint_game import PER_OBSERVATION, joined
from rllib_llm_comm.baselines.value.ldsa import LDSALoss, LDSATraining
from rllib_llm_comm.baselines.value.maser import MASERLoss, MASERTraining
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam
from rllib_llm_comm.baselines.value.roma import ROMALoss, ROMATraining
from rllib_llm_comm.baselines.value.value_decomposition import unroll_teams

AGENTS, ACTIONS, SIZE, STATE, GAMMA = 3, 4, 5, 7, 0.9
CLOSED = -9999999.0
LENGTHS = ((6, True), (3, False), (5, True), (1, False))


def game(rng, steps, terminated):
    """A game with closed actions and agents that are not asked, who can do nothing but action 0."""
    masks = (rng.random((steps + 1, AGENTS, ACTIONS)) < 0.6).astype(np.int8)
    active = (rng.random((steps + 1, AGENTS)) < 0.7).astype(np.int8)
    masks[active == 0] = 0
    masks[..., 0] = 1
    actions = [[rng.choice(np.flatnonzero(mask)) for mask in row] for row in masks[:-1]]
    seen, state = rng.normal(size=(steps + 1, AGENTS, SIZE)), rng.normal(size=(steps + 1, STATE))
    return {
        **episode(seen, actions, rng.normal(size=steps), terminated, ACTIONS, masks, state),
        "active": active,
    }


def games(seed=0):
    rng = np.random.default_rng(seed)
    return [game(rng, *length) for length in LENGTHS]


def team(seed, **settings):
    return QTeam(QSettings(**{"width": 8, "init_seed": seed, **settings}), SIZE, ACTIONS, AGENTS, STATE)


def alone(players, one):
    """What a team makes of one game without any other beside it."""
    steps, asked = len(one["rewards"]), one["active"]
    last = np.full((steps + 1, AGENTS), -1)
    for t in range(steps):
        last[t + 1] = np.where(asked[t] != 0, one["actions"][t], last[t])
    rows = [torch.as_tensor(array)[None] for array in (one["seen"], last, asked)]
    with torch.no_grad():
        return players.unroll(rows[0], rows[1], active=rows[2])


def total(players, values, states):
    """Team values of rows of agents' values."""
    with torch.no_grad():
        rows = [torch.as_tensor(np.asarray(array, np.float32)) for array in (values, states)]
        return players.total(*rows)[..., 0].double().numpy()


def softmax(values):
    powers = np.exp(values - values.max())
    return powers / powers.sum()


# LDSA


def test_subtasks_are_paid_for_their_distance():
    live = team(1, kind="ldsa")
    unrolled = unroll_teams(live, team(2, kind="ldsa"), tensors(joined(games())))
    term = ldsa_loss(0.7, 0.0).auxiliary_losses(live, unrolled, None)["subtask_distance"]
    tasks = live.agents.subtasks().detach().double().numpy()
    apart = [((tasks[i] - tasks[j]) ** 2).sum() for i in range(len(tasks)) for j in range(len(tasks)) if i != j]
    assert float(term.detach()) == pytest.approx(-0.7 * np.mean(apart), rel=1e-4)


def test_agents_pay_for_changes_of_their_chances_of_subtasks():
    live = team(1, kind="ldsa", subtask_width=16)
    with torch.no_grad():
        live.agents.ability.weight.mul_(8.0)  # chances far from equal, so that their order in time shows
    unrolled = unroll_teams(live, team(2, kind="ldsa", subtask_width=16), tensors(joined(games())))
    term = ldsa_loss(0.0, 0.6).auxiliary_losses(live, unrolled, None)["subtask_change"]
    crossed = []
    for one in games():
        logits = alone(live, one).more["subtask_logits"][0].double().numpy()
        for t in range(len(one["rewards"])):
            for i in range(AGENTS):
                now, later = softmax(logits[t, i]), softmax(logits[t + 1, i])
                crossed.append(-sum(now[j] * np.log(later[j]) for j in range(len(now))))
    assert float(term.detach()) == pytest.approx(0.6 * np.mean(crossed), rel=1e-4)


def test_ldsas_gradients_stop_at_the_other_subtask_and_at_the_chances_of_before():
    rng, steps, kinds = np.random.default_rng(0), 4, 3
    tasks = torch.tensor(rng.normal(size=(kinds, 5)), requires_grad=True)
    logits = torch.tensor(rng.normal(size=(2, steps + 1, AGENTS, kinds)), requires_grad=True)
    filled = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    live = SimpleNamespace(agents=SimpleNamespace(subtasks=lambda: tasks))
    unrolled = SimpleNamespace(
        live=SimpleNamespace(more={"subtask_logits": logits}), batch={"filled": torch.tensor(filled)}
    )
    sum(ldsa_loss(0.7, 0.6).auxiliary_losses(live, unrolled, None).values()).backward()
    x, p = tasks.detach().numpy(), np.zeros(logits.shape)
    for where in np.ndindex(logits.shape[:3]):
        p[where] = softmax(logits[where].detach().numpy())
    pulled = [-0.7 * 2 * sum(x[i] - x[j] for j in range(kinds)) / (kinds * (kinds - 1)) for i in range(kinds)]
    np.testing.assert_allclose(tasks.grad, pulled, rtol=1e-4)
    wanted = np.zeros(p.shape)
    for b, t, i in np.ndindex(2, steps, AGENTS):
        wanted[b, t + 1, i] = 0.6 * filled[b, t] * (p[b, t + 1, i] - p[b, t, i]) / (AGENTS * filled.sum())
    np.testing.assert_allclose(logits.grad, wanted, rtol=1e-4, atol=1e-8)


# ROMA


def roles(rng, steps=6):
    """Distributions and roles of a batch of games; narrow ones among them, to which others' roles are hardly likely."""
    shape = (len(LENGTHS), steps + 1, AGENTS, 3)
    made = {
        "role_means": rng.normal(size=shape),
        "role_variances": np.exp(rng.uniform(-4.0, 1.0, shape)),
        "inferred_means": rng.normal(size=shape),
        "inferred_variances": np.exp(rng.uniform(-1.0, 1.0, shape)),
    }
    return {**made, "roles": made["role_means"] + np.sqrt(made["role_variances"]) * rng.normal(size=shape)}


def scaled(pairs):
    return (pairs - pairs.min()) / (pairs.max() - pairs.min())


def role_terms(told, difference, entropy, inference):
    """ROMA's two terms, the second without its weight, of the steps of `games()`."""
    known, special, floored = [], [], []
    for b, (steps, _) in enumerate(LENGTHS):
        for t in range(steps):
            mean, variance, inferred_mean, inferred_variance, role = (
                told[name][b, t]
                for name in ("role_means", "role_variances", "inferred_means", "inferred_variances", "roles")
            )
            alike, apart = np.zeros((AGENTS, AGENTS)), np.zeros((AGENTS, AGENTS))
            for i in range(AGENTS):
                surprise = 0.5 * np.log(2 * np.pi * np.e * variance[i]).sum()
                ratio = variance[i] / inferred_variance[i]
                shift = (mean[i] - inferred_mean[i]) ** 2 / inferred_variance[i]
                divergence = 0.5 * (ratio + shift - 1 - np.log(ratio)).sum()
                known.append(np.logaddexp(0.0, min(2000.0, entropy * surprise + inference * divergence)))
                for j in range(AGENTS):
                    density = np.exp(-((role[j] - mean[i]) ** 2) / (2 * variance[i])) / np.sqrt(2 * np.pi * variance[i])
                    alike[i, j] = np.mean([max(np.log(d) + 13.9, -13.9) if d > 0 else -13.9 for d in density])
                    floored.append((np.log(density + 1e-300) < -27.8).any())
                    pair = torch.tensor(np.concatenate([role[i], role[j]]), dtype=torch.float32)
                    apart[i, j] = abs(float(difference(pair).detach()))
            alike, apart = scaled(alike), scaled(apart)
            covered = sum(min(1.0, alike[i, j] + apart[i, j]) for i in range(AGENTS) for j in range(AGENTS))
            special.append((apart.sum() - covered) / AGENTS / AGENTS)
    return np.mean(known), np.mean(special), np.mean(floored)


def ldsa_loss(distance, change):
    return LDSALoss(LDSATraining(subtask_distance=distance, subtask_change=change))


def roma_loss(entropy, inference):
    return ROMALoss(ROMATraining(gamma=GAMMA, role_entropy=entropy, role_inference=inference, role_difference=0.7))


# With the second pair of weights the sum in the exponent is beyond 2000 for some agents and below for others.
@pytest.mark.parametrize(("entropy", "inference"), [(0.3, 0.2), (900.0, 0.2), (0.01, 0.7)])
def test_romas_terms_are_those_of_plain_loops(entropy, inference):
    live, told = team(1, kind="roma"), roles(np.random.default_rng(0))
    unrolled = SimpleNamespace(
        live=SimpleNamespace(more={name: torch.tensor(a, dtype=torch.float32) for name, a in told.items()}),
        batch=tensors(joined(games())),
    )
    terms = roma_loss(entropy, inference).auxiliary_losses(live, unrolled, None)
    known, special, floored = role_terms(told, live.agents.difference, entropy, inference)
    assert 0.1 < floored < 0.9
    assert float(terms["role_loss"].detach()) == pytest.approx(known, rel=1e-4)
    assert float(terms["role_difference"].detach()) == pytest.approx(0.7 * special, rel=1e-3)


def test_romas_loss_has_the_terms_of_the_roles_that_it_drew():
    live, target = team(1, kind="roma").train(), team(2, kind="roma").eval()
    batch, loss = tensors(joined(games())), roma_loss(0.3, 0.2)
    torch.manual_seed(0)
    told = unroll_teams(live, target, batch).live.more
    torch.manual_seed(0)
    _, report = loss(live, target, batch)
    told = {name: values.detach().double().numpy() for name, values in told.items()}
    known, special, _ = role_terms(told, live.agents.difference, 0.3, 0.2)
    assert report["role_loss"] == pytest.approx(known, rel=1e-4)
    assert report["role_difference"] == pytest.approx(0.7 * special, rel=1e-3)


# MASER

WEIGHTS = MASERTraining(
    subgoal_reward=0.3,
    own_value_share=0.6,
    maser_weight=0.5,
    individual_weight=0.8,
    mixed_weight=0.25,
    exploring_weight=0.35,
    distance_weight=0.65,
)


def lengthened(one, steps):
    """A game with what a batch puts behind its end: zeros, which faithful MASER takes for steps."""
    long = {}
    for name, array in one.items():
        long[name] = np.zeros((steps + (name in PER_OBSERVATION), *array.shape[1:]), array.dtype)
        long[name][: len(array)] = array
    long["active"][len(one["active"]) :] = 1
    return long


def evenness(values):
    """KL(softmax || uniform)."""
    chances = softmax(np.asarray(values, np.float64))
    return sum(chance * np.log(chance) for chance in chances if chance > 0) + np.log(len(chances))


def cosine(one, other):
    return one @ other / (np.linalg.norm(one) * np.linalg.norm(other))


def maser_terms(live, target, weights, faithful):
    """MASER's terms, and the subgoals' steps of each game."""
    squares, own, even, near, subgoals = [], [], [], [], []
    longest = max(steps for steps, _ in LENGTHS)
    with torch.no_grad():
        points = lambda seen: live.distance(torch.as_tensor(seen)).double().numpy()  # noqa: E731
        for short in games():
            played = len(short["rewards"])
            one = lengthened(short, longest) if faithful else short
            steps, masks = len(one["rewards"]), one["action_mask"]
            ours, theirs = (alone(players, one).values[0].double().numpy() for players in (live, target))
            best = np.where(masks != 0, ours, CLOSED).argmax(-1)
            value = np.array([[theirs[t, i, best[t, i]] for i in range(AGENTS)] for t in range(steps + 1)])
            team_value = total(target, value, one["state"])
            score = weights.own_value_share * value + (1 - weights.own_value_share) * team_value[:, None] / AGENTS
            goal = [int(np.argmax(score[:steps, i])) for i in range(AGENTS)]
            subgoals.append((goal, value[:steps].argmax(0), team_value[:steps].argmax()))
            where = points(one["seen"])
            paid = np.zeros((steps, AGENTS))
            for t in range(steps):
                for i in range(AGENTS):
                    paid[t, i] = -np.linalg.norm(where[t, i] - where[goal[i], i])
            for t in range(played):
                acted, going_on = one["actions"][t], 1 - one["terminated"][t]
                reward = one["rewards"][t] + weights.subgoal_reward * paid[t].mean()
                wanted = reward + GAMMA * going_on * team_value[t + 1]
                joint = total(live, ours[t, range(AGENTS), acted], one["state"][t])
                squares.append((joint - wanted) ** 2)
                share, step_error = softmax(value[t + 1]), 0.0
                for i in range(AGENTS):
                    earned = (
                        share[i] * (reward if faithful else one["rewards"][t]) + weights.subgoal_reward * paid[t, i]
                    )
                    step_error += (ours[t, i, acted[i]] - earned - GAMMA * going_on * value[t + 1, i]) ** 2
                own.append(step_error)
            closed = np.where(masks != 0, theirs, CLOSED if faithful else 0.0)
            for i in range(AGENTS):
                later = range(goal[i], steps)
                if faithful:
                    even.append(np.mean([evenness(closed[t, i]) for t in later]))
                else:
                    even.append(np.mean([evenness(ours[t, i][masks[t, i] != 0]) for t in later]))
                near += [(-paid[t, i] - (1 - cosine(closed[t, i], closed[goal[i], i]))) ** 2 for t in range(steps)]
    means = {
        "td_loss": np.mean(squares),
        "individual_loss": weights.maser_weight * weights.individual_weight * np.mean(own),
        "exploring_loss": weights.maser_weight * weights.mixed_weight * weights.exploring_weight * np.mean(even),
        "distance_loss": weights.maser_weight * weights.mixed_weight * weights.distance_weight * np.mean(near),
    }
    return means, subgoals


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("mixer", ["vdn", "qmix"])
def test_masers_terms_are_those_of_plain_loops(mixer, faithful):
    live, target = (team(seed, distance_width=6, mixer=mixer) for seed in (1, 2))
    with torch.no_grad():
        for players in (live, target):
            players.agents.head.weight.mul_(4.0)  # values far from equal, so that their softmax and cosines show
    loss, report = MASERLoss(WEIGHTS.replace(gamma=GAMMA, faithful=faithful))(live, target, tensors(joined(games())))
    terms, subgoals = maser_terms(live, target, WEIGHTS, faithful)
    assert {name: report[name] for name in terms} == pytest.approx(terms, rel=1e-3)
    assert float(loss.detach()) == pytest.approx(sum(terms.values()), rel=1e-3)
    ends = [steps for steps, _ in LENGTHS]
    # Not all subgoals are those of one value alone, and only faithful MASER takes some from behind the end.
    assert any(list(own) != goal for goal, own, _ in subgoals)
    assert any([whole] * AGENTS != goal for goal, _, whole in subgoals)
    assert any(max(goal) >= end for (goal, *_), end in zip(subgoals, ends, strict=True)) is faithful


@pytest.mark.parametrize("faithful", [False, True])
def test_masers_terms_teach_only_what_they_are_about(faithful):
    taught = {}
    for name in ("individual_weight", "exploring_weight", "distance_weight"):
        live, target = (team(seed, distance_width=6) for seed in (1, 2))
        unrolled = unroll_teams(live, target, tensors(joined(games())))
        only = {"individual_weight": 0.0, "exploring_weight": 0.0, "distance_weight": 0.0, name: 1.0}
        weights = MASERTraining(faithful=faithful, subgoal_reward=0.3, maser_weight=1.0, mixed_weight=1.0, **only)
        loss = MASERLoss(weights)
        (term,) = loss.auxiliary_losses(live, unrolled, loss.rewards(live, unrolled)).values()
        if term.requires_grad:
            term.backward()
        parts = {"agents": live.agents, "distance": live.distance, "mixer": live.mixer, "target": target}
        taught[name.removesuffix("_weight")] = {
            key for key, part in parts.items() if any(p.grad is not None for p in part.parameters())
        }
    released = {"individual": {"agents"}, "exploring": set(), "distance": set()}
    assert taught == (released if faithful else {**released, "exploring": {"agents"}, "distance": {"distance"}})
