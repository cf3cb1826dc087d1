"""Algorithms under a planner: each reads the subgoal, earns it, and tells how planning went."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
from kitchens import small_emma
from toys import language_model

from rllib_llm_comm import EMMAConfig, MAPPOConfig, SelfPlayPPOConfig, TWOSOMEConfig, VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID
from rllib_llm_comm.envs.overcooked_ai.env import parallel_env
from rllib_llm_comm.evaluation.rollout import evaluate
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import PLANNERS, ScriptedPlanner, register_planner
from rllib_llm_comm.sama.planning_config import AddPlannedSubgoals
from tests.refusal import refused
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray")

PLANNED = AddPlannedSubgoals.of("scripted", subgoal_reward=1.0, patience=8)


def test_the_subgoal_joins_the_prompt():
    settings = {"observe": ["text"], "action_level": "goal", "horizon": 12}
    with running(
        TWOSOMEConfig()
        .environment(ENV_ID, env_config=settings)
        .callbacks(PLANNED)
        .language_model(**language_model(max_prompt_tokens=1024, max_candidate_tokens=64))
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=8, num_epochs=1)
        .debugging(seed=0)
    ) as algo:
        assert float(algo.train()["learners"]["shared"]["ratio_first_minibatch"]) < 1e-5
        policy = load_policy(algo.save_to_path())
    env = PlannedSubgoals(parallel_env(**settings))
    observations, _ = env.reset(seed=0)
    policy.reset(seed=0)
    for agent, decision in policy.act(observations).items():
        assert observations[agent]["subgoal"] and observations[agent]["subgoal"] in decision.prompt


def test_a_planner_that_reaches_one_agent_does_so_in_training_and_behind_the_checkpoint():
    kitchen = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": "planner", "max_game_steps": 6}
    with running(
        VercoConfig()
        .environment("rllib_llm_comm/overcooked_text-v0", env_config=kitchen)
        .language_model(**language_model(max_prompt_tokens=1024, max_candidate_tokens=64))
        .communication(
            messages="menu", message_menu=["i wait", "bring it"], train_messages=True, message_temperature=1.0
        )
        .planning(planner={"name": "guessing"}, subgoals_to=["alice"], subgoal_reward=0.0)
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=16, num_epochs=1)
        .debugging(seed=0)
    ) as algo:
        assert algo.train()["env_runners"]["plans"] >= 1
        trained = algo.env_runner.env.envs[0].unwrapped.env
        assert trained.planner.name == "guessing" and not trained._teller.tells("bob")
        policy = load_policy(algo.save_to_path())
    observations, _ = policy.env().reset(seed=0)
    assert observations["alice"]["subgoal"].startswith("chop the") and observations["bob"]["subgoal"] == ""
    policy.reset(seed=0)
    prompts = {agent: decision.prompt for agent, decision in policy.act(observations).items()}
    assert "my subgoal: chop the" in prompts["alice"] and "my subgoal" not in prompts["bob"]
    observations, _ = policy.env(planning={"subgoals_to": "all"}).reset(seed=0)
    assert observations["bob"]["subgoal"]


def test_agents_are_evaluated_under_a_planner_while_they_learn():
    """SAMA's learning curves: training on sampled subgoals, evaluation in whole games under the planner."""
    with running(
        small_emma(layout="cramped_room", horizon=20).evaluation(
            evaluation_interval=2,
            evaluation_duration=2,
            evaluation_num_env_runners=0,
            evaluation_config={"planner": "scripted", "subgoal_reward": 0.0},
        )
    ) as algo:
        assert "evaluation" not in algo.train()
        result = algo.train()
        assert algo.eval_env_runner.config.env == ENV_ID != algo.config.env
    played = result["evaluation"]["env_runners"]
    assert played["plans"] >= 1 and played["num_episodes"] == 2 and "plans" not in result["env_runners"]


def test_a_planner_is_a_setting():
    settings = {"observe": ["entities", "state"], "action_level": "goal_cell", "commit": True, "horizon": 20}
    planning = {"planner": "plan4mc", "subgoal_reward": 2.0, "patience": 8, "replan": "all"}
    emma = small_emma(ENV_ID, **settings).training(train_batch_size_per_learner=80)
    with running(emma.planning(**planning)) as algo:
        told, path = algo.train()["env_runners"], algo.save_to_path()
        wrapper = algo.env_runner.env.envs[0].unwrapped.env
        assert isinstance(wrapper, PlannedSubgoals) and wrapper.planner.name == "plan4mc"
        assert (wrapper.tracker.patience, wrapper._reward, wrapper._replan) == (8, 2.0, "all")
    assert told["plans"] >= 1 and told["subgoals_given"] >= 2
    policy = load_policy(path)
    env = policy.env()  # as in training, but the return is the game's own
    assert isinstance(env, PlannedSubgoals)
    assert (env.planner.name, env.tracker.patience, env._reward) == ("plan4mc", 8, 0)
    assert evaluate(policy, episodes=1).metrics["plans"] >= 1


def test_agents_that_read_numbers_find_their_subgoal_behind_their_vector():
    with running(
        MAPPOConfig()
        .environment(ENV_ID, env_config={"observe": ["vector"], "horizon": 20})
        .planning(planner="scripted", patience=8)
        .policy_network(hiddens=[8])
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=80, num_epochs=1)
        .debugging(seed=0)
    ) as algo:
        assert algo.train()["env_runners"]["plans"] >= 1
        path = algo.save_to_path()
    policy = load_policy(path)
    env = policy.env()
    observations, _ = env.reset(seed=0)
    plain, _ = env.unwrapped.reset(seed=0)
    known = list(dict.fromkeys([*env.game.library("alice"), *env.game.library("bob")]))
    for agent, seen in observations.items():
        told = seen["vector"][len(plain[agent]["vector"]) :]
        assert env.observation_space(agent).contains(seen)
        assert [known[number] for number in told.nonzero()[0]] == [env.tracker.told[agent]]
    assert evaluate(policy, episodes=1).metrics["plans"] >= 1


def test_the_other_games_of_a_runner_go_on_while_one_waits_for_its_plan(monkeypatch):
    monkeypatch.setattr(PLANNERS, "_entries", dict(PLANNERS._entries))
    door, comers = threading.Event(), itertools.count()

    class Late(ScriptedPlanner):
        """Holds back who comes first until the door is opened, for a minute at most: who is held up notices."""

        slow = True

        def plan(self, request):
            if next(comers) == 0:
                door.wait(60)
            return super().plan(request)

    register_planner("late", Late)
    config = MAPPOConfig().environment(ENV_ID, env_config={"observe": ["vector"], "horizon": 30_000})
    config.planning(planner="late", patience=8).policy_network(hiddens=[8]).env_runners(num_envs_per_env_runner=3)
    with running(config) as algo:
        runner, games = algo.env_runner, [env.unwrapped.env for env in algo.env_runner.env.envs]

        def step(number):
            """Takes so many steps in each game; what RLlib counts are the agents' steps."""
            runner.sample(num_timesteps=number * sum(len(game.agents or game.possible_agents) for game in games))

        def step_until(ready):
            until = time.monotonic() + 45
            while not ready():
                assert time.monotonic() < until
                step(1)

        step_until(lambda: sum(game.plan is not None for game in games) == 2)
        (waits,) = (game for game in games if game.plan is None)
        others = [game for game in games if game is not waits]
        plans, times = [len(game.attempts) for game in others], [game.unwrapped.kitchen.time for game in games]
        step(10)
        assert [game.unwrapped.kitchen.time - was for game, was in zip(games, times, strict=True)] == [10, 10, 10]
        # Those that have plans are also planned anew when a subgoal has ended, as `patience` is 8.
        step_until(lambda: all(len(game.attempts) > was for game, was in zip(others, plans, strict=True)))
        assert waits.plan is None and set(waits.tracker.told.values()) == {""}
        door.set()
        step_until(lambda: waits.plan is not None)


@pytest.mark.parametrize(
    ("config", "settings", "wrong"),
    [
        (EMMAConfig, {"planner": "nobody"}, ("planner", "unknown")),
        (VercoConfig, {"planner": {"name": "chat"}}, ("planner.chat", "missing")),
        (VercoConfig, {"planner": "scripted", "patience": 0}, ("patience", "range")),
        (EMMAConfig, {"subgoal_rewards": {"name": "judge", "chat": "gpt-4o"}}, ("subgoal_rewards.chat", "type")),
        (EMMAConfig, {"subgoal_rewards": {"name": "code", "path": "no/where.json"}}, ("subgoal_rewards.path",)),
        (SelfPlayPPOConfig, {"planner": "scripted"}, ("planner", "invalid", "mean nothing to SelfPlayPPO")),
    ],
)  # fmt: skip
def test_bad_settings_are_told_at_once(config, settings, wrong):
    with refused(*wrong) as told:
        config().planning(**settings).validate()
    assert "\n" not in str(told.value)


def test_a_callback_of_ones_own_tells_bad_settings_at_once_and_one_planner_is_enough():
    for planner, wrong in (("nobody", {}), ("scripted", {"patience": 0}), ("scripted", {"pateince": 3})):
        with pytest.raises(UserError, match=next(iter(wrong), "planner")):
            AddPlannedSubgoals.of(planner, **wrong)
    with pytest.raises(UserError, match="another AddPlannedSubgoals"):
        EMMAConfig().callbacks(PLANNED).planning(planner="scripted").validate()


def evaluated(duration, runners=0, **more):
    return (
        EMMAConfig()
        .env_runners(num_envs_per_env_runner=32)
        .evaluation(
            evaluation_interval=1,
            evaluation_duration=duration,
            evaluation_num_env_runners=runners,
            evaluation_config={"planner": "scripted", **more},
        )
    )


@pytest.mark.parametrize(("duration", "runners", "at_once"), [(1, 0, 1), (10, 3, 4), (100, 0, 32)])
def test_an_evaluation_begins_no_more_games_than_it_counts(duration, runners, at_once):
    config = evaluated(duration, runners).get_evaluation_config_object()
    config.validate()
    assert config.num_envs_per_env_runner == at_once


def test_an_evaluation_that_would_end_the_training_is_refused(tmp_path):
    rewards = {"name": "code", "path": str(tmp_path), "fallback": "error"}
    (tmp_path / "one.py").write_text("# get an onion\ndef reward(state):\n    return 0\n")
    config = evaluated(1).planning(subgoal_rewards=rewards).get_evaluation_config_object()
    with pytest.raises(UserError, match="set `subgoal_rewards: exact` in `evaluation_config`"):
        config.validate()
    config = evaluated(1, subgoal_rewards="exact").planning(subgoal_rewards=rewards).get_evaluation_config_object()
    config.validate()
