"""One question for everything, and plans that are kept while they hold: questions a game, asked of a real server."""

from __future__ import annotations

import pytest
from chat_server import ChatServer
from kitchens import asking, kitchen, kitchen_env, team

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import RulePlayer, planning_game
from rllib_llm_comm.sama.plans import DONE, STUCK, WAITED, FailedAttempt, Outcome, PlanRequest, made_plan
from rllib_llm_comm.sama.reflection import ReflectivePlay
from tools.rules_chat import RulesChat

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


ONION, PUT = "fetch an onion from the left onion crate", "put the onion into the pot"
DISH = "fetch a dish from the dish stack"


def test_one_question_gives_all_agents_their_subgoals_and_the_next_ones_need_none(game):
    with ChatServer(team([ONION, DISH], [DISH, "wait"])) as server:
        planner = make_planner(asking(server, ahead=2))
        planner.begin()
        first = planner.plan(PlanRequest(game, game.state()))
        assert first.by_agent() == {"alice": ONION, "bob": DISH} and not first.kept
        ended = (Outcome("alice", ONION, DONE), Outcome("bob", DISH, DONE))
        # Nobody has moved, so both can do their second one, too.
        second = planner.plan(PlanRequest(game, game.state(), outcomes=ended))
        assert second.kept and second.goal == first.goal and second.of("alice") == DISH
        assert [one.words for one in second.subgoals] == [DISH, "wait"]
        assert second.answered_by == first.answered_by and second.answered_by.assignment == "model"
        assert len(server.requests) == 1
        ended += (Outcome("alice", DISH, DONE), Outcome("bob", second.of("bob"), WAITED))
        assert not planner.plan(PlanRequest(game, game.state(), outcomes=ended)).kept  # both lists are used up
        assert len(server.requests) == 2


def test_an_agent_that_is_not_done_goes_on_while_the_other_gets_its_next(game):
    with ChatServer(team([ONION, DISH], [DISH, ONION])) as server:
        planner = make_planner(asking(server, "chat", ahead=2))
        planner.begin()
        planner.plan(PlanRequest(game, game.state()))
        current, ends = {"alice": ONION, "bob": ""}, (Outcome("bob", DISH, DONE),)
        plan = planner.plan(PlanRequest(game, game.state(), current=current, outcomes=ends))
        assert plan.kept and plan.by_agent() == {"alice": ONION, "bob": ONION} and len(server.requests) == 1


@pytest.mark.parametrize("event", ["stuck", "impossible next", "another round failed", "a new game"])
def test_what_breaks_a_plan_is_an_event_at_which_it_is_asked(game, event):
    with ChatServer(team([ONION, PUT], [DISH, "wait"])) as server:
        planner = make_planner(asking(server, ahead=2, fallback="none"))
        planner.begin()
        first = planner.plan(PlanRequest(game, game.state()))
        ends = {"alice": STUCK if event == "stuck" else DONE, "bob": DONE}
        outcomes = tuple(Outcome(who, first.of(who), how) for who, how in ends.items())
        failed = ()
        if event == "another round failed":
            failed = (FailedAttempt(first, "decomposition", "it took too long"),)
            server.replies = [team([DISH, "wait"], [ONION, "wait"])]
        if event == "a new game":
            planner.begin()
        # The state is still that of the start, so alice holds no onion that she could put.
        plan = planner.plan(PlanRequest(game, game.state(), outcomes=outcomes, failed=failed))
        assert not plan.kept and len(server.requests) == 2
        assert plan.goal == first.goal


def test_a_first_subgoal_must_be_possible_and_a_later_one_known_and_both_are_told(game):
    wrong = team([PUT, ONION], [DISH, "sing a song"])
    with ChatServer(wrong, team([ONION], [DISH])) as server:
        plan = make_planner(asking(server, ahead=3)).plan(PlanRequest(game, game.state()))
        again = server.requests[1]["messages"][-1]["content"]
        assert "must hold the onion but holds nothing" in again and "'sing a song' is none of the subgoals" in again
        assert {one.subgoal for one in plan.refused} == {PUT, "sing a song"}
    with ChatServer(wrong) as server, pytest.raises(AnswerError, match="sing a song"):
        make_planner(asking(server, ahead=3)).plan(PlanRequest(game, game.state()))
    with ChatServer(wrong) as server:  # rules take over where the planner lets them, and are named
        plan = make_planner(asking(server, "chat", ahead=3)).plan(PlanRequest(game, game.state()))
        assert plan.by_agent()["bob"] == DISH and plan.subgoals[0].answered_by == "menu" and plan.refused
    with ChatServer(team([ONION] * 4, [DISH])) as server, pytest.raises(AnswerError):
        make_planner(asking(server, ahead=3)).plan(PlanRequest(game, game.state()))


@pytest.mark.parametrize("name", ["chat", "sama"])
def test_a_subgoal_that_one_of_two_agents_cannot_do_is_refused_also_if_the_other_can(name):
    game = kitchen("forced_coordination")
    state = game.state()
    both = [set(game.possible(state, agent)) for agent in game.agents]
    for number, agent in enumerate(game.agents):
        only_other = min(both[1 - number] - both[number])
        own = [min(one - {only_other}) for one in both]
        with ChatServer(team([only_other], [only_other]), team([own[0]], [own[1]])) as server:
            planner = make_planner(asking(server, name, ahead=1, fallback="none"))
            plan = planner.plan(PlanRequest(game, state))
            assert len(server.requests) == 2, f"{agent} got what it cannot do"
        assert list(plan.by_agent().values()) == own and [one.subgoal for one in plan.refused] == [only_other]


def played(ahead: int, **settings):
    with ChatServer(RulesChat().complete) as server:
        env = kitchen_env()
        planner = make_planner(asking(server, ahead=ahead, menu="possible", **settings))
        episode = ReflectivePlay(env, planning_game(env).player(), planner, trials=0).play(0)
        return episode.counts() | {"soups": episode.metrics["soups"]}, len(server.requests)


def test_a_game_takes_ten_to_twenty_questions_where_it_took_many():
    figures, asked = played(8)
    assert figures["plan_questions"] == asked and 8 <= asked <= 20 and figures["soups"] >= 4
    assert figures["plans"] == asked + figures["plans_kept"] and figures["plans_kept"] > asked
    each, asked_each = played(1)
    assert asked_each == each["plans"] > 2 * asked and each["plans_kept"] == 0


def test_a_recording_counts_its_answers_as_questions_too(tmp_path):
    tape = tmp_path / "plans.jsonl"
    with ChatServer(RulesChat().complete) as server:
        settings = asking(server, "chat", ahead=4)
        settings["chat"]["cassette"] = str(tape)
        counts = []
        for chat in (settings["chat"], {"cassette": str(tape)}):
            env = kitchen_env(horizon=60)
            planner = make_planner({**settings, "chat": chat})
            counts.append(ReflectivePlay(env, planning_game(env).player(), planner, trials=0).play(0).counts())
    assert counts[0]["plan_questions"] == counts[1]["plan_questions"] == counts[0]["plan_requests"] > 0
    assert counts[1]["plan_requests"] == 0


def test_a_game_without_rounds_keeps_plans_too():
    with ChatServer(RulesChat().complete) as server:
        env = PlannedSubgoals(kitchen_env(horizon=120), asking(server, ahead=6, menu="possible"), wait=True)
        player, (seen, infos) = env.game.player(), env.reset(seed=0)
        while env.agents:
            seen, _, _, _, infos = env.step(player.actions(seen))
        metrics = infos["alice"]["episode_metrics"]
    assert metrics["plans_kept"] > 0 and metrics["plan_questions"] == len(server.requests)
    assert metrics["plans"] == metrics["plans_kept"] + metrics["plan_questions"]


# ---- nobody waits for ever, and nobody is asked for what cannot be -----------------------------------------------


class StandsStill(RulePlayer):
    """An executor that never ends its subgoal."""

    def action(self, agent, seen):
        return 4  # a primitive action that changes nothing


@pytest.mark.parametrize("ahead", [0, 3])
def test_an_executor_that_never_ends_its_subgoal_is_waited_for_so_long_and_counted(ahead):
    with ChatServer(RulesChat().complete) as server:
        env = kitchen_env(action_level="primitive", horizon=30)
        planner = make_planner(asking(server, "chat", ahead=ahead))
        counts = ReflectivePlay(env, StandsStill(env), planner, trials=1, patience=10).play(0).counts()
        assert 0 < len(server.requests) == counts["plan_questions"] < 40
    assert counts["subgoals_stuck"] > 0 == counts["subgoals_completed"] and counts["plans_kept"] == 0


def test_an_agent_with_nothing_on_its_menu_is_told_before_anybody_is_asked(game):
    class Nothing(type(game)):
        def possible(self, state, agent):
            return [] if agent == "bob" else super().possible(state, agent)

    empty = Nothing(game.env)
    for named in ("scripted", "random"):
        with pytest.raises(UserError, match=r"^bob can set about none of the 42 subgoals of Nothing now"):
            made_plan(make_planner(named), PlanRequest(empty, empty.state()))
    with ChatServer("nobody should ask") as server:
        with pytest.raises(UserError, match="bob can set about none"):
            made_plan(make_planner(asking(server, ahead=4)), PlanRequest(empty, empty.state()))
        assert not server.requests
