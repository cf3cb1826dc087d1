"""Temperature and normalisation from the untrained policy: figures, search, games, settings of a file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.evaluation.calibration import calibrate, find_temperature, openness, random_moments
from rllib_llm_comm.experiments.calibration_run import read_settings
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.scoring import MASKED, score_texts

DOOR = "rllib_llm_comm/door-v0"
EXAMPLES = Path(__file__).parents[2] / "tuned_examples"


def test_figures_of_two_candidates():
    scores, mask = np.array([[math.log(3), 0.0, MASKED], [0.0, 0.0, 0.0]]), np.array([[1, 1, 0], [1, 1, 1]])
    found = openness(scores, mask, "sum", 1.0)
    uneven = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2)
    assert found.entropy == pytest.approx((uneven + 1) / 2)
    assert found.best == pytest.approx((0.75 + 1 / 3) / 2)
    assert found.decided == 0.0
    assert openness(scores, mask, "sum", 0.1).decided == 0.5  # 3**10 to 1


@given(
    st.lists(st.lists(st.floats(-50, 0), min_size=2, max_size=6), min_size=2, max_size=8), st.floats(0.2, 0.95)
)  # fmt: skip
def test_the_temperature_that_is_found_gives_the_entropy(rows, aim):
    wide = max(map(len, rows))
    mask = np.array([[1] * len(row) + [0] * (wide - len(row)) for row in rows])
    scores = np.array([[*row, *[MASKED] * (wide - len(row))] for row in rows])
    found = find_temperature(scores, mask, aim)
    if openness(scores, mask, "", 1e-4).entropy >= aim:
        assert found == 1.0
    else:
        assert openness(scores, mask, "", found * 0.9).entropy <= aim + 1e-9
        assert openness(scores, mask, "", found * 1.1).entropy >= aim - 1e-9


def test_equal_scores_have_no_temperature():
    assert find_temperature(np.zeros((3, 4)), np.ones((3, 4)), 0.5) == 1.0


def test_texts_are_scored_as_if_alone():
    model = AdaptedModel(load_base_model())
    asks = [
        ("i see a tomato. next i", ("wait", "get the tomato"), (1, 1)),
        ("i hold a bowl. next i", ("wait", "chop", "get the tomato"), (1, 0, 1)),
    ]
    for normalization in ("sum", "token", "word"):
        both = score_texts(model, asks, normalization=normalization, role=None)
        assert both.shape == (2, 3) and both[0, 2] == MASKED and both[1, 1] == MASKED
        for row, ask in enumerate(asks):
            alone = score_texts(model, [ask], normalization=normalization, role=None)[0]
            torch.testing.assert_close(both[row, : len(alone)], alone, atol=1e-4, rtol=1e-4)


def test_a_game_is_calibrated_the_same_way_twice():
    base = load_base_model()
    first, again = (calibrate(base, make_env(DOOR), 30, entropy=0.6, seed=3, present=("word", 2.0)) for _ in range(2))
    assert first == again and first.decisions == 30
    assert [row.normalization for row in first.chosen] == ["sum", "token", "word"]
    assert all(abs(row.entropy - 0.6) < 0.03 for row in first.chosen)
    assert first.present is not None and (first.present.normalization, first.present.temperature) == ("word", 2.0)
    assert first.advice.decided == min(row.decided for row in first.chosen)


def test_only_decisions_with_a_choice_count():
    views = [moment.view for moment in random_moments(make_env(DOOR), 20, seed=0)]
    assert len(views) == 20 and all(sum(view.mask) > 1 for view in views)


def test_games_without_words_or_choice_are_refused():
    base = load_base_model()
    numbers = make_env("rllib_llm_comm/frozen_lake-v0", observe=["vector"])
    with pytest.raises(UserError, match="not in words"):
        calibrate(base, numbers, 5)
    with pytest.raises(UserError, match="`--entropy` is 1"):
        calibrate(base, make_env(DOOR), 5, entropy=1.0)

    class Rail:
        """One agent, one way."""

        agents = ["alice"]

        def reset(self, seed=None):
            return {"alice": {"text": "i go.", "candidates": ("on",)}}, {}

        def step(self, actions):
            return self.reset()[0], {}, {}, {}, {}

    with pytest.raises(UserError, match="too little to choose"):
        calibrate(base, Rail(), 5)


def test_settings_come_from_the_file_and_options_stand_above():
    found = read_settings(EXAMPLES / "verco.yaml")
    assert found.env == "rllib_llm_comm/overcooked_text-v0" and found.env_config["map_name"] == "B"
    assert found.base_model == "embedded" and found.present == ("sum", 1.5)
    assert read_settings(EXAMPLES / "verco_door.yaml").env == DOOR  # two stages of the same game, model and scores
    other = read_settings(EXAMPLES / "verco.yaml", base_model="mine", env=DOOR)
    assert (other.base_model, other.env, other.env_config) == ("mine", DOOR, {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"file": None}, "no game is named"),
        ({"file": EXAMPLES / "verco.yaml", "stage": "verko"}, "`--stage` is 'verko'.*verco"),
        ({"file": EXAMPLES / "mappo.yaml"}, "has 0 different stages"),
    ],
)
def test_what_is_missing_is_told(arguments, message):
    with pytest.raises(UserError, match=message):
        read_settings(**arguments)
