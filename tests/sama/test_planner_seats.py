"""Planner seats: the contract of each game, how long a choice lasts, and planners that were trained in them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from chat_server import ChatServer
from toys import language_model

from rllib_llm_comm import EMMAConfig, SymbolicPPOConfig, TWOSOMEConfig, VercoConfig, load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env, scripted_player_of
from rllib_llm_comm.evaluation.collect_demonstrations import collect_demonstrations
from rllib_llm_comm.evaluation.planner_scores import PlannedGames, PlanningSetup, PolicyExecutor
from rllib_llm_comm.evaluation.play_settings import PlaySettings, ReplaySettings
from rllib_llm_comm.evaluation.replay import replay_checkpoint
from rllib_llm_comm.evaluation.stand_ins import stand_ins
from rllib_llm_comm.experiments.algorithm_settings import check_config, find_algorithm
from rllib_llm_comm.experiments.env_settings import check_planned_environment
from rllib_llm_comm.experiments.packaged_examples import examples
from rllib_llm_comm.experiments.pipeline import check_stages
from rllib_llm_comm.experiments.planning_run import planner_label
from rllib_llm_comm.experiments.stages import make_stages
from rllib_llm_comm.experiments.stages_without_tune import STAGE_KINDS
from rllib_llm_comm.experiments.study_file import expand, part_of, read_study
from rllib_llm_comm.policies.decision import Request
from rllib_llm_comm.policies.policy_folder import find_policy
from rllib_llm_comm.policies.recorded_settings import Withheld, vouched_for_game, withhold_game
from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter
from rllib_llm_comm.sama.planned_env import PlannedSubgoals, SubgoalTracker
from rllib_llm_comm.sama.planner_seats import SEATS
from rllib_llm_comm.sama.planners import (
    from_anywhere,
    make_planner,
    planner_stands_in,
    stays_inside,
    trained_view,
    trusting,
)
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.plans import FailedAttempt, PlanRequest
from rllib_llm_comm.sama.reflection import ReflectivePlay
from rllib_llm_comm.testing import check_env
from tests.experiments import staged
from tests.refusal import refused
from tests.running import running
from tools.rules_chat import RulesChat

KITCHEN, SALAD, LAKE, WAR = (
    f"rllib_llm_comm/{name}_planner-v0" for name in ("overcooked_ai", "overcooked_text", "frozen_lake", "minirts")
)
SALAD_GAME, EMMA = "rllib_llm_comm/overcooked_text-v0", "trained:zoo:emma_cramped_room"
TOLD = {
    "map_name": "B", "recipe": ["tomato salad", "lettuce salad", "onion salad"], "told_to": ["alice"],
    "max_game_steps": 40,
}  # fmt: skip
SHORT = {KITCHEN: {"horizon": 15}, SALAD: TOLD, LAKE: {"horizon": 20}, WAR: {"max_tick": 200}}


@pytest.mark.parametrize("seats", ["central", "apart"])
@pytest.mark.parametrize("env_id", SEATS)
def test_they_keep_the_contract_of_environments(env_id, seats):
    results = check_env(env_id, settings={"game": SHORT[env_id], "seats": seats}, steps=20)
    assert [result for result in results if not result.ok] == []
    left_out = {one.name.split()[0] for one in results if one.status == "skipped"}
    assert left_out == {"MAPPO", "QMIX", "a"}, "seats see no numbers, and their time limit is a setting of the game"


def play(env, choose, seed=0):
    """Plays an episode; gives its return, and per step what was asked and what happened."""
    observations, infos = env.reset(seed=seed)
    total, steps = 0.0, []
    while env.agents:
        asked = [agent for agent in env.agents if infos[agent]["needs_action"]]
        before = env.game.state()
        actions = {agent: choose(env, agent, observations[agent]) for agent in asked}
        observations, rewards, _, _, infos = env.step(actions)
        total += sum(rewards.values()) / len(rewards)
        steps.append((asked, before, actions, rewards, infos))
    return total, steps


def by_rules(env, agent, seen):
    return scripted_player_of(env).advise(env, agent)


@pytest.mark.parametrize("layout", ["cramped_room", "forced_coordination"])
def test_rules_in_the_seats_play_as_the_planner_by_rules(layout):
    """With one seat after the other, each told what was chosen, the same plans come of it as of a planner for all."""
    total, _ = play(make_env(KITCHEN, game={"layout": layout}), by_rules)
    inner = make_env("rllib_llm_comm/overcooked_ai-v0", layout=layout, action_level="goal_cell", observe=["entities"])
    planned = PlannedSubgoals(inner, "scripted", subgoal_reward=0.0)
    player, (observations, _), points = planning_game(inner).player(), planned.reset(seed=0), 0.0
    while planned.agents:
        observations, rewards, *_ = planned.step(player.actions(observations))
        points += sum(rewards.values()) / len(rewards)
    assert total >= 0.8 * points > 0


def test_a_choice_lasts_until_a_subgoal_has_ended_and_rewards_are_those_of_its_steps():
    env = make_env(KITCHEN, game={"layout": "cramped_room", "horizon": 200}, patience=15)
    draw = np.random.default_rng(0)
    total, steps = play(env, lambda env, agent, seen: int(draw.choice(np.flatnonzero(seen["action_mask"]))))
    assert steps[0][0] == ["alice"] and steps[1][0] == ["bob"], "no game step before all have a subgoal"
    assert steps[0][4]["bob"]["step_rewards"] == []
    for asked, _, _, rewards, infos in steps:
        assert len(asked) == 1
        for agent, reward in rewards.items():
            assert sum(infos[agent]["step_rewards"]) == pytest.approx(reward)
    played = sum(len(infos["alice"]["step_rewards"]) for *_, infos in steps)
    assert played == 200
    metrics = steps[-1][4]["alice"]["episode_metrics"]
    assert metrics["score"] == pytest.approx(total)
    ends = sum(metrics[f"subgoals_{how}"] for how in ("completed", "waited", "stuck"))
    assert metrics["subgoals_given"] - 2 <= ends <= metrics["subgoals_given"] == len(steps)
    assert metrics["subgoals_stuck"] > 0, "bounded, and counted"


def test_rllib_asks_one_seat_after_the_other_and_counts_game_steps_alone():
    adapter = ParallelEnvAdapter(make_env(KITCHEN, game={"layout": "cramped_room", "horizon": 60}))
    observations, infos = adapter.reset(seed=0)
    assert list(observations) == ["alice"]
    draw, steps, durations = np.random.default_rng(1), 0, []
    while True:
        actions = {name: int(draw.choice(np.flatnonzero(seen["action_mask"]))) for name, seen in observations.items()}
        observations, _, ends, limits, infos = adapter.step(actions)
        steps += len(infos.get("alice", {}).get("step_rewards", []))
        durations += [info["duration"] for name, info in infos.items() if name in actions]
        if ends["__all__"] or limits["__all__"]:
            break
        assert len(observations) == 1
    assert steps == 60 and 0 not in durations


def test_seats_apart_know_their_own_player_and_what_it_is_told():
    env = make_env(SALAD, game=TOLD, seats="apart")
    observations, infos = env.reset(seed=3)
    order = infos["alice"]["private"]
    assert order in observations["alice"]["text"] and order not in observations["bob"]["text"]
    assert "Bob" not in observations["alice"]["text"] and "Alice" not in observations["bob"]["text"]
    assert infos["alice"]["needs_action"] and infos["bob"]["needs_action"], "all at once"
    assert env.meaning(f"make a {order}") == order
    while infos["alice"]["needs_action"] == infos["bob"]["needs_action"]:  # whoever is busy is told what it does
        asked = [agent for agent in env.agents if infos[agent]["needs_action"]]
        observations, *_, infos = env.step({agent: by_rules(env, agent, observations[agent]) for agent in asked})
    for agent, seen in observations.items():
        end = "needs a subgoal" if infos[agent]["needs_action"] else f"is told to {env.told[agent]}"
        assert seen["text"].endswith(f"{agent} {end}.")
    central = make_env(SALAD, game=TOLD)
    observations, infos = central.reset(seed=3)
    assert order in observations["bob"]["text"] and not infos["bob"]["needs_action"]
    choice = by_rules(central, "alice", observations["alice"])
    observations, *_ = central.step({"alice": choice})
    assert f"alice is told to {central.told['alice']}" in observations["bob"]["text"]


def test_a_subgoal_that_cannot_be_set_about_is_lost_after_one_game_step():
    env = make_env(KITCHEN)
    observations, _ = env.reset(seed=0)
    forbidden = int(np.flatnonzero(observations["alice"]["action_mask"] == 0)[0])
    observations, *_ = env.step({"alice": forbidden})
    *_, infos = env.step({"bob": by_rules(env, "bob", observations["bob"])})
    assert infos["alice"]["needs_action"] and infos["alice"]["episode_metrics"]["subgoals_lost"] == 1
    assert len(infos["alice"]["step_rewards"]) == 1


@pytest.mark.parametrize(
    ("env_id", "settings", "wrong"),
    [
        (KITCHEN, {"seats": "both"}, ("seats", "choice")),
        (KITCHEN, {"executor": "nobody"}, ("executor", "invalid", "CHECKPOINT")),
        (KITCHEN, {"executor": "trained:"}, ("executor", "invalid", "CHECKPOINT")),
        (KITCHEN, {"executor": "trained:zoo:told_salad"}, ("executor",)),
        (KITCHEN, {"executor": EMMA, "game": {"layout": "forced_coordination"}}, ("executor", "invalid", "5 x 5")),
        (KITCHEN, {"game": {"layuot": "cramped_room"}}, ("game.layuot", "unknown")),
        (KITCHEN, {"layout": "cramped_room"}, ("layout", "unknown", "under `game`")),
        (KITCHEN, {"vector": "planes"}, ("vector", "unknown", "under `game`")),
        (KITCHEN, {"seat": "central"}, ("seat", "unknown", "Did you mean 'seats'")),
        (WAR, {"game": {"executor": "red"}}, ("game.executor", "invalid")),
        (KITCHEN, {"executor": "trained:nowhere"}, ("executor",)),
        (KITCHEN, {"view": "truth"}, ("view",)), (KITCHEN, {"base_model": "somebody/model"}, ("base_model",)),
        (KITCHEN, {"greedy": True}, ("greedy",)), (WAR, {"game": {"told_to": ["alice"]}}, ("game.told_to",)),
    ],
)  # fmt: skip
def test_bad_settings(env_id, settings, wrong):
    with refused(*wrong):
        make_env(env_id, **settings)


@pytest.mark.parametrize("view", ["fog", "truth"])
def test_the_enemy_in_the_fog_is_told_to_seats_that_see_the_truth(view):
    env = make_env(WAR, view=view)
    observations, _ = env.reset(seed=0)
    assert "You know of no enemy." in observations["alice"]["text"]
    assert ("In truth the enemy has" in observations["alice"]["text"]) is (view == "truth")


def test_a_menu_without_entries_is_told_and_nobody_plans_for_planners():
    env = make_env(KITCHEN)
    with pytest.raises(UserError, match="overcooked_ai-v0"):
        PlannedSubgoals(env, "scripted")
    env.reset(seed=0)
    env.game.possible = lambda state, agent: []
    with pytest.raises(UserError, match="possible"):
        env._seen(["alice"])


def test_rules_are_demonstrated(tmp_path):
    report = collect_demonstrations(
        KITCHEN, tmp_path / "rows", env_config={"game": {"horizon": 60}}, num_envs=2, target_demonstrations=40
    )
    assert report.labels >= 40


def test_a_checkpoint_of_emma_carries_subgoals_out():
    env = make_env(KITCHEN, executor=EMMA, game={"horizon": 25})
    judged = []
    env._policy.network.critic.register_forward_hook(lambda *_: judged.append(1))
    played = [play(env, by_rules, seed=4) for _ in range(2)]
    assert not judged, "nobody reads the critic's values"
    assert played[0][0] == played[1][0]
    assert [step[2] for step in played[0][1]] == [step[2] for step in played[1][1]], "the seed fixes the executor, too"
    metrics = played[0][1][-1][4]["alice"]["episode_metrics"]
    assert metrics["subgoals_given"] >= 2 and env.inner.unwrapped.settings["layout"] == "cramped_room"


def test_walkers_that_read_numbers_carry_subgoals_out_for_seats_and_for_planners(small_ray, tmp_path):
    game = {"horizon": 10, "observe": ["vector"]}
    with running(
        SymbolicPPOConfig()
        .environment("rllib_llm_comm/frozen_lake-v0", env_config=game)
        .planning(planner="scripted")
        .env_runners(num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=32, minibatch_size=32, num_epochs=1)
    ) as algo:
        algo.train()
        path = algo.save_to_path(str(tmp_path / "walkers"))
    _, steps = play(make_env(LAKE, executor=f"trained:{path}"), by_rules)
    assert steps[-1][4]["alice"]["episode_metrics"]["subgoals_given"] >= 2
    for replan in ("any", "all"):
        setup = PlanningSetup("scripted", replan=replan)
        assert PlannedGames(PolicyExecutor(load_policy(path), "walkers"), {}, setup).play(0)["metrics"]["plans"] >= 1


def planners_of_salads(kind, rows, env_config, **training):
    return (
        kind()
        .environment(SALAD, env_config=env_config)
        .language_model(**language_model(max_prompt_tokens=1024, max_candidate_tokens=64, score_normalization="token"))
        .communication(messages="none")
        .env_runners(num_envs_per_env_runner=2, batch_mode="complete_episodes")
        .training(train_batch_size_per_learner=rows, minibatch_size=32, num_epochs=1, **training)
        .debugging(seed=0)
    )


@pytest.fixture(scope="module", params=["central", "apart"])
def trained(request, small_ray, tmp_path_factory):
    """Planners after one iteration, who draw nearly uniformly."""
    with running(planners_of_salads(VercoConfig, 32, {"game": TOLD, "seats": request.param})) as algo:
        assert algo.train()["env_runners"]["subgoals_given"] > 0
        return request.param, algo.save_to_path(str(tmp_path_factory.mktemp("planner") / "checkpoint"))


one_kind_of_seats = pytest.mark.parametrize("trained", ["central"], indirect=True)


GROUPS = {"group_size": 2, "gamma": 1.0, "advantage_floor": 0.0}
ALGORITHMS = [(TWOSOMEConfig, {}), *((VercoConfig, {**GROUPS, "advantages": name}) for name in ("rloo", "grpo"))]


@pytest.mark.parametrize(("config", "training"), ALGORITHMS)
def test_other_algorithms_train_seats_too(small_ray, config, training):
    short = {"game": {**TOLD, "max_game_steps": 20}, "seats": "central"}
    with running(planners_of_salads(config, 32, short, **training)) as algo:
        before = algo.get_weights()
        result = algo.train()
        assert result["env_runners"]["subgoals_given"] > 0
        assert any(
            not np.array_equal(old, new)
            for module, weights in algo.get_weights().items()
            for old, new in zip(before[module].values(), weights.values(), strict=True)
        )


def test_a_trained_planner_plans_as_its_seats_choose(trained):
    seats, path = trained
    planner = make_planner({"name": "trained", "policy": path, "greedy": True})
    planned = PlannedSubgoals(make_env(SALAD_GAME, **TOLD, observe=["text"]), planner)
    planned.reset(seed=5)
    env = make_env(SALAD, game=TOLD, seats=seats)
    observations, infos = env.reset(seed=5)
    policy = load_policy(path)
    memory = policy.begin(5)
    while not env.told["bob"]:
        asked = {agent: observations[agent] for agent in env.agents if infos[agent]["needs_action"]}
        decided = policy.act_together([Request(memory, asked)], explore=False)[0]
        observations, *_, infos = env.step({agent: decision.action for agent, decision in decided.items()})
    assert planned.plan.by_agent() == env.told
    assert planned.plan.answered_by.goal == "model" and planned.plan.source == path
    reasons = [one.reason for one in planned.plan.subgoals]
    assert all("probability" in reason for reason in reasons) and any("(else " in reason for reason in reasons), reasons


def test_the_replay_of_its_seats_shows_what_it_thought_of_each_subgoal(trained, tmp_path):
    policy = load_policy(trained[1])
    page = replay_checkpoint(trained[1], tmp_path / "page.html", ReplaySettings(episodes=1, greedy=True))
    frames = read_page(page)["sides"][0]["episodes"][0]["frames"]
    env = policy.env()
    observations, _ = env.reset(seed=0)
    decisions = 0
    for frame in frames[:-1]:
        asked = {agent: card for agent, card in frame["agents"].items() if not card["busy"]}
        for agent, card in asked.items():
            allowed = np.asarray(observations[agent]["action_mask"], bool)
            chances = np.array(card["probabilities"])
            assert card["candidates"] == list(observations[agent]["candidates"])
            assert chances.sum() == pytest.approx(1, abs=0.01) and not chances[~allowed].any()
            assert chances[card["action"]] == chances.max() and (chances[allowed] > 0).all()
            decisions += 1
        observations, *_ = env.step({agent: card["action"] for agent, card in asked.items()})
    assert decisions > 4


def read_page(page):
    """The data of a replay."""
    text = page.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text).group(1))


@one_kind_of_seats
def test_it_plans_in_other_settings_of_its_game_and_in_no_other_game(trained):
    _, path = trained
    planner = f"trained:{path}"
    other = PlannedSubgoals(make_env(SALAD_GAME, map_name="A", observe=["text"]), planner)
    other.reset(seed=0)
    assert other.plan is not None and isinstance(other.tracker, SubgoalTracker)
    lake = make_env("rllib_llm_comm/frozen_lake-v0", observe=["text"])
    for named in (planner, {"name": "disturbed", "planner": planner}):
        with pytest.raises(UserError, match="frozen_lake"):
            PlannedSubgoals(lake, named)
    with pytest.raises(UserError, match="frozen_lake"):
        ReflectivePlay(lake, None, make_planner(planner))
    config = {"env": "rllib_llm_comm/frozen_lake-v0", "env_config": {"observe": ["text"]}, "planner": planner}
    with pytest.raises(UserError, match="frozen_lake"):
        check_planned_environment("a", check_config("a", find_algorithm("Verco"), config))
    assert stays_inside(planner) and not stays_inside("trained:some/repo")
    assert stays_inside("trained:zoo:told_salad") and not stays_inside({"name": "trained", "policy": 3})
    assert planner_stands_in(planner) == ""
    own = [f"planner's {phrase}" for phrase in stand_ins({"policy": "zoo:planner_cramped_room"})]
    named = {"name": "trained", "policy": "zoo:planner_cramped_room"}
    assert own and own == stand_ins({"planner": f"trained:{named['policy']}"}) == stand_ins({"planner": named})
    assert stand_ins({"planner": {"name": "disturbed", "planner": named}}) == own
    several = {"planner": ["random", {"name": "cassette", "cassette": "sama"}, "scripted"]}
    for settings, named in ((several, ["planner cassette", "planner scripted"]), ({}, ["planner scripted"])):
        found = stand_ins(STAGE_KINDS["play_planners"].loads(settings))
        assert [one.partition(":")[0] for one in found] == named


@one_kind_of_seats
def test_what_failed_from_here_is_not_chosen_again(trained):
    planner = make_planner({"name": "trained", "policy": trained[1], "greedy": True})
    env = make_env(SALAD_GAME, **TOLD, observe=["text"])
    env.reset(seed=5)
    game = planning_game(env)
    request = PlanRequest(game, game.state())
    plans, failed = [], []
    for undone in [("alice",), (), ("alice", "bob"), ("alice",)]:
        planner.begin()
        plans.append(planner.plan(replace(request, failed=tuple(failed))))
        failed.append(FailedAttempt(plans[-1], "assignment", "it was not done", undone))
    alice, bob = ([plan.of(agent) for plan in plans] for agent in ("alice", "bob"))
    assert len(set(alice)) == 4 and bob[2] != bob[1]
    assert all(not game.refusal(game.state(), agent, plan.of(agent)) for plan in plans for agent in game.agents)
    nothing = [FailedAttempt(made(plans[0], alice=one), "assignment", "", ("alice",)) for one in game.library("alice")]
    assert planner.plan(replace(request, failed=tuple(nothing))).of("alice"), "rather once more than nothing"


def made(plan, **subgoals):
    """A plan with other subgoals of some agents."""
    given = [one.model_copy(update={"subgoal": subgoals.get(one.agent, one.subgoal)}) for one in plan.subgoals]
    return plan.model_copy(update={"subgoals": given})


@one_kind_of_seats
def test_trust_and_another_base_model_reach_the_checkpoint_of_a_planner_and_of_an_executor(trained, tmp_path):
    copy = shutil.copytree(trained[1], tmp_path / "copy")
    record = json.loads((copy / "policy" / "policy.json").read_text())
    here, record["model_config"]["base_model"] = record["model_config"]["base_model"], "somebody/model"
    (copy / "policy" / "policy.json").write_text(json.dumps(record))
    planner = {"name": "trained", "policy": str(copy)}
    env = make_env(SALAD_GAME, **TOLD, observe=["text"])
    other = shutil.copytree(copy, tmp_path / "other")
    (other / "policy" / "policy.json").write_text(
        json.dumps({**record, "env_config": {**record["env_config"], "seats": "both"}})
    )
    with pytest.raises(UserError, match="env_config.seats"):
        make_planner({**planner, "policy": str(other), "base_model": here})
    with pytest.raises(UserError, match="recorded `base_model`"):
        PlannedSubgoals(env, planner).reset(seed=0)
    PlannedSubgoals(env, {**planner, "base_model": here}).reset(seed=0)
    trusted = PlaySettings(planner=f"trained:{copy}", trust=True).planning()["planner"]
    with pytest.raises(UserError, match="somebody/model") as told:  # taken as it is, and not there
        PlannedSubgoals(env, trusted).reset(seed=0)
    assert "recorded" not in str(told.value)
    assert not stays_inside(trusted) and not stays_inside({**planner, "base_model": "somebody/model"})
    assert stays_inside({**planner, "base_model": here}) and stays_inside({**planner, "trust": False})
    disturbed = {"name": "disturbed", "planner": planner, "share": 0.5}
    assert trusting(disturbed) == {**disturbed, "planner": trusted} and trusting("scripted") == "scripted"
    seats = {"game": TOLD, "executor": f"trained:{copy}", "base_model": "somebody/model", "trust": True}
    held = withhold_game(SALAD, seats)
    assert [name for name, value in held.items() if isinstance(value, Withheld)] == ["base_model", "trust"]
    assert vouched_for_game({"game": TOLD, "executor": "scripted"})["trust"] and vouched_for_game(TOLD) == TOLD


def test_who_carries_subgoals_out_may_be_the_result_of_a_stage(tmp_path):
    emma = {
        "run": "EMMA", "env": "rllib_llm_comm/overcooked_ai_subgoals-v0", "stop": {"training_iteration": 1},
        "config": {"env_config": {"layout": "cramped_room"}},
    }  # fmt: skip
    seats = {"game": {"layout": "cramped_room"}, "executor": "trained:${emma}"}
    rows = {"run": "collect_demonstrations", "env": KITCHEN, "config": {"env_config": seats}}
    officer = {"game": {"executor": "trained:${emma}", "max_tick": 200}}  # the officers of the game itself
    nested = {"run": "collect_labels", "env": WAR, "config": {"env_config": officer}}

    def check(**stages):
        staged.check(stages, tmp_path)

    check(emma=emma, rows=rows, nested=nested)
    check(emma=emma, rows={**rows, "config": {"env_config": {**seats, "greedy": True}, "player": None}})
    salad = {**rows, "env": SALAD, "config": {"env_config": {"game": TOLD, "executor": seats["executor"]}}}
    untold = {**emma, "run": "SelfPlayPPO", "env": "rllib_llm_comm/overcooked_ai-v0"}
    scripted = {**rows, "config": {"env_config": {"game": {"layout": "cramped_room"}}}}
    for stranger, stage in ((emma, salad), (untold, rows), (scripted, rows)):
        with pytest.raises(UserError, match=r"rows\.config\.env_config"):
            check(emma=stranger, rows=stage)
    lost = {**rows, "config": {"env_config": {**seats, "game": {"layout": "no_room"}}}}
    with refused("rows.config.env_config.game.layout", "unknown"):
        check(emma=emma, rows=lost)
    with pytest.raises(UserError, match="nowhere"):
        check(rows={**rows, "config": {"env_config": {**seats, "executor": "trained:nowhere"}}})
    with refused("rows.config.env_config.trust"):
        check(emma=emma, rows={**rows, "config": {"env_config": {**seats, "trust": True}}})


def test_a_stage_plays_trained_planners_beside_rules_and_random_draws(trained, tmp_path):
    seats, path = trained
    planners = ["scripted", "random", {"name": "trained", "policy": [path]}]
    salads = {"env": SALAD, "env_config": {"game": TOLD, "seats": seats}, "episodes": 2}
    result = STAGE_KINDS["play_planners"].run(games_of(tmp_path, *planners, **salads))
    cells = {cell["labels"]["planner"]: cell for cell in json.loads(result.outputs[0].read_text())["cells"]}
    assert all(cell["episodes"]["seed"] == [1000, 1001] for cell in cells.values())
    assert ["planner_sha256" in cell["made_with"] for cell in cells.values()] == [False, False, True]
    assert cells["scripted"]["summary"]["mean"] > cells["random"]["summary"]["mean"]
    with refused("games.env", "choice"):
        games_of(tmp_path, *planners, **{**salads, "env": SALAD_GAME})
    with pytest.raises(UserError, match="overcooked_text-v0"):
        games_of(tmp_path, f"trained:{path}")
    other = {"central": "apart", "apart": "central"}[seats]
    for planner in (f"trained:{path}", {"name": "disturbed", "planner": f"trained:{path}"}):
        with pytest.raises(UserError, match="`env_config.seats` is '.*' was trained with"):
            games_of(tmp_path, planner, env=SALAD, env_config={"game": TOLD, "seats": other})


@one_kind_of_seats
def test_tables_say_how_a_trained_planner_chooses_and_what_it_sees(trained, tmp_path):
    copy = shutil.copytree(trained[1], tmp_path / "copy")
    planner = {"name": "trained", "policy": str(copy)}
    names = [planner_label(planner), planner_label({**planner, "greedy": True}), planner_label(f"trained:{copy}")]
    assert names[1] == f"{names[0]} greedy" and names[2] == f"trained:{copy}" and trained_view(planner) == ""
    record = json.loads((copy / "policy" / "policy.json").read_text())
    seen = {**record, "env_config": {**record["env_config"], "view": "truth"}}
    (copy / "policy" / "policy.json").write_text(json.dumps(seen))
    assert planner_label(planner) == f"{names[0]}, sees truth" and planner_label(f"trained:{copy}").endswith("truth")
    assert planner_label({"name": "disturbed", "planner": planner}) == "disturbed, sees truth"
    assert planner_label("scripted") == "scripted" and trained_view("scripted") == ""


def test_a_record_names_its_planner_by_a_path_that_holds_everywhere(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    there = str(tmp_path / "mine")
    assert from_anywhere("trained:mine") == f"trained:{there}" and from_anywhere("scripted") == "scripted"
    assert from_anywhere({"name": "trained", "policy": "mine"}) == {"name": "trained", "policy": there}
    around = {"name": "disturbed", "planner": "trained:mine"}
    assert from_anywhere(around) == {**around, "planner": f"trained:{there}"}
    assert from_anywhere("trained:zoo:planner_cramped_room") == "trained:zoo:planner_cramped_room"
    assert EMMAConfig().planning(planner="trained:mine").policy_record()["planning"]["planner"] == f"trained:{there}"


def test_a_record_names_its_executor_by_a_path_that_holds_everywhere(small_ray, tmp_path, monkeypatch):
    shutil.copytree(find_policy("zoo:emma_cramped_room"), tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    game = {"executor": "switch:zoo:red_officer:mine"}  # of the strategy game; of others any mapping will do
    config = planners_of_salads(VercoConfig, 32, {}).environment(KITCHEN, env_config={"executor": "trained:mine"})
    with running(config) as algo:
        algo.config.env_config["game"] = game
        recorded = algo.manifest_of(algo.policy_exports()).env_config
        assert recorded["executor"] == f"trained:{tmp_path / 'mine'}"
        assert recorded["game"]["executor"] == f"switch:zoo:red_officer:{tmp_path / 'mine'}"
        assert algo.config.env_config["executor"] == "trained:mine"


@one_kind_of_seats
def test_longer_texts_than_in_its_training_need_more_room(trained):
    short = {"name": "trained", "policy": trained[1], "max_prompt_tokens": 8}
    game = PlannedSubgoals(make_env(SALAD_GAME, **TOLD, observe=["text"]), short)
    with pytest.raises(UserError, match="`max_prompt_tokens` is 8"):
        game.reset(seed=0)
    game.close()
    game = PlannedSubgoals(make_env(SALAD_GAME, **TOLD, observe=["text"]), {**short, "max_prompt_tokens": 600})
    game.reset(seed=0)
    assert game.planner.policy.network.settings.max_prompt_tokens == 600


def games_of(folder, *planners, env=KITCHEN, **config):
    """The checked stage in which planners play."""
    config = {"planner": list(planners), "env_config": {"game": {"layout": "cramped_room", "horizon": 20}}, **config}
    spec = {"games": {"run": "play_planners", "env": env, "config": {"episodes": 1, **config}}}
    staged.check(spec, folder)
    return staged.stages_of(spec, folder)[0]


def test_planners_of_one_name_all_play_and_are_told_apart(tmp_path):
    shares = [{"name": "disturbed", "share": share} for share in (0.0, 1.0)]
    nested = [{"name": "disturbed", "share": 1.0, "planner": {"name": "random", "seed": seed}} for seed in (1, 2)]
    result = STAGE_KINDS["play_planners"].run(games_of(tmp_path, *shares, *nested, "scripted"))
    cells = json.loads(result.outputs[0].read_text())["cells"]
    assert [cell["made_with"]["planner"] for cell in cells] == [*shares, *nested, "scripted"]
    labels = [cell["labels"]["planner"] for cell in cells]
    assert len(set(labels)) == 5 == len(result.summary) and labels[-1] == "scripted"
    assert "share: 0.0" in labels[0] and "planner.seed: 2" in labels[3]
    with pytest.raises(UserError, match=r"games.config.planner.*twice"):
        games_of(tmp_path, "scripted", *shares, {"name": "scripted"})


@pytest.mark.usefixtures("chat_client_at_home")
def test_what_chat_models_answer_in_games_of_planners_is_recorded_apart_and_told(tmp_path):
    with ChatServer(RulesChat().complete) as server:
        chat = server.settings(max_retries=0)
        asking = {"name": "chat", "chat": chat, "objects": False}
        other = {"name": "disturbed", "share": 0.0, "planner": {**asking, "chat": {**chat, "model": "other"}}}
        stage = games_of(tmp_path, "scripted", asking, other)
        told = STAGE_KINDS["play_planners"].run(stage).summary
        asked = len(server.requests)
        assert asked > 0 == told["kept_answers"] and told["requests"] == asked
        assert {request["model"] for request in server.requests} == {"tiny", "other"}
        (stage.folder / "planners.json").unlink()  # as after a kill
        again = STAGE_KINDS["play_planners"].run(stage).summary
        assert len(server.requests) == asked == again["kept_answers"] and again["requests"] == 0
    assert "requests" not in STAGE_KINDS["play_planners"].run(games_of(tmp_path / "rules", "scripted")).summary


def test_a_part_of_the_study_has_rules_and_random_draws_beside_it(tmp_path):
    study = read_study(examples()["study_planner"])
    part = part_of(study, expand(study, "study_planner"), ["cramped_room_apart"], ["cloned_ppo_talk"])
    stages = {stage.removeprefix("cramped_room_apart.") for stage in part.experiments}
    assert {"references", "clone", *(f"cloned_ppo_talk{how}" for how in ("", ".sampled", ".messages_none"))} <= stages
    assert "cloned_ppo" not in stages
    assert check_stages(make_stages(part.experiments, lambda stage, _: tmp_path / stage), {}) >= 1
