"""Stages that play a checkpoint are checked against its game before anything runs, whoever trains it."""

from __future__ import annotations

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from tests.experiments.staged import BegunError, begin

HIDDEN = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": "planner", "observe": ["vector"]}


KITCHEN = "rllib_llm_comm/overcooked_text-v0"
ONIONS = "rllib_llm_comm/overcooked_ai-v0"
SEATS = "rllib_llm_comm/overcooked_text_planner-v0"


def learning(run, **config):
    config["num_env_runners"] = 0
    return {"run": run, "env": KITCHEN, "stop": {"training_iteration": 1}, "config": config}


def trained(**env_config):
    return learning("SymbolicPPO", env_config={**HIDDEN, **env_config}, planner="scripted")


def language(**config):
    return learning("Verco", **config)


def played_by(run="evaluate", **config):
    return {"run": run, "config": {"checkpoint": "${cooks}", **config}}


@pytest.mark.parametrize("run", ["evaluate", "replay"])
def test_a_guess_in_the_game_of_a_stage_to_come_is_refused_where_nothing_is_hidden(tmp_path, run):
    guess = {"name": "guessing"}
    with pytest.raises(BegunError):
        begin({"cooks": trained(), "games": played_by(run, planner=guess)}, tmp_path)
    with pytest.raises(UserError, match="In `games.config`: .*hides nothing.*`told_to: planner`"):
        begin({"cooks": trained(told_to="all"), "games": played_by(run, planner=guess)}, tmp_path)
    with pytest.raises(UserError, match="hides nothing"):
        own = played_by(run, planner=guess, env_config={"told_to": "all"})
        begin({"cooks": trained(), "games": own}, tmp_path)
    assert not list(tmp_path.rglob("stage.json"))


def test_a_guess_in_the_game_of_a_checkpoint_is_refused_where_nothing_is_hidden(tmp_path):
    cooks = str(shipped_policy("zoo:emma_cramped_room"))
    with pytest.raises(UserError, match="In `games.config`: .*hides nothing"):
        begin({"games": {"run": "evaluate", "config": {"checkpoint": cooks, "planner": "guessing"}}}, tmp_path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"messages": "studnt"}, "`messages` is 'studnt'.*Did you mean 'student'"),
        ({"messages": "teacher"}, "no `teacher` is set"),
        ({"message_server": {"base_url": 5}}, "base_url` is 5"),
        ({"env_config": {"map_name": "Q"}}, "`map_name` is 'Q'"),
    ],
)
@pytest.mark.parametrize("run", ["evaluate", "replay"])
def test_how_a_stage_to_come_is_played_is_checked_before_it_is_trained(tmp_path, run, settings, words):
    with pytest.raises(UserError, match=words):
        begin({"cooks": language(), "games": played_by(run, **settings)}, tmp_path)


def test_what_a_stage_to_come_can_be_played_with(tmp_path):
    games = played_by(messages="teacher", teacher="scripted", env_config={"map_name": "A"})
    with pytest.raises(BegunError):
        begin({"cooks": language(), "games": games}, tmp_path)


def test_games_of_another_length_of_vectors_are_refused_before_the_training(tmp_path):
    cooks = learning("MAPPO", env_config={"observe": ["vector"]})
    with pytest.raises(UserError, match="the length of the `vector` of agent 'alice' is .* MAPPO was trained with"):
        begin({"cooks": cooks, "games": played_by(env_config={"num_agents": 3})}, tmp_path)
    with pytest.raises(BegunError):
        begin({"cooks": cooks, "games": played_by(env_config={"max_game_steps": 30})}, tmp_path)
    searched = learning("MAPPO", env_config={"observe": ["vector"], "num_agents": {"grid_search": [2, 3]}})
    with pytest.raises(BegunError):  # the trial that is played may be the one that fits
        begin({"cooks": searched, "games": played_by(env_config={"num_agents": 3})}, tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"run": "TWOSOME"}, "`second.restore` is the result of `cooks`, a stage of Verco"),
        ({"config": {"lora_r": 8}}, "`lora_r` is 8 in this run but .* in `cooks`"),
    ],
)
def test_what_a_stage_to_come_cannot_restore_is_refused_before_it_is_trained(tmp_path, changed, words):
    silent = language(messages="none", lora_r=4)
    second = {**silent, "restore": "${cooks}", **changed}
    second["config"] = {**silent["config"], **changed.get("config", {})}
    with pytest.raises(UserError, match=words):
        begin({"cooks": silent, "second": second}, tmp_path)


def test_only_what_leaves_a_policy_is_played(tmp_path):
    stock = {"run": "PPO", "env": "CartPole-v1", "config": {"num_env_runners": 0}}
    for spec in ({"run": "collect_labels", "env": KITCHEN}, stock):
        with pytest.raises(UserError, match=f"`run: {spec['run']}` leaves no policy"):
            begin({"cooks": spec, "games": played_by()}, tmp_path)
    with pytest.raises(UserError, match="agents of SymbolicPPO say nothing"):
        begin({"cooks": trained(), "games": played_by(messages="student")}, tmp_path)


TOLD = {"recipe": ["tomato salad", "onion salad"], "told_to": ["alice"]}


@pytest.mark.parametrize("mode", ["other_fact", "swapped"])
def test_messages_about_another_fact_are_refused_where_there_is_none(tmp_path, mode):
    told, games = language(env_config=TOLD), played_by(messages=mode)
    search = language(env_config={**TOLD, "told_to": {"grid_search": ["one", "all"]}})
    for cooks in (told, search):
        with pytest.raises(BegunError):
            begin({"cooks": cooks, "games": games}, tmp_path)
    with pytest.raises(UserError, match=f"In `games.config`: `messages` is '{mode}'.* use 'other_moments'"):
        begin({"cooks": language(), "games": games}, tmp_path)
    with pytest.raises(UserError, match="no message tells another fact"):
        begin({"cooks": told, "games": played_by(messages=mode, env_config={"recipe": "onion salad"})}, tmp_path)
    with pytest.raises(BegunError):
        begin({"cooks": language(), "games": played_by(messages="other_moments")}, tmp_path)


@pytest.mark.parametrize(
    ("partners", "words"),
    [
        (["zoo:door"], "`partners.x` has 'zoo:door', which was trained in 'rllib_llm_comm/door-v0'"),
        (["people:nowhere"], "no recorded session"),
        ("${labels}", "leaves no policy to play"),
    ],
)
def test_strangers_that_cannot_play_are_refused_before_those_who_meet_them_are_trained(tmp_path, partners, words):
    specs = {
        "labels": {"run": "collect_labels", "env": KITCHEN},
        "cooks": language(),
        "cross": {"run": "crossplay", "config": {"players": "${cooks}", "partners": {"x": partners}}},
    }
    with pytest.raises(UserError, match=f"In `cross.config`: .*{words}"):
        begin(specs, tmp_path)
    specs["cross"]["config"]["partners"] = {"x": ["scripted", "${cooks}/past/initial", "zoo:told_salad"]}
    with pytest.raises(BegunError):
        begin(specs, tmp_path)


def test_adapters_of_kinds_of_members_that_are_not_there_are_refused_before_the_first_stage(tmp_path):
    kinds = {"a": {"message_checkpoint": str(tmp_path / "nowhere")}, "b": {}}
    specs = {"cooks": {**language(member_kinds=kinds, messages="student"), "run": "VercoFCP"}}
    with pytest.raises(UserError, match="`member_kinds.a.message_checkpoint` is .* nothing is there"):
        begin(specs, tmp_path)


def test_supervised_training_that_would_stop_by_decisions_is_refused(tmp_path):
    specs = {
        "rows": {"run": "collect_demonstrations", "env": KITCHEN},
        "clone": {"run": "ActionSFT", "stop": {"decisions": 10}, "config": {"input_": "${rows}"}},
    }
    with pytest.raises(UserError, match="`clone.stop` has 'decisions' but ActionSFT makes none"):
        begin(specs, tmp_path)


@pytest.mark.parametrize(
    ("run", "setting", "words"),
    [
        ("collect_demonstrations", "player", "In `last.config.player`: `.{labels}` is no checkpoint"),
        ("collect_labels", "base_model", "`last.config.base_model` is .*no stage makes a base model"),
        ("collect_labels", "teacher", "In `last.config`: `teacher` is '.{labels}'"),
    ],
)
def test_rows_are_no_player_no_model_and_no_teacher(tmp_path, run, setting, words):
    labels = {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": 5}}
    last = {"run": run, "env": KITCHEN, "config": {setting: "${labels}"}}
    with pytest.raises(UserError, match=words):
        begin({"labels": labels, "last": last}, tmp_path)


def test_an_unknown_teacher_is_told_before_the_training_that_hears_it(tmp_path):
    with pytest.raises(UserError, match="In `cooks.config`: `teacher` is 'nobody'"):
        begin({"cooks": language(messages="teacher", teacher="nobody")}, tmp_path)


def test_a_player_of_another_game_demonstrates_nothing(tmp_path):
    with pytest.raises(UserError, match="In `rows.config`: `player` was trained in 'rllib_llm_comm/door-v0'"):
        begin({"rows": {"run": "collect_demonstrations", "env": KITCHEN, "config": {"player": "zoo:door"}}}, tmp_path)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"run": "QMIX", "env": KITCHEN, "config": {"env_config": {"map_name": "${rows}"}}}, "`map_name` is '.{rows}'"),
        (
            {"run": "MAPPO", "env": KITCHEN, "config": {"env_config": {"recipe": {"grid_search": ["${rows}"]}}}},
            "`recipe` is '.{rows}'",
        ),
        (
            {"run": "play_planners", "env": SEATS, "config": {"env_config": {"game": {"map_name": "${rows}"}}}},
            "In `last.config.env_config.game`: `map_name`",
        ),
        (
            {"run": "evaluate", "config": {"checkpoint": "zoo:door", "env_config": {"doors": "${rows}"}}},
            "In `last.config.env_config`: `doors`",
        ),
    ],
)
def test_a_result_in_place_of_a_name_of_the_game_is_told_before_it_is_made(tmp_path, last, words):
    rows = {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": 5}}
    with pytest.raises(UserError, match=words):
        begin({"rows": rows, "last": last}, tmp_path)


def test_the_result_of_a_stage_can_be_a_file_of_the_game(tmp_path):
    rows = {"run": "collect_labels", "env": KITCHEN, "config": {"target_labels": 5}}
    settings = {"layout": "${rows}/mine.layout"}
    with pytest.raises(BegunError):
        begin({"rows": rows, "last": {"run": "MAPPO", "env": ONIONS, "config": {"env_config": settings}}}, tmp_path)
