"""`--dry-run`: questions, tokens and money of a file's stages, told before anybody is asked."""

from __future__ import annotations

import json
import math

import pytest
import yaml
from chat_server import ChatServer

from rllib_llm_comm.chat.chat_model import PLAN, TOKENS
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.experiments import dry_run
from rllib_llm_comm.experiments.dry_run import (
    EXAMPLE,
    StageQuestions,
    plans_in_a_game,
    questions,
    read_prices,
    tell,
)
from rllib_llm_comm.experiments.experiment_file import ExperimentFile, TrainSettings, parse_experiments
from rllib_llm_comm.experiments.run_experiments import run_experiments, run_study
from rllib_llm_comm.experiments.run_time import rehearse
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.sama.planners import ScriptedPlanner, make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.reflection import ReflectivePlay
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels
from tests.experiments.staged import stages_of
from tests.refusal import refused

GAME = {"layout": "cramped_room", "horizon": 60, "observe": ["entities"], "action_level": "goal_cell"}
SOUPS, KITCHEN = "rllib_llm_comm/overcooked_ai-v0", "rllib_llm_comm/overcooked_text-v0"


def asked_of(tmp_path, done=(), **experiments):
    """What the stages of a file will ask, by their names."""
    return dict(questions(stages_of(experiments, tmp_path), done))


def planned(chat, **settings):
    planner = {"name": "sama", "chat": chat, **settings}
    games = {"checkpoint": "${follower}", "planner": planner, "trials": 0, "episodes": 3}
    return {
        "follower": {"run": "EMMA", "env": SOUPS, "config": {"env_config": GAME}},
        "games": {"run": "evaluate", "config": games},
    }


def test_a_dry_run_asks_nobody_writes_nothing_and_tells_the_money(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with ChatServer("nobody should ask") as server:
        chat = {"model": "gpt-4", "base_url": server.url}
        file = tmp_path / "asks.yaml"
        config = {"chat": chat, "layout": "cramped_room", "states": 10, "states_by": "random"}
        file.write_text(yaml.safe_dump({"subgoals": {"run": "collect_subgoals", "config": config}}))
        run_experiments(file, TrainSettings(dry_run=True, prices=EXAMPLE))
        assert not server.requests
    told = capsys.readouterr().out
    # Ten states, two questions each, and one for the things that matter; answers are bounded by 1,500 tokens.
    assert "21" in told and "31,500" in told and "2023-11-01" in told and "USD" in told
    assert [path.name for path in tmp_path.iterdir()] == ["asks.yaml"]


def test_money_is_tokens_times_the_price_of_the_list_or_of_the_settings():
    prices = read_prices(EXAMPLE)
    asked = StageQuestions(20, 12_000, PLAN, {"model": "gpt-4"}, 20.0)  # SAMA's appendix: 20 questions of 3,000 tokens
    row = asked.row("games", prices)
    assert row["tokens in"] == 60_000 and row["money"] == pytest.approx(1.8 + 20 * TOKENS[PLAN] * 60 / 1e6)
    own = {"model": "m", "price_per_million_input": 1.0, "max_tokens": 10}
    assert StageQuestions(20, 12_000, PLAN, own).row("games", None)["money"] == pytest.approx(0.06)
    assert StageQuestions(20, 12_000, PLAN, {"cassette": "sama"}).row("games", prices)["money"] == 0
    with pytest.raises(UserError, match="no price of 'gpt-5'"):
        StageQuestions(20, 12_000, PLAN, {"model": "gpt-5"}).row("games", prices)


def test_games_ask_less_where_plans_are_kept_and_a_disturbed_planner_as_the_one_inside(tmp_path):
    counts = {}
    for ahead in (0, 4):
        plain, inside = (planned({"model": "m"}, ahead=ahead, objects=False) for _ in range(2))
        config = inside["games"]["config"]
        config["planner"] = {"name": "disturbed", "planner": config["planner"], "share": 0.5}
        asked, disturbed = (asked_of(tmp_path, **one)["games"] for one in (plain, inside))
        assert asked.requests == 3 * asked.per_game
        counts[ahead] = asked.per_game
        assert disturbed.requests == (None if ahead else asked.requests)  # a replaced subgoal breaks a kept plan
    assert counts[0] >= 2 * counts[4] > 0


@pytest.mark.parametrize("ahead", [1, 8])
def test_kept_plans_are_counted_as_a_model_is_asked_that_plans_as_rules_do(ahead):
    """It knows the game by heart: in a moment that rules have seen it answers with their next subgoals."""
    settings = {"layout": "forced_coordination", "horizon": 200, "observe": ["text"], "action_level": "goal_cell"}
    moments = []

    class Rules(ScriptedPlanner):
        def plan(self, request):
            moments.append((request.game.situation(request.state), super().plan(request).by_agent()))
            return super().plan(request)

    def play(planner):
        env = make_env(SOUPS, **settings)
        return ReflectivePlay(env, planning_game(env).player(), planner, trials=0, patience=40).play(0)

    def answer(prompt):
        while moments[0][0] not in prompt:
            moments.pop(0)
        ways = [way for _, way in moments[:ahead]]
        works = [{"agent": one, "subgoals": [{"subgoal": way[one], "reason": ""} for way in ways]} for one in ways[0]]
        return json.dumps({"thoughts": "", "goal": "soups", "agents": works})

    rounds = len(play(Rules()).rounds)
    with ChatServer(answer) as server:
        played = play(make_planner({"name": "sama", "chat": server.settings(), "ahead": ahead, "objects": False}))
        asked = len(server.requests)
    assert len(played.rounds) == rounds > 16
    assert plans_in_a_game(SOUPS, settings, patience=40, rounds=True, ahead=ahead) == asked == math.ceil(rounds / ahead)


def test_an_evaluation_asks_for_each_seed_of_what_it_plays(tmp_path):
    several = planned({"model": "m"}, objects=False)
    one = asked_of(tmp_path, **several)["games"]
    several["follower"]["config"]["seed"] = {"grid_search": [0, 1, 2, 3]}
    four = asked_of(tmp_path, **several)["games"]
    assert four.requests == 4 * one.requests > 0 and four.per_game == one.per_game
    several["games"]["config"]["curve"] = True
    del several["games"]["config"]["trials"]
    assert asked_of(tmp_path, **several)["games"].requests is None


def test_the_planner_that_a_checkpoint_recorded_is_asked_unless_another_one_plans(tmp_path):
    planner = {"name": "sama", "chat": {"model": "m"}, "objects": False}
    folder = tmp_path / "checkpoint" / "policy"
    folder.mkdir(parents=True)
    planning = {"planner": planner, "patience": 20}
    manifest = PolicyManifest("EMMA", {}, {}, SOUPS, GAME, kind="grounded", planning=planning)
    (folder / "policy.json").write_text(manifest.to_json())
    config = {"checkpoint": str(folder.parent), "episodes": 2}
    specs = {
        "played": {"run": "evaluate", "config": config},
        "ruled": {"run": "evaluate", "config": {**config, "planner": "scripted"}},
        "crossed": {"run": "crossplay", "config": {"players": [str(folder.parent)] * 2}},
    }
    found, rehearsed = asked_of(tmp_path, **specs), []
    assert list(found) == ["played", "crossed"] and found["played"].requests == 2 * found["played"].per_game > 0
    file = ExperimentFile("f", parse_experiments(specs, "f"))
    rehearse(file, stages_of(specs, tmp_path), lambda small, _: rehearsed.append(list(small.experiments)))
    assert rehearsed == [["ruled.begun", "ruled"]]


def test_games_of_seats_are_counted_for_each_planner_that_asks(tmp_path):
    planners = ["scripted", *({"name": "sama", "chat": {"model": "m"}, "ahead": ahead} for ahead in (0, 4))]
    seats = {"game": {"layout": "cramped_room", "horizon": 100}}
    config = {"planner": planners, "env_config": seats, "episodes": 3}
    stage = {"run": "play_planners", "env": "rllib_llm_comm/overcooked_ai_planner-v0", "config": config}
    each, ahead = (one for _, one in questions(stages_of({"games": stage}, tmp_path)))
    assert each.requests == 1 + 3 * each.per_game and each.per_game >= 1.5 * ahead.per_game > 0
    config["planner"] = [{"name": "disturbed", "planner": one} for one in planners[1:]]
    disturbed, kept = (one for _, one in questions(stages_of({"games": stage}, tmp_path)))
    assert disturbed.requests == 1 + 3 * disturbed.per_game > 0 and kept.requests is None
    config["env_config"] = {"game": {"executor": "trained:${red}", "max_tick": 600}}
    config["planner"] = planners[1:]
    war = {"run": "play_planners", "env": "rllib_llm_comm/minirts_planner-v0", "config": config}
    specs = {"red": {"run": "RED", "config": {"method": "rl"}}, "games": war}
    assert [one.requests for _, one in questions(stages_of(specs, tmp_path))] == [None, None]


def test_a_sweep_over_planners_is_a_question_mark(tmp_path):
    both = planned({"model": "m"})
    swept = {"grid_search": [both["games"]["config"].pop("planner"), "scripted"]}
    both["follower"]["config"]["planner"] = swept
    found = asked_of(tmp_path, **both)
    assert list(found) == ["follower", "games"] and {asked.requests for asked in found.values()} == {None}
    assert found["follower"].row("follower", None)["requests"] == "?"


def test_what_is_done_is_not_told_but_still_known_to_what_uses_it(tmp_path):
    both = planned({"model": "m"})
    both["follower"]["config"]["planner"] = both["games"]["config"].pop("planner")
    assert list(asked_of(tmp_path, **both)) == ["follower", "games"]
    assert list(asked_of(tmp_path, {"follower"}, **both)) == ["games"]
    assert not asked_of(tmp_path, {"follower", "games"}, **both)


def test_teachers_that_ask_are_found_where_they_speak(tmp_path):
    teacher = {"name": "chat", "model": "m"}

    def named(**config):
        verco = {"run": "Verco", "env": KITCHEN, "config": config}
        played = {"run": "evaluate", "config": {"checkpoint": "${verco}"}}
        quiet = {"run": "evaluate", "config": {"checkpoint": "${verco}", "messages": "none"}}
        found = asked_of(tmp_path, verco=verco, played=played, quiet=quiet)
        assert all(asked.requests is None and asked.chat == teacher for asked in found.values())
        return list(found)

    assert named(messages="teacher", teacher=teacher) == ["verco", "played"]
    assert named(messages="student", teacher=teacher) == [] == named(messages="teacher", teacher="scripted")
    shown = {"run": "collect_demonstrations", "env": KITCHEN, "config": {"messages": "teacher", "teacher": teacher}}
    assert len(asked_of(tmp_path, rows=shown)) == 1


@pytest.mark.parametrize("repeats", [False, True])
def test_a_label_teacher_is_asked_about_as_often_as_was_told(repeats, tmp_path):
    """Whether its words differ from moment to moment or not."""
    moments = {}

    def answer(prompt):
        word = "soon" if repeats else f"moment {moments.setdefault(prompt, len(moments))}"
        return f"alice: wait {word}\nbob: hurry {word}"

    with ChatServer(answer) as server:
        teacher = {"name": "chat", "model": "m", "base_url": server.url, "requests_per_minute": 10**5}
        told_one = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": ["alice"]}
        config = {"teacher": teacher, "target_labels": 200, "num_envs": 4, "env_config": told_one}
        labels = {"run": "collect_labels", "env": KITCHEN, "config": config}
        asked = asked_of(tmp_path, labels=labels)["labels"]
        assert asked.prompt > 500 and not server.requests
        assert collect_labels(KITCHEN, tmp_path / "labels", **config).labels >= 200
        assert asked.requests / 1.5 < len(server.requests) < 1.5 * asked.requests, (asked, len(server.requests))
    assert not asked_of(tmp_path, labels={**labels, "config": {}})


def test_a_label_teacher_is_not_asked_beyond_the_limit_of_decisions(tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "_MOST_DECISIONS", 400)
    config = {"teacher": {"name": "chat", "model": "m"}, "target_labels": 10**6, "num_envs": 2}
    counts = []
    for limit in (100, 1000, 2000):
        labels = {**config, "max_decisions": limit}
        spec = {"run": "collect_labels", "env": "rllib_llm_comm/door-v0", "config": labels}
        counts.append(asked_of(tmp_path, labels=spec)["labels"].requests)
    assert 0 < counts[0] <= 100 and counts[2] == pytest.approx(2 * counts[1], abs=1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1, 2]", ("--prices", "type")),
        ("date: 2026-01-01\nmodels: {m: {input: -1, output: 2}}", ("--prices.models.m.input", "range")),
        ("models: {m: {input: 1, output: 2}}", ("--prices.date", "range")),
        (
            "date: 2026-01-01\nmodels: {m: {input: 1, output: 2, output: 3}}",
            ("--prices", "invalid", "'output' is given twice"),
        ),
        (None, ("--prices", "invalid", "cannot be read")),
    ],
)
def test_a_price_list_that_is_none_is_refused_in_one_sentence(tmp_path, text, told):
    path = tmp_path / "prices.yaml"
    if text is not None:
        path.write_text(text)
    with refused(*told):
        read_prices(str(path))


def test_a_price_list_that_is_none_is_told_before_the_stages_are_checked(tmp_path):
    file = tmp_path / "asks.yaml"
    file.write_text(yaml.safe_dump({"games": {"run": "evaluate", "config": {"checkpoint": "nowhere"}}}))
    with refused("--prices"):
        run_experiments(file, TrainSettings(dry_run=True, prices="exmaple"))


def test_a_sum_says_that_it_holds_not_what_nobody_can_tell(tmp_path, capsys):
    asks = planned({"model": "gpt-4"})
    asks["follower"]["config"]["planner"] = asks["games"]["config"]["planner"]
    tell(stages_of(asks, tmp_path), EXAMPLE)
    last = capsys.readouterr().out.rpartition("without")[2]
    assert last.count("+ ?") == 4
    tell(stages_of(planned({"model": "gpt-4"}), tmp_path), EXAMPLE)
    assert "+ ?" not in capsys.readouterr().out


def test_games_of_agents_that_read_numbers_are_counted(tmp_path):
    asks = planned({"model": "m"})
    lake = {"layout": ["1.2", ".H.", "b.a"], "observe": ["vector"]}
    asks["follower"] = {"run": "SymbolicPPO", "env": "rllib_llm_comm/frozen_lake-v0", "config": {"env_config": lake}}
    (asked,) = asked_of(tmp_path, **asks).values()
    assert asked.requests and asked.per_game > 0


def test_a_price_list_may_be_json_and_needs_a_dry_run(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"date": "2026-01-01", "models": {"m": {"input": 1, "output": 2}}}))
    assert read_prices(str(path)).models["m"].output == 2
    for run in (run_experiments, run_study):
        with pytest.raises(UserError, match="without `--dry-run`"):
            run(path, TrainSettings(prices=str(path)))
