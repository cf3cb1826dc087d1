"""Prompts: templates that are filled, the sets that are shipped, and what a template cannot be."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.prompts import (
    SHIPPED,
    SLOTS,
    TEACHER_TEMPLATES,
    PromptTemplates,
    action_prompt,
    critic_prompt,
    message_prompt,
    read_prompts,
)
from rllib_llm_comm.verco.settings import LanguageModelSettings


def test_messages_are_heard_in_order_and_empty_ones_left_out():
    prompt = action_prompt("i see.", {"bob": "bring {text} now.", "carol": " ", "dan": "wait"})
    assert prompt == "i see. bob says: bring {text} now. dan says: wait. next i"


def test_subgoal_and_roles():
    assert action_prompt("i see.", {}, "fetch\nkale") == "i see. my subgoal: fetch kale. next i"
    assert action_prompt("i see.", {}, "x" * 300) == f"i see. my subgoal: {'x' * 300}. next i"  # never cut
    assert message_prompt("i see.") == "i see. i say:"
    assert critic_prompt("i see.") == "i see. next i"


# What the shipped policies and all recordings were made with.
OLD = {
    "message": "{text}{subgoal} i say:",
    "action": "{text}{subgoal}{heard} next i",
    "critic": "{text}{subgoal} next i",
    "heard": " {speaker} says: {message}.",
    "subgoal": " my subgoal: {subgoal}.",
}


def test_the_default_is_what_it_was():
    assert read_prompts("default") == OLD == LanguageModelSettings().prompts
    assert LanguageModelSettings().to_dict()["prompts"] == OLD
    teacher = read_prompts("default", TEACHER_TEMPLATES)
    assert teacher["observation"] == "{agent} sees: {text}"
    digest = hashlib.sha256(teacher["teacher"].encode()).hexdigest()
    assert digest == "8cc61377d3865c0834be52b7bf49ec1765818987c7d762788a181f47c6a4af89"


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_set_passes_the_checks_and_differs(name):
    texts = read_prompts(name, SLOTS)
    assert read_prompts(texts, SLOTS) == texts
    assert [one for one in SHIPPED if read_prompts(one, SLOTS) == texts] == [name]
    templates = PromptTemplates(texts)
    prompt = templates.action("i see.", {"bob": "wait."}, "cook", ["wait", "chop", "wait"])
    for part in ("i see.", "bob", "wait", "my subgoal: cook."):
        assert part in prompt
    assert templates.lists_options == name.endswith("_options") == ("wait, chop" in prompt)
    assert not templates.message("i see.").cue.startswith((".", ","))


def test_the_papers_forms():
    twosome = PromptTemplates(read_prompts("twosome"))
    assert twosome.action("i see.") == "i see. to serve the dish, you should first"
    assert twosome.action("i see.").cue == " to serve the dish, you should first"
    question = read_prompts("verco", TEACHER_TEMPLATES)["teacher"]
    assert question.startswith("You are a message design assistant who needs to design messages for {count} agents")
    assert "design concise messages (within 10 words) for each agent to their teammate" in question


def test_the_cue_begins_the_models_answer():
    def cue(text):
        return PromptTemplates({**OLD, "action": text}).action("i see.", {"bob": "wait"}).cue

    assert cue("{text}{subgoal}{heard}. next i") == " next i"
    assert cue("{text}{subgoal}{heard}\nwhat do i do?\ni") == "\ni"
    assert cue("do what? {text}{subgoal}{heard}") == ""


def write(folder: Path, **texts: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_bytes(text.encode("utf-8"))
    return str(folder)


def test_a_folder_need_not_hold_all_and_may_come_from_any_editor(tmp_path):
    action, teacher = "\ufeffYou see: {text}{heard}\r\n{subgoal}Now I\r\n", "{observations}\n{form}"
    mine = write(tmp_path / "mine", action=action, teacher=teacher)
    assert read_prompts(mine) == {**OLD, "action": "You see: {text}{heard}\n{subgoal}Now I"}
    assert read_prompts(mine, TEACHER_TEMPLATES)["teacher"] == teacher
    prompt = PromptTemplates(read_prompts(mine)).action("{heard} {0.__class__}", {"bob": "{text}"})
    assert prompt == "You see: {heard} {0.__class__} bob says: {text}.\nNow I"  # values are data


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"action": "{text}{subgoal} next i"}, ["action", "{heard}"]),
        ({"action": "{heard}{subgoal} next i"}, ["action", "{text}"]),
        ({"critic": "{text}{subgoal}{heard} i"}, ["critic", "{heard}", "{text}, {subgoal}"]),
        ({"action": "{text}{subgoal}{heard}{text.__class__} i"}, ["action", "{text.__class__}"]),
        ({"action": "{text}{subgoal}{heard} {0} i"}, ["action", "{0}"]),
        ({"action": "{text!r}{subgoal}{heard} i"}, ["action", "{text!r}"]),
        ({"action": "{text}{subgoal}{heard} {{text}} i"}, ["action", "'{'"]),
        ({"message": "{text}{subgoal} {options} i say:"}, ["message", "{options}"]),
        ({"message": "{txt}{subgoal} i say:"}, ["message", "{txt}", "Did you mean 'text'?"]),
        ({"heard": " {speaker} speaks."}, ["heard", "{message}"]),
        ({"heard": " \n"}, ["heard", "leave it out"]),
        ({"subgoal": ""}, ["subgoal", "leave it out"]),
        ({"action": "{text}{subgoal}{heard} next i "}, ["action", "blank"]),
        ({"action": "{text}{subgoal}{heard}" + "x" * 30_000}, ["action", "20000"]),
        ({"action": "{text}{subgoal}{heard}" + "x" * 300_000}, ["action", "20000"]),
        ({"teacher": "{observations}"}, ["teacher", "{form}"]),
        ({"acton": "{text}"}, ["'acton'", "Did you mean 'action'?"]),
        ({}, ["no template"]),
    ],
    ids=lambda case: None if isinstance(case, list) else "-".join(case) or "none",
)
def test_what_a_template_cannot_be_is_told_in_one_sentence(tmp_path, texts, told):
    mine = write(tmp_path / "mine", **texts)
    given = [mine, texts] if len(str(texts)) < 100_000 else [mine]
    for prompts in given:
        with pytest.raises(UserError) as caught:
            LanguageModelSettings(prompts=prompts)
        assert all(part in str(caught.value) for part in ["`prompts`", *told]), caught.value
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "prompts", ["twosum", "", None, 3, ["default"], "s3://bucket/prompts", {"action": 3}, {3: "x"}]
)
def test_what_is_no_set_is_told(prompts):
    with pytest.raises(UserError, match="`prompts`"):
        LanguageModelSettings(prompts=prompts)


def test_files_that_are_no_templates_are_told(tmp_path):
    mine = write(tmp_path / "mine", action=OLD["action"])
    (tmp_path / "mine" / "notes.md").write_text("mine")
    with pytest.raises(UserError, match=r"'notes.md', which is no template"):
        read_prompts(mine)
    (tmp_path / "mine" / "notes.md").unlink()
    (tmp_path / "mine" / ".hidden").write_text("of an editor")
    (tmp_path / "mine" / "heard.txt").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(UserError, match=r"'heard.txt', which cannot be read"):
        read_prompts(mine)
    (tmp_path / "mine" / "heard.txt").unlink()
    (tmp_path / "mine" / "heard.txt").mkdir()
    with pytest.raises(UserError, match=r"'heard.txt', which cannot be read"):
        read_prompts(mine)
