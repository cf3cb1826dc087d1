"""The manual of a game: made by a server that plays a model by rules, and played back."""

from __future__ import annotations

import json
import os
import re
from collections import Counter

import pytest
from chat_server import ChatServer, client
from manual_reader import MANUAL, PAPER, reader

from rllib_llm_comm.chat.answers import AnswerError
from rllib_llm_comm.chat.cassettes import Cassette, MissingAnswerError, open_chat
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.manuals.latex import Paragraph, find_paper, papers, read_latex, split_latex
from rllib_llm_comm.sama.manuals.manual import (
    ManualSettings,
    collect_facts,
    find_manual,
    make_manual,
    questions,
    read_manual,
    relevant_paragraphs,
    summary,
    without_repetitions,
)
from tools.record_cassettes import recorded

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def test_a_manual_is_made_of_what_is_relevant(tmp_path):
    paragraphs = split_latex(read_latex(PAPER))
    with ChatServer(reader) as server:
        manual = make_manual(client(server), paragraphs, ManualSettings(batch=3, words=100))
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert len(paragraphs) == 5 and manual.relevant == [1, 2, 3] and manual.text == MANUAL
    first, *others = manual.facts.values()
    assert first == [
        "In Soup World two cooks make onion soup",
        "A pot needs three onions and then cooks for twenty steps.",
        "onion soup | 20",
        "What a cook earns with each soup.",
        "The cook who holds a dish can take a ready soup out of the pot.",
    ]
    assert others == [[], [], []] and manual.repeated == 1
    assert manual.cost.requests == len(prompts) and manual.to_json()["cost"]["requests"] == len(prompts)
    # Two batches and one for the two left; four questions in one batch each; repetitions; the manual.
    assert len(prompts) == 2 + 1 + 4 + 1 + 1
    assert "at most 100 words" in prompts[-1] and "learning rate" not in "".join(prompts[3:])


def test_a_second_question_is_asked_only_of_what_is_not_yet_relevant_and_doubt_keeps():
    said = {"one": "yes", "two": "no", "three": "hard to say"}
    with ChatServer(lambda prompt: said[prompt.split()[-1]]) as server:
        doubts: Counter[str] = Counter()
        found = relevant_paragraphs(client(server), [Paragraph("", name) for name in said], 1, doubts)
        assert found == [0, 2] and len(server.requests) == 4 and doubts == {"undecided": 1}


def test_each_wording_of_a_fact_is_kept_once():
    with ChatServer("1. Pots cook.\n2) pots  cook\n* Onions burn!\n\nnone") as server:
        facts = collect_facts(client(server), [Paragraph("S", "x")])
        assert "(from the section 'S') x" in server.requests[0]["messages"][-1]["content"]
    assert list(facts) == questions("manual_game_questions")
    assert list(facts.values()) == [["Pots cook.", "Onions burn!"], [], [], []]


@pytest.mark.parametrize("reply", ['{"repeated": [3]}', '{"repeated": [0]}', '{"repeated": [1, 2]}', "the second"])
def test_no_fact_is_lost_by_a_wrong_answer(reply):
    facts = {"q": ["a", "b"]}
    with ChatServer(reply) as server:
        doubts: Counter[str] = Counter()
        assert without_repetitions(client(server), facts, doubts) == facts and len(server.requests) == 2
        assert doubts == {"unsorted": 1}


def test_many_facts_are_compared_in_parts_and_across_them():
    facts = {"q": [f"fact {k}" for k in range(150)], "r": ["fact 149 again", "last"]}

    def drop(prompt: str) -> str:
        found = re.findall(r"^(\d+)\. (.*)$", prompt, re.MULTILINE)
        again = "fact 149 again" if "fact 149" in [fact for _, fact in found] else ""
        return json.dumps({"repeated": [int(k) for k, fact in found if fact.endswith("7") or fact == again]})

    with ChatServer(drop) as server:
        kept = without_repetitions(client(server), facts)
        assert 3 <= len(server.requests) <= 6
    assert kept == {"q": [fact for fact in facts["q"] if not fact.endswith("7")], "r": ["last"]}


def test_a_manual_that_is_too_long_or_empty_is_asked_for_again():
    with ChatServer("word " * 50, "<think>hm</think>", "word " * 50, "Short.") as server:
        with pytest.raises(AnswerError, match="no usable manual in two tries: it holds thoughts"):
            summary(client(server), ["a fact"], words=20)
        assert summary(client(server), ["a fact"], words=20) == "Short."
        assert "- it has 50 words but may have 20" in server.requests[3]["messages"][-1]["content"]


def test_papers_that_tell_nothing_are_told():
    paragraphs = [Paragraph("", "We train.")]
    with ChatServer("no") as server, pytest.raises(UserError, match="None of the 1 paragraphs"):
        make_manual(client(server), paragraphs)
    none = ChatServer(lambda prompt: "yes" if "yes or no" in prompt else "None.")
    with none as server, pytest.raises(UserError, match="found no facts"):
        make_manual(client(server), paragraphs)


def test_a_recording_makes_the_same_manual_with_any_batch(tmp_path):
    paragraphs = split_latex(read_latex(PAPER))
    path = tmp_path / "tape.jsonl"
    with ChatServer(reader) as server:
        settings = server.settings(max_tokens=2000)
        first = make_manual(open_chat({**settings, "cassette": str(path)}), paragraphs)
    second = make_manual(Cassette(path), paragraphs, ManualSettings(batch=2))
    assert (second.text, second.facts) == (first.text, first.facts) and second.cost.requests == 0
    with pytest.raises(MissingAnswerError):
        make_manual(Cassette(path), paragraphs, ManualSettings(words=300))


@pytest.mark.parametrize("game", papers())
def test_our_manuals_are_what_was_recorded(game):
    tape = Cassette(recorded(f"manual_{game}"))
    manual = find_manual(game)
    made = make_manual(tape, split_latex(read_latex(find_paper(game))))
    assert made.text == read_manual(manual) and tape.counters.requests == 0
    assert tape.header["note"].startswith("Recorded by `rllib manual") or "written by hand" in tape.header["note"]
    assert read_manual(game) == made.text  # by its name
    assert tape.header["note"] in " ".join(manual.read_text().split("\n"))


def test_a_pipe_in_place_of_a_manual_is_told_as_such(tmp_path):
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(UserError, match="`manual` is '.*pipe.md', .*no ordinary file"):
        read_manual(tmp_path / "pipe.md")
