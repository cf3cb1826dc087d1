"""What the embedded models read, the command that makes them, and what the shipped ones can do."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.overcooked_text.cooks import WORDINGS, Saying, choose, say, understand
from rllib_llm_comm.language.base_model import embedded_model_path
from tools.embedded_model import minirts_corpus, soup_corpus
from tools.embedded_model.corpus import documents
from tools.embedded_model.kitchens import FOODS, HELD_OUT_FOODS, options, random_view
from tools.embedded_model.train import CORPORA, main


def test_the_games_foods_occur_in_no_kitchen():
    assert not set(FOODS) & set(HELD_OUT_FOODS)
    corpus = list(documents(1000, 7))
    kitchens = " ".join(d.prompt + d.answer for d in corpus if d.kind in ("next step", "request", "message"))
    others = " ".join(d.prompt + d.answer for d in corpus if d.kind in ("recipe", "question", "dialogue"))
    for food in HELD_OUT_FOODS:
        assert food not in kitchens
        assert food in others


@given(st.integers(0, 10**6))
def test_the_cook_has_an_answer_in_every_kitchen(seed):
    view = random_view(np.random.default_rng(seed))
    possible = options(view)
    assert possible[0].kind == "wait"
    assert 0 <= choose(view, possible) < len(possible)
    assert say(view).kind in {"bring", "carry", "chop", "fill", "serve", "wait"}


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_is_fixed_by_its_seed(name, monkeypatch):
    for games in (minirts_corpus, soup_corpus):
        monkeypatch.setattr(games, "_LEAST_MOMENTS", 100)
    read = CORPORA[name].read
    assert read(5, 3) == read(5, 3) != read(5, 4)


def test_one_command_makes_a_model(tmp_path):
    small = ["--documents", "200", "--epochs", "1", "--hidden", "16", "--layers", "1", "--questions", "5"]
    main(["--corpus", "soup", "--output", str(tmp_path / "m"), *small])
    report = json.loads((tmp_path / "m" / "pretraining.json").read_text())
    assert report["settings"]["corpus"] == "soup" and report["settings"]["vocab"] == CORPORA["soup"].vocab
    assert report["parameters"] > 0 and all(0 <= share <= 1 for share in report["probe"].values())
    assert (tmp_path / "m" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("name", "questions", "apart"), [("kitchen", 100, 0.12), ("minirts", 40, 0.16), ("soup", 80, 0.16)]
)
def test_shipped_models_do_what_the_docs_say(name, questions, apart):
    """Their figures, measured anew on fewer questions, which were in no corpus."""
    corpus = CORPORA[name]
    shipped = json.loads((embedded_model_path(corpus.model) / "pretraining.json").read_text())["probe"]
    measured = load(corpus.probed_by)(corpus.model, questions)
    assert measured == pytest.approx(shipped, abs=apart)
    if name == "soup":
        assert measured["act"] > 2 * measured["act_by_chance"] and measured["act_kind"] > measured["act"]
    else:
        assert measured["follow_held_out"] >= 0.5 and measured.get("act", 1) > measured.get("act_by_chance", 0)


def test_messages_are_understood_in_every_wording():
    for kind, wordings in WORDINGS.items():
        for wording in wordings:
            name = "onion tomato salad" if kind == "order" else "tomato"
            thing = name if "{thing}" in wording else ""
            assert understand(wording.format(thing=name).upper() + ".") == Saying(kind, thing)
    assert understand("what a lovely kitchen") is None
