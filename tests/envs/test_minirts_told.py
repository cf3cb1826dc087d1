"""Commanders of whom only some are told what the enemy trains: what each sees, says and makes of it, and its worth."""

from __future__ import annotations

import numpy as np
import pytest
from minirts_play import played
from random_play import same

from rllib_llm_comm.envs import minirts, overcooked_text
from rllib_llm_comm.envs.interface import PRIVATE, TASK_SUCCESS, teacher_state
from rllib_llm_comm.envs.minirts import observations
from rllib_llm_comm.envs.minirts.checker import check_sentence
from rllib_llm_comm.envs.minirts.commanders import ScriptedTeam, advise, messages, say
from rllib_llm_comm.envs.minirts.engine.units import ARMY, BARRACK, DRAGON, SPEARMAN, STABLE
from rllib_llm_comm.envs.minirts.sayings import CommanderSaying, EnemySaying, understand
from rllib_llm_comm.envs.minirts.side import PRODUCERS, enemy_types
from rllib_llm_comm.envs.minirts.words import BUILD, WAIT, Command
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher, TeacherRequest, make_teacher, teacher_identity
from tests.refusal import refused

TOLD = {"told_to": ["alice"], "producers": "bob"}

# ---- settings ----------------------------------------------------------------------------------------


def test_the_settings_leave_the_game_itself_alone():
    plain, told = (minirts.parallel_env(**more) for more in ({}, {"told_to": "one"}))
    for seed in range(3):
        (first, infos), (second, others) = plain.reset(seed=seed), told.reset(seed=seed)
        assert all(PRIVATE not in info for info in infos.values())
        assert sum(info[PRIVATE] is not None for info in others.values()) == 1
        assert plain.facts == () and plain.meaning("the enemy trains archers") is None
        for _ in range(30):
            for agent in plain.agents:
                assert first[agent]["vector"].tolist() == second[agent]["vector"][: observations.VECTOR].tolist()
                sentences = second[agent]["text"].split(". ")
                assert first[agent]["text"] == ". ".join(sentences[:1] + sentences[2:])
            actions = {agent: int(np.flatnonzero(first[agent]["action_mask"])[-1]) for agent in plain.agents}
            (first, *_), (second, *_) = plain.step(actions), told.step(actions)


# ---- who knows and owns what -------------------------------------------------------------------------


def test_who_is_not_told_sees_nothing_of_the_secret_until_the_enemy_is_met():
    """Games with the same map that differ only in what the enemy trains, played by the same commands of ours."""
    parts = ["text", "vector", "planes", "lists"]
    enemies = ("SPEARMAN", "DRAGON", "ARCHER")
    envs = [minirts.parallel_env(**TOLD, opponent=f"medium:{enemy}", observe=parts) for enemy in enemies]
    compared = 0
    for seed in range(3):
        starts = [env.reset(seed=seed) for env in envs]
        observed = [start[0] for start in starts]
        assert len({start[1]["alice"][PRIVATE] for start in starts}) == 3
        rng = np.random.default_rng(seed)
        for _ in range(30):
            if any(env.team.enemies for env in envs):
                break
            assert all(same(one["bob"], observed[0]["bob"]) for one in observed)
            assert len({one["alice"]["text"] for one in observed}) == 3
            assert len({one["alice"]["vector"].tobytes() for one in observed}) == 3
            assert all(same(one["alice"], observed[0]["alice"], ["text", "vector"]) for one in observed)
            compared += 1
            masks = {agent: observed[0][agent]["action_mask"] for agent in envs[0].agents}
            actions = {agent: int(rng.choice(np.flatnonzero(mask))) for agent, mask in masks.items()}
            observed = [env.step(actions)[0] for env in envs]
    assert compared >= 45


def test_sentences_are_true_and_of_another_type_false():
    env = minirts.parallel_env(**TOLD)
    for seed in range(6):
        observed, infos = env.reset(seed=seed)
        fact = infos["alice"][PRIVATE]
        for speaker, agent in enumerate(env.agents):
            assert check_sentence(env.executor, observed[agent]["text"], env.settings["max_tick"], speaker) is True
        for other in env.facts:
            assert check_sentence(env.executor, f"The enemy trains {other}.") is (other == fact)
        assert check_sentence(env.executor, "You are not told what the enemy trains.", speaker=0) is False


def test_the_producers_are_one_commander_s_alone():
    env = minirts.parallel_env(**TOLD, observe=["vector"])
    team = ScriptedTeam(env)
    houses = 0
    for seed in range(3):
        _, infos = env.reset(seed=seed)
        team.begin(seed)
        while env.agents:
            for kind in PRODUCERS:
                assert env.executor.refusal(0, Command(BUILD, kind, 1)) == "another commander alone builds that"
            for unit in env.team.own:
                if unit.type in PRODUCERS:
                    assert env.team.owner(unit) == 1
                    houses += 1
            _, _, _, _, infos = env.step(team.act(infos))
    assert houses > 100


def test_snapshots_keep_who_is_told():
    env = minirts.parallel_env(told_to="one", observe=["text"])
    seeds = {}
    for seed in range(20):
        _, infos = env.reset(seed=seed)
        seeds.setdefault(infos["alice"][PRIVATE] is None, seed)
    _, infos = env.reset(seed=seeds[True])
    kept = env.snapshot()
    env.reset(seed=seeds[False])
    env.restore(kept)
    _, _, _, _, after = env.step({agent: 0 for agent in env.agents})
    assert {a: i[PRIVATE] for a, i in after.items()} == {a: i[PRIVATE] for a, i in infos.items()}


# ---- what is said ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "meant", "asked"),
    [
        ("the enemy trains spearmen", "spearmen", "swordman swordmen blacksmith"),
        ("The ENEMY has one dragon and a spearman!", "spearmen and dragons", "swordman swordmen blacksmith archer"),
        ("i train peasants, bob train archers", "train archers", "archer archers"),
        ("i build stable", "build stable", ""),
        ("archers", "archers", ""),
        ("what does the enemy train", "", ""),
        ("beware of the enemy \ufffd", "", ""),
        ("", "", ""),
    ],
)
def test_meanings_and_requests(message, meant, asked):
    env = minirts.parallel_env(**TOLD)
    assert env.meaning(message) == meant
    assert (env.request(message) or "").startswith(asked) and bool(env.request(message)) == bool(asked)


def test_it_is_told_until_the_right_producer_stands_or_is_put_up():
    env = minirts.parallel_env(**TOLD, opponent="medium:SWORDMAN", observe=["text"])
    for house, tells in ((BARRACK, True), (STABLE, False)):
        env.reset(seed=0)
        build = env.commands.index(Command(BUILD, house, 1))
        env.step({"alice": env.commands.index(Command("mine")), "bob": build})
        for _ in range(8):
            env.step({"alice": 0, "bob": 0})
        assert house in {unit.making for unit in env.team.own} | {unit.type for unit in env.team.own}
        assert isinstance(say(env.executor, env.commands, 0), EnemySaying) is tells
        assert isinstance(say(env.executor, env.commands, 1), CommanderSaying)


def test_a_teacher_that_repeats_the_fact_says_nothing_else():
    teacher, rng = ScriptedTeacher(repeat_fact=True), np.random.default_rng(0)
    for told, other in (("alice", "bob"), ("bob", "alice")):
        for env, _ in played(seed=0, decisions=40, **{**TOLD, "told_to": [told]}):
            said = teacher.messages(TeacherRequest(("alice", "bob"), {}, state=env.executor), rng=rng)
            types = tuple(kind for kind in ARMY if kind in enemy_types(env.team))
            assert understand(said[told]) == EnemySaying(types) and understand(said[other]) == EnemySaying(())


@pytest.mark.parametrize("settings", [{}, {**TOLD, "told_to": ["alice"]}], ids=["nobody is told", "alice is told"])
def test_a_teacher_may_ask_nobody_to_wait(settings):
    """Such a message tells the speaker's own task alone; all others are those of the default."""
    teachers = (ScriptedTeacher(ask_to_wait=False), ScriptedTeacher())
    changed = kept = 0
    for env, _ in played(seed=0, decisions=60, **settings):
        request = TeacherRequest(("alice", "bob"), {}, state=env.executor)
        said, plain = (one.messages(request, rng=np.random.default_rng(0)) for one in teachers)
        for agent in ("alice", "bob"):
            meaning, before = understand(said[agent]), understand(plain[agent])
            if isinstance(before, CommanderSaying) and before.theirs[0] == WAIT:
                before = CommanderSaying(before.mine, "", before.theirs)
                changed += 1
            else:
                kept += 1
            assert meaning == before
    assert changed and kept


def test_where_all_are_told_or_nobody_is_they_speak_of_their_tasks_whatever_the_teacher():
    teachers = (ScriptedTeacher(repeat_fact=True), ScriptedTeacher())
    for settings in ({}, {**TOLD, "told_to": "all"}):
        for env, _ in played(seed=0, decisions=20, **settings):
            assert all(isinstance(say(env.executor, env.commands, commander), CommanderSaying) for commander in (0, 1))
            request = TeacherRequest(("alice", "bob"), {}, state=env.executor)
            said, plain = (one.messages(request, rng=np.random.default_rng(0)) for one in teachers)
            assert said == plain


def test_labels_of_who_is_not_told_do_not_depend_on_the_secret():
    env = minirts.parallel_env(**TOLD, observe=["text"])
    team = ScriptedTeam(env)
    _, infos = env.reset(seed=0)
    record, met = env.game.record, {"alice": set(), "bob": set()}
    own = int(record["ai_types"][0, 1, 0])
    while env.agents:
        said = []
        for kind in (SPEARMAN, DRAGON, own):
            record["ai_types"][0, 1, 0] = kind
            said.append(messages(env.executor, env.possible_agents, np.random.default_rng(1)))
        assert len({one["bob"] for one in said}) == 1
        for agent in met:
            met[agent] |= {type(understand(one[agent])) for one in said}
        _, _, _, _, infos = env.step(team.act(infos))
    assert met["alice"] == met["bob"] == {EnemySaying, CommanderSaying}


def test_the_setting_of_such_a_teacher_is_checked_and_part_of_what_labels_are():
    settings = {"name": "scripted", "repeat_fact": True}
    assert teacher_identity(settings) == teacher_identity(make_teacher(settings)) == settings
    assert teacher_identity("scripted") == teacher_identity(ScriptedTeacher()) == {"name": "scripted"}
    kitchen = overcooked_text.parallel_env()
    kitchen.reset(seed=0)
    request = TeacherRequest(tuple(kitchen.agents), {}, state=teacher_state(kitchen))
    for name, wrong, unknown_to_other_games in (("repeat_fact", 1, True), ("ask_to_wait", 0, False)):
        with refused(f"teacher.{name}", "type"):
            make_teacher({"name": "scripted", name: wrong})
        teacher = make_teacher({"name": "scripted", name: unknown_to_other_games})
        with refused(f"teacher.{name}"):
            teacher.messages(request, rng=np.random.default_rng(0))


def test_advice_knows_the_types_for_every_commander():
    env = minirts.parallel_env(**TOLD, observe=["text"], max_tick=6400)
    wins = 0
    for seed in range(3):
        env.reset(seed=seed)
        while env.agents:
            _, _, _, _, infos = env.step({agent: advise(env, agent) for agent in env.agents})
        wins += infos["bob"][TASK_SUCCESS]
    assert wins == 3
