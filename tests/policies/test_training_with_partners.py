"""Training with frozen partners in the other seats: who acts, whose rows are learned from, and who hears whom."""

import json
import pickle
import shutil
from collections import Counter

import numpy as np
import pytest
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from toys import ENV_ID, ColourTalk, register, talkers, write_tiny_talker

from rllib_llm_comm import CommNetConfig, MAPPOConfig, SelfPlayPPOConfig, SymbolicPPOConfig, load_policy
from rllib_llm_comm.baselines.numeric.behavior_cloning import CloningSettings, Demonstrations, clone_players
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.policies.partner_settings import parse_partners
from rllib_llm_comm.policies.partners import make_partner
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest
from rllib_llm_comm.policies.seated_policy import PartnerSeats
from rllib_llm_comm.rl import partners_and_planning
from rllib_llm_comm.rl.connectors import MAILBOX
from rllib_llm_comm.verco.policy import LanguagePolicy
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")
POOL = ["random", {"policy": "toy_partners:first", "weight": 3.0}]


@pytest.fixture(autouse=True)
def toy_partners(monkeypatch, tmp_path):
    """A user's module with a partner that always takes the first allowed action."""
    source = "def first(env, agent, rng):\n    return lambda seen: int(seen['action_mask'].argmax())\n"
    (tmp_path / "toy_partners.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def seats(pool=POOL, env=None, **settings):
    made = [make_partner(one, load_policy) for one in parse_partners(pool)]
    return PartnerSeats(env or ColourTalk(length=4), made, **settings)


def config(kind=SymbolicPPOConfig, **env_config):
    return (
        kind()
        .environment(register(), env_config={"length": 6, **env_config})
        .policy_network(hiddens=[16])
        .env_runners(num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=96, minibatch_size=48, num_epochs=2)
        .debugging(seed=0)
        .partners(pool=POOL)
    )


def talker(**settings):
    return talkers(env_config={"length": 6, **settings})


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A checkpoint of Verco with message and action adapters of its own."""
    return str(write_tiny_talker(tmp_path_factory.mktemp("stranger") / "policy", seed=9, length=6).parent)


def test_seats_and_partners_are_drawn_by_their_shares():
    game = seats(self_play_share=0.2)
    drawn = Counter()
    for seed in range(1500):
        observations, infos = game.reset(seed=seed)
        assert set(observations) == set(infos) == set(game.agents) == set(game.learners)
        drawn[(game.partner.settings.name if game.partner else "itself", *game.learners)] += 1
    for (name, *learners), count in drawn.items():
        share = 0.2 if name == "itself" else 0.8 * {"random": 0.25, "toy_partners:first": 0.75}[name] / 2
        assert abs(count - 1500 * share) < 5 * np.sqrt(1500 * share * (1 - share)), (name, learners)
    assert len(drawn) == 5
    first = seats(seat="bob", env=ColourTalk(length=4))
    assert {tuple(first.reset(seed=seed) and first.learners) for seed in range(20)} == {("bob",)}
    for seed in (3, 4):
        again = [game.reset(seed=seed) and (game.partner, tuple(game.learners)) for _ in range(2)]
        assert again[0] == again[1]


@pytest.mark.parametrize("busy", [(1, 1), (3, 1), (1, 3), (2, 3)])
def test_the_learner_is_shown_its_own_decisions_and_all_that_it_earned(busy):
    paid = []

    class Counting(ColourTalk):
        def step(self, actions):
            found = super().step(actions)
            paid.append(found[1])
            return found

    for seed in range(8):
        paid.clear()
        game = seats(env=Counting(length=7, busy=busy, pay_busy=0.25))
        observations, _ = game.reset(seed=seed)
        (agent,) = game.learners
        earned, steps, decisions = 0.0, [], 0
        while game.agents:
            assert set(observations) == {agent}
            observations, rewards, *_, infos = game.step({agent: 0})
            earned, steps, decisions = earned + rewards[agent], steps + infos[agent]["step_rewards"], decisions + 1
        assert earned == pytest.approx(sum(one[agent] for one in paid)) == pytest.approx(sum(steps))
        assert len(steps) == len(paid) == 7
        assert decisions == -(-7 // busy[0 if agent == "alice" else 1])
        (told,) = [value for name, value in infos[agent]["episode_metrics"].items() if name.startswith("return_with_")]
        assert told == pytest.approx(earned)


@pytest.mark.parametrize("kind", [SymbolicPPOConfig, MAPPOConfig])
def test_only_the_learners_rows_are_trained_on_and_a_critic_of_the_team_sees_the_partners_vector(kind):
    sampled, central = [], kind is MAPPOConfig

    def count(samples, **kwargs):
        sampled.append(sum(len(one) for episode in samples for one in episode.agent_episodes.values()))

    learner = config(kind, busy=(1, 2)).callbacks(on_sample_end=count)
    with running(learner.policy_network(critic_observation="team") if central else learner) as algo:
        episodes = algo.env_runner.sample(num_episodes=12)
        assert {tuple(episode.agent_ids) for episode in episodes} == {("alice",), ("bob",)}
        for episode in episodes:
            (single,) = episode.agent_episodes.values()
            assert len(single) == {"alice": 6, "bob": 3}[single.agent_id]
            if central:
                rows = np.array(single.get_observations()["team_vectors"])[:-1]  # behind the last nobody is asked
                assert (rows.sum(2) == 1).all()  # both colours, one-hot
        sampled.clear()
        results = algo.train()
        trained = results["learners"]["shared"]["num_module_steps_trained"] / algo.config.num_epochs
        assert trained == sum(sampled) and 96 <= trained < 96 + 8
        assert float(results["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
        names = {name for name in results["env_runners"] if name.startswith("return_with_")}
        assert names == {"return_with_random", "return_with_toy_partners:first"}


def test_an_agent_learns_to_play_with_its_partner():
    """Bob, a partner, says nothing; alice is paid for the colour that she sees in `obvious` games."""
    learner = config(obvious=True).training(train_batch_size_per_learner=400, lr=5e-3).partners(seat="alice")
    with running(learner) as algo:
        curve = []
        while len(curve) < 2 or (len(curve) < 16 and min(curve[-2:]) <= 4.5):
            curve.append(algo.train()["env_runners"]["agent_episode_returns_mean"]["alice"])
    assert curve[0] < 3 and min(curve[-2:]) > 4.5, curve  # of 6


def test_verco_trains_with_a_stranger_and_they_hear_each_other(stranger):
    own = load_policy(stranger)
    with running(talker().partners(pool=[{"policy": stranger, "name": "stranger"}])) as algo:
        base = algo.env_runner.module["shared"].network.lm.base
        for _ in range(2):  # fragments are cut in the middle of episodes
            for episode in algo.env_runner.sample(num_timesteps=7, random_actions=False):
                (agent,) = episode.agent_ids
                prompts = [
                    base.tokenizer.decode([token for token in row if token >= 0])
                    for row in episode.agent_episodes[agent].get_observations()["prompt_ids"]
                ]
                other = "bob" if agent == "alice" else "alice"
                assert all(f"{other} says" in prompt for prompt in prompts), prompts
        for number, current in enumerate(algo.env_runner._ongoing_episodes):
            game = algo.env_runner.env.envs[number].unwrapped.env
            assert isinstance(game, PartnerSeats) and current.custom_data[MAILBOX] is game.mailbox
            (learner,) = game.learners
            partner = "bob" if learner == "alice" else "alice"
            assert game._memory.policy.mailbox is game.mailbox and set(game.mailbox) == {learner, partner}
            seen = {partner: game.env.observe()[partner]}
            if game.env.t == 0 or not game.spoken:
                continue
            assert game.mailbox[partner] == own.speak_together([(own.begin(0), seen)])[0][partner][0]
        results = algo.train()
        assert float(results["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
        assert np.isfinite(results["env_runners"]["return_with_stranger"])


def rolled_out(pool, busy=(1, 1), **talk):
    """What a learner hears and does in four games, in two fragments."""
    made = talker(busy=busy).communication(max_message_words=4, **talk).partners(pool=pool, self_play_share=0.2)
    made.env_runners(num_envs_per_env_runner=4).validate()
    runner = MultiAgentEnvRunner(config=made, worker_index=0)
    found = []
    for episode in [one for _ in range(2) for one in runner.sample(num_timesteps=40, random_actions=False)]:
        for agent, single in sorted(episode.agent_episodes.items()):
            found.append((agent, np.asarray(single.get_actions()), single.get_observations()["prompt_ids"]))
    return found


@pytest.mark.parametrize(("busy", "temperature"), [((1, 1), 1.0), ((1, 2), 0.0)])
def test_partners_of_all_games_are_asked_together_and_do_what_each_would_alone(
    stranger, busy, temperature, tmp_path, monkeypatch
):
    folder = tmp_path / "other"
    shutil.copytree(stranger, folder)
    for told in folder.rglob("policy.json"):
        known = json.loads(told.read_text(encoding="utf-8"))
        known["communication"]["message_temperature"] = temperature
        told.write_text(json.dumps(known), encoding="utf-8")
    pool = [{"policy": str(folder), "name": name, "noise": noise} for name, noise in (("one", 0.0), ("other", 0.3))]
    rows = []
    speak = LanguagePolicy.speak_together
    monkeypatch.setattr(
        LanguagePolicy, "speak_together", lambda own, asked, *how: rows.append(len(asked)) or speak(own, asked, *how)
    )
    together = rolled_out(pool, busy)
    assert max(rows) > 1
    rows.clear()
    monkeypatch.setattr(partners_and_planning, "PartnerSeats", lambda *args: PartnerSeats(*args[:4]))
    apart = rolled_out(pool, busy)
    assert set(rows) == {1} and len(together) == len(apart) > 8
    for (agent, actions, heard), (other, wanted, expected) in zip(together, apart, strict=True):
        assert agent == other
        np.testing.assert_array_equal(actions, wanted)
        np.testing.assert_array_equal(heard, expected)


def test_what_is_told_is_sent_without_the_games():
    game = PartnerSeats(ColourTalk(length=4), [])
    game.mailbox["alice"] = "i see red"
    sent = pickle.loads(pickle.dumps(game.mailbox))
    assert sent == game.mailbox and len(pickle.dumps(game.mailbox)) < 300
    sent.complete()


def test_the_stranger_chooses_by_what_the_learner_said(stranger):
    """The partner's decision is that of its policy behind the learner's message of the same moment."""
    own = load_policy(stranger)
    game = seats([stranger], seat="alice")
    probabilities = {}
    for message in ("i see red", "i see blue"):
        game.meet_anew()
        game.reset(seed=5)
        game.mailbox["alice"] = message
        seen = game.asked_now
        decision = game.partner.act_together([game.request], True, [game.spoken])[0]["bob"]
        assert decision.heard == {"alice": message}
        expected = own.probabilities([("bob", seen["bob"], {"alice": message})])[0]
        np.testing.assert_allclose(decision.probabilities, expected, atol=1e-6)
        probabilities[message] = decision.probabilities
    assert np.abs(np.subtract(*probabilities.values())).max() > 1e-3


SOUP, SALAD, LAKE = (f"rllib_llm_comm/{name}-v0" for name in ("overcooked_ai", "overcooked_text", "frozen_lake"))
ROOM, RING = {"layout": "cramped_room"}, "zoo:soup_coordination_ring"
COOK, TALKER, DOZER = "zoo:soup_cramped_room", "zoo:told_salad", {"policy": "random", "pauses": 0.5}


@pytest.mark.parametrize(
    ("env", "settings", "partner", "told"),
    [
        (SOUP, ROOM, RING, "`env_config.layout`"), (SOUP, {**ROOM, "dynamics": "new"}, COOK, "`env_config.dynamics`"),
        (SOUP, {**ROOM, "action_level": "goal"}, COOK, "`action_level`"),
        (SALAD, {"map_name": "A"}, TALKER, "`env_config.map_name`"), (LAKE, {}, TALKER, "`env` is"),
        (LAKE, {}, "scripted", "`policy` is 'scripted'"), (ENV_ID, {}, DOZER, "`pauses`"),
        (ENV_ID, {}, "stay", "`stay`"),
    ],
)  # fmt: skip
def test_a_partner_that_cannot_play_is_told_before_anything_is_built(env, settings, partner, told):
    register()
    learner = SymbolicPPOConfig().environment(env, env_config=settings).partners(pool=["random", partner])
    with pytest.raises(UserError, match=rf"^`pool` has '[^']*', which .*{told}"):
        learner.validate()


@pytest.mark.parametrize(
    ("size", "actions", "env", "told"),
    [
        (6, 3, None, "`vector`"), (3, 4, None, "`action_mask`"), (3, 3, "toys/colour_talks-v0", "`env`"),
        (3, 3, None, ""), (3, 3, "toys/colour_talk-v1", ""),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_form_is_no_partner_in_a_game_that_nobody_registered(
    size, actions, env, told, tmp_path
):
    network = NumericNetwork(NumericSettings(hiddens=[4]), size, actions)
    model = {**network.settings.to_dict(), "size": size, "actions": actions, "critic_size": None}
    manifest = PolicyManifest("MAPPO", model, {}, env, kind=NUMERIC)
    path = str(write_policy(tmp_path / "policy", network_file(network), manifest))
    learner = config().partners(pool=[{"policy": path, "name": "other"}])
    if not told:
        learner.validate()
        return
    with pytest.raises(UserError, match=f"^`pool` has 'other', which .*{told}"):
        learner.validate()


def test_mappo_learns_beside_a_clone_of_players(tmp_path):
    """PPO beside a proxy of people (Carroll et al. 2019), who gets going again where it stands still."""
    rng = np.random.default_rng(0)
    kitchen = {"layout": "cramped_room", "dynamics": "old", "observe": ["vector"], "horizon": 20}
    games = [rng.random((20, 2, 96), np.float32) for _ in range(2)], [rng.integers(6, size=(20, 2)) for _ in range(2)]
    clone_players(Demonstrations(kitchen, *games), tmp_path / "clone", CloningSettings(epochs=1))
    with running(
        MAPPOConfig()
        .environment("rllib_llm_comm/overcooked_ai-v0", env_config={**kitchen, "action_level": "primitive"})
        .policy_network(hiddens=[8])
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=40, num_epochs=1)
        .partners(pool=[{"policy": str(tmp_path / "clone"), "unstuck": 3, "name": "clone"}])
        .debugging(seed=0)
    ) as algo:
        results = algo.train()
        assert np.isfinite(results["env_runners"]["return_with_clone"])
        assert 40 <= results["learners"]["shared"]["num_module_steps_trained"] < 40 + 2


def test_wrong_settings_and_what_does_not_go_with_partners_are_refused_before_anything_is_built():
    talking = talker().communication(train_messages=True, message_temperature=1.0).training(message_credit="team")
    planned = config().environment("rllib_llm_comm/overcooked_ai-v0", env_config={}).planning(planner="scripted")
    for wrong, told in (
        (config().partners(pool=["nowhere/at/all"]), ("", "invalid", "nowhere/at/all")),
        (config().partners(pool=POOL, seat="carol"), ("seat",)),
        (config().partners(self_play_share=1.0), ("self_play_share", "range")),
        (config(CommNetConfig), ("pool", "invalid", "vectors")),
        (planned, ("pool", "invalid", "`planner`")),
        (talking.partners(pool=POOL), ("message_credit",)),
    ):
        with refused(*told):
            wrong.validate()
    with pytest.raises(UserError, match="arrays"):
        SelfPlayPPOConfig().partners(pool=POOL)
    with refused("pool", "unknown"):
        SelfPlayPPOConfig().update_from_dict({"pool": POOL})
