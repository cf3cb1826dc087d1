"""Algorithms under a planner: each reads the subgoal, earns it, and tells how planning went."""

from __future__ import annotations

import pytest
from toys import language_model

from rllib_llm_comm import EMMAConfig, TWOSOMEConfig, VercoConfig, load_policy
from rllib_llm_comm.callbacks.planned_subgoals import AddPlannedSubgoals
from rllib_llm_comm.envs.overcooked_ai.env import ENV_ID, parallel_env
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.planning.env_wrapper import PlannedSubgoals

pytestmark = pytest.mark.usefixtures("small_ray")

PLANNED = AddPlannedSubgoals.of("scripted", subgoal_reward=1.0, patience=8)


def train(config):
    algo = config.callbacks(PLANNED).debugging(seed=0).build_algo()
    try:
        return algo.train(), algo.save_to_path()
    finally:
        algo.stop()


def test_emma_follows_a_planner():
    settings = {"observe": ["entities", "state"], "action_level": "goal_cell", "commit": True, "horizon": 20}
    results, path = train(
        EMMAConfig()
        .environment(ENV_ID, env_config=settings)
        .policy_network(width=8, filters=8, hiddens=[16])
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=120, minibatch_size=60, num_epochs=1)
    )
    told = results["env_runners"]
    assert told["plans"] >= 1 and told["subgoals_given"] >= 2 and told["plan_cost"] == 0
    policy = load_policy(path)
    result = evaluate(policy, episodes=2, env=lambda: PlannedSubgoals(policy.env(), "plan4mc"))
    assert result.metrics["plans"] >= 1


@pytest.mark.parametrize("algorithm", ["verco", "twosome"])
def test_the_subgoal_joins_the_prompt(algorithm):
    config = TWOSOMEConfig() if algorithm == "twosome" else VercoConfig().communication(messages="constant")
    settings = {"observe": ["text"], "action_level": "goal", "horizon": 12}
    results, path = train(
        config.environment(ENV_ID, env_config=settings)
        .language_model(**language_model(max_prompt_tokens=1024, max_candidate_tokens=64))
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=8, num_epochs=1)
    )
    assert float(results["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
    policy = load_policy(path)
    env = PlannedSubgoals(parallel_env(**settings))
    observations, _ = env.reset(seed=0)
    policy.reset(seed=0)
    for agent, decision in policy.act(observations).items():
        assert observations[agent]["subgoal"] and observations[agent]["subgoal"] in decision.prompt


def test_environments_that_no_planner_knows_are_told():
    with pytest.raises(Exception, match="gives subgoals itself"):
        train(EMMAConfig())
    with pytest.raises(UserError, match="`planner`"):
        AddPlannedSubgoals.of("nobody")
