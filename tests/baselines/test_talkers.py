"""Populations of agents that talk: adapters on one base model in one process, kinds of members, all four methods."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rllib_llm_comm import VercoCOLEConfig, VercoConfig, VercoFCPConfig, VercoPBTConfig, load_policy
from rllib_llm_comm.baselines.population.fcp import Member, partners_of
from rllib_llm_comm.baselines.population.responder import Met
from rllib_llm_comm.baselines.population.talkers import VercoFCP, VercoPBT
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from rllib_llm_comm.policies.signatures import make_key, seal_checkpoint
from tests.refusal import refused
from tests.running import running

TEXT = "rllib_llm_comm/overcooked_text-v0"
TALKER, OTHER_BASE = "zoo:told_salad", "zoo:minirts_commanders"
MENU = {"messages": "menu", "message_menu": ["bring the tomato", "i wait"], "message_temperature": 1.0}
KINDS = {
    "taught": {"message_checkpoint": TALKER},
    "drifting": {**MENU, "train_messages": True},
    "lossy": {"as_partner": {"word_noise": 1.0}},
}


def small(config, **population):
    """Games of two steps, some of which end in every batch."""
    return (
        config.environment(TEXT, env_config={"map_name": "B", "recipe": "lettuce-tomato salad", "max_game_steps": 2})
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=16, num_epochs=1)
        .population(**population)
        .debugging(seed=3)
    )


def fcp(**population):
    own = {"size": 3, "member_iterations": 1, "member_keep_every": 1, "member_kinds": KINDS, **population}
    return small(VercoFCPConfig(), **own)


def files_of(algo):
    found = {}
    for member in algo._population.members:
        found |= {name: dict(one.policy.files) for name, one in partners_of([member], True).items()}
    return found


@pytest.fixture(scope="module")
def grown(small_ray, tmp_path_factory):
    """A population of three kinds and its learner's first iteration, with checkpoints of the midst and the end.

    The adapters with which members of one kind began are gone.
    """
    folder = tmp_path_factory.mktemp("grown")
    taught = shutil.copytree(shipped_policy(TALKER), folder / "taught")
    with running(fcp(member_kinds={**KINDS, "taught": {"message_checkpoint": str(taught)}})) as algo:
        results = [algo.train() for _ in range(2)]
        midst = algo.save_to_path(str(folder / "midst"))
        results += [algo.train() for _ in range(2)]
        assert bases_of_partners(algo) == {algo.env_runner.module["shared"].unwrapped().network.lm.base.model}
        path = algo.save_to_path(str(folder / "done"))
    shutil.rmtree(taught)
    return path, midst, results, files_of(algo), algo.met


def bases_of_partners(algo):
    return {one.policy.network.lm.base.model for one in algo.env_runner.env.envs[0].unwrapped.env._pool}


def test_members_are_adapters_on_one_base_and_each_is_exported_apart(grown):
    path, _, results, files, met = grown
    assert [one["population"]["member_iterations"] for one in results] == [1, 2, 3, 3]
    assert [bool(one.get("should_checkpoint")) for one in results] == [True, True, True, False]
    assert results[-1]["population"]["members_done"] == 3
    assert results[-1]["game_steps_with_population"] > results[-2]["game_steps_with_population"] > 0
    last = results[2]["population"]
    assert np.isfinite(last["score_mean"]) and last["score_mean"] != 0
    assert {"message_entropy", "message_kl", "message_distinct_share"} <= set(last["drifting_4001"])
    assert last["taught_4000"].keys() >= {"message_words", "message_understood_share"}
    assert set(met) == set(files) and any(name.startswith("drifting_4001") for name in met)
    members = ("taught_4000", "drifting_4001", "lossy_4002")
    assert set(files) == {f"{name}_{age}" for name in members for age in ("initial", "half_way", "final")}
    folders = {folder.name: folder for folder in (Path(path) / "population").iterdir()}
    assert set(folders) == set(files)
    drifting, taught = load_policy(folders["drifting_4001_final"]), load_policy(folders["taught_4000_final"])
    assert drifting.communication.messages == "menu" and drifting.communication.train_messages
    assert taught.communication.messages == "student"
    assert taught.manifest.provenance["message_checkpoint"] == str(Path(path).parent / "taught")
    assert taught.manifest.algorithm == "Verco"
    wrote = "adapters/message/adapter_model.safetensors"
    source = load_policy(TALKER).files()[wrote]
    assert taught.files()[wrote] == source != drifting.files()[wrote], "frozen, as it was taught"
    assert files["drifting_4001_final"][wrote] != files["drifting_4001_initial"][wrote], "trained on by PPO"


def test_a_population_of_talkers_is_gone_on_with_from_its_midst_without_the_adapters_that_it_has_used(grown):
    _, midst, _, files, _ = grown
    with running(VercoFCP.from_checkpoint(midst)) as again:
        resumed = [again.train() for _ in range(2)]
        assert [one["population"]["member_iterations"] for one in resumed] == [3, 3]
        assert files_of(again).keys() == files.keys()
        assert files_of(again) == files, "as if nothing had been interrupted"
        assert set(again.met) == set(files)


def test_another_learner_meets_the_members_of_an_earlier_run_as_strangers(grown):
    path = grown[0]
    with running(fcp(population_from=path, past_checkpoints=False)) as algo:
        result = algo.train()
        assert sorted(algo.met) == ["drifting_4001_final", "lossy_4002_final", "taught_4000_final"]
        played = {name for name in result["env_runners"] if name.startswith("return_with_")}
        assert played and played <= {f"return_with_{name}" for name in algo.met}
        game = algo.env_runner.env.envs[0].unwrapped.env
        heard = {}
        for seed in range(12):
            game.reset(seed=seed)
            game.mailbox.complete()
            heard.setdefault(game.partner.settings.name, set()).update(game.mailbox.values())
        assert heard["lossy_4002_final"] == {""}, "all its words get lost, as `as_partner` says"
        assert heard["taught_4000_final"] - {""} and heard["drifting_4001_final"] <= set(MENU["message_menu"])
        final = algo._population.members[0].milestones["final"]
        moved = {**final.manifest, "model_config": {**final.manifest["model_config"], "base_model": "moved/since"}}
        algo.meet([Met("moved", dataclasses.replace(final, manifest=moved))])
        assert bases_of_partners(algo) == {algo.env_runner.module["shared"].unwrapped().network.lm.base.model}
    config = VercoConfig().environment(TEXT, env_config=fcp().env_config)
    config.partners(pool=[f"{path}/population/taught_4000_initial", f"{path}/population/taught_4000_final"])
    config.validate()  # members are partners of any other learner, too


@pytest.mark.usefixtures("small_ray")
def test_a_member_none_of_whose_games_ended_has_no_half_way_policy():
    settings = fcp(size=2, member_kinds={}).training(train_batch_size_per_learner=4)
    with (
        running(settings.environment(TEXT, env_config={**settings.env_config, "max_game_steps": 100})) as algo,
        pytest.raises(UserError, match="member 4000 .* `past_checkpoints`"),
    ):
        algo.train()


@pytest.mark.usefixtures("small_ray")
def test_talkers_of_pbt_learn_with_each_other_and_the_worst_takes_over_the_best(tmp_path):
    kinds = {"silent": {"messages": "none"}, "talking": {"message_checkpoint": TALKER}}
    with running(small(VercoPBTConfig(), size=2, selection_games=2, members_at_once=0, member_kinds=kinds)) as algo:
        first = algo.train()
        path = algo.save_to_path(str(tmp_path / "midst"))
    with running(VercoPBT.from_checkpoint(path)) as again:
        second = again.train()
        path = again.save_to_path(str(tmp_path / "end"))
        agents = list(again._population.agents)
        policies = [agent.state["policy"] for agent in agents]
        worst, best = again._population.select(np.array([0.0, 1.0]), np.zeros(2), policies, 0.0, [1.0])
        assert (worst, best) == (0, 1)
        assert [one.kind for one in again._population.agents] == [agents[1].kind] * 2, "taken over with the weights"
    assert 0 < first["tokens"] < second["tokens"]
    last = second["population"]
    assert "message_words" in last["agent_1"] and "message_words" not in first["population"]["agent_0"]
    assert last["iterations"] == 1 and np.isfinite(last["fitness_best"])
    assert last["game_steps"] > first["population"]["game_steps"] and [agent.runs for agent in agents] == [2, 2]
    kept = load_policy(path)
    assert kept.manifest.algorithm == "VercoPBT"
    assert kept.communication.messages == kinds[agents[0].kind].get("messages", "student")
    assert {folder.name for folder in (Path(path) / "population").iterdir()} == {"agent_0", "agent_1"}


@pytest.mark.usefixtures("small_ray")
def test_a_talker_of_cole_trains_with_copies_of_itself(tmp_path):
    own = {"initial_size": 1, "runs_per_generation": 1, "run_batches": 1, "member_games": 1}
    with running(small(VercoCOLEConfig(), **own)) as algo:
        assert algo.train()["population"]["members"] == 2
        path = algo.save_to_path(str(tmp_path / "end"))
        one, other = (dict(member["policy"]["files"]) for member in algo._population.members)
        assert one != other and algo._population.payoffs.min() >= 0
    assert {folder.name for folder in (Path(path) / "population").iterdir()} == {"member_0", "member_1"}
    with running(type(algo).from_checkpoint(path)) as again:
        again.train()
        assert len(again.met) >= 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda c: c.population(size=1), ("population_size", "range")),
        (lambda c: c.population(member_kinds=["a"]), ("member_kinds", "type")),
        (lambda c: c.population(member_kinds={"a/b": {}}), ("member_kinds.a/b",)),
        (
            lambda c: c.population(member_kinds=dict.fromkeys("abcd", {})),
            ("member_kinds", "invalid", "`member_kinds` has 4"),
        ),
        (lambda c: c.population(member_kinds={"a": {"base_model": "smollm2"}}), ("member_kinds.a",)),
        (
            lambda c: c.population(member_kinds={"a": {"message_checkpoint": OTHER_BASE}}),
            ("member_kinds.a.message_checkpoint",),
        ),
        (
            lambda c: c.population(member_kinds={"a": {"messages": "menu"}}),
            ("", "invalid", "`member_kinds.a`, with which"),
        ),
        (lambda c: c.population(member_kinds={"a": {"messages": "other_moments"}}), ("member_kinds.a.messages",)),
        (lambda c: c.population(member_settings={"messages": "other_moments"}), ("member_settings.messages",)),
        (
            lambda c: c.population(member_kinds={"a": {"as_partner": {"word_noise": 2}}}),
            ("member_kinds.a.as_partner.word_noise", "range"),
        ),
        (
            lambda c: c.population(member_kinds={"a": {"as_partner": {"unstuck": 2}}}),
            ("member_kinds.a.as_partner", "invalid", "`member_kinds.a.*'unstuck'"),
        ),
        (
            lambda c: c.population(member_kinds={"a": {"messages": "none", "as_partner": {"word_noise": 0.2}}}),
            ("member_kinds.a.as_partner.word_noise",),
        ),
        (
            lambda c: c.population(member_kinds={"a": {"as_partner": "noise"}}),
            ("member_kinds.a.as_partner", "invalid", "as_partner` is 'noise'"),
        ),
        (lambda c: c.partners(pool=["scripted"]), ("pool",)),
        (lambda c: c.env_runners(num_env_runners=2), ("num_env_runners",)),
        (lambda c: c.multi_agent(policies="per_agent"), ("policies",)),
        (lambda c: c.planning(planner="scripted"), ("planner",)),
    ],
)
def test_populations_that_cannot_be_are_refused(change, why):
    with refused(*why):
        change(fcp()).validate()


@pytest.mark.parametrize("config", [VercoFCPConfig, VercoPBTConfig, VercoCOLEConfig])
def test_members_of_all_methods_speak_for_themselves(config):
    with refused("messages"):
        small(config()).communication(messages="other_moments").validate()


def test_the_critic_rate_of_a_kind_moves_with_the_rate_of_pbt():
    config = small(VercoPBTConfig(), size=2, member_kinds={"slow": {"critic_lr": 1e-5}, "own": {}})
    algo = VercoPBT.__new__(VercoPBT)  # not built: nothing is trained
    algo.config = config
    rates = [algo.run_config({"lr": 2 * config.lr}, kind, [0]).critic_lr for kind in config.member_kinds]
    assert algo.run_config({}, "slow", [0])._adapters_are_known, "the population has tried all, once"
    assert rates == pytest.approx([2e-5, 2 * config.critic_lr])
    with refused("member_kinds.slow.critic_lr"):
        small(VercoPBTConfig(), size=2, member_kinds={"slow": {"critic_lr": [[0, 1e-3], [9, 0.0]]}}).validate()


@pytest.mark.parametrize(("setting", "value"), [("lora_r", 4), ("base_model", "embedded_minirts"), ("lora_layers", 1)])
def test_members_of_another_base_or_shape_are_refused_before_the_training(grown, setting, value):
    with pytest.raises(UserError, match=f"population_from.*{setting}"):
        fcp(population_from=grown[0], member_kinds={}).language_model(**{setting: value}).validate()


def test_members_that_reach_beyond_this_program_are_taken_from_own_checkpoints_alone(grown, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    make_key()
    foreign = Path(shutil.copytree(grown[0], tmp_path / "foreign"))
    config = fcp(population_from=foreign, member_kinds={})
    record = foreign / "population" / "taught_4000_final" / "policy.json"
    told = json.loads(record.read_text())
    told["model_config"]["base_model"] = "somebody/else"  # of the same digest: the base is this config's own
    record.write_text(json.dumps(told))
    policy, manifest = config.read_member(record.parent)
    assert policy.model_config["base_model"] == manifest.model_config["base_model"] == config.base_model
    server = {"base_url": "http://127.0.0.1:9", "model": "m"}
    for section, value in (
        ("communication", {**told["communication"], "message_server": server}),
        ("teacher", "chat"),
        ("env_config", {**told["env_config"], "subgoal_file": "/etc/passwd"}),
    ):
        record.write_text(json.dumps({**told, section: value}))
        with pytest.raises(UserError, match=r"`population_from` has the member .*taught_4000_final"):
            config.validate()
        seal_checkpoint(foreign, "VercoFCP")
        config.read_member(record.parent)
        record.write_text(json.dumps({**told, section: value}, indent=1))
        with pytest.raises(UserError, match="was not written by your own"):
            config.read_member(record.parent)


def test_kinds_that_the_population_has_not_are_told(grown):
    with pytest.raises(UserError, match="`member_kinds` has 'losy'.* 'lossy'"):
        fcp(population_from=grown[0], member_kinds={"losy": {"as_partner": {"word_noise": 0.5}}}).validate()


def test_an_adapter_of_another_shape_is_refused_before_the_first_member_is_trained():
    with refused("member_kinds.taught.message_checkpoint.lora_r"):
        fcp().language_model(lora_r=4).require_adapters()


def test_kinds_come_in_turn_with_seeds_of_their_own():
    members = fcp(size=5).members()
    assert [(one.kind, one.seed) for one in members] == [
        ("taught", 4000), ("drifting", 4001), ("lossy", 4002), ("taught", 4003), ("drifting", 4004),
    ]  # fmt: skip
    plain = fcp(member_kinds={})
    assert plain.members()[0] == Member(4000)
    own = fcp().member_config("drifting")
    assert own.train_messages and own.messages == "menu" and own.pool is None and own.keep_policy_every == 1
    assert fcp().member_config("lossy").messages == "student"
