"""Data sets of the frozen lake and of MiniRTS grow while agents train under a planner that draws from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import ChatServer
from planner_model import planner

from rllib_llm_comm import SymbolicPPO, SymbolicPPOConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.emma.new_subgoals import draw_callbacks
from rllib_llm_comm.sama.rewards.subgoal_rewards import file_name
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray", "chat_client_at_home")

LAKE, WAR = "rllib_llm_comm/frozen_lake-v0", "rllib_llm_comm/minirts-v0"
FIRST = {LAKE: "go to column 1, row 0", WAR: "wait"}
GAMES = {
    LAKE: {"layout": ["1.2", "...", "b.a"], "observe": ["vector"]},
    WAR: {"opponent": "simple", "observe": ["vector"], "max_tick": 2000},
}
NOBODY = {"model": "x", "base_url": "http://127.0.0.1:1/v1"}


@pytest.fixture
def data_set(tmp_path):
    def made(env):
        path = tmp_path / "subgoals.json"
        path.write_text(json.dumps({"subgoals": [{"subgoal": FIRST[env]}]}))
        return str(path)

    return made


def config(env, path, chat, **new):
    growing = {"every": 2, "states": 2, "planner": {"name": "chat", "chat": chat}, **new}
    return (
        SymbolicPPOConfig()
        .environment(env, env_config=GAMES[env])
        .policy_network(hiddens=[8])
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=16, minibatch_size=16, num_epochs=1)
        .planning(planner={"name": "random", "subgoals": path}, patience=3)
        .subgoal_data(new_subgoals=growing)
        .debugging(seed=0)
    )


def drawn(algo):
    """The data set from which the games draw."""
    found = algo.env_runner_group.foreach_env_runner(
        lambda one: [game.planner._among for game in draw_callbacks(one)[0]._games]
    )
    assert len(found[0]) == 2 and found[0][0] == found[0][1]
    return found[0][0]


def test_running_games_draw_what_was_added_and_a_checkpoint_keeps_it(data_set, tmp_path):
    with ChatServer(planner) as server:
        with running(config(LAKE, data_set(LAKE), server.settings())) as algo:
            assert algo.train()["new_subgoals"]["states"] == 0 and drawn(algo) == {FIRST[LAKE]}
            told = algo.train()["new_subgoals"]
            assert told["states"] == 2 and told["subgoals"] > 0 and told["requests"] > 0
            grown = drawn(algo)
            assert len(grown) == 1 + told["subgoals"] and FIRST[LAKE] in grown
            path = algo.save_to_path(str(tmp_path / "checkpoint"))
        asked = len(server.requests)
    with running(SymbolicPPO.from_checkpoint(path)) as again:
        assert drawn(again) == grown and again.train()["new_subgoals"]["states"] == 2
        again.env_runner.make_env()  # games that are made anew draw them, too
        assert drawn(again) == grown and len(server.requests) == asked


def test_states_that_are_asked_are_those_of_the_games(data_set):
    seen = []

    def tells(prompt):
        seen.append(prompt)
        return planner(prompt)

    with ChatServer(tells) as server, running(config(LAKE, data_set(LAKE), server.settings(), every=1)) as algo:
        algo.train()
        games = [game.game for game in draw_callbacks(algo.env_runner)[0]._games]
        places = [game.situation_of(game.state(), "alice") for game in games if game.env.unwrapped.agents]
    assert places and all(any(place in prompt for prompt in seen) for place in places)


def test_games_under_reward_code_get_the_code_of_new_subgoals(data_set, tmp_path):
    """Code counts from the next time on, where nothing had been earned for want of it."""
    code, right = (
        tmp_path / "code",
        "def reward(state):\n    me = state['agent']\n    place = {place}\n"
        + (
            "    before, after = state['before']['walkers'][me], state['after']['walkers'][me]\n"
            "    there = [after['column'], after['row']] == place\n"
            "    return 1 if there and [before['column'], before['row']] != place else 0\n"
        ),
    )
    code.mkdir()

    def writes(prompt):
        if "Write a function `reward(state)`" not in prompt:
            return planner(prompt)
        _, _, rest = prompt.partition("subgoal:\ngo to column ")
        return f"```python\n{right.format(place=[int(rest[0]), int(rest[len('0, row ')])])}```"

    (Path(code) / f"{file_name(FIRST[LAKE])}.py").write_text(right.format(place=[1, 0]))
    with ChatServer(writes) as server:
        built = config(LAKE, data_set(LAKE), server.settings(), every=1, steps=60)
        built.planning(subgoal_rewards={"name": "code", "path": str(code), "fallback": "none"})
        with running(built) as algo:
            told = algo.train()["new_subgoals"]
            assert told["subgoals"] > 0 and not told["left_out"]
            (judge,) = {game.rewards for game in draw_callbacks(algo.env_runner)[0]._games}
            new = drawn(algo) - {FIRST[LAKE]}
            game = draw_callbacks(algo.env_runner)[0]._games[0].game
            for subgoal in new:
                judge.prepare(game, game.state(), "alice", subgoal)
                assert judge._rewards[subgoal] is not None, subgoal


@pytest.mark.parametrize(
    ("env", "change", "said"),
    [
        (LAKE, lambda c: c.planning(planner="random"), "`planner` is 'random', which draws no data set"),
        (LAKE, lambda c: c.planning(planner="scripted"), "`planner` is 'scripted'"),
        (WAR, lambda c: c.subgoal_data(new_subgoals={**c.new_subgoals, "states_by": "model"}), "set it to 'encount"),
        (
            LAKE,
            lambda c: c.environment(
                "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "observe": ["vector"]}
            ),
            "no language model can prepare the game 'overcooked_text'",
        ),
    ],
)
def test_what_cannot_grow_is_refused(data_set, env, change, said):
    built = config(env, data_set(env), NOBODY)
    with pytest.raises(UserError) as caught:
        change(built).validate()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_states_of_a_lake_may_be_proposed(data_set):
    config(LAKE, data_set(LAKE), NOBODY, states_by="model").validate()
