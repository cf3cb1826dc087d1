"""SAMA's planner: translated states, free proposals that the game checks, and what it remembers of failures."""

from __future__ import annotations

import json

import pytest
from kitchens import kitchen_env
from planner_model import Answers

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import RulePlayer
from rllib_llm_comm.sama.plans import DONE, STUCK, FailedAttempt, Outcome, PlanRequest
from rllib_llm_comm.sama.reflection import ChatReflector, ReflectivePlay
from rllib_llm_comm.sama.translation import Translator, to_json

SHORT = {"name": "sama", "objects": False, "examples": 0}
TRANSLATOR = (
    'def translate(state):\n    return ["Alice holds " + state["cooks"]["alice"]["holds"] + ".", "The pot is full."]'
)


def proposal(*subgoals, goal="fill the pot"):
    return {"goal": goal, "subgoals": [{"subgoal": one} for one in subgoals]}


def given(alice=1, bob=2):
    return {"assignment": [{"agent": "alice", "number": alice}, {"agent": "bob", "number": bob}]}


ONIONS = proposal("fetch an onion", "fetch an onion")  # equal subgoals need no assignment


def plan(game, model, request=None, **settings):
    return make_planner({**SHORT, **settings}, model).plan(request or PlanRequest(game, game.state()))


def test_words_without_a_place_mean_the_nearest_that_will_do(game):
    model = Answers(proposal("Fetch an onion.", "wait"), given())
    made = plan(game, model)
    assert made.by_agent() == {"alice": "fetch an onion from the left onion crate", "bob": "go to floor 3,1"}
    assert [one.words for one in made.subgoals] == ["Fetch an onion.", "wait"] and not made.refused
    assert made.answered_by.model_dump() == dict.fromkeys(("goal", "decomposition", "assignment"), "model")
    assert made.source == "a test"


def test_no_list_of_possible_subgoals_is_shown_unless_it_is_wanted(game):
    model, told = Answers(ONIONS), Answers(ONIONS)
    plan(game, model)
    assert "fetch an onion from the left onion crate" not in model.prompts[0]
    plan(game, told, menu="possible")
    assert "- fetch an onion from the left onion crate (alice or bob)" in told.prompts[0]


def test_what_is_impossible_is_refused_with_the_reason_and_asked_again(game):
    wrong = proposal("deliver the soup", "wait")
    model = Answers(wrong, ONIONS)
    made = plan(game, model)
    assert "must hold the soup but holds nothing" in model.prompts[1]
    assert [(one.subgoal, bool(one.instead)) for one in made.refused] == [("deliver the soup", False)]
    assert len(model.prompts) == 2
    with pytest.raises(AnswerError, match="must hold the soup"):
        plan(game, Answers(wrong))
    with pytest.raises(UserError, match="`fallback` is 'error'"):
        plan(game, Answers(wrong), fallback="error")
    with pytest.raises(AnswerError, match="none of the subgoals"):
        plan(game, Answers(proposal("sing a song", "wait")))


def test_the_moment_is_told_in_the_translators_words_without_what_is_false(game, tmp_path):
    path = tmp_path / "translation.json"
    path.write_text(to_json(Translator(TRANSLATOR)))
    model = Answers(ONIONS)
    plan(game, model, translation=str(path))
    now = model.prompts[0].partition("The game now:\n")[2].partition("\n\n")[0]
    assert now.strip() == "Alice holds nothing."  # the pot is not full
    model = Answers(ONIONS)
    plan(game, model)
    assert "400 steps are left" in model.prompts[0]


def test_without_reasons_the_model_is_asked_again_and_told_none(game):
    for reasons in (True, False):
        model = Answers(proposal("fly to the moon", "wait"), proposal("fetch an onion", "wait"), given())
        made = plan(game, model, reasons=reasons)
        assert [one.subgoal for one in made.refused] == ["fly to the moon"] and made.refused[0].reason
        assert (made.refused[0].reason in model.prompts[1]) is reasons
        assert "the game does not take it" in model.prompts[1] or reasons


def test_an_assignment_that_failed_is_not_taken_again(game):
    first = plan(game, Answers(proposal("fetch an onion", "wait"), given()))
    failed = FailedAttempt(first, "assignment", "they should change", ("alice",))
    request = PlanRequest(game, game.state(), failed=(failed,))
    model = Answers(given(1, 2), given(2, 1))
    made = plan(game, model, request)
    assert "this assignment has failed from here already" in model.prompts[1]
    assert made.by_agent()["alice"] == "go to floor 1,2" and made.goal == first.goal
    assert "alice: fetch an onion; bob: wait" in model.prompts[0]  # in the model's own words


@pytest.mark.parametrize("history", [True, False])
def test_outcomes_of_earlier_rounds_are_told_if_wanted(game, history):
    model = Answers(ONIONS)
    before = (Outcome("alice", "fetch a dish from the dish stack", DONE),)
    plan(game, model, PlanRequest(game, game.state(), outcomes=before), history=history)
    assert ("has done this" in model.prompts[0]) == history


def test_rounds_that_went_well_are_examples_in_later_games(game):
    model = Answers(ONIONS)
    planner = make_planner({**SHORT, "experience": 1}, model)
    request = PlanRequest(game, game.state())
    planner.begin()
    planner.went_well(request, planner.plan(request))
    planner.plan(request)
    assert "In an earlier game." not in model.prompts[-1]
    planner.begin()
    planner.plan(request)
    assert model.prompts[-1].count("In an earlier game.") == 1
    assert "Subgoals: alice: fetch an onion; bob: fetch an onion" in model.prompts[-1]


def test_reflection_tells_what_was_done_in_the_models_own_words(game):
    made = plan(game, Answers(proposal("fetch an onion", "wait"), given()))
    model = Answers({"phase": "goal", "why": "because"})
    planner = make_planner(SHORT, model)
    outcomes = [Outcome("alice", made.of("alice"), STUCK), Outcome("bob", made.of("bob"), DONE)]
    blame = ChatReflector(planner)(PlanRequest(game, game.state()), made, outcomes)
    assert blame.phase == "goal" and blame.answered_by == "model"
    assert "alice was told to fetch an onion: not done in time.\nbob was told to wait: done." in model.prompts[0]


class Idle(RulePlayer):
    """A player that stays where it is, so that every subgoal but waiting fails."""

    def action(self, agent, seen):
        return 11 if agent == "alice" else 8


@pytest.mark.parametrize(("memory", "told"), [("episode", True), ("round", False)])
def test_an_episode_keeps_its_failed_plans(memory, told):
    model, prompts = Answers(""), []

    def answer(prompt, system=""):
        prompts.append(prompt)
        if "Which phase made the mistake?" in prompt:
            return json.dumps({"phase": "goal", "why": "it is too hard"})
        here = prompt.partition("This was tried earlier")[0].count("- goal: ")
        return json.dumps(proposal("wait", "wait", goal="rest") if here else ONIONS)

    model.complete = answer
    env, planner = kitchen_env(horizon=40), make_planner({**SHORT, "memory": memory}, model)
    played = ReflectivePlay(env, Idle(env), planner, trials=1, patience=10).play(0)
    assert played.reflections > 0 and len(played.rounds) > 1
    earlier = [prompt for prompt in prompts if "This was tried earlier in this game and failed" in prompt]
    assert bool(earlier) == told
    assert all("The mistake was in the goal: it is too hard" in prompt for prompt in earlier)


def test_plans_from_a_recording_name_its_author(game, tmp_path):
    tape = tmp_path / "tape.jsonl"
    plan(game, Cassette(tape, Answers(ONIONS)))
    made = plan(game, Cassette(tape))
    assert made.source.startswith("recording tape.jsonl (a test, 20") and made.answered_by.goal == "cassette"
