"""Stages that play a checkpoint are checked against its game before anything runs, whoever trains it."""

from __future__ import annotations

import pytest

from rllib_llm_comm.policies.find_checkpoint import shipped_policy
from tests.experiments.staged import BegunError, begin, refused_file

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


def collecting(run="collect_labels", **config):
    return {"run": run, "env": KITCHEN, "config": config}


def fits(folder, **stages):
    with pytest.raises(BegunError):
        begin(stages, folder)


def test_emma_reads_maps_so_that_its_actions_may_be_others_in_an_evaluation(tmp_path):
    emma = {
        **learning("EMMA", env_config={"layout": "cramped_room"}),
        "env": "rllib_llm_comm/overcooked_ai_subgoals-v0",
    }
    fits(tmp_path, cooks=emma, games=played_by(env_config={"action_level": "goal_cell", "commit": False}))


@pytest.mark.parametrize("run", ["evaluate", "replay"])
def test_a_guess_in_the_game_of_a_stage_to_come_is_refused_where_nothing_is_hidden(tmp_path, run):
    games = played_by(run, planner={"name": "guessing"})
    fits(tmp_path, cooks=trained(), games=games)
    refused_file(tmp_path, {"cooks": trained(told_to="all"), "games": games}, "In `games.config`: .*hides nothing")
    games["config"]["env_config"] = {"told_to": "all"}
    refused_file(tmp_path, {"cooks": trained(), "games": games}, "hides nothing")


def test_a_guess_in_the_game_of_a_checkpoint_is_refused_where_nothing_is_hidden(tmp_path):
    cooks = str(shipped_policy("zoo:emma_cramped_room"))
    refused_file(
        tmp_path, {"games": played_by(checkpoint=cooks, planner="guessing")}, "`games.config`: .*hides nothing"
    )


@pytest.mark.parametrize(
    ("run", "settings", "told"),
    [
        ("evaluate", {"messages": "studnt"}, "`messages` is 'studnt'.*'student'"),
        ("replay", {"messages": "teacher"}, "no `teacher` is set"),
        ("evaluate", {"message_server": {"base_url": 5}}, "base_url` is 5"),
        ("evaluate", {"env_config": {"map_name": "Q"}}, "`map_name` is 'Q'"),
        ("replay", {"env_config": {"map_name": "Q"}}, "`map_name` is 'Q'"),
    ],
)
def test_how_a_stage_to_come_is_played_is_checked_before_it_is_trained(tmp_path, run, settings, told):
    refused_file(tmp_path, {"cooks": language(), "games": played_by(run, **settings)}, told)


def test_what_a_stage_to_come_can_be_played_with(tmp_path):
    games = played_by(messages="teacher", teacher="scripted", env_config={"map_name": "A"})
    fits(tmp_path, cooks=language(), games=games)


def test_games_of_another_length_of_vectors_are_refused_before_the_training(tmp_path):
    cooks, longer = learning("MAPPO", env_config={"observe": ["vector"]}), played_by(env_config={"num_agents": 3})
    refused_file(tmp_path, {"cooks": cooks, "games": longer}, "length of the `vector` of agent 'alice'")
    fits(tmp_path, cooks=cooks, games=played_by(env_config={"max_game_steps": 30}))
    searched = learning("MAPPO", env_config={"observe": ["vector"], "num_agents": {"grid_search": [2, 3]}})
    fits(tmp_path, cooks=searched, games=longer)  # the trial that is played may be the one that fits


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"run": "TWOSOME"}, "`second.restore` is the result of `cooks`, a stage of Verco"),
        ({"config": {"lora_r": 8}}, "`lora_r` is 8 .* `cooks`"),
    ],
)
def test_what_a_stage_to_come_cannot_restore_is_refused_before_it_is_trained(tmp_path, changed, told):
    silent = language(messages="none", lora_r=4)
    second = {**silent, "restore": "${cooks}", **changed}
    second["config"] = {**silent["config"], **changed.get("config", {})}
    refused_file(tmp_path, {"cooks": silent, "second": second}, told)


def test_only_what_leaves_a_policy_is_played(tmp_path):
    stock = {"run": "PPO", "env": "CartPole-v1", "config": {"num_env_runners": 0}}
    for spec in (collecting(), stock):
        refused_file(tmp_path, {"cooks": spec, "games": played_by()}, f"`run: {spec['run']}` leaves no policy")
    refused_file(tmp_path, {"cooks": trained(), "games": played_by(messages="student")}, "SymbolicPPO say nothing")


TOLD = {"recipe": ["tomato salad", "onion salad"], "told_to": ["alice"]}


@pytest.mark.parametrize("mode", ["other_fact", "swapped"])
def test_messages_about_another_fact_are_refused_where_there_is_none(tmp_path, mode):
    told, games = language(env_config=TOLD), played_by(messages=mode)
    search = language(env_config={**TOLD, "told_to": {"grid_search": ["one", "all"]}})
    for cooks in (told, search):
        fits(tmp_path, cooks=cooks, games=games)
    refused_file(
        tmp_path, {"cooks": language(), "games": games}, f"In `games.config`: `messages` is '{mode}'.* 'other_moments'"
    )
    without = played_by(messages=mode, env_config={"recipe": "onion salad"})
    refused_file(tmp_path, {"cooks": told, "games": without}, "no message tells another fact")
    fits(tmp_path, cooks=language(), games=played_by(messages="other_moments"))


@pytest.mark.parametrize(
    ("partners", "told"),
    [
        (["zoo:door"], "`partners.x` has 'zoo:door'"),
        (["people:nowhere"], "no recorded session"),
        ("${labels}", "leaves no policy"),
    ],
)
def test_strangers_that_cannot_play_are_refused_before_those_who_meet_them_are_trained(tmp_path, partners, told):
    def meeting(partners):
        cross = {"run": "crossplay", "config": {"players": "${cooks}", "partners": {"x": partners}}}
        return {"labels": collecting(), "cooks": language(), "cross": cross}

    refused_file(tmp_path, meeting(partners), f"In `cross.config`: .*{told}")
    fits(tmp_path, **meeting(["scripted", "${cooks}/past/initial", "zoo:told_salad"]))


def test_supervised_training_that_would_stop_by_decisions_is_refused(tmp_path):
    clone = {"run": "ActionSFT", "stop": {"decisions": 10}, "config": {"input_": "${rows}"}}
    refused_file(
        tmp_path, {"rows": collecting("collect_demonstrations"), "clone": clone}, "`clone.stop` has 'decisions'"
    )


GAME = {"env_config": {"map_name": "${rows}"}}


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (collecting("collect_demonstrations", player="zoo:door"), "In `last.config`: `player` was trained in .*door"),
        (collecting("collect_demonstrations", player="${rows}"), "In `last.config.player`: `.{rows}` is no checkpoint"),
        (collecting(base_model="${rows}"), "`last.config.base_model` is .*no stage makes a base model"),
        (collecting(teacher="${rows}"), "In `last.config`: `teacher` is '.{rows}'"),
        (language(messages="teacher", teacher="nobody"), "In `last.config`: `teacher` is 'nobody'"),
        ({**language(member_kinds={"a": {"message_checkpoint": "/nowhere"}, "b": {}}), "run": "VercoFCP"},
         "`member_kinds.a.message_checkpoint` is .* nothing is there"),
        ({"run": "QMIX", "env": KITCHEN, "config": GAME}, "`map_name` is '.{rows}'"),
        (learning("MAPPO", env_config={"recipe": {"grid_search": ["${rows}"]}}), "`recipe` is '.{rows}'"),
        ({"run": "play_planners", "env": SEATS, "config": {"env_config": {"game": {"map_name": "${rows}"}}}},
         "In `last.config.env_config.game`: `map_name`"),
        (played_by(checkpoint="zoo:door", env_config={"doors": "${rows}"}), "In `last.config.env_config`: `doors`"),
    ],
)  # fmt: skip
def test_players_models_teachers_and_games_that_cannot_be_are_told_before_anything_is_made(tmp_path, last, told):
    refused_file(tmp_path, {"rows": collecting(target_labels=5), "last": last}, told)


def test_the_result_of_a_stage_can_be_a_file_of_the_game(tmp_path):
    game = {"env_config": {"layout": "${rows}/mine.layout"}}
    fits(tmp_path, rows=collecting(target_labels=5), last={"run": "MAPPO", "env": ONIONS, "config": game})
