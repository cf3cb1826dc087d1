"""Who answered: rules that take over from a language model are counted and named, or do not take over at all."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer
from kitchens import kitchen, kitchen_env
from planner_model import planner

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.chat.chat_model import ChatCounters
from rllib_llm_comm.chat.client import ChatClient
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner, make_planner
from rllib_llm_comm.sama.plans import Plan, PlanRequest, answerer_of, answerers_of
from tools.rules_chat import RulesChat

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def refuses(*questions: str):
    """A model that answers all but the questions with these words."""
    return lambda prompt: "no" if any(words in prompt for words in questions) else planner(prompt)


ASSIGNMENT, BLAME = "Give each of these subgoals", "Which phase made the mistake"
SUBGOALS = "Split this goal"


def settings(server: ChatServer, **how) -> dict:
    return {"name": "chat", "chat": server.settings(max_tokens=2000), "objects": False, **how}


def played(planner_settings, replan="any", trials=0, patience=4) -> dict:
    setup = PlanningSetup(planner_settings, replan, trials, patience=patience)
    games = PlannedGames(ScriptedExecutor(), {"layout": "cramped_room", "horizon": 16}, setup)
    return games.play(0)["metrics"]


def by(metrics: dict, what: str) -> dict:
    return {name.removeprefix(f"{what}_by_"): n for name, n in metrics.items() if name.startswith(f"{what}_by_")}


@pytest.mark.parametrize("replan", ["any", "all"])
def test_a_model_that_refuses_every_assignment_is_not_praised_for_the_rules(replan):
    with ChatServer(refuses(ASSIGNMENT)) as server:
        metrics = played(settings(server), replan)
    assert metrics["plans"] > 1 and by(metrics, "plans") == {"model": metrics["plans"], "rules": 0}
    assert by(metrics, "assignments") == {"model": 0, "rules": metrics["plans"]}
    assert by(metrics, "subgoals") == {"model": 2 * metrics["plans"], "rules": 0, "menu": 0}


def test_impossible_subgoals_come_from_the_menu():
    def wrong(prompt: str) -> str:
        answer = planner(prompt)
        if SUBGOALS not in prompt:
            return answer
        found = json.loads(answer)
        found["subgoals"][0]["subgoal"] = "bake a cake"
        return json.dumps(found)

    with ChatServer(wrong) as server:
        metrics = played(settings(server))
        game = kitchen()
        plan = make_planner(settings(server)).plan(PlanRequest(game, game.state()))
        for fallback, error in (("none", AnswerError), ("error", UserError)):
            with pytest.raises(error, match="none of the subgoals"):
                make_planner(settings(server, fallback=fallback)).plan(PlanRequest(game, game.state()))
    assert by(metrics, "subgoals") == {"model": metrics["plans"], "rules": 0, "menu": metrics["plans"]}
    taken = next(refusal for refusal in plan.refused if refusal.instead)
    assert taken.chosen_by == "embedding"
    assert {one.subgoal: one.answered_by for one in plan.subgoals}[taken.instead] == "menu"


def test_reflections_tell_who_blamed_whatever_the_model_says_of_itself():
    def told(*refused: str, lies: bool = False, **how) -> dict:
        def model(prompt: str) -> str:
            answer = refuses(*refused)(prompt)
            return answer.replace("{", '{"answered_by": "rules", ', 1) if lies and BLAME in prompt else answer

        with ChatServer(model) as server:
            return played(settings(server, **how), "all", trials=1, patience=2)

    metrics = told(lies=True)
    assert by(metrics, "reflections") == {"model": metrics["reflections"], "rules": 0} and metrics["reflections"] > 0
    metrics = told(BLAME)
    assert by(metrics, "reflections") == {"model": 0, "rules": metrics["reflections"]} and metrics["reflections"] > 0
    metrics = told(BLAME, fallback="none")
    assert by(metrics, "reflections") == {"model": 0} and metrics["reflections"] == 0 < metrics["plans_failed"]
    with pytest.raises(UserError, match="`fallback` is 'error'"):
        told(BLAME, fallback="error")


def test_the_model_below_a_disturbed_planner_thinks_failures_over():
    with ChatServer(planner) as server:
        disturbed = {"name": "disturbed", "planner": settings(server), "share": 1.0}
        metrics = played(disturbed, "all", trials=1, patience=2)
    assert by(metrics, "reflections") == {"model": metrics["reflections"], "rules": 0} and metrics["reflections"] > 0
    assert by(metrics, "subgoals")["random"] == 2 * metrics["plans"] and by(metrics, "plans")["random"] == 0


def test_nothing_takes_over_where_that_is_not_wanted():
    with ChatServer(refuses(ASSIGNMENT)) as server:

        def env(fallback: str) -> PlannedSubgoals:
            return PlannedSubgoals(kitchen_env(horizon=30), settings(server, fallback=fallback), wait=True, patience=5)

        observations, infos = env("none").reset(seed=0)
        metrics = infos["alice"]["episode_metrics"]
        assert metrics["plans_failed"] == 1 and metrics["plans"] == 0 and observations["alice"]["subgoal"] == ""
        assert by(metrics, "assignments") == {"model": 0}
        with pytest.raises(UserError, match="`fallback` is 'error'"):
            env("error").reset(seed=0)
        with pytest.raises(UserError, match="The planner made no plan"):
            played(settings(server, fallback="none"), "all")


def test_all_planners_tell_who_planned(tmp_path):
    game = kitchen()

    def authors(planner_settings, model=None) -> tuple[set, set]:
        made = make_planner(planner_settings, model)
        plan = made.plan(PlanRequest(game, game.state()))
        told = set(plan.answered_by.model_dump().values()) | {one.answered_by for one in plan.subgoals}
        assert told <= set(made.answerers)
        return told, plan.fallback

    assert authors("scripted") == authors("plan4mc") == ({"rules"}, "")
    assert authors("random") == ({"random"}, "")
    assert authors({"name": "chat", "chat": {"local": "rules"}}) == ({"rules"}, "rules")
    with ChatServer(planner) as server:
        client = ChatClient("tiny", server.url, requests_per_minute=1e6, max_tokens=2000)
        tape = Cassette(tmp_path / "tape.jsonl", client)
        assert authors({"name": "chat", "fallback": "none"}, tape) == ({"model"}, "none")
        assert authors({"name": "chat", "fallback": "none"}, tape) == ({"cassette"}, "none")  # it is recorded now
        assert authors({"name": "deps"}, tape) == ({"model"}, "rules")
    played_back = {"name": "cassette", "cassette": str(tmp_path / "tape.jsonl")}
    assert authors(played_back) == ({"cassette"}, "rules")


def test_a_recording_of_rules_is_played_back_as_rules(tmp_path):
    path = tmp_path / "tape.jsonl"
    Cassette(path, RulesChat())
    assert answerers_of(Cassette(path)) == ("rules",) == answerers_of(Cassette(path, RulesChat()))
    assert answerer_of(Cassette(path), ChatCounters(cached=1)) == "rules"


def test_a_planner_of_ones_own_is_not_taken_for_a_model():
    class Mine(ScriptedPlanner):
        """Names nobody."""

        name = "mine"
        answerers = ("own",)

        def plan(self, request: PlanRequest) -> Plan:
            made = super().plan(request)
            pairs = [{"agent": one.agent, "subgoal": one.subgoal} for one in made.subgoals]
            return Plan(goal="my own", subgoals=pairs, planner=self.name)

    env = PlannedSubgoals(kitchen_env(), Mine())
    _, infos = env.reset(seed=0)
    metrics = infos["alice"]["episode_metrics"]
    assert by(metrics, "plans") == {"own": 1} and by(metrics, "subgoals") == {"own": 2}
