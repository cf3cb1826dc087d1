"""What the questions to a chat model cost while agents learn: in results, on the console, and within one budget."""

from __future__ import annotations

import pytest
from chat_server import ChatServer
from planner_model import planner

from rllib_llm_comm import MAPPOConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.evaluation.study_results import asked_in_training
from rllib_llm_comm.experiments.console import columns_of, summary_of
from tests.running import running

CHAT = {"model": "tiny", "requests_per_minute": 1e6, "price_per_million_input": 1e4}


def config(chat, **planning):
    return (
        MAPPOConfig()
        .environment(ENV_ID, env_config={"observe": ["vector"], "horizon": 12})
        .planning(planner={"name": "chat", "objects": False, "chat": chat}, patience=6, **planning)
        .policy_network(hiddens=[8])
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=48, num_epochs=1)
        .debugging(seed=0)
    )


@pytest.mark.usefixtures("small_ray", "chat_client_at_home")
def test_all_that_was_asked_while_learning_is_in_the_results():
    with ChatServer(planner) as server:
        with running(config({**CHAT, "base_url": server.url}, wait=True)) as algo:
            first = algo.train()
            first_asked = len(server.requests)
            second = algo.train()
        asked = len(server.requests)
    assert 0 < first_asked < asked
    told = [{name: float(value) for name, value in one["env_runners"]["chat"].items()} for one in (first, second)]
    assert [one["requests"] for one in told] == [first_asked, asked]
    assert told[1]["input_tokens"] == 100 * asked and told[1]["output_tokens"] == 20 * asked
    assert told[1]["cost"] == pytest.approx(asked) and told[1]["answer_seconds"] > 0
    assert asked_in_training(second) == told[1]
    assert second["env_runners"]["plan_requests"] > 0 and second["env_runners"]["plan_seconds"] > 0
    titles = [column.title for column in columns_of(first)]
    assert titles[-5:-1] == ["requests", "tokens sent", "tokens received", "cost"]
    assert summary_of(second)["requests"] == asked


@pytest.mark.usefixtures("small_ray")
def test_a_planner_that_asks_nobody_has_no_cost():
    with running(config(CHAT).planning(planner="scripted")) as algo:
        result = algo.train()
    assert "chat" not in result["env_runners"] and asked_in_training(result) == {}
    assert "requests" not in [column.title for column in columns_of(result)]


@pytest.mark.parametrize("where", ["planner", "disturbed", "rewards"])
def test_a_budget_that_each_of_several_runners_would_spend_is_refused(where, tmp_path):
    def made(**more):
        chat = {**CHAT, "budget": 5, **more}
        planner = {"name": "chat", "chat": chat}
        if where == "rewards":
            return MAPPOConfig().planning(planner="scripted", subgoal_rewards={"name": "chat", "chat": chat})
        nested = {"name": "disturbed", "planner": planner, "share": 0.5}
        return MAPPOConfig().planning(planner=planner if where == "planner" else nested)

    with pytest.raises(UserError, match="budget` .*EnvRunners") as told:
        made().env_runners(num_env_runners=2).validate()
    assert "cache_dir" in str(told.value) and "\n" not in str(told.value)
    made().env_runners(num_env_runners=1).validate()
    made(cache_dir=str(tmp_path)).env_runners(num_env_runners=2).validate()
