"""EMMA's data set grows while it trains: running games draw what was added, and checkpoints keep it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import ChatServer
from planner_model import planner

from rllib_llm_comm import EMMA, EMMAConfig
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import GO, all_subgoals, kitchen_record, subgoal_text
from rllib_llm_comm.sama.emma.new_subgoals import draw_callbacks
from rllib_llm_comm.sama.recordings import recording
from rllib_llm_comm.sama.rewards.subgoal_rewards import file_name
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray", "chat_client_at_home")

FIRST = "go to floor 1,1"


@pytest.fixture
def data_set(tmp_path):
    path = tmp_path / "subgoals.json"
    record = {"kitchen": kitchen_record(get_layout("cramped_room")), "subgoals": [{"subgoal": FIRST}]}
    path.write_text(json.dumps(record))
    return str(path)


def config(data_set, chat, runners=0, **new):
    growing = {"every": 2, "states": 3, "planner": {"name": "chat", "chat": chat}, **new}
    return (
        EMMAConfig()
        .environment(env_config={"layout": "cramped_room", "horizon": 20, "subgoal_file": data_set})
        .policy_network(width=8, filters=8, hiddens=[16])
        .env_runners(num_envs_per_env_runner=2, num_env_runners=runners)
        .training(train_batch_size_per_learner=80, minibatch_size=40, num_epochs=1)
        .subgoal_data(new_subgoals=growing)
        .debugging(seed=0)
    )


def drawn(algo):
    """What the games of all EnvRunners draw, in words."""

    def texts(runner):
        games = [game for callback in draw_callbacks(runner) for game in callback._games]
        return [sorted(subgoal_text(g.unwrapped.kitchen.layout, s) for s in g.unwrapped._drawn) for g in games]

    found = [one for part in algo.env_runner_group.foreach_env_runner(texts) for one in part]
    assert all(one == found[0] for one in found)
    return set(found[0])


def _made_anew(runner):
    runner.make_env()


@pytest.mark.parametrize("runners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_running_games_draw_what_was_added_and_a_checkpoint_keeps_it(data_set, tmp_path, runners):
    with ChatServer(planner) as server:
        with running(config(data_set, server.settings(), runners)) as algo:
            assert algo.train()["new_subgoals"]["states"] == 0 and drawn(algo) == {FIRST}
            told = algo.train()["new_subgoals"]
            assert told["states"] == 2 and told["subgoals"] > 0 and told["requests"] > 0
            grown = drawn(algo)
            assert len(grown) == 1 + told["subgoals"]
            path = algo.save_to_path(str(tmp_path / "checkpoint"))
        asked = len(server.requests)
        with running(EMMA.from_checkpoint(path)) as again:
            assert drawn(again) == grown
            more = again.train()["new_subgoals"]
            assert more["states"] == 2 and more["subgoals"] == told["subgoals"] and len(server.requests) == asked
            again.env_runner_group.foreach_env_runner(_made_anew)  # games that are made anew draw them, too
            assert drawn(again) == grown


def test_games_under_reward_code_get_the_code_of_new_subgoals(data_set, tmp_path):
    tape = Cassette(recording("claude_reward_code"))
    layout, code = get_layout("cramped_room"), tmp_path / "code"
    code.mkdir()
    # A cook for whom nothing of the data set is possible is told to stay where it is, so all places have code.
    places = [subgoal_text(layout, subgoal) for subgoal in all_subgoals(layout) if subgoal.verb == GO]
    for place in places:
        (code / f"{file_name(place)}.py").write_text("def reward(state):\n    return 0\n")
    record = {"kitchen": kitchen_record(layout), "subgoals": [{"subgoal": place} for place in places]}
    Path(data_set).write_text(json.dumps(record))

    def answers(prompt):
        return tape.complete(prompt) if "Write a function `reward(state)`" in prompt else planner(prompt)

    with ChatServer(answers) as server:
        built = config(data_set, server.settings(), every=1, steps=60).planning(
            subgoal_rewards={"name": "code", "path": str(code), "fallback": "error"}
        )
        with running(built) as algo:
            for _ in range(3):  # a subgoal without code would end the run
                told = algo.train()
            assert told["new_subgoals"]["subgoals"] > 0
            assert told["env_runners"]["judgements_by_code"] > 0


def test_a_growing_data_set_goes_with_an_evaluation_in_whole_games(data_set):
    made = config(data_set, {"model": "x", "base_url": "http://127.0.0.1:1/v1"})
    made.evaluation(evaluation_interval=1, evaluation_config={"planner": "scripted", "subgoal_reward": 0.0})
    made.validate()
    evaluated = made.get_evaluation_config_object()
    evaluated.validate()
    assert evaluated.env == "rllib_llm_comm/overcooked_ai-v0" and "subgoal_file" not in evaluated.env_config
    assert made.env.endswith("subgoals-v0") and made.env_config["subgoal_file"] == data_set


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.environment(env_config={"subgoal_file": None}), "`env_config.subgoal_file` is not"),
        (lambda c: c.planning(planner="scripted"), "`planner` is 'scripted'"),
        (lambda c: c.environment("rllib_llm_comm/frozen_lake-v0", env_config={}), "`planner` is None, which draws no"),
        (lambda c: c.subgoal_data(new_subgoals={"every": 1}), "`new_subgoals.planner` is missing"),
    ],
)
def test_what_cannot_grow_is_refused(data_set, change, said):
    with pytest.raises(UserError) as caught:
        change(config(data_set, {"model": "x", "base_url": "http://127.0.0.1:1/v1"})).validate()
    assert said in str(caught.value)
