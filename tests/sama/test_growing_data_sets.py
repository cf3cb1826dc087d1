"""Data sets of subgoals grow while agents train on them: running games draw what was added, and checkpoints keep it."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer
from kitchens import prompts, small_emma
from planner_model import planner

from rllib_llm_comm import EMMA, SymbolicPPO, SymbolicPPOConfig
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import GO, all_subgoals, kitchen_record, subgoal_text
from rllib_llm_comm.sama.emma.new_subgoals import draw_callbacks
from rllib_llm_comm.sama.recordings import recording
from rllib_llm_comm.sama.rewards.subgoal_rewards import file_name
from tests.running import running

pytestmark = pytest.mark.usefixtures("small_ray", "chat_client_at_home")

KITCHEN, LAKE, WAR = (f"rllib_llm_comm/{name}-v0" for name in ("overcooked_ai_subgoals", "frozen_lake", "minirts"))
FIRST = {KITCHEN: "go to floor 1,1", LAKE: "go to column 1, row 0", WAR: "wait"}
GAMES = {
    KITCHEN: {"layout": "cramped_room", "horizon": 20},
    LAKE: {"layout": ["1.2", "...", "b.a"], "observe": ["vector"]},
    WAR: {"opponent": "simple", "observe": ["vector"], "max_tick": 2000},
}
NOBODY = {"model": "x", "base_url": "http://127.0.0.1:1/v1"}


@pytest.fixture
def data_set(tmp_path):
    def made(env, *subgoals):
        path = tmp_path / "subgoals.json"
        record = {"subgoals": [{"subgoal": subgoal} for subgoal in subgoals or [FIRST[env]]]}
        if env == KITCHEN:
            record["kitchen"] = kitchen_record(get_layout("cramped_room"))
        path.write_text(json.dumps(record))
        return str(path)

    return made


def config(env, path, chat, **new):
    """EMMA whose kitchens draw subgoals, or walkers and commanders under a planner that draws them."""
    growing = {"every": 2, "states": 2, "planner": {"name": "chat", "chat": chat}, **new}
    if env == KITCHEN:
        return small_emma(**GAMES[env], subgoal_file=path).subgoal_data(new_subgoals=growing)
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


def games_of(runner):
    return [game for callback in draw_callbacks(runner) for game in callback._games]


def drawn(algo):
    """What the games of all EnvRunners draw, in words."""

    def texts(runner):
        return [
            {subgoal_text(game.unwrapped.kitchen.layout, one) for one in game.unwrapped._drawn}
            if hasattr(game.unwrapped, "_drawn")
            else game.planner._among
            for game in games_of(runner)
        ]

    found = [one for part in algo.env_runner_group.foreach_env_runner(texts) for one in part]
    assert len(found) >= 2 and all(one == found[0] for one in found)
    return set(found[0])


def _made_anew(runner):
    runner.make_env()


@pytest.mark.parametrize(
    ("env", "runners"), [(KITCHEN, 0), (LAKE, 0), pytest.param(KITCHEN, 1, marks=pytest.mark.slow)]
)
def test_running_games_draw_what_was_added_and_a_checkpoint_keeps_it(data_set, tmp_path, env, runners):
    with ChatServer(planner) as server:
        with running(config(env, data_set(env), server.settings()).env_runners(num_env_runners=runners)) as algo:
            assert algo.train()["new_subgoals"]["states"] == 0 and drawn(algo) == {FIRST[env]}
            told = algo.train()["new_subgoals"]
            assert told["states"] == 2 and told["subgoals"] > 0 and told["requests"] > 0
            grown = drawn(algo)
            assert len(grown) == 1 + told["subgoals"] and FIRST[env] in grown
            path = algo.save_to_path(str(tmp_path / "checkpoint"))
        asked = len(server.requests)
        with running((EMMA if env == KITCHEN else SymbolicPPO).from_checkpoint(path)) as again:
            assert drawn(again) == grown
            more = again.train()["new_subgoals"]
            assert more["states"] == 2 and more["subgoals"] == told["subgoals"] and len(server.requests) == asked
            assert all(more[figure] == told[figure] for figure in ("requests", "input_tokens")), "what it has cost"
            again.env_runner_group.foreach_env_runner(_made_anew)  # games that are made anew draw them, too
            assert drawn(again) == grown


def test_kitchens_under_reward_code_get_the_code_of_new_subgoals(data_set, tmp_path):
    tape = Cassette(recording("claude_reward_code"))
    layout, code = get_layout("cramped_room"), tmp_path / "code"
    code.mkdir()
    # A cook for whom nothing of the data set is possible is told to stay where it is, so all places have code.
    places = [subgoal_text(layout, subgoal) for subgoal in all_subgoals(layout) if subgoal.verb == GO]
    for place in places:
        (code / f"{file_name(place)}.py").write_text("def reward(state):\n    return 0\n")

    def answers(prompt):
        return tape.complete(prompt) if "Write a function `reward(state)`" in prompt else planner(prompt)

    with ChatServer(answers) as server:
        built = config(KITCHEN, data_set(KITCHEN, *places), server.settings(), every=1, steps=30)
        built.planning(subgoal_rewards={"name": "code", "path": str(code), "fallback": "error"})
        with running(built) as algo:
            for _ in range(3):  # a subgoal without code would end the run
                told = algo.train()
            assert told["new_subgoals"]["subgoals"] > 0
            assert told["env_runners"]["judgements_by_code"] > 0


RIGHT = """
def reward(state):
    before, after = (state[when]["walkers"][state["agent"]] for when in ("before", "after"))
    there = [after["column"], after["row"]] == {place}
    return 1 if there and [before["column"], before["row"]] != {place} else 0
"""


def test_lakes_under_reward_code_get_the_code_of_subgoals_in_their_states(data_set, tmp_path):
    """Code counts from the next time on, where nothing had been earned for want of it."""

    def writes(prompt):
        if "Write a function `reward(state)`" not in prompt:
            return planner(prompt)
        _, _, rest = prompt.partition("subgoal:\ngo to column ")
        return f"```python{RIGHT.format(place=[int(rest[0]), int(rest[len('0, row ')])])}```"

    code = tmp_path / "code"
    code.mkdir()
    (code / f"{file_name(FIRST[LAKE])}.py").write_text(RIGHT.format(place=[1, 0]))
    with ChatServer(writes) as server:
        built = config(LAKE, data_set(LAKE), server.settings(), every=1, steps=60)
        built.planning(subgoal_rewards={"name": "code", "path": str(code), "fallback": "none"})
        with running(built) as algo:
            told = algo.train()["new_subgoals"]
            assert told["subgoals"] > 0 and not told["left_out"]
            game, *others = games = games_of(algo.env_runner)
            places = [one.game.situation_of(one.game.state(), "alice") for one in games if one.unwrapped.agents]
            assert places and all(any(place in prompt for prompt in prompts(server)) for place in places)
            assert all(other.rewards is game.rewards for other in others)
            for subgoal in drawn(algo) - {FIRST[LAKE]}:
                game.rewards.prepare(game.game, game.game.state(), "alice", subgoal)
                assert game.rewards._rewards[subgoal] is not None, subgoal


def test_a_growing_data_set_goes_with_an_evaluation_in_whole_games(data_set):
    made = config(KITCHEN, data_set(KITCHEN), NOBODY)
    made.evaluation(evaluation_interval=1, evaluation_config={"planner": "scripted", "subgoal_reward": 0.0})
    made.validate()
    evaluated = made.get_evaluation_config_object()
    evaluated.validate()
    assert evaluated.env == "rllib_llm_comm/overcooked_ai-v0" and "subgoal_file" not in evaluated.env_config
    assert made.env == KITCHEN and made.env_config["subgoal_file"] == data_set(KITCHEN)


SALADS = {"map_name": "B", "observe": ["vector"]}


@pytest.mark.parametrize(
    ("env", "change", "said"),
    [
        (KITCHEN, lambda c: c.environment(env_config={"subgoal_file": None}), "`env_config.subgoal_file`"),
        (KITCHEN, lambda c: c.environment(LAKE, env_config={}), "`planner` is None"),
        (KITCHEN, lambda c: c.planning(planner="scripted"), "`planner` is 'scripted'"),
        (LAKE, lambda c: c.planning(planner="random"), "`planner` is 'random'"),
        (LAKE, lambda c: c.environment("rllib_llm_comm/overcooked_text-v0", env_config=SALADS), "'overcooked_text'"),
        (WAR, lambda c: c.subgoal_data(new_subgoals={**c.new_subgoals, "states_by": "model"}), "'encount"),
    ],
)
def test_what_cannot_grow_is_refused(data_set, env, change, said):
    built = config(env, data_set(env), NOBODY)
    with pytest.raises(UserError, match=said):
        change(built).validate()


def test_states_of_a_lake_may_be_proposed(data_set):
    config(LAKE, data_set(LAKE), NOBODY, states_by="model").validate()
