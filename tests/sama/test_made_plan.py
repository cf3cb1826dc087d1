"""Planners of one's own that answer what a game does not have: one sentence wherever plans are followed."""

from __future__ import annotations

import pytest

from rllib_llm_comm import make_env
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.interface import MAX_SUBGOAL
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.games.frozen_lake import LakePlanning
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners.baselines import DisturbedPlanner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import AssignedSubgoal, Plan, Planner
from rllib_llm_comm.sama.reflection import ReflectivePlay

GAMES = {
    "rllib_llm_comm/overcooked_ai-v0": {"observe": ["entities"], "action_level": "goal_cell"},
    "rllib_llm_comm/frozen_lake-v0": {},
    "rllib_llm_comm/minirts-v0": {},
}


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


def make(env_id="rllib_llm_comm/overcooked_ai-v0"):
    return make_env(env_id, **GAMES[env_id])


@pytest.mark.parametrize("env_id", GAMES)
@pytest.mark.parametrize("subgoal", ["cook the sup", ""])
def test_an_unknown_subgoal_is_told_in_one_sentence(env_id, subgoal):
    with pytest.raises(UserError, match=rf"^Planner 'says' gave \w+ the subgoal '{subgoal}' but must give one of this"):
        PlannedSubgoals(make(env_id), Says(subgoal)).reset(seed=0)
    env = make(env_id)
    first = planning_game(env).library(env.possible_agents[0])[0]
    PlannedSubgoals(make(env_id), Says(first)).reset(seed=0)  # one that the game has, possible now or not


def test_the_sentence_names_what_is_allowed_and_what_may_have_been_meant():
    with pytest.raises(
        UserError, match=r"in its words: 'fetch an .*`request\.game\.possible.*Did you mean '\w+ an onion from the left"
    ):
        PlannedSubgoals(make(), Says("fetch an onion form the left onion crat")).reset(seed=0)
    with pytest.raises(UserError, match=r"'says' gave a subgoal to 'alic' but the agents .* alice, bob; .*'alice'\?"):
        PlannedSubgoals(make(), Says(agent="alic")).reset(seed=0)
    with pytest.raises(UserError, match=r"^Planner 'SaysNothing' returned a NoneType but must return a `Plan`"):
        PlannedSubgoals(make(), SaysNothing()).reset(seed=0)


def test_a_subgoal_is_not_cut(monkeypatch):
    for length in (MAX_SUBGOAL, MAX_SUBGOAL + 1):
        env, long = make("rllib_llm_comm/frozen_lake-v0"), "x" * length
        monkeypatch.setattr(LakePlanning, "library", lambda game, agent, long=long: [long])
        planned = PlannedSubgoals(env, Says(long))
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
    "planner", [Says(), DisturbedPlanner(Says(), share=0.0), DisturbedPlanner(Says(agent="x"), 1.0)]
)
@pytest.mark.parametrize("replan", ["any", "all"])
def test_whole_games_end_with_the_sentence(planner, replan):
    executor = ScriptedExecutor()
    games = PlannedGames(executor, {"layout": "cramped_room"}, PlanningSetup(planner=planner, replan=replan))
    with pytest.raises(UserError, match="Planner 'says' gave"):
        games.play(0)


def test_rounds_end_with_the_sentence():
    env = make()
    with pytest.raises(UserError, match="Planner 'says' gave alice the subgoal 'cook the sup'"):
        ReflectivePlay(env, planning_game(env).player(), Says()).play()
