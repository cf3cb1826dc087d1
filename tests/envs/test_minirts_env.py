"""The strategy game as an environment: contract, ownership, commands, RED's action, rewards, snapshots."""

from __future__ import annotations

import numpy as np
import pytest
from minirts_play import played

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts import collective_command, observations, officer_view, words
from rllib_llm_comm.envs.minirts.commanders import make_commander
from rllib_llm_comm.envs.minirts.engine.rts_game import RTSGame
from rllib_llm_comm.envs.minirts.engine.units import BARRACK, GUARD_TOWER, PEASANT, SPEARMAN, SWORDMAN, TOWN_HALL
from rllib_llm_comm.envs.minirts.side import Side
from rllib_llm_comm.envs.minirts.words import ATTACK, BUILD, MINE, TRAIN, WAIT, Command, parse_command
from tests.envs import plain_views


def chosen_by(commander, env):
    return {agent: env.commands.index(commander(i)) for i, agent in enumerate(env.agents)}


def command(env, **named: Command):
    """Gives commands, and nothing to the others."""
    return env.step({agent: env.commands.index(named.get(agent, words.NOTHING)) for agent in env.agents})


# ---- who owns what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_agents", [1, 2, 3])
def test_units_go_round_and_stay(num_agents):
    owners: dict[int, int] = {}
    for env, _ in played("oracle", seed=1, decisions=50, num_agents=num_agents):
        for unit in env.team.own:
            owner = env.team.owner(unit)
            assert owners.setdefault(unit.ref, owner) == owner
        for kind in (PEASANT, SWORDMAN):
            given = [owners[unit.ref] for unit in env.team.own if unit.type == kind]
            # Nobody was lost yet in the first decisions, so they go round exactly.
            if env.game.tick < 1500:
                assert given == [i % num_agents for i in range(len(given))]
    assert len(owners) > 10


def test_the_second_building_is_bobs():
    env = minirts.parallel_env(num_agents=2)
    env.reset(seed=0)
    assert env.team.counts(0) == {TOWN_HALL: 1, PEASANT: 2} and env.team.counts(1) == {PEASANT: 1}
    command(env, alice=Command(BUILD, BARRACK, 1))
    while not env.team.counts()[BARRACK]:
        command(env)
    assert env.team.counts(1)[BARRACK] == 1 and env.team.counts(0)[BARRACK] == 0


def test_what_a_side_reads_is_what_the_game_tells_and_the_mask_allows_what_is_not_refused():
    for env, seen in played("random", seed=2, decisions=40):
        game, side = env.game, env.team
        assert [game.unit(unit.ref) for unit in game.units()] == [*game.units(0), *game.units(1)]
        assert side.enemies == game.seen_enemies(0) and side.resources == game.seen_resources(0)
        for i, agent in enumerate(env.possible_agents):
            allowed = [not env.executor.refusal(i, c) for c in env.commands]
            assert seen[agent]["action_mask"].tolist() == allowed


# ---- commands ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Build 3 cavalry.", Command(TRAIN, 4, 3)), ("train six spearmen", Command(TRAIN, SPEARMAN, 6)),
        ("mine with all idle peasant", Command(MINE)), ("build one workshop building", Command(BUILD, 11, 1)),
        ("attack the enemy base", Command(ATTACK)), ("build 7 archer", None), ("build 2 barracks", None),
        ("sing a song", None), ("attack " * 100, None),
    ],
)  # fmt: skip
def test_other_peoples_words_are_read(text, meant):
    assert parse_command(text) == meant


def test_mining_brings_gold_and_nothing_else_does():
    env = minirts.parallel_env()
    env.reset(seed=0)
    for _ in range(20):
        command(env)
    assert env.team.money == 500
    for _ in range(20):
        command(env, alice=Command(MINE))
    assert env.team.money > 520


def test_jobs_are_done_in_order_counted_and_told():
    env = minirts.parallel_env(num_agents=1, money=1000)
    env.reset(seed=0)
    events: list[str] = []
    for wish in (Command(BUILD, BARRACK, 1), Command(TRAIN, PEASANT, 3)):
        events += command(env, alice=wish)[4]["alice"]["events"]
    assert env.executor.refusal(0, Command(BUILD, BARRACK, 1)) != ""
    for _ in range(30):
        events += command(env, alice=Command(TRAIN, SPEARMAN, 1))[4]["alice"]["events"]
    assert {"alice: build one barrack done", "alice: train 3 peasants done"} <= set(events)
    assert "alice: train 1 spearman done" in events
    assert env.team.made[0][PEASANT] == 3 and env.team.counts()[PEASANT] == 6


def test_the_dear_job_that_came_first_is_not_starved():
    env = minirts.parallel_env(num_agents=1, money=100)
    env.reset(seed=0)
    command(env, alice=Command(MINE))
    command(env, alice=Command(BUILD, BARRACK, 1))
    command(env, alice=Command(TRAIN, PEASANT, 1))
    while env.team.money < 150 and env.executor.coming(BARRACK) != 0:
        assert env.team.counts()[PEASANT] == 3 and all(unit.making < 0 for unit in env.team.own)
        command(env)
    command(env)
    assert any(unit.making == BARRACK for unit in env.team.own)


def test_a_refused_command_changes_nothing():
    env = minirts.parallel_env()
    env.reset(seed=0)
    before = env.executor.snapshot()
    env.executor.command(1, Command(TRAIN, SPEARMAN, 1))  # bob has no barrack
    env.executor.command(0, Command(ATTACK))  # there is no army
    assert env.executor.snapshot() == before


# ---- RED's action ------------------------------------------------------------------------------------------


def red(flags: list[int], **parts: int) -> np.ndarray:
    action = np.zeros(len(collective_command.SIZES), np.int64)
    names = ("kind", "resource", "enemy", "train", "build", "site", "place", "go_on")
    action[[names.index(name) for name in parts]] = list(parts.values())
    action[[len(collective_command.HEADS) + flag for flag in flags]] = 1
    return action


def test_only_flagged_units_take_the_command():
    env = minirts.parallel_env(action_level="red", num_agents=1)
    env.reset(seed=0)
    units = collective_command.listed_units(env.team, 0)
    peasants = [i for i, unit in enumerate(units) if unit.type == PEASANT]
    env.step({"alice": red(peasants[:2], kind=collective_command.GATHER)})
    after = {unit.ref: unit.order for unit in env.team.own}
    assert [after[units[i].ref] for i in peasants] == ["GATHER", "GATHER", "IDLE"]
    env.step({"alice": red(peasants, kind=collective_command.MOVE, place=0, go_on=1)})
    assert not any(unit.order == "MOVE" for unit in env.team.own)
    with pytest.raises(UserError, match="action space"):
        env.step({"alice": np.full(len(collective_command.SIZES), 9000)})


def test_red_commands_cannot_spend_more_than_there_is():
    env = minirts.parallel_env(action_level="red", num_agents=1, money=160)
    env.reset(seed=0)
    hall = next(unit for unit in env.team.own if unit.type == TOWN_HALL)
    x, y = hall.cell
    site = (y + (4 if y < 16 else -4)) * 32 + x
    env.step({"alice": red(list(range(5)), kind=collective_command.BUILD, build=BARRACK, site=site)})
    assert sum(unit.making == BARRACK for unit in env.team.own) <= 1 and env.team.money >= 0


def test_masks_of_red_name_what_there_is():
    env = minirts.parallel_env(action_level="red", num_agents=2, observe=["lists"])
    seen, _ = env.reset(seed=0)
    starts = np.cumsum((0, *collective_command.SIZES))
    parts = [seen["bob"]["head_mask"][a:b] for a, b in zip(starts, starts[1:], strict=False)]
    assert all(part.any() for part in parts)
    assert parts[0].tolist() == [1, 1, 0, 1, 0, 1, 1]  # a peasant alone: no enemy in sight, nothing to train with
    assert np.flatnonzero(parts[4]).tolist() == [8, 9, 10, 11, GUARD_TOWER, TOWN_HALL]
    flags = np.stack(parts[8:])
    assert flags[:, 1].sum() == 1 and seen["bob"]["own"][:, 9].sum() == 1


# ---- numbers -----------------------------------------------------------------------------------------------


def same_arrays(ours, theirs):
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("num_agents", "opponent", "player"), [(2, "medium2", 0), (3, "medium_tower", 1), (1, "strong", 0)]
)
def test_compiled_views_are_those_of_the_plain_functions(num_agents, opponent, player):
    parts = ["planes", "lists", "officer"]
    env = minirts.parallel_env(num_agents=num_agents, opponent=opponent, side=player, observe=parts)
    env.reset(seed=11)
    commander = make_commander("oracle", env.executor, env.commands)
    sites = attacks = enemies = 0
    while env.agents:
        seen, *_ = env.step(chosen_by(commander, env))
        for number, told in enumerate(seen.values()):
            assert same_arrays(told["planes"], plain_views.planes(env.team, number))
            plain = plain_views.lists(env.team, number) | plain_views.officer(env.team, number)
            assert all(same_arrays(told[name], part) for name, part in plain.items())
        sites, enemies = sites + len(env.team.sites), enemies + len(env.team.enemies)
        attacks += sum(unit.order == "ATTACK" for unit in env.team.own)
    assert min(sites, attacks, enemies) > 0


def test_compiled_views_of_more_units_than_there_are_rows_and_of_units_outside():
    places = [(player, PEASANT, 2 + i % 12, 2 + 6 * player + i // 12) for player in range(2) for i in range(110)]
    units = [(0, TOWN_HALL, 10, 12), (1, TOWN_HALL, 20, 12), *places, (0, PEASANT, -0.9, 31.4), (0, PEASANT, 31.7, 3)]
    side = Side(RTSGame.scenario(units, (0, 0)), 0, 2)
    for number in range(2):
        assert same_arrays(observations.planes(side, number), plain_views.planes(side, number))
        theirs = plain_views.lists(side, number)
        for name, rows in observations.lists(side, number).items():
            assert same_arrays(rows, theirs[name]) and rows[:, 0].sum() == (0 if name == "resources" else 50)
        theirs = plain_views.officer(side, number)
        assert all(same_arrays(part, theirs[name]) for name, part in officer_view.observe(side, number).items())


# ---- rewards and time --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "outcome"), [("oracle", 1), ("none", -1)])
def test_the_oracle_beats_the_medium_opponent_silence_loses_and_only_the_end_is_rewarded(name, outcome):
    env = minirts.parallel_env(opponent="medium", observe=["vector"])
    env.reset(seed=0)
    commander = make_commander(name, env.executor, env.commands)
    rewards = []
    while env.agents:
        _, reward, terminated, truncated, infos = env.step(chosen_by(commander, env))
        rewards.append(reward)
    assert all(reward == {"alice": 0.0, "bob": 0.0} for reward in rewards[:-1])
    assert rewards[-1] == dict.fromkeys(rewards[-1], outcome) and terminated["bob"] and not truncated["bob"]
    assert infos["bob"]["episode_metrics"]["won"] == infos["alice"]["task_success"] == (outcome > 0)


def test_shaped_rewards_add_up_to_the_change_of_the_balance():
    env = minirts.parallel_env(shaping=2.0, max_tick=1000)
    env.reset(seed=0)

    def balance():
        return (env.team.value(0) - env.team.value(1)) / 1000

    start, total = balance(), 0.0
    while env.agents:
        total += command(env, alice=Command(TRAIN, PEASANT, 3))[1]["alice"]
    assert total == pytest.approx(2 * (balance() - start)) and total != 0


@pytest.mark.parametrize("truncate_draws", [True, False])
def test_a_draw_truncates_or_terminates(truncate_draws):
    env = minirts.parallel_env(max_tick=500, truncate_draws=truncate_draws)
    env.reset(seed=0)
    while env.agents:
        _, rewards, terminated, truncated, infos = command(env)
    assert truncated["alice"] == truncate_draws and terminated["alice"] != truncate_draws and rewards["alice"] == 0
    assert infos["alice"]["game_step"] == 500


def test_a_snapshot_brings_everything_back():
    env = minirts.parallel_env(opponent="medium_tower")
    env.reset(seed=3)
    commander = make_commander("oracle", env.executor, env.commands)

    def run(count):
        found = []
        for _ in range(count):
            actions = chosen_by(commander, env)
            seen, rewards, *_ = env.step(actions)
            found.append((actions, seen["alice"]["text"], seen["bob"]["text"], rewards))
        return found

    run(25)
    saved = env.snapshot()
    first = run(15)
    env.reset(seed=9)
    run(3)
    env.restore(saved)
    assert run(15) == first


def test_commanders_that_decide_seldom_play_the_game_of_those_who_wait_in_between():
    """A decision every 200 ticks is one command and three times "wait" of the same game; rewards add up."""
    shared = {"opponent": "medium", "observe": ["text", "vector"], "max_tick": 6400, "shaping": 1.0}
    seldom = minirts.parallel_env(**shared, decision_ticks=200)
    often = minirts.parallel_env(**shared)
    seen, _ = seldom.reset(seed=3)
    often.reset(seed=3)
    rng, wait, steps = np.random.default_rng(0), often.commands.index(Command(WAIT)), 0
    while seldom.agents:
        chosen = {agent: int(rng.choice(np.flatnonzero(seen[agent]["action_mask"]))) for agent in seldom.agents}
        seen, rewards, ended, cut, infos = seldom.step(chosen)
        total, events = 0.0, []
        for turn in range(4):
            if often.agents:
                actions = chosen if turn == 0 else dict.fromkeys(often.agents, wait)
                plain, paid, over, late, told = often.step(actions)
                total, events = total + paid["alice"], events + told["alice"]["events"]
        assert rewards["alice"] == pytest.approx(total)
        assert seen["bob"]["text"] == plain["bob"]["text"] and infos["alice"]["events"] == events
        assert (ended, cut, infos["alice"]["game_step"]) == (over, late, told["alice"]["game_step"])
        steps += 1
    assert not often.agents and steps <= 32
