"""PPO beside frozen partners: whose rows are learned from, who sits where, and that partners stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load

from rllib_llm_comm import BestResponsePPOConfig, SelfPlayPPOConfig, load_policy
from rllib_llm_comm.baselines.population.best_response_ppo import BestResponsePPO
from rllib_llm_comm.baselines.population.kitchen_partners import (
    ITSELF,
    FrozenPartner,
    PartnerPool,
    SeatedPartners,
    SingleGameCooks,
    StackedActors,
    load_partners,
)
from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.envs.overcooked_ai.kernel import STAY
from rllib_llm_comm.envs.overcooked_ai.rules import KitchenBatch
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.partner_settings import parse_partners
from rllib_llm_comm.policies.policy_folder import PolicyExport
from rllib_llm_comm.rl.train_batch import semi_markov_gae, standardized
from tests.idle_cook import random_cook
from tests.refusal import refused
from tests.running import cooks, curve, running

pytestmark = pytest.mark.usefixtures("small_ray")
ENV = {"layout": "cramped_room", "horizon": 30}
COOKS = ("alice", "bob")


def config(kind=BestResponsePPOConfig, rows=3 * 40):
    return cooks(kind, rows)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A policy of self-play that has learned nothing yet."""
    return random_cook(tmp_path_factory.mktemp("partner") / "policy", 30)


def played_again(seen, actions, seat):
    """The learner's observations, rewards and last observation of a game whose partner stays; None: another seat."""
    env = parallel_env(horizon=30, observe=["vector"], vector="planes", shaping=0.5)
    observations, _ = env.reset()
    rewards = []
    for t, action in enumerate(actions.tolist()):
        if not np.array_equal(observations[COOKS[seat]]["vector"], seen[t]):
            return None
        observations, paid, _, _, _ = env.step({COOKS[seat]: action, COOKS[1 - seat]: STAY})
        rewards.append(paid[COOKS[seat]])
    return np.array(rewards), observations[COOKS[seat]]["vector"]


def test_a_roll_out_holds_the_learners_rows_alone():
    """Beside cooks that stay: played again game by game in PettingZoo's form, with returns by hand."""
    with running(config().partners(pool=["stay"])) as algo:
        algo.env_runner.use_partners(*algo.pool_of_runners())
        columns = algo.env_runner.roll_out(40, 0.5)
        network = algo.env_runner.module["shared"].unwrapped().network
    assert len(columns["actions"]) == 40 * 3
    seen = columns["obs"]["vector"].reshape(40, 3, -1)
    actions, values = (columns[name].reshape(40, 3) for name in ("actions", "vf_preds"))
    targets, raw = columns["value_targets"].reshape(40, 3), np.empty((40, 3))
    seats = []
    for game in range(3):
        for part in (slice(0, 30), slice(30, 40)):  # the games last 30 steps, the roll-out cuts the second ones
            fits = [played_again(seen[part, game], actions[part, game], seat) for seat in (0, 1)]
            assert sum(one is not None for one in fits) == 1
            seats.append(int(fits[0] is None))
            rewards, final = next(one for one in fits if one is not None)
            with torch.no_grad():
                behind = network.values({"vector": torch.from_numpy(final[None])}).numpy()
            own = np.append(values[part, game], behind)
            raw[part, game], target = semi_markov_gae(rewards, np.ones(len(rewards)), own, False, 0.99, 0.98)
            np.testing.assert_allclose(targets[part, game], target, rtol=1e-4, atol=1e-4)
    assert set(seats) == {0, 1}
    advantages = columns["advantages"].reshape(40, 3)
    np.testing.assert_allclose(advantages, standardized(raw), rtol=1e-3, atol=1e-3)


def test_the_critic_alone_is_told_who_the_partner_is(tmp_path):
    settings = config().policy_network(critic_observation="partner")
    with running(settings.partners(pool=["stay", "random"], self_play_share=0.3)) as algo:
        algo.env_runner.use_partners(*algo.pool_of_runners())
        seated = algo.env_runner._seated
        partners, own = seated.partner.copy(), seated.own.copy()
        observed = algo.env_runner.roll_out(20, 0.5)["obs"]
        size = observed["vector"].shape[1]
        read = observed["critic_state"].reshape(20, len(own), -1)
        assert np.array_equal(read[..., :size].reshape(-1, size), observed["vector"])
        assert np.array_equal(read[0, :, size:].argmax(1), partners[own // 2] % 3)  # games with itself: the last one
        assert (read[..., size:].sum(-1) == 1).all() and set(partners) >= {ITSELF}
        algo.train()
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        network = algo.env_runner.module["shared"].unwrapped().network
        assert (network.critic[1][0].weight.shape[1], network.actor[0].weight.shape[1]) == (size + 3, size)
    policy = load_policy(path)
    env = policy.env()
    observations, _ = env.reset(seed=0)
    assert np.isnan(policy.act(observations)["alice"].value)  # nobody tells it when it plays
    with running(BestResponsePPO.from_checkpoint(path)) as again:
        again.train()


def test_partners_and_seats_are_drawn_as_the_weights_say():
    pool = PartnerPool((FrozenPartner("a", "stay", 3.0), FrozenPartner("b", "random", 1.0)), self_play_share=0.25)
    games = KitchenBatch(8000, horizon=5)
    seated = SeatedPartners(pool, games, seed=0)
    for _ in range(2):
        alone = seated.partner == ITSELF
        assert alone.sum() == 2000 and len(seated.own) == 8000 + 2000
        assert np.mean(seated.partner[~alone] == 0) == pytest.approx(0.75, abs=0.02)
        assert seated.seat[~alone].mean() == pytest.approx(0.5, abs=0.03)
        both = np.bincount(seated.own // 2, minlength=8000)
        assert np.array_equal(both, np.where(alone, 2, 1))
        assert np.array_equal(seated.own[4000:] % 2, seated.seat[~alone])
        before = seated.partner.copy(), seated.seat.copy()
        seated.redraw(np.arange(8000) % 2 == 0)
        for now, then in zip((seated.partner, seated.seat), before, strict=True):
            assert np.array_equal(now[1::2], then[1::2])  # games that go on keep theirs
            assert not np.array_equal(now[::2], then[::2])
    assert {seated.name(0), seated.name(7999)} <= {None, "a", "b"} and seated.name(0) is None


def test_noise_pauses_and_greed():
    """Shares of actions that are random or none, and the most likely action of a network."""
    games = KitchenBatch(6000)
    planes = games.lossless().reshape(12000, -1).view(np.uint8)

    def shares(partner):
        seated = SeatedPartners(PartnerPool((partner,)), games, seed=0)
        actions = np.full(12000, -1)
        seated.act(planes, actions)
        theirs = np.setdiff1d(np.arange(12000), seated.own)
        assert (actions[seated.own] == -1).all()
        return np.bincount(actions[theirs], minlength=6) / 6000

    assert shares(FrozenPartner("still", "stay")).tolist() == [0, 0, 0, 0, 1, 0]
    np.testing.assert_allclose(shares(FrozenPartner("any", "random")), 1 / 6, atol=0.02)
    np.testing.assert_allclose(shares(FrozenPartner("noisy", "stay", noise=0.6))[:4], 0.1, atol=0.02)
    np.testing.assert_allclose(shares(FrozenPartner("lazy", "random", pauses=0.4))[STAY], 0.5, atol=0.03)


def test_every_partner_acts_by_its_own_network():
    """Rows of many networks in one batched pass: the logits of each alone, other shapes and layer norms among them."""
    networks = [
        NumericNetwork(NumericSettings(hiddens=hiddens, layer_norm=norm, init_seed=seed), 20, 6)
        for seed, (hiddens, norm) in enumerate([((8,), False)] * 4 + [((8, 8), False), ((8,), True), ((8,), True)])
    ]
    rng = np.random.default_rng(0)
    owners = [*rng.integers(0, len(networks), 30), *range(len(networks))]
    seen = torch.from_numpy(rng.normal(size=(len(owners), 20)).astype(np.float32))
    with torch.no_grad():
        together = StackedActors([networks[owner].actor for owner in owners]).logits(seen)
        alone = np.stack([networks[owner].actor(row).numpy() for owner, row in zip(owners, seen, strict=True)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-6)
    assert len({tuple(row) for row in np.round(alone, 6).tolist()}) == len(owners)


def test_a_greedy_partner_acts_as_its_policy_does(checkpoint):
    policy, export = load_policy(checkpoint), exported(checkpoint)
    games = KitchenBatch(50)
    planes = games.lossless().reshape(100, -1).view(np.uint8)
    greedy = SeatedPartners(PartnerPool((FrozenPartner("a", export, greedy=True),)), games, seed=0)
    actions = np.zeros(100, int)
    env = policy.env()
    observations, _ = env.reset()
    expected = [policy.act(observations, explore=False)[agent].action for agent in COOKS]
    with torch.no_grad():
        greedy.act(planes, actions)
    theirs = np.setdiff1d(np.arange(100), greedy.own)
    assert [expected[row % 2] for row in theirs] == actions[theirs].tolist()


def exported(checkpoint):
    (partner,) = load_partners(parse_partners([str(checkpoint)]), ENV)
    assert isinstance(partner.player, PolicyExport)
    return partner.player


def test_scripted_partners_cook_in_both_seats():
    """Two of them, who see the compiled games as the planner sees single ones: the scripted cooks' 240 points."""
    games = KitchenBatch(2, horizon=400)
    tables = [SingleGameCooks(games) for _ in COOKS]
    rng = np.random.default_rng(0)
    score = np.zeros(2)
    for game in (0, 1):
        for player, cook in enumerate(tables):
            cook.begin(game, player, rng)
    for _ in range(400):
        actions = np.array([[cook.action(game) for cook in tables] for game in (0, 1)])
        score += games.step(actions)[0].sum(1)
    assert (score >= 200).all(), score


def test_alone_it_is_self_play_to_the_last_bit():
    """With itself in all games: the curve and the weights of SelfPlayPPO with the same seed."""
    ends = []
    for kind in (SelfPlayPPOConfig, BestResponsePPOConfig):
        settings = config(kind, 2 * 3 * 40)
        if kind is BestResponsePPOConfig:
            settings.partners(pool=["random"], self_play_share=1.0)
        with running(settings) as algo:
            ends.append((curve(algo), algo.learner_group._learner.module["shared"].get_state()))
    assert ends[0][0] == ends[1][0]
    assert all(np.array_equal(value, ends[1][1][name]) for name, value in ends[0][1].items())


def test_trains_beside_partners_that_stay_as_they_are(checkpoint, tmp_path):
    settings = config(rows=4 * 30).partners(
        pool=[{"policy": str(checkpoint), "name": "old"}, {"policy": "scripted", "weight": 2}], self_play_share=0.34
    )
    with running(settings) as algo:
        before = load(exported(checkpoint).files["network.safetensors"])
        own = algo.learner_group._learner.module["shared"].get_state()
        for iteration in range(1, 4):
            results = algo.train()
            assert float(results["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
            assert results["env_runners"]["num_env_steps_sampled_lifetime"] == 90 * iteration
            assert results["env_runners"]["num_module_steps_sampled"]["shared"] == 120
            assert results["decisions"] == algo.learner_group._learner._decisions == 120 * iteration
        logged = results["env_runners"]
        assert {"score", "score_self_play", "score_with_partners"} <= set(logged)
        assert set(logged["score_by_partner"]) <= {"old", "scripted"} and logged["score_by_partner"]
        assert set(logged["score_by_seat"]) <= set(COOKS)
        networks = [network for network in algo.env_runner._seated._networks if network is not None]
        assert len(networks) == 1
        assert all(torch.equal(value, before[name]) for name, value in networks[0].state_dict().items())
        learned = algo.learner_group._learner.module["shared"].get_state()
        assert not all(np.array_equal(value, learned[name]) for name, value in own.items())
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
        with running(type(algo).from_checkpoint(path)) as again:
            assert again.train()["env_runners"]["num_env_steps_sampled_lifetime"] == 360
    assert load_policy(path).manifest.algorithm == "BestResponsePPO"


def test_another_pool_begins_all_games_anew(checkpoint):
    with running(config().partners(pool=["stay"])) as algo:
        algo.train()
        runner = algo.env_runner
        assert runner._games.states[:, 0].tolist() == [10] * 3  # 40 steps of games of 30
        algo.set_pool(PartnerPool((FrozenPartner("late", exported(checkpoint)),)))
        runner.use_partners(*algo.pool_of_runners())
        assert runner._games.states[:, 0].tolist() == [0] * 3 and runner._seated.name(0) == "late"
        with refused("self_play_share"):
            algo.set_pool(PartnerPool((FrozenPartner("late", exported(checkpoint)),), 0.5))


@pytest.mark.slow
def test_remote_runners_seat_the_same_partners(checkpoint, tmp_path):
    """Two remote EnvRunners: the rows of a batch, the pool from Ray's store, another pool, and a restored run."""
    settings = config(rows=2 * 3 * 40).partners(pool=[str(checkpoint)]).env_runners(num_env_runners=2)

    def seated(algo):
        return algo.env_runner_group.foreach_env_runner(
            lambda runner: [runner._seated.name(game) for game in range(3)], local_env_runner=False
        )

    with running(settings) as algo:
        results = algo.train()
        first = seated(algo)
        algo.set_pool(PartnerPool((FrozenPartner("late", exported(checkpoint)),)))
        results = algo.train()
        assert seated(algo) == [["late"] * 3] * 2
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    found = results["env_runners"]
    assert found["num_module_steps_sampled"]["shared"] == 240 and found["num_env_steps_sampled"] == 240
    assert found["num_env_steps_sampled_lifetime"] == 480
    assert len(first) == 2 and all(name is not None and name != "late" for own in first for name in own)
    with running(type(algo).from_checkpoint(path)) as again:
        results = again.train()
        assert seated(again) == first, "a run that goes on has the pool of its config"
    assert results["env_runners"]["num_env_steps_sampled_lifetime"] == 720


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c, p: c, ("pool",)),
        (lambda c, p: c.partners(pool=["stay"], self_play_share=1.5), ("self_play_share", "range")),
        (lambda c, p: c.policy_network(critic_observation="state"), ("critic_observation", "choice")),
        (lambda c, p: c.partners(pool=["some.module:player"]), ("policy", "invalid", "`policy` of the partner")),
        (lambda c, p: c.partners(pool=[{"policy": p, "word_noise": 0.5}]), ("word_noise",)),
        (
            lambda c, p: c.partners(pool=[{"policy": "scripted", "habit": "one_pot"}]),
            ("habit", "invalid", "`habit` of the partner"),
        ),
        (
            lambda c, p: c.partners(pool=["stay"], self_play_share=0.34),
            ("train_batch_size_per_learner",),
        ),
        (
            lambda c, p: c.environment(env_config={"layout": "forced_coordination"}).partners(pool=[p]),
            ("", "invalid", "same kitchen"),
        ),
    ],
)
def test_bad_settings_are_named(change, why, checkpoint):
    with refused(*why):
        change(config(rows=3 * 39), str(checkpoint)).validate()
