"""The strategy game, prepared by a language model: states of games, sentences, reward code that counts since."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer

from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.engine.units import PEASANT
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.pipeline import check_stages, run_file
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.rewards.reward_code import CodeReward, JudgeReward, measure_agreement, write_reward
from rllib_llm_comm.sama.rewards.sandbox import RefusedCodeError
from rllib_llm_comm.sama.rewards.subgoal_rewards import make_rewards
from rllib_llm_comm.sama.subgoals.dataset import diverse_states

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

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
    env = minirts.parallel_env(numbers=[1, 2, 3, 4, 5, 6], num_agents=1, money=2000)
    env.reset(seed=0)
    game, rewards = planning_game(env), make_rewards({"name": "code", "path": str(tmp_path), "fallback": "error"})
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
    (tmp_path / "train_3_peasants.py").write_text(SINCE)
    env = minirts.parallel_env(numbers=[1, 2, 3, 4, 5, 6], observe=["text"], max_tick=1000)
    told = {"name": "code", "path": str(tmp_path), "fallback": "rules"}
    game = PlannedSubgoals(env, "scripted", subgoal_rewards=told)
    observations, infos = game.reset(seed=0)
    player = game.game.player()
    while game.agents:
        observations, _, _, _, infos = game.step(player.act(None, observations))
    assert infos["alice"]["episode_metrics"]["rewards_differing"] == 0


def test_the_sandbox_bounds_code_that_counts_since(war):
    example = war.plain(war.state())
    endless = SINCE.replace("    made =", "    while state['start']:\n        pass\n    made =")
    with pytest.raises(RefusedCodeError, match="ran for more than"):
        CodeReward(endless)(example, example, "alice", example)
    with pytest.raises(RefusedCodeError, match="KeyError: start"):
        CodeReward(SINCE)(example, example, "alice")
    with pytest.raises(UserError, match="leave out what is not needed"):
        CodeReward(SINCE)(example, example, "alice", {"padding": "x" * (1 << 20)})


def test_the_question_tells_of_the_start_where_tests_count_since(war):
    example = war.plain(war.state())
    with ChatServer(f"```python\n{SINCE}```") as server:
        model = ChatClient("tiny", server.url, requests_per_minute=1e6, max_tokens=1000)
        assert write_reward(model, TRAIN, example, agent="bob", since=True).source.strip() == SINCE.strip()
        assert 'state["start"]' in server.requests[0]["messages"][-1]["content"]
    judge = JudgeReward(model, TRAIN)
    assert "given its subgoal:\n{}" in judge.prompt(example, example, "bob", {})
    assert "given its subgoal" not in judge.prompt(example, example, "bob")


# ---- the stages ---------------------------------------------------------------------------------------------


def test_all_stages_run_from_the_recording_and_name_who_wrote_it(tmp_path):
    specs = yaml.safe_load(FILE.read_text())
    specs["translation"]["config"]["states"] = 10
    specs["subgoals"]["config"]["states"] = 60
    specs["rewards"]["config"]["steps"] = 250
    run_file(ExperimentFile("war", parse_experiments(specs, "f")), TrainSettings(storage_path=str(tmp_path)))
    folder = tmp_path / "war"
    figures = json.loads((folder / "translation/translation.json").read_text())["figures"]
    assert figures["sentences_true"] > 50 and not figures["sentences_false"] and not figures["sentences_unclear"]
    agreement = json.loads((folder / "rewards/rewards/agreement.json").read_text())
    assert agreement["figures"]["with_code"] >= 6 and agreement["figures"]["share"] == 1
    rows = {row["subgoal"]: row for row in agreement["by_subgoal"]}
    assert rows["train 3 archers"]["agreement"]["both"] > 0
    assert agreement["figures"]["never_done"] == 1 and not rows["wait"]["agreement"]["both"]
    assert 'state["start"]' in (folder / "rewards/rewards/train_3_archers.py").read_text()
    for stage in ("translation", "subgoals", "rewards"):
        assert set(json.loads((folder / stage / "stage.json").read_text())["summary"]["answers"]) == {"written by hand"}
    assert "written by hand" in (folder / "report/report.html").read_text()


def test_a_model_cannot_propose_states_of_a_war(tmp_path):
    specs = yaml.safe_load(FILE.read_text())
    specs["subgoals"]["config"]["states_by"] = "model"
    with pytest.raises(UserError, match=r"In `subgoals.config`: `states_by` is 'model', but no model can.*'minirts'"):
        check_stages(make_stages(parse_experiments(specs, "f"), lambda name, _: tmp_path / name), {})
