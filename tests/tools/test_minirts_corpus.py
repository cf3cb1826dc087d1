"""The corpus of the embedded model that commands in MiniRTS, and that model's words."""

import re
from collections import Counter

import pytest

from rllib_llm_comm.envs import minirts
from rllib_llm_comm.envs.minirts.checker import duel_ticks
from rllib_llm_comm.envs.minirts.commanders import strategy
from rllib_llm_comm.envs.minirts.engine.units import ARMY, CAVALRY, COUNTER, MADE_BY
from rllib_llm_comm.envs.minirts.sayings import EnemySaying, understand
from rllib_llm_comm.envs.minirts.words import BUILD, PLURAL, SINGULAR, Command, parse_command
from rllib_llm_comm.language.base_model import EMBEDDED_MINIRTS, load_base_model
from tools.embedded_model.minirts_corpus import documents
from tools.embedded_model.minirts_states import HELD_OUT, _plans

HEARD = re.compile(r" (?:alice|bob|carol) says: ([^.]*)\.")
GAMES = ("next command", "talk", "message")


@pytest.fixture(scope="module")
def corpus():
    return list(documents(1200, 7))


def test_nobody_speaks_of_the_held_out_types_in_a_game(corpus):
    names = {name for kind in HELD_OUT for name in (SINGULAR[kind], PLURAL[kind])}
    assert names == {"archer", "archers", "dragon", "dragons"}
    said = [" ".join(HEARD.findall(d.prompt)) for d in corpus if d.kind in GAMES]
    said += [d.answer for d in corpus if d.kind == "message"]
    assert sum(map(len, said)) > 1000
    assert not names & set(" ".join(said).split())
    questions = " ".join(f"{d.prompt} {d.answer}" for d in corpus if d.kind == "question")
    assert all(name in questions for name in names)


def test_answers_are_commands_and_sayings_of_the_game(corpus):
    for document in corpus:
        if document.kind in ("next command", "talk"):
            assert document.prompt.endswith(" next i") and parse_command(document.answer), document
        if document.kind == "message":
            assert document.prompt.endswith(" i say:") and understand(document.answer), document


def test_all_kinds_of_commands_come_and_none_drowns_the_others(corpus):
    commands = [parse_command(d.answer) for d in corpus if d.kind == "next command"]
    kinds = Counter((command.verb, command.kind) for command in commands)
    assert len(kinds) >= 15  # of 18; a small corpus is of few games
    assert max(kinds.values()) < 0.3 * len(commands)  # "wait" is far more than half of what is said in games


def test_what_is_told_is_answered_by_what_beats_it(corpus):
    answered = Counter()
    for document in corpus:
        told = [understand(words) for words in HEARD.findall(document.prompt) if document.kind == "talk"]
        types = [kind for saying in told if isinstance(saying, EnemySaying) for kind in saying.types]
        command = parse_command(document.answer)
        if types and command.verb == "train" and command.kind in COUNTER:
            answered[command.kind in {COUNTER[kind] for kind in types}] += 1
    assert answered[True] > 5 * answered[False] and answered[True] >= 20


def test_plans_do_not_depend_on_what_the_enemy_trains():
    """Those of the oracle do: it builds what beats the enemy."""
    planned, oracle = set(), set()
    for enemy in ("SPEARMAN", "SWORDMAN", "CAVALRY", "ARCHER", "DRAGON"):
        env = minirts.parallel_env(opponent=f"medium:{enemy}", observe=["text"])
        env.reset(seed=0)
        for _ in range(6):
            for commander, plan in enumerate(_plans(env, CAVALRY)):
                planned.add((env.game.tick, commander, plan))
                oracle.add((env.game.tick, commander, strategy(env.executor, commander, env.commands)))
                env.executor.command(commander, plan)
            env.advance(env.executor.give_orders())
    assert len(planned) == 12 < len(oracle)
    assert Command(BUILD, int(MADE_BY[CAVALRY]), 1) in {plan for _, _, plan in planned}


def test_answers_to_questions_on_strength_are_the_engines(corpus):
    asked = [d for d in corpus if d.prompt.startswith("which is stronger")]
    kinds = {name: kind for kind, name in enumerate(PLURAL)}
    assert asked
    for document in asked:
        pair = [kinds[name] for name in document.prompt.removesuffix("?").split(", ")[1].split(" or ")]
        (weak,) = [kind for kind in pair if PLURAL[kind] != document.answer]
        assert duel_ticks(kinds[document.answer], weak) <= duel_ticks(weak, kinds[document.answer])


def test_the_shipped_model_has_a_token_for_each_army_type():
    tokenizer = load_base_model(EMBEDDED_MINIRTS).tokenizer
    for name in [PLURAL[army] for army in ARMY]:
        assert len(tokenizer(f" {name}", add_special_tokens=False)["input_ids"]) == 1
