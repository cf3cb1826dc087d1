from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.envs.overcooked_text.cooks import choose, say
from rllib_llm_comm.envs.overcooked_text.sayings import understand
from tools.embedded_model.corpus import documents
from tools.embedded_model.kitchens import FOODS, HELD_OUT_FOODS, options, random_view
from tools.embedded_model.probe import probe
from tools.embedded_model.train import main


def test_the_games_foods_occur_in_no_kitchen():
    assert not set(FOODS) & set(HELD_OUT_FOODS)
    corpus = list(documents(3000, 7))
    kitchens = " ".join(d.prompt + d.answer for d in corpus if d.kind in ("next step", "request", "message"))
    others = " ".join(d.prompt + d.answer for d in corpus if d.kind in ("recipe", "question", "dialogue"))
    for food in HELD_OUT_FOODS:
        assert food not in kitchens
        assert food in others


def test_the_corpus_is_fixed_by_its_seed():
    assert list(documents(50, 3)) == list(documents(50, 3))
    assert list(documents(50, 3)) != list(documents(50, 4))


@given(st.integers(0, 10**6))
def test_the_cook_has_an_answer_in_every_kitchen(seed):
    view = random_view(np.random.default_rng(seed))
    possible = options(view)
    assert possible[0].kind == "wait"
    assert 0 <= choose(view, possible) < len(possible)
    assert say(view).kind in {"bring", "carry", "chop", "fill", "serve", "wait"}


def test_one_command_makes_a_model(tmp_path):
    main(
        [
            "--output",
            str(tmp_path / "m"),
            "--documents",
            "200",
            "--epochs",
            "1",
            "--hidden",
            "16",
            "--layers",
            "1",
        ]
        + ["--vocab", "400"]
    )
    report = json.loads((tmp_path / "m" / "pretraining.json").read_text())
    assert report["parameters"] > 0 and 0 <= report["probe"]["follow_seen"] <= 1
    assert (tmp_path / "m" / "model.safetensors").is_file()


def test_the_shipped_model_follows_messages():
    """The figures of README, measured anew on questions that were in no corpus."""
    from rllib_llm_comm.language.base_model import embedded_model_path

    shipped = json.loads((embedded_model_path() / "pretraining.json").read_text())["probe"]
    measured = probe("embedded", questions=100)
    for key, value in measured.items():
        assert value == pytest.approx(shipped[key], abs=0.12), key
    assert measured["follow_held_out"] >= 0.5


def test_messages_are_understood_in_every_wording():
    from rllib_llm_comm.envs.overcooked_text.sayings import WORDINGS, Saying

    for kind, wordings in WORDINGS.items():
        for wording in wordings:
            name = "onion tomato salad" if kind == "order" else "tomato"
            thing = name if "{thing}" in wording else ""
            assert understand(wording.format(thing=name).upper() + ".") == Saying(kind, thing)
    assert understand("what a lovely kitchen") is None
