"""The questions of SAMA's listings, in our words: chosen by name, asked of a real server, answered in our forms."""

from __future__ import annotations

import json

import pytest
from chat_server import ChatServer, client
from kitchens import asking, prompts, team

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.experiments.language_stages import RewardStageSettings, SubgoalStageSettings
from rllib_llm_comm.sama.data_set import propose_states
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import STUCK, FailedAttempt, Outcome, PlanRequest
from rllib_llm_comm.sama.preparation import preparation_of
from rllib_llm_comm.sama.recordings import recording
from rllib_llm_comm.sama.reflection import ChatReflector
from rllib_llm_comm.sama.rewards.subgoal_rewards import write_reward
from rllib_llm_comm.sama.translation import write_translator
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

WHOLE = {"objects": True, "examples": 1}
ONION, DISH = "fetch an onion from the left onion crate", "fetch a dish from the dish stack"


def model(prompt: str) -> str:
    """Reads the form alone, which both sets of prompts share."""
    if '"objects"' in prompt:
        return json.dumps({"objects": ["onion", "pot"]})
    if '"why"' in prompt:
        return json.dumps({"phase": "decomposition", "why": "bob waits for alice"})
    if '"assignment"' in prompt:
        return json.dumps({"assignment": [{"agent": "alice", "number": 1}, {"agent": "bob", "number": 2}]})
    return json.dumps({"goal": "make a soup", "subgoals": [{"subgoal": ONION}, {"subgoal": DISH}]})


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


def test_goal_and_subgoals_are_one_question_then_they_are_given_out_and_inspected(game):
    with ChatServer(model) as server:
        planner = make_planner(asking(server, prompts="paper", **WHOLE))
        request = PlanRequest(game, game.state())
        plan = planner.plan(request)
        ends = [Outcome("bob", DISH, STUCK)]
        failed = (FailedAttempt(plan, "decomposition", "it took too long", ("bob",)),)
        blame = ChatReflector(planner)(PlanRequest(game, game.state(), failed=failed), plan, ends)
        objects, goal, assignment, inspection = prompts(server)
    assert plan.by_agent() == {"alice": ONION, "bob": DISH} and blame.phase == "decomposition"
    # Manual, elements, situation, worked example, then the task: goal first, subgoals second.
    parts = "The game:", "Things that matter: onion, pot", "The game now:", "An example.", "First,", "Second,"
    assert in_order(goal, *parts)
    example = goal.partition("An example.")[2]
    assert in_order(example, "Thoughts:", "Goal: make a soup", "Subgoals: 1. fetch an onion")
    assert in_order(assignment, "gives out subgoals", "An example.", "The current subgoals:\n1. ", "one to one")
    assert in_order(
        inspection, "You inspect decisions", "valid phases", "An example.", "The goal that was chosen: make a soup",
        "Who was given which: alice", "Inspections that did not help: \n- the decomposition was blamed",
    )  # fmt: skip
    assert "take out every thing that players can act on" in objects
    with ChatServer(model) as server:
        make_planner(asking(server, **WHOLE)).plan(request)
        assert not {objects, goal, assignment} & set(prompts(server))  # ours are the default


def test_the_strategy_game_asks_one_question_with_how_a_unit_comes_about():
    env = minirts.parallel_env(numbers=[1, 2, 3, 4, 5, 6], opponent="medium2")
    env.reset(seed=0)
    game = planning_game(env)
    mine = ["mine with all idle peasants"]
    with ChatServer(team(mine, mine, "gold")) as server:
        how = {"prompts": "paper", "ahead": 1, "opening": 1, "view": "truth", "examples": 3}
        make_planner(asking(server, **how)).plan(PlanRequest(game, game.state()))
        (prompt,) = prompts(server)
    assert in_order(prompt, "In truth the enemy has", "An example.", "see that there is gold", "Valid subgoals:")
    assert "train 4 spearmen" in prompt and "no more than 6 units" in prompt and prompt.count("An example.") == 2


def test_stages_of_the_preparation_take_the_name_too(game):
    state = game.plain(game.state())
    code = "```python\ndef reward(state):\n    return 0\n```"
    words = '```python\ndef translate(state):\n    return ["Alice holds nothing."]\n```'
    with ChatServer(code) as server:
        for name in ("ours", "paper"):
            write_reward(client(server), ONION, state, agent="alice", manual="rules", prompts=name)
        ours, paper = prompts(server)
    assert in_order(paper, "Your role now", "The manual:", ONION, "example:", "return 1", "return 0", "No other")
    assert ours != paper and "Your role now" not in ours
    with ChatServer(words) as server:
        how = {"manual": "rules", "prompts": "paper"}
        write_translator(client(server), game, [game.state()], preparation_of(game).code(), **how)
        assert in_order(prompts(server)[0], "translator", "The manual", "of the code", "A structured state:")
    with ChatServer("{}") as server, pytest.raises(Exception, match="usable"):
        propose_states(client(server), game, 2, manual="rules", prompts="paper")
    assert in_order(prompts(server)[0], "make up states", "The manual", "Two conditions", "1. ", "2. ")


def test_a_set_that_there_is_not_and_a_recording_of_another_one_are_refused():
    kept = {"examples": 0, "history": False, "memory": "round", "manual": "overcooked_text", "translation": ""}
    with pytest.raises(UserError, match="demand a model"):
        make_planner({"name": "sama", "chat": {"cassette": str(recording("sama"))}, **kept, "prompts": "paper"})
    for settings, more in ((SubgoalStageSettings, {}), (RewardStageSettings, {"subgoals": "x"})):
        assert settings(chat={"model": "m"}, prompts="paper", **more).prompts == "paper"
        with refused("prompts", "choice"):
            settings(chat={"model": "m"}, prompts="theirs", **more)
