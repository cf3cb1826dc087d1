"""Commanders of whom only some are told what the enemy trains: what each sees, says and makes of it, and its worth."""

from __future__ import annotations

import numpy as np
import pytest
from minirts_play import played

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import minirts, overcooked_text
from rllib_llm_comm.envs.interface import PRIVATE, TASK_SUCCESS, secret_of, teacher_state, telling_words
from rllib_llm_comm.envs.minirts.checker import check_sentence
from rllib_llm_comm.envs.minirts.commanders.command_level import enemy_types
from rllib_llm_comm.envs.minirts.commanders.sayings import CommanderSaying, EnemySaying, say, understand, word
from rllib_llm_comm.envs.minirts.commanders.scripted_commanders import ScriptedTeam, advise, messages
from rllib_llm_comm.envs.minirts.commanders.tasks import BUILD, WAIT, Command
from rllib_llm_comm.envs.minirts.engine.units import ARMY, BARRACK, DRAGON, SPEARMAN, STABLE
from rllib_llm_comm.envs.minirts.side import PRODUCERS
from rllib_llm_comm.envs.minirts.view import observations
from rllib_llm_comm.evaluation.communication import TurnRecorder, communication_figures
from rllib_llm_comm.policies.decision import Decision
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.verco.message_protocol import same_request
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher, TeacherRequest, make_teacher, teacher_identity

ID = "rllib_llm_comm/minirts-v0"
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


@pytest.mark.parametrize("opponent", ["simple", "medium", "medium2", "medium3_tower", "medium2:CATAPULT"])
def test_the_fact_is_drawn_by_the_seed_and_spelt_as_in_the_infos(opponent):
    env = minirts.parallel_env(**TOLD, opponent=opponent, observe=["vector"])
    met = set()
    for seed in range(80):
        _, infos = env.reset(seed=seed)
        fact = infos["alice"][PRIVATE]
        assert infos["bob"][PRIVATE] is None and secret_of(infos) == fact
        assert env.meaning(f"i say the enemy has {fact}") == fact
        met.add(fact)
    assert met == set(env.facts)
    words = {one for fact in env.facts for one in fact.split()} - {"and"}
    assert words - {"catapults"} == set(telling_words(env.facts))  # which are told always where they are told at all


def test_one_of_them_is_drawn_by_the_seed():
    env = minirts.parallel_env(told_to="one", num_agents=3, observe=["vector"])
    told = []
    for seed in range(40):
        for _ in range(2):
            _, infos = env.reset(seed=seed)
            told.append([agent for agent, info in infos.items() if info[PRIVATE]])
        assert told[-1] == told[-2] and len(told[-1]) == 1
    assert {names[0] for names in told} == {"alice", "bob", "carol"}


def shown(observed):
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in observed.items()}


def test_who_is_not_told_sees_nothing_of_the_secret_until_the_enemy_is_met():
    """Games with the same map that differ only in what the enemy trains, played by the same commands of ours."""
    parts = ["text", "vector", "planes", "lists"]
    envs = [
        minirts.parallel_env(**TOLD, opponent=f"medium:{name}", observe=parts)
        for name in ("SPEARMAN", "DRAGON", "ARCHER")
    ]
    compared = 0
    for seed in range(4):
        starts = [env.reset(seed=seed) for env in envs]
        observed = [start[0] for start in starts]
        assert len({start[1]["alice"][PRIVATE] for start in starts}) == 3
        rng = np.random.default_rng(seed)
        for _ in range(30):
            if any(env.team.enemies for env in envs):
                break
            assert all(shown(one["bob"]) == shown(observed[0]["bob"]) for one in observed)
            assert len({one["alice"]["text"] for one in observed}) == 3
            assert len({one["alice"]["vector"].tobytes() for one in observed}) == 3
            assert all(
                {k: v for k, v in shown(one["alice"]).items() if k not in ("text", "vector")}
                == {k: v for k, v in shown(observed[0]["alice"]).items() if k not in ("text", "vector")}
                for one in observed
            )
            compared += 1
            actions = {
                agent: int(rng.choice(np.flatnonzero(observed[0][agent]["action_mask"]))) for agent in envs[0].agents
            }
            observed = [env.step(actions)[0] for env in envs]
    assert compared >= 60


def test_brief_task_and_phrases_are_the_same_in_every_game():
    env = minirts.parallel_env(**TOLD)
    before = (env.brief, env.task)
    for seed in range(5):
        env.reset(seed=seed)
        assert (env.brief, env.task) == before
    assert "Only Alice is told what the enemy trains. Only Bob puts up and owns buildings" in env.brief
    assert "told" not in minirts.parallel_env().brief


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


def test_who_is_told_tells_in_every_wording_and_who_is_not_asks():
    env = minirts.parallel_env(**TOLD, opponent="medium2")
    for seed in range(10):
        _, infos = env.reset(seed=seed)
        told, asked = (say(env.executor, env.commands, commander) for commander in range(2))
        assert told == EnemySaying(tuple(k for k in ARMY if k in enemy_types(env.team))) and asked == EnemySaying(())
        said = {word(told, np.random.default_rng(k)) for k in range(30)}
        assert len(said) == 3
        for message in said:
            assert env.meaning(message) == infos["alice"][PRIVATE] and understand(message.upper() + ".") == told
            assert len(message.split()) <= 10 and all(same_request(message, other) for other in said)
        assert {word(asked, np.random.default_rng(k)) for k in range(20)} == {
            "what does the enemy train",
            "tell me what the enemy trains",
        }


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


def test_where_all_are_told_or_nobody_is_they_speak_of_their_tasks():
    for settings in ({}, {**TOLD, "told_to": "all"}):
        for env, _ in played(seed=0, decisions=40, **settings):
            for commander in range(2):
                assert isinstance(say(env.executor, env.commands, commander), CommanderSaying)


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


def test_where_nobody_misses_the_fact_such_a_teacher_speaks_as_others_do():
    teachers = (ScriptedTeacher(repeat_fact=True), ScriptedTeacher())
    for settings in ({}, {**TOLD, "told_to": "all"}):
        for env, _ in played(seed=0, decisions=10, **settings):
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
    with pytest.raises(UserError, match="`teacher.ask_to_wait` is 0.5"):
        make_teacher({"name": "scripted", "ask_to_wait": 0.5})
    with pytest.raises(UserError, match="`teacher.repeat_fact` is 'yes'"):
        make_teacher({**settings, "repeat_fact": "yes"})
    kitchen = overcooked_text.parallel_env()
    kitchen.reset(seed=0)
    with pytest.raises(UserError, match="`teacher.repeat_fact` is true but the scripted player of this game has no"):
        request = TeacherRequest(tuple(kitchen.agents), {}, state=teacher_state(kitchen))
        make_teacher(settings).messages(request, rng=np.random.default_rng(0))
    with pytest.raises(UserError, match="`teacher.ask_to_wait` is false but the scripted player of this game has no"):
        make_teacher({"name": "scripted", "ask_to_wait": False}).messages(request, rng=np.random.default_rng(0))


def test_advice_knows_the_types_for_every_commander():
    env = minirts.parallel_env(**TOLD, observe=["text"], max_tick=6400)
    wins = 0
    for seed in range(3):
        env.reset(seed=seed)
        while env.agents:
            _, _, _, _, infos = env.step({agent: advise(env, agent) for agent in env.agents})
        wins += infos["bob"][TASK_SUCCESS]
    assert wins == 3


# ---- what it is worth --------------------------------------------------------------------------------


def test_the_measures_find_the_fact_in_scripted_talk_and_its_answer_in_the_commands():
    """Half of the messages tell the fact, so half of its entropy is signalled; commands that counter it obey."""
    env = minirts.parallel_env(**TOLD, observe=["text"], max_tick=200)
    team, turns = ScriptedTeam(env), TurnRecorder()
    for seed in range(40):
        game = PlayedGame(env, seed, [turns])
        team.begin(seed)
        while not game.over:
            chosen = team.act(game.infos)
            decisions = {
                agent: Decision(
                    action=chosen[agent],
                    said=team.said[agent],
                    heard={other: said for other, said in team.said.items() if other != agent},
                    candidates=list(game.observations[agent]["candidates"]),
                    probabilities=np.eye(len(env.commands))[chosen[agent]],
                    value=0.0,
                    prompt="",
                )
                for agent in env.agents
            }
            game.step(decisions)
    figures = communication_figures(turns.turns, None, env.meaning, env.request)
    assert figures.signalling is not None and figures.signalling.corrected > 0.7
    assert figures.signalling.p_value < 0.05
    assert figures.obeyed > figures.obeyed_chance + 0.1
