"""Planners: what they plan is possible, what a model proposes is checked, and only the chat needs a network."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from chat_server import ChatServer, client
from hypothesis import given
from hypothesis import strategies as st
from kitchens import kitchen, prompts
from planner_model import menu, planner, said

from rllib_llm_comm import make_env
from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import AnySettings
from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.envs.overcooked_ai.env import parallel_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.games.frozen_lake import LakePlanning
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import PLANNERS, ScriptedPlanner, make_planner, planner_model, register_planner
from rllib_llm_comm.sama.planners.baselines import DRAWN, DisturbedPlanner, RandomPlanner
from rllib_llm_comm.sama.planners.chat import ChatPlanner, ChatPlanSettings, DepsPlanSettings
from rllib_llm_comm.sama.planners.matching import NearestByEmbedding
from rllib_llm_comm.sama.planning_game import PHASES, examples_in, planning_game
from rllib_llm_comm.sama.plans import DONE, LOST, AssignedSubgoal, FailedAttempt, Outcome, Plan, Planner, PlanRequest
from rllib_llm_comm.sama.skill_graph import Skill, search
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


# ---- without language models -------------------------------------------------------------------------------


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0]))
def test_what_rules_plan_and_what_is_drawn_is_possible(layout, seed, share):
    game = kitchen(layout, seed)
    state = game.state()
    by_rules = [make_planner(name) for name in ("scripted", "plan4mc")]
    for made in (*by_rules, RandomPlanner(seed=seed), DisturbedPlanner(ScriptedPlanner(), share=share, seed=seed)):
        plan = made.plan(PlanRequest(game, state))
        assert list(plan.by_agent()) == ["alice", "bob"] and plan.goal
        assert made not in by_rules or plan.planner == made.name
        for agent, subgoal in plan.by_agent().items():
            assert not game.refusal(state, agent, subgoal)
    for agent in game.agents:
        one_by_one = [subgoal for subgoal in game.library(agent) if not game.refusal(state, agent, subgoal)]
        assert game.possible(state, agent) == one_by_one


def test_the_search_goes_backwards_and_takes_the_cheaper_way():
    skills = [
        Skill("buy", {"coin": 1}, {"bread": 1}, cost=1),
        Skill("bake", {"flour": 2}, {"bread": 1}, cost=1),
        Skill("mill", {"corn": 1}, {"flour": 1}, cost=1),
        Skill("work", {"bread": 1}, {"coin": 1}, cost=1),
    ]
    assert [s.name for s in search(skills, {"corn": 3}, "bread")] == ["mill", "mill", "bake"]
    assert [s.name for s in search(skills, {"corn": 3, "coin": 1}, "bread")] == ["buy"]
    assert [s.name for s in search(skills, {"flour": 1, "corn": 1}, "bread")] == ["mill", "bake"]
    assert search(skills, {"corn": 1}, "bread") is None  # not even by working for what buys it


def test_what_failed_from_here_is_not_planned_again():
    game = kitchen("forced_coordination")
    request = PlanRequest(game, game.state())
    scripted = make_planner("scripted")
    first = scripted.plan(request)
    failed = (FailedAttempt(first, "assignment", "no", ("bob",)),)
    second = scripted.plan(PlanRequest(game, game.state(), failed=failed))
    assert second.by_agent() != first.by_agent() and second.of("alice") == first.of("alice") and second.refused
    failed += (FailedAttempt(second, "goal", "", ("bob",)),)
    third = scripted.plan(PlanRequest(game, game.state(), failed=failed))
    assert third.by_agent() not in (first.by_agent(), second.by_agent())


MODEL = {"chat": {"model": "m"}}
CHAT, SAMA = {"name": "chat", **MODEL}, {"name": "sama", **MODEL}


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ("nobody", ("planner", "unknown")), (["scripted"], ("planner", "type")),
        ({"name": "disturbed", "planner": 5}, ("planner.planner", "type")),
        ({"name": "disturbed", "share": 1.5}, ("planner.share", "range")),
        ({"name": "scripted", "examples": 1}, ("planner.examples", "unknown")),
        ({"name": "random", "seed": -1}, ("planner.seed", "range")),
        ({"name": "guessing", "seed": -1}, ("planner.seed", "range")),
        ({"name": "cassette"}, ("planner.cassette", "missing")),
        ({"name": "cassette", "cassette": 5}, ("planner.cassette", "type")),
        ({"name": "chat"}, ("planner.chat", "missing")),
        ({"name": "chat", "chat": "gpt-4o"}, ("planner.chat", "type")),
        ({"name": "chat", "chat": {"cassette": 5}}, ("planner.chat.cassette", "type")),
        ({"name": "sama", "chat": {"model": "m", "temprature": 0}}, ("planner.chat.temprature", "unknown")),
        ({**CHAT, "exampels": 1}, ("planner.exampels", "unknown", "Did you mean 'examples'")),
        ({**CHAT, "examples": 2}, ("planner.examples", "choice")),
        ({**CHAT, "irrelevant_examples": 2}, ("planner.irrelevant_examples", "choice")),
        ({**CHAT, "nearest": "luck"}, ("planner.nearest", "choice")),
        ({**CHAT, "fallback": "luck"}, ("planner.fallback", "choice")),
        ({**CHAT, "ahead": 9}, ("planner.ahead", "range")), ({**CHAT, "manual": "none.md"}, ("manual",)),
        ({**CHAT, "prompts": "paper"}, ("planner.prompts", "choice")),
        ({"name": "deps", **MODEL, "ahead": 4}, ("planner.ahead", "choice")),
        ({**SAMA, "menu": "all"}, ("planner.menu", "choice")),
        ({**SAMA, "fallback": "rules"}, ("planner.fallback", "choice")),
        ({**SAMA, "memory": "none"}, ("planner.memory", "choice")),
        ({**SAMA, "view": "sky"}, ("planner.view", "choice")),
        ({**SAMA, "prompts": "theirs"}, ("planner.prompts", "choice")),
        ({**SAMA, "translation": "/nowhere.json"}, ("translation",)),
        ({"name": "random", "subgoals": 3}, ("planner.subgoals", "type")),
        ({"name": "trained", "policy": "x", "greedy": 1}, ("planner.greedy", "type")),
        ({"name": "disturbed", "planner": {"name": "random", "seed": -1}}, ("planner.planner.seed", "range")),
        ({**CHAT, "cassette": "sama"}, ("planner.cassette", "unknown")),
        ("trained", ("planner.policy", "missing")), ("trained:zoo:told_salad", ("planner",)),
    ],
)  # fmt: skip
def test_wrong_settings_are_told(settings, wrong):
    with refused(*wrong):
        make_planner(settings)


def test_kitchens_that_cannot_be_planned_are_told():
    with refused("dynamics"):
        planning_game(parallel_env(dynamics="new"))
    with refused("swap_roles"):
        planning_game(parallel_env(swap_roles=True, observe=["entities"]))


# ---- with a chat model -------------------------------------------------------------------------------------


def test_a_chat_model_is_asked_for_goal_subgoals_and_who(game):
    with ChatServer(planner) as server:
        asked = ChatPlanner(client(server), ChatPlanSettings(examples=1))
        plan = asked.plan(PlanRequest(game, game.state(), outcomes=(Outcome("bob", "go to floor 1,1", LOST),)))
        asked.plan(PlanRequest(game, game.state()))
        objects, goal, decomposition, assignment, *again = prompts(server)
    assert plan.goal == "fill the pot" and not plan.refused and plan.subgoals[0].reason == "a"
    assert game.parse(plan.of("alice")) == plan.of("alice")
    assert game.manual() in objects and len(again) == 3  # the objects are asked for once
    for prompt in (goal, decomposition, assignment):
        assert prompt.count("An example.") == 1 and "onion, pot, dish" in prompt
        assert "could not do this any more" in prompt and game.manual() in prompt
    assert "made of the things that matter" in goal and "{" not in goal.split("Answer")[0]
    assert set(menu(decomposition)) == {s for agent in game.agents for s in game.possible(game.state(), agent)}


def test_a_manual_from_a_file_is_read_in_place_of_the_games_own(game, tmp_path):
    path = tmp_path / "manual.md"
    path.write_text("<!--\nMade by somebody.\n-->\n\nSoups are {good}.\n")
    with ChatServer(planner) as server:
        ChatPlanner(client(server), ChatPlanSettings(manual=str(path))).plan(PlanRequest(game, game.state()))
        asked = prompts(server)
    for prompt in asked:
        assert f"Soups are {{good}}.\n{game.scenario()}" in prompt
        assert "somebody" not in prompt and game.manual() not in prompt
    assert game.manual().endswith(game.scenario()) and "Both cooks can reach the pot" in game.scenario()
    path.write_text("<!-- nothing -->")
    with pytest.raises(UserError, match="`manual`.* 0 "):
        ChatPlanner(None, ChatPlanSettings(manual=str(path)))


def test_names_that_stand_behind_a_subgoal_may_be_copied_too(game):
    def copying(prompt: str) -> str:
        answer = planner(prompt)
        if "Split this goal" in prompt:
            found = json.loads(answer)
            for one in found["subgoals"]:
                one["subgoal"] += f" ({' or '.join(menu(prompt)[one['subgoal']])})"
            return json.dumps(found)
        return answer

    with ChatServer(copying) as server:
        plan = ChatPlanner(client(server), ChatPlanSettings()).plan(PlanRequest(game, game.state()))
    assert not plan.refused and game.parse(plan.of("alice")) == plan.of("alice")


def wrong_first(wrong: str, repeat: bool):
    """A model that proposes a wrong subgoal for alice, and again when told if `repeat`."""

    def model(prompt: str) -> str:
        answer = planner(prompt)
        if "Split this goal" in prompt and (repeat or "cannot be used" not in prompt and wrong not in prompt):
            found = json.loads(answer)
            found["subgoals"][0]["subgoal"] = wrong
            return json.dumps(found)
        return answer

    return model


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("deliver the soup at the serving counter", "alice must hold the soup but holds nothing"),
        ("fetch a tomato from the fridge", "none of the subgoals"),
    ],
)
def test_what_is_impossible_is_asked_again_and_then_replaced(game, wrong, why):
    with ChatServer(wrong_first(wrong, repeat=False)) as server:
        plan = ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))
        assert why in prompts(server)[3] and wrong not in plan.by_agent().values()
    assert [(r.phase, r.subgoal, r.instead) for r in plan.refused] == [("decomposition", wrong, "")]
    with ChatServer(wrong_first(wrong, repeat=True)) as server:
        plan = ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))
    assert [r.instead for r in plan.refused][:1] == [""] and plan.refused[1].instead in plan.by_agent().values()
    assert all(not game.refusal(game.state(), agent, subgoal) for agent, subgoal in plan.by_agent().items())


def test_the_nearest_subgoal_is_the_most_alike():
    nearest = NearestByEmbedding()
    options = ["go to floor 1,1", "fetch an onion from the left onion crate", "deliver the soup at the serving counter"]
    for option in options:
        assert nearest(option, options) == option
    assert nearest("get an onion out of the onion crate", options) == options[1]


def test_the_nearest_subgoal_can_be_asked_for(game):

    def model(prompt: str) -> str:
        return '{"number": 2}' if "can be done" in prompt else wrong_first("bake", repeat=True)(prompt)

    with ChatServer(model) as server:
        plan = ChatPlanner(client(server), ChatPlanSettings(nearest="model")).plan(PlanRequest(game, game.state()))
        asked = next(prompt for prompt in prompts(server) if "can be done:" in prompt)
    assert f"2. {plan.refused[1].instead}" in asked


def test_who_cannot_do_its_subgoal_gets_the_other_one():
    game = kitchen("forced_coordination")

    def model(prompt: str) -> str:
        return said({"alice": 2, "bob": 1}) if "Give each of these" in prompt else planner(prompt)

    with ChatServer(model) as server:
        plan = ChatPlanner(client(server)).plan(PlanRequest(game, game.state()))
        assert len(server.requests) == 5  # objects, goal, subgoals, who, and who once more
    assert {r.phase for r in plan.refused} == {"assignment"}
    assert all(not game.refusal(game.state(), agent, subgoal) for agent, subgoal in plan.by_agent().items())


def test_only_the_guilty_phase_and_those_after_it_are_asked_again(game):
    with ChatServer(planner) as server:
        asked = ChatPlanner(client(server), ChatPlanSettings(objects=False))
        plan = asked.plan(PlanRequest(game, game.state()))
        for phase, questions in (("assignment", 1), ("decomposition", 2)):
            before = len(server.requests)
            failed = (FailedAttempt(plan, phase, "too far", ("bob",)),)
            other = asked.plan(PlanRequest(game, game.state(), failed=failed))
            assert other.by_agent() != plan.by_agent() and other.goal == plan.goal
            assert "too far" in prompts(server)[before]
            # This model says the same again, so each question whose answer failed is asked twice.
            assert questions <= len(server.requests) - before <= 2 * questions
        with pytest.raises(AnswerError, match="failed from here"):
            asked.plan(PlanRequest(game, game.state(), failed=(FailedAttempt(plan, "goal", "", ()),)))


class Hurried(ChatPlanner):
    """Asks, and says so."""

    name = "hurried"


def test_a_planner_of_ones_own_that_asks_has_the_settings_of_chat_and_what_sama_tells(game, monkeypatch):
    monkeypatch.setattr(PLANNERS, "_entries", dict(PLANNERS._entries))
    register_planner("hurried", Hurried)
    with refused("planner.exampels", "unknown"):
        make_planner({"name": "hurried", "exampels": 1})
    with refused("planner.chat", "missing"):
        make_planner("hurried")
    with refused("settings_model"):
        register_planner("other", type("Other", (ChatPlanner,), {"settings_model": AnySettings}))
    with ChatServer(planner) as server:
        told = {"history": False, "memory": "episode", "experience": 1, "objects": False}
        asked = make_planner({"name": "hurried", "chat": server.settings(), **told})
        assert asked.remembers_games and not asked.free
        request = PlanRequest(game, game.state(), outcomes=(Outcome("bob", "go to floor 1,1", LOST),))
        plan = asked.plan(request)
        assert plan.planner == "hurried"
        asked.went_well(request, plan)
        asked.begin()
        asked.plan(replace(request, earlier=(FailedAttempt(plan, "goal", "no time"),)))
        first, later = prompts(server)[0], "\n".join(prompts(server)[3:])
        assert "In an earlier game." in later and "no time" in later and "In an earlier game." not in first
        assert "What was done before" not in first + later


def test_deps_plans_everything_and_anew_after_a_failure(game):
    with ChatServer(planner) as server:
        deps = ChatPlanner(client(server), DepsPlanSettings(objects=False))
        first = deps.plan(PlanRequest(game, game.state()))
        done = tuple(Outcome(agent, subgoal, DONE) for agent, subgoal in first.by_agent().items())
        second = deps.plan(PlanRequest(game, game.state(), outcomes=done))
        assert (first.goal, second.goal, deps.sequence.replans) == ("get onions", "fill the pot", 0)
        before = len(server.requests)
        lost = (*done, Outcome("bob", second.of("bob"), LOST))
        third = deps.plan(PlanRequest(game, game.state(), outcomes=lost))
        explained, anew = prompts(server)[before : before + 2]
        assert third.goal == "get onions" and deps.sequence.replans == 1
        assert "Why not?" in explained and second.of("bob") in explained and "Nobody was there." in anew
        deps.begin()
        assert deps.plan(PlanRequest(game, game.state())).goal == "get onions" and deps.sequence.replans == 0


@pytest.mark.parametrize(("examples", "irrelevant"), [(0, 1), (3, 1), (1, 3)])
def test_examples_of_something_else_come_after_those_of_the_game(game, examples, irrelevant):
    with ChatServer(planner) as server:
        how = ChatPlanSettings(examples=examples, irrelevant_examples=irrelevant, objects=False)
        ChatPlanner(client(server), how).plan(PlanRequest(game, game.state()))
        asked = prompts(server)
    assert len(asked) == 3 and "Things that matter" not in "".join(asked)
    for prompt, phase in zip(asked, PHASES, strict=True):
        own = [prompt.count(example) for example in game.examples(phase)]
        assert own == [1] * examples + [0] * (3 - examples)
        assert prompt.count("An example.") == examples + irrelevant
        places = [prompt.find(f"In a {place}.") for place in ("library", "theatre")]
        assert [place >= 0 for place in places] == [irrelevant > 0, irrelevant == 3]
        if examples and irrelevant:
            assert prompt.rfind("In another kitchen") < places[0]


def test_the_examples_of_something_else_know_nothing_of_kitchens():
    for phase in PHASES:
        shown = examples_in("rllib_llm_comm.sama.planners", f"example_irrelevant_{phase}")
        assert len(shown) == 3
        assert not re.search(r"\b(kitchen|cook|onion|pot|dish|soup|counter|alice|bob)", " ".join(shown), re.IGNORECASE)


# ---- random planners: what they draw is possible, the same for the same seed, and stays until it has ende -------


def test_each_subgoal_is_as_likely():
    game = kitchen("forced_coordination")
    state, planner = game.state(), RandomPlanner()
    drawn = [planner.plan(PlanRequest(game, state)).of("alice") for _ in range(800)]
    possible = game.possible(state, "alice")
    counts, expected = np.array([drawn.count(subgoal) for subgoal in possible]), 800 / len(possible)
    assert counts.sum() == 800 and abs(counts - expected).max() < 5 * np.sqrt(expected)


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 1000))
def test_a_larger_share_replaces_all_that_a_smaller_one_does(layout, seed):
    game = kitchen(layout, seed)
    request = PlanRequest(game, game.state())
    own = ScriptedPlanner().plan(request).by_agent()
    drawn = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        planner = DisturbedPlanner(ScriptedPlanner(), share=share)
        planner.reseed(seed)
        planner.begin()
        plan = planner.plan(request)
        drawn.append({one.agent for one in plan.subgoals if one.reason == DRAWN})
        assert planner.replaced == len(drawn[-1])
        assert all(plan.of(agent) == own[agent] for agent in game.agents if agent not in drawn[-1])
    assert drawn[0] == set() and drawn[-1] == set(game.agents)
    assert all(fewer <= more for fewer, more in zip(drawn, drawn[1:], strict=False))


def test_the_share_is_that_of_the_subgoals(game):
    planner = DisturbedPlanner(ScriptedPlanner(), share=0.3)
    for _ in range(500):
        planner.plan(PlanRequest(game, game.state()))
    assert 0.25 < planner.replaced / 1000 < 0.35


def test_the_same_seed_draws_the_same(game):
    for made in (RandomPlanner(), DisturbedPlanner(RandomPlanner(), share=0.5)):
        drawn = []
        for seed in (7, 8, 7):
            made.reseed(seed)
            made.begin()
            drawn.append([made.plan(PlanRequest(game, game.state())).by_agent() for _ in range(5)])
        assert drawn[0] == drawn[2] != drawn[1]


def test_what_is_drawn_stays_until_it_has_ended(game):
    state = game.state()
    planner = DisturbedPlanner(ScriptedPlanner(), share=1.0)
    first = planner.plan(PlanRequest(game, state)).by_agent()
    second = planner.plan(PlanRequest(game, state, current={"alice": "", "bob": first["bob"]})).by_agent()
    assert second["bob"] == first["bob"] and planner.replaced == 3
    # An agent that goes on with what the other planner still wants gets nothing new, and so nothing random.
    calm = DisturbedPlanner(ScriptedPlanner(), share=1.0)
    own = ScriptedPlanner().plan(PlanRequest(game, state)).by_agent()
    assert calm.plan(PlanRequest(game, state, current=own)).by_agent() == own and calm.replaced == 0
    wild = RandomPlanner()
    assert wild.plan(PlanRequest(game, state, current=own)).by_agent() == own


def test_what_failed_from_here_is_not_drawn_again():
    game = kitchen("forced_coordination")
    state, planner = game.state(), RandomPlanner()
    ways, failed = [], ()
    for _ in game.possible(state, "bob"):  # so many differ for sure, whatever alice is told
        plan = planner.plan(PlanRequest(game, state, failed=failed))
        ways.append(tuple(plan.by_agent().items()))
        failed = (*failed, FailedAttempt(plan, "goal", ""))
    assert len(set(ways)) == len(ways)


def test_they_are_made_from_settings(tmp_path):
    made = make_planner({"name": "disturbed", "planner": {"name": "random", "seed": 3}, "share": 0.25, "seed": 1})
    assert (made.name, made.planner.name, made.share) == ("disturbed", "random", 0.25)
    assert make_planner("random").name == "random"
    assert planner_model({"name": "disturbed", "planner": "plan4mc"}) is None
    tape = tmp_path / "tape.jsonl"
    tape.write_text('{"cassette": 1, "model": "m", "made": "", "note": ""}\n')
    assert planner_model({"name": "disturbed", "planner": {"name": "cassette", "cassette": str(tape)}}).path == tape


# ---- planners of one's own that answer what a game does not have -------------------------------------------------


class Says(Planner):
    """Gives every agent the same subgoal."""

    name = "says"

    def __init__(self, subgoal: str = "cook the sup", agent: str = "", slow: bool = False) -> None:
        self.subgoal, self.agent, self.slow = subgoal, agent, slow

    def plan(self, request):
        told = [self.agent] if self.agent else request.game.agents
        return Plan(goal="", subgoals=[AssignedSubgoal(agent=agent, subgoal=self.subgoal) for agent in told])


class SaysNothing(Planner):
    """Forgets to return its plan."""

    def plan(self, request):
        return None


def make(game="overcooked_ai", **settings):
    return make_env(f"rllib_llm_comm/{game}-v0", **settings)


def test_a_subgoal_that_the_game_has_is_taken_possible_now_or_not():
    env = make()
    library = planning_game(env).library("alice")
    PlannedSubgoals(env, Says(library[0])).reset(seed=0)
    PlannedSubgoals(env, Says(library[-1])).reset(seed=0)


@pytest.mark.parametrize(
    ("planner", "sentence"),
    [
        (Says("sup"), r"'says' gave \w+ the subgoal 'sup'"),
        (Says(""), "'says' gave alice the subgoal ''"),
        (Says("fetch an onion form the left onion crat"), r"Did you mean '\w+ an onion from the left"),
        (Says(agent="alic"), r"'says' gave a subgoal to 'alic' .*'alice'\?"),
        (SaysNothing(), "'SaysNothing' returned a NoneType"),
    ],
)
def test_the_sentence_names_what_is_allowed_and_what_may_have_been_meant(planner, sentence):
    with pytest.raises(UserError, match=sentence):
        PlannedSubgoals(make(), planner).reset(seed=0)


def test_a_subgoal_is_not_cut(monkeypatch):
    for length in (MAX_SUBGOAL, MAX_SUBGOAL + 1):
        long = "x" * length
        monkeypatch.setattr(LakePlanning, "library", lambda game, agent, long=long: [long])
        planned = PlannedSubgoals(make("frozen_lake"), Says(long))
        if length == MAX_SUBGOAL:
            observations, _ = planned.reset(seed=0)
            assert {seen["subgoal"] for seen in observations.values()} == {long}
        else:
            with pytest.raises(UserError, match=f"of {length} characters but .* holds {MAX_SUBGOAL}"):
                planned.reset(seed=0)


def test_a_planner_in_a_thread_is_told_on_too():
    env = PlannedSubgoals(make(), Says(slow=True))
    observations, _ = env.reset(seed=0)
    with pytest.raises(UserError, match="'cook the sup'"):
        while env.agents:
            actions = {agent: int(seen["action_mask"].argmax()) for agent, seen in observations.items()}
            observations, *_ = env.step(actions)
    env.close()


@pytest.mark.parametrize(
    ("planner", "replan"),
    [
        (Says(), "all"),
        (DisturbedPlanner(Says(), share=0.0), "any"),
        (DisturbedPlanner(Says(agent="x"), share=1.0), "any"),
    ],
)
def test_whole_games_end_with_the_sentence(planner, replan):
    games = PlannedGames(ScriptedExecutor(), {"layout": "cramped_room"}, PlanningSetup(planner=planner, replan=replan))
    with pytest.raises(UserError, match="Planner 'says' gave"):
        games.play(0)
