"""Random planners: what they draw is possible, the same for the same seed, and stays until it has ended."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.env import parallel_env
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoal_env import random_snapshot
from rllib_llm_comm.sama.planners import ScriptedPlanner, make_planner, planner_model
from rllib_llm_comm.sama.planners.baselines import DRAWN, DisturbedPlanner, RandomPlanner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import FailedAttempt, PlanRequest


def kitchen(layout="cramped_room", seed=None):
    env = parallel_env(layout=layout, observe=["entities"], action_level="goal_cell")
    env.reset(seed=0)
    if seed is not None:
        env.kitchen.restore(random_snapshot(env.kitchen.layout, "old", np.random.default_rng(seed)))
    return planning_game(env)


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 1.0]))
def test_what_is_drawn_is_possible(layout, seed, share):
    game = kitchen(layout, seed)
    state = game.state()
    for planner in (RandomPlanner(seed), DisturbedPlanner(ScriptedPlanner(), share, seed)):
        plan = planner.plan(PlanRequest(game, state))
        assert list(plan.by_agent()) == list(game.agents) and plan.goal
        for agent, subgoal in plan.by_agent().items():
            assert not game.refusal(state, agent, subgoal)
    for agent in game.agents:
        one_by_one = [subgoal for subgoal in game.library(agent) if not game.refusal(state, agent, subgoal)]
        assert game.possible(state, agent) == one_by_one


def test_each_subgoal_is_as_likely():
    game = kitchen("forced_coordination")
    state, planner = game.state(), RandomPlanner()
    drawn = [planner.plan(PlanRequest(game, state)).of("alice") for _ in range(2000)]
    possible = game.possible(state, "alice")
    counts = np.array([drawn.count(subgoal) for subgoal in possible])
    assert counts.sum() == 2000 and abs(counts - 2000 / len(possible)).max() < 5 * np.sqrt(2000 / len(possible))


@given(st.sampled_from(LAYOUT_NAMES), st.integers(0, 1000))
def test_a_larger_share_replaces_all_that_a_smaller_one_does(layout, seed):
    game = kitchen(layout, seed)
    request = PlanRequest(game, game.state())
    own = ScriptedPlanner().plan(request).by_agent()
    drawn = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        planner = DisturbedPlanner(ScriptedPlanner(), share)
        planner.reseed(seed)
        planner.begin()
        plan = planner.plan(request)
        drawn.append({one.agent for one in plan.subgoals if one.reason == DRAWN})
        assert planner.replaced == len(drawn[-1])
        assert all(plan.of(agent) == own[agent] for agent in game.agents if agent not in drawn[-1])
    assert drawn[0] == set() and drawn[-1] == set(game.agents)
    assert all(fewer <= more for fewer, more in zip(drawn, drawn[1:], strict=False))


def test_the_share_is_that_of_the_subgoals():
    game = kitchen()
    planner = DisturbedPlanner(ScriptedPlanner(), 0.3)
    for _ in range(1000):
        planner.plan(PlanRequest(game, game.state()))
    assert 0.25 < planner.replaced / 2000 < 0.35


def test_the_same_seed_draws_the_same():
    game = kitchen()
    for planner in (RandomPlanner(), DisturbedPlanner(RandomPlanner(), 0.5)):
        drawn = []
        for seed in (7, 8, 7):
            planner.reseed(seed)
            planner.begin()
            drawn.append([planner.plan(PlanRequest(game, game.state())).by_agent() for _ in range(5)])
        assert drawn[0] == drawn[2] != drawn[1]


def test_what_is_drawn_stays_until_it_has_ended():
    game = kitchen()
    state = game.state()
    planner = DisturbedPlanner(ScriptedPlanner(), 1.0)
    first = planner.plan(PlanRequest(game, state)).by_agent()
    second = planner.plan(PlanRequest(game, state, current={"alice": "", "bob": first["bob"]})).by_agent()
    assert second["bob"] == first["bob"] and planner.replaced == 3
    # An agent that goes on with what the other planner still wants gets nothing new, and so nothing random.
    calm = DisturbedPlanner(ScriptedPlanner(), 1.0)
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
    assert made.settings() == {"name": "disturbed", "planner": {"name": "random"}, "share": 0.25}
    assert make_planner("random").name == "random"
    assert planner_model({"name": "disturbed", "planner": "plan4mc"}) is None
    tape = tmp_path / "tape.jsonl"
    tape.write_text('{"cassette": 1, "model": "m", "made": "", "note": ""}\n')
    assert planner_model({"name": "disturbed", "planner": {"name": "cassette", "cassette": str(tape)}}).path == tape


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"name": "random", "share": 1}, "`share` is no setting of the planner 'random'"),
        ({"name": "random", "seed": -1}, "`seed` is -1"),
        ({"name": "random", "seed": True}, "`seed` is True"),
        ({"name": "disturbed", "share": 1.5}, "`share` is 1.5"),
        ({"name": "disturbed", "share": "half"}, "`share` is 'half'"),
        ({"name": "disturbed", "planner": "nobody"}, "`planner` is 'nobody'"),
        ({"name": "disturbed", "odds": 1}, "`odds`"),
    ],
)
def test_wrong_settings_are_told(settings, match):
    with pytest.raises(UserError, match=match):
        make_planner(settings)
