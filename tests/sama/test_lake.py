"""Planners on the frozen lake: they know what the walkers know, which is not enough."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from planner_model import Answers

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.frozen_lake import ENV_ID, parallel_env
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, ScriptedExecutor
from rllib_llm_comm.sama.data_set import propose_states
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.planners import ScriptedPlanner, make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import PlanRequest
from rllib_llm_comm.sama.preparation import open_game, preparation_of
from rllib_llm_comm.sama.reflection import ReflectivePlay
from rllib_llm_comm.sama.rewards.subgoal_rewards import CodeReward, measure_agreement
from tests.experiments import staged
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def test_subgoals_are_cells_and_nobody_is_told_what_is_there():
    env = parallel_env()
    env.reset(seed=0)
    game = planning_game(env)
    assert game.library("bob") == game.library("alice") and len(game.library("bob")) == 16
    assert game.parse("Please go to Column 2, Row 1.") == "go to column 2, row 1"
    assert game.parse("go to column 9, row 1") is None and game.parse("go home") is None
    told = game.manual() + game.situation(game.state()) + json.dumps(game.plain(game.state()))
    other = parallel_env(layout=["1a.2", "....", "..H.", "b..."])
    other.reset(seed=0)
    again = planning_game(other)
    assert told == again.manual() + again.situation(again.state()) + json.dumps(again.plain(again.state()))


def test_the_scripted_planner_sends_both_where_nobody_has_been():
    env = PlannedSubgoals(parallel_env(horizon=30))
    observations, _ = env.reset(seed=0)
    player = planning_game(env).player()
    while env.agents:
        told = [observations[agent]["subgoal"] for agent in ("alice", "bob")]
        assert told[0] != told[1]
        observations, rewards, *_, infos = env.step(player.actions(observations))
    assert infos["alice"]["episode_metrics"]["fallen"] >= 1  # as nobody knows of the holes
    assert infos["alice"]["episode_metrics"]["subgoals_completed"] >= 3


@given(st.integers(0, 99), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_a_subgoal_is_done_when_its_cell_is_entered(seed, actions):
    env = parallel_env(slip=0.5)
    env.reset(seed=seed)
    game = planning_game(env)
    for pair in actions:
        if not env.agents:
            return
        env.step(dict(zip(("alice", "bob"), pair, strict=True)))
        before, after = game.passed()
        assert after.cells == tuple(env.lake.cells) and after.seen >= before.seen and after.time == env.lake.time
        for i, agent in enumerate(("alice", "bob")):
            done = [subgoal for subgoal in game.library(agent) if game.done(before, after, agent, subgoal)]
            moved = before.cells[i] != after.cells[i]
            assert done == ([f"go to column {after.cells[i][0]}, row {after.cells[i][1]}"] if moved else [])
            if after.fates[i] != "walks":
                assert game.possible(after, agent) == [s for s in game.library(agent) if game.waits(after, agent, s)]


@given(st.integers(0, 9999), st.data())
def test_walkers_take_a_shortest_way_and_stay(seed, data):
    env = parallel_env(layout="random", layout_seed=seed, holes=0.0, size=data.draw(st.integers(3, 6)))
    env.reset(seed=0)
    game = planning_game(env)
    agent, other = data.draw(st.permutations(("alice", "bob")))
    subgoal = data.draw(st.sampled_from(game.library(agent)))
    start = game.state()
    effort = game.effort(start, agent, subgoal)
    steps = 0
    while env.agents and steps < 20 and not game.waits(game.state(), agent, subgoal):
        if "arrived" in env.lake.fates:
            break
        env.step(game.player().actions(told(**{agent: subgoal, other: ""})))
        steps += 1
    state = game.state()
    i = ("alice", "bob").index(other)
    assert state.cells[i] == start.cells[i]
    if game.waits(state, agent, subgoal):
        assert effort <= steps <= effort + 2  # around the other one, if that stands in the way
        env.step(game.player().actions(told(**{agent: subgoal, other: ""})))
        assert game.state().cells == state.cells
    else:  # its target was on the way, or the other one stands where it should go
        assert "arrived" in state.fates or game.meant(subgoal) == start.cells[i]


def told(**subgoals):
    return {agent: {"subgoal": subgoal} for agent, subgoal in subgoals.items()}


def test_walkers_go_where_somebody_has_been():
    env = parallel_env(layout=["1..", ".H.", "..2", "a.b"])
    env.reset(seed=0)
    game = planning_game(env)
    for subgoal, steps in (("go to column 2, row 0", 2), ("go to column 2, row 1", 1), ("go to column 0, row 1", 4)):
        for _ in range(steps):
            env.step(game.player().actions(told(alice=subgoal, bob="")))
    assert env.lake.cells[0] == (0, 1)  # not by the two steps over the hole


@given(st.integers(0, 9999), st.sampled_from([0.0, 0.5]))
def test_walkers_are_not_sent_into_one_cell_by_themselves(seed, slip):
    env = PlannedSubgoals(parallel_env(layout="random", layout_seed=seed, size=3, slip=slip, horizon=30), "random")
    observations, infos = env.reset(seed=seed)
    while env.agents:
        observations, *_, infos = env.step(env.game.player().actions(observations))
        if not slip:
            assert not any("blocked" in info["events"] for info in infos.values())


def test_rllib_planning_knows_the_lakes():
    executor = ScriptedExecutor(ENV_ID)
    assert list(executor.scenarios) == ["4x4", "8x8", "random"]
    played = [PlannedGames(executor, {"layout": "random"}, PlanningSetup()).play(seed) for seed in (1, 1)]
    assert played[0] == played[1] and played[0]["metrics"]["subgoals_completed"] >= 1


def test_there_is_no_skill_graph():
    env = parallel_env()
    env.reset(seed=0)
    game = planning_game(env)
    with pytest.raises(UserError, match="no skill graph"):
        game.skills(game.state())
    goal, _ = game.scripted(game.state())
    assert ScriptedPlanner().plan(PlanRequest(game, game.state())).goal == goal


# ---- the frozen lake, prepared by a language model: states, sentences, actions, reward code; nobody is to ----


FILE = Path(__file__).parents[2] / "tuned_examples" / "sama_frozen_lake.yaml"
PREPARE = ("manual", "translation", "subgoals", "rewards")
RIGHT = """
def reward(state):
    before, after = (state[when]["walkers"][state["agent"]] for when in ("before", "after"))
    there = after["column"] == 1 and after["row"] == 2
    return 1 if there and (before["column"], before["row"]) != (1, 2) else 0
"""
WRONG = RIGHT.replace('[state["agent"]]', '["bob"]')


def lake(layout="4x4", **settings):
    return open_game(ENV_ID, {"layout": layout, **settings})


@given(st.integers(0, 10_000))
def test_drawn_states_are_legal_and_the_games_own_words_hold(seed):
    game = lake()
    state = preparation_of(game).draw(np.random.default_rng(seed))
    layout = game.env.unwrapped.lake.layout
    for cell, fate, target in zip(state.cells, state.fates, layout.targets, strict=True):
        assert (fate == "fell") == (cell in layout.holes) and (fate == "arrived") == (cell == target)
    assert "walks" in state.fates and state.cells[0] != state.cells[1]
    for words in (game.situation(state), *(game.situation_of(state, agent) for agent in game.agents)):
        assert game.holds(state, words) is True, words


@pytest.mark.parametrize(
    ("sentence", "truth"),
    [
        ("Alice is at column 0, row 0.", True), ("alice stands at (column 0, row 0)", True),
        ("Alice is at column 0, row 1.", False), ("Bob walks.", True), ("Bob has fallen into a hole.", False),
        ("Bob has arrived at his target at column 3, row 0.", False), ("Alice is out.", False),
        ("Alice is not out. It is step 0 of 100.", True), ("The lake has 4 columns and 4 rows.", True),
        ("The lake has 5 columns and 4 rows.", False), ("Nobody has been at column 2, row 2.", True),
        ("Somebody has been at column 0, row 0, and column 2, row 2.", False), ("Alice is cold.", None),
        ("There is a hole at column 1, row 1.", None),  # nobody knows
        ("x" * 700, None),
    ],
)  # fmt: skip
def test_sentences_are_judged_by_what_the_walkers_know(sentence, truth):
    game = lake()
    assert game.holds(game.state(), sentence) is truth


def test_proposed_states_are_put_and_impossible_ones_refused():
    def walkers(*places):
        names = zip(("alice", "bob"), places, strict=True)
        return {"walkers": [{"walker": who, "column": x, "row": y, "fate": fate} for who, (x, y, fate) in names]}

    game = lake()
    proposed = Answers({"states": [walkers((1, 1, "fell"), (2, 3, "walks"))]})
    (state,) = propose_states(proposed, game, 1, manual="Walk.")
    assert (state.cells, state.fates) == (((1, 1), (2, 3)), ("fell", "walks"))
    for wrong, why in (
        (walkers((1, 1, "fell"), (2, 3, "fell")), "nobody walks any more"),
        (walkers((1, 1, "walks"), (1, 1, "walks")), "cannot be in one cell"),
        (walkers((4, 1, "walks"), (1, 1, "walks")), "there is no column 4, row 1"),
        ({"walkers": walkers((0, 0, "walks"), (1, 0, "walks"))["walkers"][:1]}, "must be named once"),
    ):
        model = Answers({"states": [wrong]}, {"states": [walkers((0, 0, "walks"), (1, 0, "walks"))]})
        assert len(propose_states(model, game, 1, manual="Walk.")) == 1 and why in model.prompts[1]


def test_words_for_actions_are_checked_by_where_they_lead():
    game = lake()
    checks = list(preparation_of(game).actions(game.state(), "alice").values())
    stay, left, down, right, _ = checks
    assert stay("stay where it is") and left("do nothing") and down("go to column 0, row 1")
    assert right("go from column 0, row 0 to column 1, row 0") and right("go to column 1, row 1") is False
    assert down("do nothing") is False and right("fly") is None


def test_reward_code_is_held_against_the_exact_test():
    game = lake(["1.2", "...", "b.a"])
    steps = list(preparation_of(game).steps(300, seed=3))
    right = measure_agreement(CodeReward(RIGHT), game, "go to column 1, row 2", steps)
    wrong = measure_agreement(CodeReward(WRONG), game, "go to column 1, row 2", steps)
    assert right.share == 1 and right.both > 10 and wrong.share < 1 and wrong.false_alarms > 0


def test_to_wait_means_the_own_cell():
    game = lake()
    assert game.resolve(game.state(), "bob", "Wait.") == "go to column 3, row 0"
    assert game.resolve(game.state(), "bob", "go to column 1, row 2") == "go to column 1, row 2"
    assert game.resolve(game.state(), "bob", "go home") is None


# ---- the stages ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    specs = yaml.safe_load(FILE.read_text())
    specs = {name: specs[name] for name in PREPARE}
    specs["report"] = {"run": "sama_report", "config": {"of": [f"${{{name}}}" for name in PREPARE]}}
    staged.run(specs, folder, "lake")
    return folder / "lake"


def test_all_stages_run_from_the_recording_and_name_who_wrote_it(prepared):
    authors = {}
    for stage in PREPARE:
        told = staged.record(prepared.parent, stage, "lake")["summary"]
        assert told["requests"] == 0 and told["kept_answers"] > 0
        authors[stage] = set(told["answers"])
    assert authors == {"manual": {"claude"}, **dict.fromkeys(PREPARE[1:], {"written by hand"})}
    assert "written by hand" in (prepared / "report/report.html").read_text()
    translation = json.loads((prepared / "translation/translation.json").read_text())
    figures = translation["figures"]
    assert figures["states"] == 69 and figures["sentences_true"] == 138 and not figures["sentences_false"]
    assert figures["actions_true"] == 5 and translation["game"]["env"] == ENV_ID
    subgoals = json.loads((prepared / "subgoals/subgoals.json").read_text())
    assert subgoals["summary"]["subgoals"] == 7 and subgoals["made_with"]["states_by"] == "model"
    agreement = json.loads((prepared / "rewards/rewards/agreement.json").read_text())["figures"]
    assert agreement["with_code"] == 7 and agreement["share"] == agreement["recall"] == 1
    assert not any("hole" in json.dumps(plan["subgoals"]) for plan in subgoals["plans"])


@pytest.mark.parametrize(("slip", "points"), [(0.0, (0.0, 1.0)), (0.3, None)])
def test_the_recording_answers_whole_games_with_reflection(prepared, slip, points):
    """Scripted walkers in place of trained ones; who slips comes anywhere."""
    how = yaml.safe_load(FILE.read_text())["trials_0"]["config"]["planner"]
    made = {"manual": "manual/manual.md", "translation": "translation/translation.json"}
    how |= {name: str(prepared / path) for name, path in made.items()}
    reached = []
    for trials in (0, 1):
        env = parallel_env(layout=["1.2", ".H.", "b.a"], slip=slip, observe=["text"])
        play = ReflectivePlay(env, planning_game(env).player(), make_planner(how), trials=trials, patience=12)
        games = [play.play(seed=seed).to_json() for seed in range(1000, 1003)]
        reached.append(sum(sum(game["returns"].values()) for game in games) / len(games))
    assert points is None or tuple(reached) == points


def test_a_planner_draws_from_the_data_set_alone(prepared):
    path = prepared / "rewards/rewards/subgoals.json"
    known = {entry["subgoal"] for entry in json.loads(path.read_text())["subgoals"]}
    game = lake(["1.2", ".H.", "b.a"])
    planner, drawn = make_planner({"name": "random", "subgoals": str(path)}), set()
    for seed in range(40):
        planner.reseed(seed)
        drawn |= set(planner.plan(PlanRequest(game, game.state())).by_agent().values())
    assert drawn == known < set(game.library("alice"))
    # Who is out can only stay, whether that is in the data set or not.
    preparation_of(game).place(((1, 1), (2, 0)), ("fell", "walks"))
    assert planner.plan(PlanRequest(game, game.state())).by_agent()["alice"] == "go to column 1, row 1"
    with refused("subgoals"):
        make_planner({"name": "random", "subgoals": str(path.parent / "none.json")})
