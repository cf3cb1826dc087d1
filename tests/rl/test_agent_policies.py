"""`policies: per_agent`: adapters and critic for each agent on the one base, from sampling to a replay."""

from __future__ import annotations

import json

import numpy as np
import pytest
from toys import randomise, register, talkers

from rllib_llm_comm import VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import evaluate, record
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.policy_manifest import read_manifest
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

AGENTS = ["alice", "bob"]
PROMPT = "you see red. i say:"


def config(**training):
    return talkers(**training).multi_agent(policies="per_agent")


def module_of(algo, agent):
    return algo.learner_group._learner.module[agent].unwrapped()


def weights(algo, agent, role):
    return [p.detach().clone() for _, p in module_of(algo, agent).network.lm.named_adapter_parameters(role)]


def differ(one, other):
    return any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A checkpoint of the shared kind, with a message adapter of its own."""
    with running(config().multi_agent(policies="shared")) as algo:
        assert list(algo.config.policies) == ["shared"]
        randomise(module_of(algo, "shared").network, "message", std=0.5, seed=9)
        return algo.save_to_path(str(tmp_path_factory.mktemp("taught") / "checkpoint"))


@pytest.fixture(scope="module")
def trained(taught, tmp_path_factory):
    """A checkpoint of agents with a policy each, whose messages differ, and what was seen on the way."""
    algo = config().communication(message_checkpoint=taught).build_algo()
    seen = {}
    with running(algo):
        seen["taught"] = [algo.env_runner.module[agent].write_messages([PROMPT]) for agent in AGENTS]
        # One base in memory: equal addresses of all frozen weights, and nothing of it in what is synced or saved.
        seen["bases"] = [
            {name: p.data_ptr() for name, p in module.network.lm.peft_model.named_parameters() if "lora_" not in name}
            for module in (*(module_of(algo, agent) for agent in AGENTS), algo.env_runner.module["alice"].unwrapped())
        ]
        network = module_of(algo, "alice").network
        seen["adapters"] = 4 * sum(p.numel() for _, p in network.lm.named_adapter_parameters())
        seen["critic"] = 4 * sum(p.numel() for p in network.critic.parameters())
        for inference_only in (False, True):
            state = algo.learner_group.get_state(components="learner/rl_module", inference_only=inference_only)
            seen[inference_only] = state["learner"]["rl_module"]
        before = {agent: weights(algo, agent, "action") for agent in AGENTS}
        seen["learned"] = [algo.train()["learners"] for _ in range(2)][-1]
        seen["moved"] = {agent: differ(before[agent], weights(algo, agent, "action")) for agent in AGENTS}
        seen["alike"] = not differ(*(weights(algo, agent, "action") for agent in AGENTS))
        randomise(module_of(algo, "bob").network, "message", std=0.5, seed=10)
        path = algo.save_to_path(str(tmp_path_factory.mktemp("trained") / "checkpoint"))
    return path, seen


def test_each_agent_learns_with_adapters_of_its_own(trained):
    _, seen = trained
    assert seen["moved"] == {"alice": True, "bob": True} and not seen["alike"]
    for agent in AGENTS:
        assert float(seen["learned"][agent]["ratio_first_minibatch"]) < 1e-5
        assert np.isfinite(float(seen["learned"][agent]["policy_loss"]))
    assert "shared" not in seen["learned"]


def test_one_base_and_only_adapters_are_synced(trained):
    _, seen = trained
    first, *others = seen["bases"]
    names = {name.replace(".base_layer", "") for name in first}
    assert len(names) == len(first) and all(other == first for other in others)
    for inference_only, expected in ((False, seen["adapters"] + seen["critic"]), (True, seen["adapters"])):
        state = seen[inference_only]
        assert set(state) == set(AGENTS)
        for agent in AGENTS:
            assert sum(array.nbytes for array in state[agent].values()) == expected
            kinds = {name.split("/")[0].split(".0")[0].split(".weight")[0] for name in state[agent]}
            assert {kind for kind in kinds if kind.startswith("adapters")} == {"adapters.message", "adapters.action"}


def test_taught_messages_reach_each(trained, taught):
    _, seen = trained
    assert seen["taught"] == [load_policy(taught).network.write_messages([PROMPT])] * 2


def test_the_checkpoint_is_played_without_ray(trained, tmp_path):
    path, _ = trained
    folder = find_policy(path)
    assert list(read_manifest(folder).agents) == AGENTS
    assert (folder / "bob" / "adapters" / "message" / "adapter_model.safetensors").is_file()
    policy = load_policy(path)
    said = {agent: policy.network_of(agent).write_messages([PROMPT]) for agent in AGENTS}
    assert said["alice"] != said["bob"]
    with pytest.raises(UserError, match="of its own"):
        policy.network  # noqa: B018
    with pytest.raises(UserError, match="'carol'"):
        policy.network_of("carol")
    env = policy.env()
    observations, _ = env.reset(seed=0)
    policy.reset(seed=0)
    decisions = policy.act(observations, explore=False)
    for agent in AGENTS:  # each by its own network
        heard = {other: decisions[other].said for other in AGENTS if other != agent and decisions[other].said}
        assert decisions[agent].heard == heard
        expected = policy.network_of(agent).write_messages([f"{observations[agent]['text']} i say:"])
        assert [decisions[agent].said] == expected or decisions[agent].said in expected[0]
    result = evaluate(policy, episodes=4, seed=0)
    alone = evaluate(policy, episodes=4, seed=0, num_envs=1)
    assert result.returns == alone.returns and result.episodes == 4
    page = write_replay(record(policy, seed=0), tmp_path / "replay.html")
    assert page.stat().st_size > 10_000
    for messages in ("none", "other_moments", "constant"):
        load_policy(path, messages=messages).act(observations)


def test_restored_it_goes_on(trained):
    from rllib_llm_comm.verco.verco import Verco

    path, _ = trained
    with running(Verco.from_checkpoint(path)) as algo:
        assert set(algo.config.policies) == set(AGENTS)
        policy = load_policy(path)
        for agent in AGENTS:
            runner = algo.env_runner.module[agent]
            assert runner.write_messages([PROMPT]) == policy.network_of(agent).write_messages([PROMPT])
        assert float(algo.train()["learners"]["bob"]["ratio_first_minibatch"]) < 1e-5


def test_messages_of_a_checkpoint_with_a_policy_each(trained):
    path, _ = trained
    policy = load_policy(path)
    with running(config().communication(message_checkpoint=path)) as algo:
        for agent in AGENTS:
            assert module_of(algo, agent).write_messages([PROMPT]) == policy.network_of(agent).write_messages([PROMPT])
    with pytest.raises(UserError, match="alice, bob.* 'shared'"):
        config().multi_agent(policies="shared").communication(message_checkpoint=path).build_algo()


def test_trained_messages_of_each(tmp_path):
    with running(
        config(message_credit="listeners", num_epochs=1)
        .environment(env_config={"busy": (1, 2), "length": 6, "shared": True})
        .communication(train_messages=True, message_temperature=1.0, max_message_words=3)
    ) as algo:
        before = {agent: weights(algo, agent, "message") for agent in AGENTS}
        learned = [algo.train()["learners"] for _ in range(2)][-1]
        for agent in AGENTS:
            assert float(learned[agent]["message_entropy"]) > 0 and float(learned[agent]["message_kl"]) >= 0
            assert differ(before[agent], weights(algo, agent, "message"))
        for role in ("message", "reference"):
            assert role in module_of(algo, "bob").network.lm.roles
        path = algo.save_to_path(str(tmp_path / "checkpoint"))
    evaluate(load_policy(path), episodes=2, seed=0)


def test_an_agent_without_a_decision_in_a_batch():
    """Its module waits; nothing turns into NaN."""
    with running(
        config(train_batch_size_per_learner=4)
        .environment(env_config={"busy": (1, 12), "length": 14})
        .env_runners(num_envs_per_env_runner=1)
    ) as algo:
        for _ in range(4):
            algo.train()
        for agent in AGENTS:
            assert all(np.isfinite(p.numpy()).all() for p in weights(algo, agent, "action"))


def test_as_a_flat_key():
    for policies, names, of_bob in (("per_agent", set(AGENTS), "bob"), ("shared", {"shared"}, "shared")):
        made = VercoConfig().update_from_dict({"policies": policies, "env": register()})
        made.validate()
        assert set(made.policies) == names and made.policy_mapping_fn("bob", None) == of_bob


def test_what_is_refused(tmp_path, trained):
    with refused("policies", "choice"):
        VercoConfig().multi_agent(policies="per_agents")
    with pytest.raises(UserError, match="agents are unknown"):
        VercoConfig().update_from_dict({"policies": "per_agent", "env": "no-such-game"}).validate()
    path, _ = trained
    values = json.loads((find_policy(path) / "policy.json").read_text())
    for agents in (["../../etc"], ["a/b"], "alice", [3]):
        (tmp_path / "policy.json").write_text(json.dumps({**values, "agents": agents}))
        with pytest.raises(UserError, match="plain names"):
            load_policy(tmp_path)
