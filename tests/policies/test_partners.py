"""Partners in the seats of games: scripted, random, waiting, functions, checkpoints, and messages between them."""

import sys
import types
from collections import Counter

import numpy as np
import pytest
from toys import ENV_ID, register, write_tiny_talker

from rllib_llm_comm import load_policy
from rllib_llm_comm.baselines.numeric.policy import NumericPolicy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.overcooked_ai.layouts import POT
from rllib_llm_comm.evaluation.rollout import evaluate, play, record
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import Partner, make_partner, require_wait
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from tests.episodes import Noting
from tests.refusal import refused

AI, DOOR = "rllib_llm_comm/overcooked_ai-v0", "rllib_llm_comm/door-v0"
KITCHEN = {"layout": "cramped_room", "horizon": 150, "observe": ["vector"]}


def partner(policy, **settings):
    return make_partner(PartnerSettings(policy=policy, **settings), load_policy)


def pair(one, other=None):
    return SeatedPolicy({"alice": one, "bob": one if other is None else other})


def watched(policy, env, episodes=1, **options):
    """All decisions of some episodes, in order, by agent."""
    seen = {agent: [] for agent in policy.seats}

    def note(decisions):
        for agent, decision in decisions.items():
            seen[agent].append(decision)

    played = play(policy, episodes=episodes, env=env, observers=[Noting(note)], **options)
    return seen, played


def kitchen(**settings):
    return lambda: make_env(AI, **{**KITCHEN, **settings})


@pytest.fixture(scope="module")
def talkers(tmp_path_factory):
    """Checkpoints of two seeds whose messages differ."""
    return [
        str(write_tiny_talker(tmp_path_factory.mktemp(f"seed_{seed}") / "policy", seed, length=4)) for seed in (1, 5)
    ]


def test_scripted_cooks_deliver_and_cooks_who_stay_do_not():
    _, played = watched(pair(partner("scripted"), partner("scripted")), kitchen())
    assert played[0].returns["alice"] >= 60
    decisions, played = watched(pair(partner("stay")), kitchen())
    assert played[0].returns["alice"] == 0 and {one.action for one in decisions["bob"]} == {4}


@pytest.mark.parametrize("level", ["primitive", "goal_cell", "goal"])
def test_waiting_changes_nothing_at_any_action_level(level):
    env = make_env(
        AI, layout="cramped_room", horizon=40, action_level=level, observe=["vector"], commit=level == "goal"
    )
    env.reset(seed=0)
    before = [(cook.cell, cook.held) for cook in map(env.kitchen.cook, range(2))]
    while env.agents:
        env.step({agent: require_wait(env, agent, "stay") for agent in env.agents})
    assert [(cook.cell, cook.held) for cook in map(env.kitchen.cook, range(2))] == before


@pytest.mark.parametrize(
    ("game", "settings", "phrase"),
    [
        ("door", {}, "stay here"), ("referential", {}, "wait"), ("frozen_lake", {}, "stay"), ("minirts", {}, "wait"),
        ("overcooked_text", {}, "wait"), ("overcooked_text", {"action_level": "primitive"}, "wait"),
    ],
)  # fmt: skip
def test_games_that_know_how_to_wait(game, settings, phrase):
    env = make_env(f"rllib_llm_comm/{game}-v0", **settings)
    observations, _ = env.reset(seed=0)
    agent = env.agents[0]
    assert observations[agent]["candidates"][require_wait(env, agent, "stay")] == phrase


def test_games_in_which_nobody_can_wait_or_is_scripted_or_a_seat_is_empty_say_so():
    red = make_env("rllib_llm_comm/minirts-v0", action_level="red")
    red.reset(seed=0)
    with refused("stay"):
        require_wait(red, red.agents[0], "stay")
    register()
    hoarder = pair(partner("scripted", habit="one_pot"))
    for policy, env, told in (
        (SeatedPolicy(dict.fromkeys(red.possible_agents, partner("random"))), red, "Discrete"),
        (pair(partner("scripted")), make_env(ENV_ID), "no scripted player"),
        (hoarder, make_env(DOOR), "`habit`"),
        (hoarder, kitchen(layout="asymmetric_advantages", wanted="pot"), "one pot"),
        (SeatedPolicy({"alice": partner("stay")}), make_env(DOOR), "'bob'"),
    ):
        with pytest.raises(UserError, match=told):
            play(policy, episodes=1, env=env)


def test_random_is_uniform_among_the_allowed_and_two_of_them_differ():
    one, other = partner("random"), partner("random")
    decisions, _ = watched(pair(one, other), kitchen(horizon=400), episodes=4)
    counts = Counter(decision.action for decision in decisions["alice"])
    assert len(decisions["alice"]) == 1600
    assert all(abs(counts[action] - 1600 / 6) < 5 * np.sqrt(1600 * 5 / 36) for action in range(6))
    assert [d.action for d in decisions["alice"]] != [d.action for d in decisions["bob"]]
    masked = pair(partner("random"))
    decisions, _ = watched(masked, lambda: make_env(AI, layout="cramped_room", action_level="goal", horizon=40))
    assert any((one.probabilities == 0).any() for one in decisions["alice"])
    assert all(one.probabilities[one.action] > 0 for one in decisions["alice"])


def test_noise_and_pauses_are_shares_of_the_decisions():
    steady = {"noise": 0.3, "pauses": 0.2}
    for explore in (True, False):
        decisions, _ = watched(pair(partner("scripted", **steady)), kitchen(horizon=400), episodes=2, explore=explore)
        made = decisions["alice"]
        least = {round(float(one.probabilities.min()), 6) for one in made}
        assert least == {0.05}  # 0.3 by six actions
        advised = [one for one in made if one.probabilities.argmax() != 4]
        assert {round(float(one.probabilities.max()), 6) for one in advised} == {0.55}
        share = np.mean([one.action == one.probabilities.argmax() for one in advised])
        assert abs(share - 0.55) < 5 * np.sqrt(0.55 * 0.45 / len(advised))
        paused = np.mean([one.action == 4 for one in advised])
        assert abs(paused - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(advised))


@pytest.mark.parametrize(
    ("habit", "never", "does"), [("onions_only", "dish", "onion"), ("dishes_only", "onion", "dish")]
)
def test_cooks_with_a_habit_leave_the_rest_to_the_other(habit, never, does):
    env = make_env(AI, **KITCHEN)
    held = set()
    policy = pair(partner("scripted"), partner("scripted", habit=habit))
    note = Noting(lambda _: held.add(getattr(env.kitchen.cook(1).held, "kind", None)))
    (episode,) = play(policy, episodes=1, env=env, observers=[note])
    assert does in held and never not in held and episode.returns["bob"] > 0


def test_a_cook_of_one_pot_fills_the_other_never():
    env = make_env(AI, layout="asymmetric_advantages", horizon=150, observe=["vector"])
    pots = {"": set(), "one_pot": set()}
    for habit, used in pots.items():
        note = Noting(lambda _, used=used: used.update({*env.kitchen.items()} & {*env.kitchen.layout.cells(POT)}))
        play(pair(partner("scripted", habit=habit)), episodes=1, env=env, observers=[note])
    assert len(env.kitchen.layout.cells(POT)) == 2
    assert pots["one_pot"] < pots[""]


def test_a_users_function_plays_and_speaks(monkeypatch):
    module = types.ModuleType("my_partners")

    def guide(env, agent, rng):
        return lambda seen: (0, f"to the {env.unwrapped.fact} door") if agent == "alice" else 0

    module.guide, module.wrong = guide, lambda env, agent, rng: lambda seen: 99
    monkeypatch.setitem(sys.modules, "my_partners", module)
    decisions, played = watched(pair(partner("my_partners:guide"), partner("scripted")), lambda: make_env(DOOR))
    assert played[0].success
    assert decisions["alice"][0].said.startswith("to the") and decisions["bob"][0].heard == {}
    with pytest.raises(UserError, match="99"):
        play(pair(partner("my_partners:wrong")), episodes=1, env=make_env(DOOR))
    with pytest.raises(UserError, match="imported"):
        partner("my_partners:nothing")


def test_a_policy_in_both_seats_plays_as_it_does_alone(talkers):
    policy = load_policy(talkers[0])
    alone = evaluate(policy, episodes=6, seed=3, num_envs=1)
    for num_envs in (1, 4):
        seated = SeatedPolicy({"alice": (one := partner(talkers[0])), "bob": one}, policy.env)
        assert evaluate(seated, episodes=6, seed=3, num_envs=num_envs) == alone


def test_messages_pass_between_strangers(talkers):
    own = load_policy(talkers[0]), load_policy(talkers[1])
    seated = SeatedPolicy({"alice": partner(talkers[0]), "bob": partner(talkers[1])}, own[0].env)
    env = own[0].env()
    observations, _ = env.reset(seed=3)
    seated.reset(seed=3)
    seated.meet(env)
    decisions = seated.act(observations)
    for agent, other, policy in (("alice", "bob", own[0]), ("bob", "alice", own[1])):
        policy.reset(seed=3)
        assert decisions[agent].said == policy.act(observations)[agent].said
        assert decisions[agent].heard == {other: decisions[other].said} and decisions[other].said
        told = [(agent, observations[agent], decisions[agent].heard)]
        np.testing.assert_allclose(decisions[agent].probabilities, policy.probabilities(told)[0], atol=1e-6)
    assert decisions["alice"].said != decisions["bob"].said


def test_speech_none_silences_and_counterfactuals_are_scored_by_the_listener(talkers):
    policy = load_policy(talkers[0])
    seats = {"alice": partner(talkers[0]), "bob": partner(talkers[1], speech="none", noise=0.2)}
    (episode,) = record(SeatedPolicy(seats, policy.env), seed=3)
    first = episode.frames[0]["agents"]
    assert first["alice"]["heard"] == {} and first["bob"]["said"] == ""
    assert first["bob"]["heard"] == {"alice": first["alice"]["said"]} and "silent" in first["bob"]
    assert min(first["bob"]["silent"]) >= 0.2 / 3 - 1e-4  # its mistakes are in it, too


def test_scripted_speech_of_a_partner_that_reads_numbers(talkers):
    seats = {"alice": partner("scripted", speech="scripted"), "bob": partner("random")}
    decisions, _ = watched(SeatedPolicy(seats), lambda: make_env(DOOR))
    assert decisions["alice"][0].said and decisions["bob"][0].said == ""
    assert decisions["bob"][0].heard == {}  # nobody but language agents listens


def test_agents_that_exchange_vectors_share_no_game_with_strangers():
    net = NumericNetwork(NumericSettings(network="commnet", init_seed=0), 4, 3)
    manifest = PolicyManifest(algorithm="CommNet", model_config={"actions": 3}, communication={}, kind="numeric")
    commnet = Partner(PartnerSettings(policy="runs/commnet"), NumericPolicy(net.eval(), manifest))
    with pytest.raises(UserError, match="CommNet.* vectors"):
        pair(commnet, partner("random"))
    assert pair(commnet).manifest is manifest
