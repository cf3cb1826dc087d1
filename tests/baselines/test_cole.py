"""COLE as an algorithm: generations, state in the middle of one, the member that checkpoints hold."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.torch import load

from rllib_llm_comm import COLEConfig, load_policy
from rllib_llm_comm.baselines.population.cole import COLE, kept_member
from rllib_llm_comm.baselines.population.kitchen_partners import load_partners, play_matches
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.policies.partner_settings import parse_partners
from tests.idle_cook import random_cook
from tests.refusal import refused
from tests.running import cooks, running

pytestmark = pytest.mark.usefixtures("small_ray")


def config(**population):
    small = {"initial_size": 1, "run_batches": 2, "runs_per_generation": 2, "member_games": 2}
    made = cooks(COLEConfig, rows=5 * 20, horizon=20, width=8, games=4, minibatch_size=50)
    return made.population(**{**small, **population})


def files(algo):
    return [member["policy"]["files"] for member in algo._population.members]


def test_generations_and_a_restored_run_goes_on_with_the_same_partners(tmp_path):
    with running(config()) as algo:
        results = [algo.train() for _ in range(3)]
        grown = results[1]["population"]
        assert (grown["members"], grown["generation"]) == (2, 1), "a copy joins after the run with itself alone"
        # Two batches of 4 games of 20 steps; 2 games of the first member, 2 of each of three pairs with the second.
        assert grown["game_steps"] == 2 * 80 + 2 * 20 + 3 * 2 * 20
        for name in ("accepted", "score_self_play", "score_with_members"):
            assert results[2]["population"][name] == grown[name], "of the last generation, until the next one ends"
        assert results[2]["population"]["partner_entropy"] <= np.log(2) + 1e-9
        path = algo.save_to_path(str(tmp_path / "middle"))
        assert algo._batches == 1 and algo._partners
        drawn = algo._partners
        assert sum(weight for _, _, weight in drawn) == 3
    with running(COLE.from_checkpoint(path)) as again:
        assert again._batches == 1
        assert [(n, p["policy"], w) for n, p, w in again._partners] == [(n, p["policy"], w) for n, p, w in drawn]
        for _ in range(3):
            last = again.train()["population"]
        assert last["generation"] == 2 and last["game_steps"] > grown["game_steps"] + 4 * 80
        assert last["members"] == 2 + int(last["accepted"])
        kept = kept_member(again._population.payoffs)
        policy = load_policy(again.save_to_path(str(tmp_path / "end")))
        expected = load(*files(again)[kept].values())
    assert policy.manifest.algorithm == "COLE" and evaluate(policy, episodes=2).lengths == [20, 20]
    assert all(np.array_equal(tensor, expected[name]) for name, tensor in policy.network.state_dict().items())


def test_matches_are_games_of_the_pairs(tmp_path):
    settings = {"layout": "cramped_room", "horizon": 100}
    (partner,) = load_partners(parse_partners([random_cook(tmp_path / "policy", 100)]), settings)
    policy = partner.player
    once = play_matches([policy, policy], [(0, 1), (1, 0), (0, 0)], 20, settings, 0)
    assert once.steps.tolist() == [2000.0] * 3 and once.shaped.min() > 0
    again = play_matches([policy], [(0, 0)] * 3, 20, settings, 0)
    np.testing.assert_array_equal(once.shaped, again.shaped)  # two names of one policy
    assert play_matches([policy], [(0, 0)] * 3, 20, settings, 1).shaped.tolist() != once.shaped.tolist()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.population(initial_size=0), ("initial_size", "range")),
        (lambda c: c.population(self_play_share=1.0), ("self_play_share",)),
        (lambda c: c.partners(pool=["random"]), ("pool",)),
        (
            lambda c: c.policy_network(critic_observation="partner"),
            ("critic_observation", "invalid", "`critic_observation` is 'partner'.* 'own'"),
        ),
    ],
)
def test_bad_settings_are_named(change, why):
    with refused(*why):
        change(config().training(train_batch_size_per_learner=8 * 20)).validate()
