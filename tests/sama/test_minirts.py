"""The strategy game under planners: subgoals in words, when they are done, and playing them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer, client
from kitchens import asking, kitchen, prompts, team

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.engine.units import PEASANT
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.data_set import diverse_states
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import PlanRequest
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.reflection import ReflectivePlay
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.rewards.subgoal_rewards import (
    CodeReward,
    JudgeReward,
    make_rewards,
    measure_agreement,
    write_reward,
)
from tests.experiments import staged
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


EVERY = list(range(1, 7))


def started(**settings):
    env = minirts.parallel_env(numbers=EVERY, **settings)
    env.reset(seed=0)
    return env, planning_game(env)


def step(env, **words):
    phrases = env.action_phrases("alice")
    return env.step({agent: phrases.index(words.get(agent, "wait")) for agent in env.agents})


def test_every_subgoal_is_read_back_and_an_action():
    env, game = started()
    assert game.library("alice") == env.action_phrases("alice")
    assert [game.parse(words) for words in game.library("bob")] == game.library("bob")
    assert game.parse("build 4 swordman") == "train 4 swordmen" and game.parse("win") is None


@pytest.mark.parametrize("decision_ticks", [50, 200])
def test_training_is_done_when_so_many_came_out(decision_ticks):
    env, game = started(num_agents=1, money=2000, decision_ticks=decision_ticks)
    done = []
    game.state()
    for decision in range(13):
        step(env, alice="wait" if decision else "train 3 peasants")
        before, after = game.passed()
        assert after.tick - before.tick == decision_ticks
        done.append(game.done(before, after, "alice", "train 3 peasants"))
        assert not done[-1] or env.team.counts()[PEASANT] == 6
    assert sum(done) == 1


def test_what_is_in_force_is_not_refused_and_what_cannot_be_is():
    env, game = started()
    state = game.state()
    assert "no building for it" in game.refusal(state, "bob", "train 2 spearmen")
    assert game.refusal(state, "bob", "build one barrack") == ""
    step(env, bob="build one barrack")
    state = game.state()
    assert game.refusal(state, "bob", "build one barrack") == ""
    assert game.refusal(state, "alice", "build one barrack") != ""


def test_the_scripted_plan_shares_the_work():
    _, game = started()
    plan = make_planner("scripted").plan(PlanRequest(game, game.state()))
    assert plan.by_agent() == {"alice": "mine with idle peasants", "bob": "mine with idle peasants"}
    env, game = started()
    step(env, alice="mine with idle peasants", bob="mine with idle peasants")
    step(env, alice="train 1 peasant")
    wanted = game.scripted(game.state())[1]
    assert len([words for words in wanted.values() if words.startswith("build")]) <= 1


def test_commanders_that_do_as_they_are_told_win():
    executor = ScriptedExecutor(minirts.ENV_ID)
    assert set(executor.scenarios) == {"simple", "medium", "medium2", "medium3", "strong"}
    game = PlannedGames(executor, {"opponent": "simple"}, PlanningSetup(patience=40))
    played = game.play(seed=1)
    assert played["return"] == played["metrics"]["won"] == 1 and played["metrics"]["subgoals_completed"] >= 5
    assert played["metrics"]["subgoals_stuck"] == played["metrics"]["subgoals_refused"] == 0


def test_followers_command_once_and_the_nearest_number():
    env = minirts.parallel_env(numbers=[1, 3], num_agents=1, money=2000)
    observations, _ = env.reset(seed=0)
    player = planning_game(env).player()

    def act(subgoal):
        action = player.actions({"alice": {**observations["alice"], "subgoal": subgoal}})
        return env.action_phrases("alice")[action["alice"]], action

    assert act("")[0] == act("train 2 dragons")[0] == "wait"
    words, action = act("train 5 peasants")
    assert words == "train 3 peasants"
    observations = env.step(action)[0]
    assert act("train 5 peasants")[0] == "wait" and act("build one stable")[0] == "build one stable"


def test_reds_actions_have_no_subgoals():
    with refused("action_level"):
        planning_game(minirts.parallel_env(action_level="red"))


# ---- the strategy game, prepared by a language model: states of games, sentences, reward code that counts ----


FILE = Path(__file__).parents[2] / "tuned_examples" / "sama_minirts.yaml"
TRAIN = "train 3 peasants"
SINCE = """
def reward(state):
    made = [state[when]["commanders"][state["agent"]]["made so far"].get("peasant", 0) for when in ("start", "after")]
    return 1 if made[1] - made[0] >= 3 else 0
"""
# Without the start three at once are needed, which a building never makes in one step.
ONE_STEP = SINCE.replace('"start"', '"before"')


@pytest.fixture(scope="module")
def war():
    return open_game(minirts.ENV_ID, {"opponent": "simple"})


def test_states_of_games_differ_and_the_games_own_words_hold_of_them_later(war):
    states = list(diverse_states(war, 12, seed=3).values())
    assert len({state.tick for state in states}) > 5
    for state in states:
        assert war.holds(state, war.situation(state)) is True
        assert war.holds(state, f"The team has {war.plain(state)['gold'] + 10} gold.") is False
        assert war.holds(state, "Alice is tired.") is None
    war.env.reset(seed=0)
    passed = war.state()
    war.env.step(dict.fromkeys(war.env.agents, 0))
    assert war.holds(war.state(), war.situation(war.state())) is True
    assert war.holds(passed, war.situation(passed)) is None  # it is over and was not kept


def test_reward_code_sees_the_start_and_agrees_with_the_exact_test(war):
    steps = list(preparation_of(war).steps(150, seed=1))
    found = measure_agreement(CodeReward(SINCE), war, TRAIN, steps)
    assert found.share == 1 and found.both > 0 and found.refused == 0
    without = measure_agreement(CodeReward(ONE_STEP), war, TRAIN, steps)
    assert without.recall == 0 and without.missed == found.both


def test_a_subgoal_that_is_given_again_begins_anew_for_code_as_for_the_exact_test(tmp_path):
    one = "train 1 peasant"
    (tmp_path / "train_1_peasant.py").write_text(SINCE.replace("3", "1"))
    env, game = started(num_agents=1, money=2000)
    rewards = make_rewards({"name": "code", "path": str(tmp_path), "fallback": "error"})
    rewards.prepare(game, game.state(), "alice", one)
    phrases, said = env.action_phrases("alice"), []
    for step in range(12):
        env.step({"alice": phrases.index(one) if step in (0, 5) else 0})
        before, after = game.passed()
        judged = rewards.judged(game, before, after, "alice", one)
        assert judged.answered_by == "code"
        said.append(judged.done)
        assert judged.done == game.done(before, after, "alice", one)
    assert sum(said) == 2 and env.team.counts()[PEASANT] == 5


def test_whole_games_pay_what_the_exact_tests_pay(tmp_path):
    (tmp_path / "train_1_peasant.py").write_text(SINCE.replace("3", "1"))
    env = minirts.parallel_env(numbers=EVERY, observe=["text"], max_tick=1000)
    told = {"name": "code", "path": str(tmp_path), "fallback": "rules"}
    game = PlannedSubgoals(env, "scripted", subgoal_rewards=told)
    observations, _ = game.reset(seed=0)
    player = game.game.player()
    while game.agents:
        observations, _, _, _, infos = game.step(player.actions(observations))
    metrics = infos["alice"]["episode_metrics"]
    assert metrics["rewards_differing"] == 0 < metrics["judgements_by_code"]


def test_the_sandbox_bounds_code_that_counts_since(war):
    example = war.plain(war.state())
    with pytest.raises(RefusedCodeError, match="KeyError: start"):
        CodeReward(SINCE)(example, example, "alice")
    with refused("state"):
        CodeReward(SINCE)(example, example, "alice", {"padding": "x" * (1 << 20)})


def test_the_question_tells_of_the_start_where_tests_count_since(war):
    example = war.plain(war.state())
    with ChatServer(f"```python\n{SINCE}```") as server:
        model = client(server, max_tokens=1000)
        assert write_reward(model, TRAIN, example, agent="bob", since=True).source.strip() == SINCE.strip()
        assert 'state["start"]' in server.requests[0]["messages"][-1]["content"]
    judge = JudgeReward(model, TRAIN)
    assert "given its subgoal:\n{}" in judge.prompt(example, example, "bob", {})
    assert "given its subgoal" not in judge.prompt(example, example, "bob")


# ---- the stages ---------------------------------------------------------------------------------------------


def small_file(*without):
    specs = yaml.safe_load(FILE.read_text())
    specs["translation"]["config"]["states"] = 10
    specs["subgoals"]["config"]["states"] = 30
    specs["rewards"]["config"]["steps"] = 150
    for name in without:
        del specs[name]
    specs["report"]["config"]["of"] = [f"${{{name}}}" for name in specs if name != "report"]
    return specs


@pytest.mark.slow
def test_the_follower_is_trained_by_a_stage_and_plays_whole_games(tmp_path):
    specs = small_file()
    follower = specs["follower"]
    follower["stop"] = {"training_iteration": 2}
    follower["config"] |= {"num_envs_per_env_runner": 2, "train_batch_size_per_learner": 128, "minibatch_size": 64}
    follower["config"]["env_config"]["max_tick"] = 400
    for name in ("random", "planned"):
        specs[name]["config"] |= {"episodes": 1, "env_config": {"max_tick": 400}}
    staged.run(specs, tmp_path, "war", ray_num_cpus=1)
    for name in ("random", "planned"):
        metrics = staged.record(tmp_path, name, "war")["summary"]["metrics"]
        assert metrics["plans"] > 0 and metrics["subgoals_given"] > 0
    assert "planned" in (tmp_path / "war/report/report.html").read_text()


def test_all_stages_run_from_the_recording_and_name_who_wrote_it(tmp_path):
    specs = small_file("follower", "random", "planned")
    staged.run(specs, tmp_path, "war")
    folder = tmp_path / "war"
    figures = json.loads((folder / "translation/translation.json").read_text())["figures"]
    assert figures["sentences_true"] > 50 and not figures["sentences_false"] and not figures["sentences_unclear"]
    agreement = json.loads((folder / "rewards/rewards/agreement.json").read_text())
    assert agreement["figures"]["with_code"] >= 5 and agreement["figures"]["share"] == 1
    rows = {row["subgoal"]: row for row in agreement["by_subgoal"]}
    assert rows["train 3 swordmen"]["agreement"]["both"] > 0
    assert agreement["figures"]["never_done"] == 1 and not rows["wait"]["agreement"]["both"]
    assert 'state["start"]' in (folder / "rewards/rewards/train_3_swordmen.py").read_text()
    for stage in ("translation", "subgoals", "rewards"):
        assert set(staged.record(tmp_path, stage, "war")["summary"]["answers"]) == {"written by hand"}
    assert "written by hand" in (folder / "report/report.html").read_text()


def test_a_model_cannot_propose_states_of_a_war(tmp_path):
    specs = yaml.safe_load(FILE.read_text())
    specs["subgoals"]["config"]["states_by"] = "model"
    with pytest.raises(UserError, match="`subgoals.config`: `states_by` .*'minirts'"):
        staged.check(specs, tmp_path)


# ---- what the planner sees, and when it falls silent (SAMA's way of asking in this game) ------------------------


MINES = team(["mine with all idle peasants"], ["mine with all idle peasants"], "an army")


def test_the_truth_names_enemies_that_the_fog_hides():
    env, game = started(opponent="medium2")
    for _ in range(20):
        env.step(dict.fromkeys(env.agents, 0))
    hidden = [unit for unit in env.team.game.units(1) if unit.type not in env.team.enemy_counts()]
    assert hidden and not env.team.enemy_counts()
    with ChatServer(MINES) as server:
        for view in ("fog", "truth"):
            make_planner(asking(server, ahead=3, view=view)).plan(PlanRequest(game, game.state()))
        fog, truth = prompts(server)
    assert "In truth the enemy has" in truth and "In truth" not in fog and "You know of no enemy." in fog
    told = truth.partition("In truth the enemy has")[2].partition(".")[0]
    assert "town hall" in told and "peasant" in told


@pytest.mark.parametrize("name", ["chat", "deps", "sama"])
def test_the_truth_is_refused_in_a_game_without_fog_before_anything_is_played(name):
    clear = kitchen()
    asked = {"name": name, "chat": {"model": "tiny"}, "view": "truth"}
    for planner in (asked, {"name": "disturbed", "planner": asked}):
        with refused("view"):
            PlannedSubgoals(clear.env, planner)
    make_planner({**asked, "view": "fog"}).check_game(clear)
    make_planner(asked).check_game(started()[1])


def test_one_question_a_game_opens_it_and_then_the_commanders_act_on_their_own():
    with ChatServer(MINES) as server:
        env = minirts.parallel_env(numbers=EVERY, max_tick=1200, opponent="simple")
        planner = make_planner(asking(server, ahead=3, opening=1, view="truth"))
        counts = ReflectivePlay(env, planning_game(env).player(), planner, trials=2).play(0).counts()
        assert len(server.requests) == 1 == counts["plan_questions"]
    assert counts["plans"] == 2 and counts["plans_kept"] == 1 and counts["subgoals_given"] == 2
    assert not counts.get("subgoals_by_own")  # nobody gives those that are left to themselves any


def test_after_the_opening_nobody_is_told_anything():
    with ChatServer(MINES) as server:
        how = asking(server, ahead=3, opening=1)
        env = PlannedSubgoals(minirts.parallel_env(numbers=EVERY, max_tick=1200), how, wait=True)
        seen, _ = env.reset(seed=0)
        player, told = env.game.player(), []
        while env.agents:
            told.append({agent: one["subgoal"] for agent, one in seen.items()})
            seen, *_ = env.step(player.actions(seen))
        assert env.plan.alone and len(server.requests) == 1
        assert set(told[0].values()) != {""} and set(told[-1].values()) == {""}
        disturbed = {"name": "disturbed", "planner": how, "share": 1.0}
        rounds = ReflectivePlay(env.env, env.game.player(), make_planner(disturbed), trials=0).play(0).rounds
        assert rounds[-1][-1].plan.alone  # silence is not replaced by anything
