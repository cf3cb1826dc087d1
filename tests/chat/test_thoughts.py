"""Thoughts of chat models are no part of their answers, whatever marks stand between the two."""

from __future__ import annotations

import json
import time

import pytest
from chat_server import ChatServer, client
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rllib_llm_comm.chat.answers import AnswerError, UnusableError, ask_for, parse_batch, read_answer, read_yes_no
from rllib_llm_comm.chat.thoughts import without_thoughts
from rllib_llm_comm.evaluation.chat_player import parse_choice
from rllib_llm_comm.verco.teachers.chat_teacher import parse_messages

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>"
# As servers hand them on that do not know the model: thoughts, then the answer.
FORMS = {
    "on lines": "<think>\n{}\n</think>\n\n{}", "only closed": "{}\n</think>\n{}", "closed at once": "{}</think>{}",
    "thinking": "<thinking>{}</thinking>{}", "capitals": "<Thought>{}</Thought>\n<Output>{}</Output>",
    "nested": "<thinking>hm<reflection>{}</reflection>so</thinking><output>{}</output>",
    "twice": "<think><think>{}</think>{}",
    "namespace": "<seed:think>{}<seed:cot_budget_reflect>2</seed:cot_budget_reflect>.</seed:think>{}",
    "prefix": "<longcat_think>{}</longcat_think>{}", "suffix": "<think_fast>{}</think_fast>\n{}",
    "attribute": '<think time="3">{}</think>{}', "analysis": "<analysis>{}</analysis>\n{}",
    "open webui": '<details type="reasoning" done="true">\n<summary>Thought</summary>\n{}\n</details>\n{}',
    "glm": "<think>{}</think>\n{}<|user|>", "llama": "<think>{}</think>{}<|eot_id|>",
    "qwen": "<think>{}</think>{}<|im_end|><|endoftext|>", "phi": "<think>{}</think>{}<|end|>",
    "kimi": "◁think▷{}◁/think▷{}",
    "kimi 3": "<|open|>think<|sep|>{}<|close|>think<|sep|><|open|>response<|sep|>{}<|close|>response<|sep|>",
    "openthinker": "<|begin_of_thought|>{}<|end_of_thought|>\n<|begin_of_solution|>{}<|end_of_solution|>",
    "tokens": "<|begin_of_thinking|>{}<|end_of_thinking|>{}",
    "tokens the other way": "<|reasoning_start|>{}<|reasoning_end|>{}",
    "wide tokens": "<｜begin▁of▁thinking｜>{}<｜end▁of▁thinking｜>{}", "start and end": "<start_think>{}<end_think>{}",
    "process": "<thinking_process>{}</thinking_process>{}", "apertus": "<|inner_prefix|>{}<|inner_suffix|>{}",
    "gemma": "<|channel>thought\n{}<channel|>{}<turn|>", "medgemma": "<unused94>thought\n{}<unused95>{}",
    "solar": "<|think|>{}<|end|><|begin|>assistant<|content|>{}<|end|>",
    "inkling": "<|content_thinking|>{}<|end_message|><|message_model|><|content_text|>{}<|end_message|>",
    "gpt-oss": HARMONY + "final<|message|>{}<|return|>",
    "gpt-oss, json": HARMONY + "final <|constrain|>json<|message|>{}",
    "gpt-oss, on the way": HARMONY + "commentary<|message|>I go.<|end|><|start|>assistant<|channel|>final<|message|>{}",
    "gpt-oss, no marks": "analysisWell. {}assistantfinal{}",
    "granite": "Here is my thought process:\n{}\n\nHere is my response:\n{}",
    "apriel": "Here are my reasoning steps:\n{}\n[BEGIN FINAL RESPONSE]\n{}\n[END FINAL RESPONSE]",
    "rationale": "<rationale>{}</rationale>\n{}", "one word": "<antThinking>{}</antThinking>{}",
    "mistral": "[THINK]{}[/THINK]{}</s>", "gemma 3": "<thought>{}</thought>{}<end_of_turn>",
    "deepseek": "<think>{}</think>{}<｜end▁of▁sentence｜>", "exaone": "<thought>\n{}\n</thought>\n\n{}[|endofturn|]",
    "command": "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
    "hunyuan": "<think>{}</think>\n<answer>\n{}\n</answer><|hy_eos|>",
    "first and between": "<think>{}</think><think>go on</think>{}",
}  # fmt: skip
OPENED = sorted(set(FORMS) - {"only closed", "closed at once", "granite", "apriel"})
MARKS = ["<think>", "</think>", "<thinking>", "[THINK]", "[/THINK]", "<|channel|>analysis<|message|>", "<|end|>",
         "<|channel>thought", "<channel|>", "◁/think▷", "</seed:think>", "<|START_RESPONSE|>"]  # fmt: skip
PHRASES = ["wait", "go to the counter", "chop the tomato"]
# Texts of everything but marks; much in them looks like some.
PIECES = [
    "think", "Thinking: ", "analysis of", "final", "<b>", "a < b > c", "[thinking] ", "[1] ", "|", "\n", " ", '"', "{",
    "}", "`", "'", "```\n", "</", "<|", "|>", "assistant", "</thin", "yes", "thoughts", "◁",
]  # fmt: skip
plain = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


class Plan(BaseModel):
    goal: str


def form_of(name: str, thoughts: str, answer: str) -> str:
    before, middle, after = FORMS[name].split("{}")
    return f"{before}{thoughts}{middle}{answer}{after}"


@pytest.mark.parametrize("name", FORMS)
def test_every_reader_reads_behind_the_thoughts(name):
    def wrapped(thoughts: str, answer: str) -> str:
        return form_of(name, thoughts, answer)

    assert read_answer(wrapped('Maybe {"goal": "burn it"}? No.', '{"goal": "serve"}'), Plan).goal == "serve"
    assert read_yes_no(wrapped("yes, it could be... wait.", "No")) is False
    assert parse_messages(wrapped("alice: burn it? no.\n", "alice: bring the tomato"), ["alice"]) == {
        "alice": "bring the tomato"
    }
    assert parse_choice(wrapped("wait\nchop the tomato\n" * 300, "go to the counter"), PHRASES) == (1, "exact")
    assert parse_batch(wrapped("[1] hm\n[2] so\n", "\n[1] one\n[2] two"), 2) == ["one", "two"]


@pytest.mark.parametrize("name", OPENED)
@pytest.mark.parametrize("part", [0.5, 1])
def test_an_answer_cut_off_within_its_thoughts_is_none(name, part):
    draft = '{"goal": "burn it"} alice: burn it\nchop the tomato\n'
    begun = FORMS[name].split("{}")[0] + "Well. " + draft[: int(part * len(draft))]
    assert without_thoughts(begun) == ""
    assert read_yes_no(begun + "yes") is None and parse_messages(begun, ["alice"]) == {}
    assert parse_choice(begun, PHRASES) == (0, "fallback")
    with pytest.raises(UnusableError):
        read_answer(begun, Plan)


def test_thoughts_without_an_answer_are_asked_again_and_told():
    with ChatServer('<think>{"goal": "burn it"}', '[THINK]so[/THINK]{"goal": "serve"}') as server:
        assert ask_for(client(server), "Plan!", Plan).goal == "serve" and len(server.requests) == 2
        again = server.requests[1]["messages"][-1]["content"]
    assert "thoughts" in again and "burn it" not in again
    with ChatServer('{"goal": "burn it"}</think>') as server, pytest.raises(AnswerError, match="thoughts"):
        ask_for(client(server), "Plan!", Plan)


@given(plain, plain, st.sampled_from(sorted(FORMS)))
def test_what_stands_behind_thoughts_survives(thoughts, answer, name):
    # A quotation mark or fence of the one may make a pair with one of the other.
    for mark in "\"'`“‘«{":
        thoughts = thoughts.replace(mark, "")
    told = without_thoughts(answer)
    assert without_thoughts(form_of(name, f"so {thoughts} so", answer)) == told


@given(plain)
def test_a_text_without_marks_is_left_as_it_is(text):
    assert without_thoughts(text) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "[REASONING] it burns. [ANSWER] yes", "Here is my thought process:\n1. it burns\nSo: yes", "the <s>old</s>",
        "<answer>yes</answer> or <answer>no</answer>", "a <b>think</b> <thinker> b", "analysisparalysis is no word",
        "<details><summary>why</summary>it burns</details>\nyes",
    ],
)  # fmt: skip
def test_headings_and_other_tags_are_no_marks(text):
    assert without_thoughts(text) == text


@given(plain, plain, st.sampled_from(MARKS), st.sampled_from(sorted(FORMS)))
def test_marks_in_json_are_quoted(before, after, mark, name):
    document = json.dumps({"goal": f"{before}{mark}{after}"}, ensure_ascii=False)
    assert without_thoughts(document) == document
    assert read_answer(form_of(name, "hm", document), Plan).goal == f"{before}{mark}{after}"


@given(st.sampled_from(MARKS), st.sampled_from(['say "{}" now', "`{}` is a mark", "ends with ('{}')", "it's “{}”.",
                                                "```python\nif text.startswith(f'{}'):\n    pass\n```",
                                                "```\n# from {} on\n```"]))  # fmt: skip
def test_quoted_marks_are_left_as_they_are(mark, sentence):
    text = sentence.replace("{}", mark)
    assert without_thoughts(text) == text
    assert without_thoughts(f"<think>hm</think>\n{text}") == text


def test_code_with_a_pair_of_marks_is_left_as_it_is():
    code = "```\n<think>\nhm\n</think>\n```"
    assert without_thoughts(f"So it looks:\n{code}") == f"So it looks:\n{code}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("```\nburn()\n</think>\n```\nserve()\n```", "```\nserve()\n```"),  # left open within the thoughts
        ("```json\n{}\n</think>\n```json\n[1]\n```", "```json\n[1]\n```"),
        ('I say "bring it"</think>"go to it"', '"go to it"'),
        ('{"goal": "burn </think>{"goal": "serve"}', '{"goal": "serve"}'),
    ],
)
def test_what_is_left_open_within_thoughts_does_not_hide_their_end(text, answer):
    assert without_thoughts(text) == answer


@given(
    st.lists(st.sampled_from([*MARKS, *PIECES, "<answer>", "</answer>", "analysisWe", "assistantfinal"]), max_size=14)
)
def test_once_is_enough(pieces):
    once = without_thoughts("".join(pieces))
    assert without_thoughts(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "<think>" * 5000, " " * 40_000 + "<|end|>", '{"a":' * 2000 + "</think>", "`\n" * 20_000, "<|end|>" * 5000 + "x",
        "<" + "think_" * 5000, "<think_" * 5000, "<answer>" * 4000, "<|end|>" * 5000, "<think>a</think>" * 2000,
        "```\n" * 8000 + "<think>", "<think a=" * 4000,
    ],
)  # fmt: skip
def test_long_answers_take_no_time(text):
    begun = time.process_time()
    without_thoughts(text)
    assert time.process_time() - begun < 2
