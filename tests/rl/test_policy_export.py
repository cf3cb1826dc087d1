"""Policies of stock RLlib algorithms with our modules: exported once, then taken by Python and the command line."""

from __future__ import annotations

import json

import pytest
import toys
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from typer.testing import CliRunner

from rllib_llm_comm import export_policy, load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.rl.rllib_adapter import ensure_registered, register_parallel_env
from rllib_llm_comm.sama.planning_config import AddPlannedSubgoals
from rllib_llm_comm.verco.module import AddTeacherMessages, LLMCommModule, MessageExchange
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

SOUPS = "rllib_llm_comm/overcooked_ai-v0"
KITCHEN = {"map_name": "A", "recipe": "tomato salad", "max_game_steps": 6}
MODEL = toys.language_model(max_prompt_tokens=256, max_candidate_tokens=32)


def everybody(agent, episode, **kwargs):
    return "cook"


def stock(modules=("cook",), mapping=everybody, env="my_kitchen", env_config=KITCHEN, **communication):
    """A PPO of RLlib's own, by default on the textual kitchen under a name that only RLlib was told."""
    register_parallel_env("my_kitchen", entry="rllib_llm_comm.envs.overcooked_text:parallel_env")

    def talk(env, spaces, device):
        return MessageExchange(language_model=MODEL, communication=communication)

    spec = {name: RLModuleSpec(module_class=LLMCommModule, model_config=MODEL) for name in modules}
    return (
        PPOConfig()
        .environment(env, env_config=env_config, disable_env_checking=True)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2, env_to_module_connector=talk)
        .multi_agent(policies=set(modules), policy_mapping_fn=mapping)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=spec))
        .training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1, use_kl_loss=False)
    )


@pytest.fixture(scope="module")
def trained(small_ray, tmp_path_factory):
    """A trained algorithm's policy folder, an RLlib checkpoint of it, and the actor's weights."""
    root = tmp_path_factory.mktemp("stock")
    with running(stock(max_message_words=4).callbacks([AddTeacherMessages.of("scripted")])) as algo:
        algo.train()
        saved = algo.save_to_path(str(root / "checkpoint"))
        with pytest.raises(UserError, match="`rllib_llm_comm.export_policy"):
            load_policy(saved)
        weights = {k: v.copy() for k, v in algo.get_module("cook").unwrapped().get_state().items() if "adapters" in k}
        return export_policy(algo, root / "policy"), export_policy(algo, saved), weights


def test_an_export_is_what_was_trained(trained):
    import torch

    folder, _, weights = trained
    policy = load_policy(folder)
    own = dict(policy.network.lm.named_adapter_parameters())
    assert len(weights) == len(own) > 4
    for name, tensor in weights.items():
        torch.testing.assert_close(torch.as_tensor(tensor), own[name.removeprefix("adapters.").replace("/", ".")].data)
    told = json.loads((folder / "policy.json").read_text())
    assert (told["algorithm"], told["teacher"], told["provenance"]) == ("PPO", "scripted", {"training_iteration": 1})
    assert told["communication"]["max_message_words"] == 4 and told["env_config"] == KITCHEN
    assert told["env"] == "rllib_llm_comm/overcooked_text-v0"  # "my_kitchen" is another name of it


def test_the_command_line_takes_an_export_and_a_checkpoint_with_one(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, beside, _ = trained
    assert beside.name == "policy" and (beside.parent / "rllib_checkpoint.json").is_file()
    for path in (folder, beside.parent):
        for command in (["evaluate", "--episodes", "2", "--json", "told.json"], ["replay", "--out", "page.html"]):
            done = CliRunner().invoke(cli, [command[0], str(path), *command[1:]])
            assert done.exit_code == 0, done.output
        assert json.loads((tmp_path / "told.json").read_text())["episodes"] == 2
        assert "serve" in (tmp_path / "page.html").read_text()
        (tmp_path / "told.json").unlink()


def test_planners_and_settings_of_callbacks_are_recorded(tmp_path):
    ensure_registered(SOUPS)
    talking = {"observe": ["text"], "action_level": "goal"}
    with running(
        stock(env=SOUPS, env_config=talking).callbacks([AddPlannedSubgoals.of("scripted", patience=7)])
    ) as built:
        told = load_policy(export_policy(built, tmp_path / "policy")).manifest
    assert told.planning == {
        "planner": "scripted", "patience": 7, "replan": "any", "in_vector": False, "subgoals_to": "all",
    }  # fmt: skip
    assert (told.env, told.env_config) == (SOUPS, talking)


def test_a_module_per_agent_is_exported_by_agent(tmp_path):
    with running(stock(("one", "two"), lambda agent, episode, **_: "one" if agent == "alice" else "two")) as algo:
        folder = export_policy(algo, tmp_path / "policy")
    policy = load_policy(folder)
    assert sorted(policy.manifest.agents) == ["alice", "bob"]
    first, second = (dict(policy.network_of(agent).lm.named_adapter_parameters()) for agent in ("alice", "bob"))
    assert any(not (first[name] == second[name]).all() for name in first)


def test_what_cannot_be_exported_is_told(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with running(stock()) as algo:
        with pytest.raises(UserError, match="`folder` is .*full"):
            export_policy(algo, tmp_path / "full")
        assert (tmp_path / "full" / "thesis.tex").read_text() == "years of work"
        algo.env_runner._env_to_module.remove(MessageExchange)
        with pytest.raises(UserError, match="`MessageExchange`"):
            export_policy(algo, tmp_path / "policy")
    other = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    with running(other) as plain, pytest.raises(UserError, match="`export_policy`"):
        export_policy(plain, tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
