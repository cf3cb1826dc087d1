"""Temperature and normalisation from the untrained policy: figures, search, games, settings of a file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st
from pettingzoo import ParallelEnv

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import is_understood, make_env
from rllib_llm_comm.envs.interface import text_spaces
from rllib_llm_comm.evaluation.calibration import calibrate, find_temperature, openness, random_moments
from rllib_llm_comm.experiments.calibration_run import CalibrationOptions, read_settings
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.prompts import DEFAULT_TEMPLATES, PromptTemplates, read_prompts
from rllib_llm_comm.language.scoring import MASKED, score_texts
from tests.refusal import refused

KITCHEN = "rllib_llm_comm/overcooked_text-v0"
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


ROWS = st.lists(st.lists(st.floats(-50, 0), min_size=2, max_size=6), min_size=2, max_size=8)


@given(ROWS, st.floats(0.2, 0.95))
@example([[0.0] * 4] * 3, 0.5)  # equal scores have no temperature
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


def test_a_game_is_calibrated_the_same_way_twice_by_decisions_with_a_choice_alone():
    base = load_base_model()
    first, again = (calibrate(base, make_env(DOOR), 30, entropy=0.6, seed=3, present=("word", 2.0)) for _ in range(2))
    assert first == again and first.decisions == 30
    assert [row.normalization for row in first.chosen] == ["sum", "token", "word"]
    assert all(abs(row.entropy - 0.6) < 0.03 for row in first.chosen)
    assert first.present is not None and (first.present.normalization, first.present.temperature) == ("word", 2.0)
    assert first.advice.decided == min(row.decided for row in first.chosen)
    views = [moment.view for moment in random_moments(make_env(DOOR), 20, seed=0)]
    assert len(views) == 20 and all(sum(view.mask) > 1 for view in views)


MINE = {"action": "{text}{subgoal}{heard} of {options} i"}
TOLD = {"map_name": "B", "recipe": ["tomato salad", "lettuce salad"], "told_to": ["alice"]}
MOMENTS = 12


@pytest.mark.parametrize("normalization", ["token", "word"])
def test_sets_of_prompts_are_compared_in_silence_and_with_messages_heard(normalization):
    base, sets = load_base_model(), {"default": DEFAULT_TEMPLATES, "mine": PromptTemplates(read_prompts(MINE))}
    told = []
    how = {"seed": 1, "present": (normalization, 0.7), "prompts": sets, "progress": lambda *counts: told.append(counts)}
    found = calibrate(base, make_env(KITCHEN, **TOLD), MOMENTS, **how)
    assert told == [(MOMENTS * (n + 1), MOMENTS * 6) for n in range(6)]  # a score that is known is not made again
    assert [(row.prompts, row.heard) for row in found.compared] == [
        ("default", False), ("default", True), ("mine", False), ("mine", True)
    ]  # fmt: skip
    assert found.compared[0].openness == found.present
    assert len({row.openness.entropy for row in found.compared}) == 4
    moments = random_moments(make_env(KITCHEN, **TOLD), MOMENTS, seed=1)
    assert sum(bool(moment.heard) for moment in moments) > MOMENTS / 2
    assert all(is_understood(said) for moment in moments for said in moment.heard.values())
    model = AdaptedModel(base)
    for row in found.compared:
        agreed, best = 0, []
        for moment in moments:
            view, allowed = moment.view, np.flatnonzero(moment.view.mask)
            options = [view.candidates[index] for index in allowed]
            prompt = sets[row.prompts].action(view.text, moment.heard if row.heard else {}, "", options)
            scores = score_texts(
                model, [(prompt, options, [1] * len(options))], normalization=normalization, role=None
            )[0]
            agreed += options[int(scores.argmax())] == view.candidates[moment.advice]
            best.append(float((scores.double() / 0.7).softmax(-1).max()))
        assert row.agreement == agreed / MOMENTS and row.openness.best == pytest.approx(np.mean(best), abs=1e-3)
    by_chance = [
        np.mean([m.view.candidates[i] == m.view.candidates[m.advice] for i in np.flatnonzero(m.view.mask)])
        for m in moments
    ]
    assert found.chance == pytest.approx(np.mean(by_chance))
    advised = [moment.view.candidates[moment.advice] for moment in moments]
    assert found.one_phrase == max(advised.count(phrase) for phrase in advised) / MOMENTS


def test_a_game_without_a_scripted_player_is_compared_in_silence():
    found = calibrate(load_base_model(), make_env("rllib_llm_comm/frozen_lake-v0"), 6)
    assert [(row.prompts, row.heard, row.agreement) for row in found.compared] == [("default", False, None)]
    assert found.chance is None and found.one_phrase is None
    at = found.compared[0].openness
    assert (at.normalization, at.temperature) == (found.advice.normalization, found.advice.temperature)


def test_games_without_words_or_choice_are_refused():
    class Rail(ParallelEnv):
        """One agent, one way."""

        agents = possible_agents = ["alice"]

        def observation_space(self, agent):
            return spaces.Dict(text_spaces(1))

        def action_space(self, agent):
            return spaces.Discrete(1)

        def reset(self, seed=None, options=None):
            return {"alice": {"text": "i go.", "candidates": ("on",), "subgoal": ""}}, {}

        def step(self, actions):
            return self.reset()[0], {"alice": 0.0}, {}, {}, {}

    numbers = make_env("rllib_llm_comm/frozen_lake-v0", observe=["vector"])
    for env, aim, cause in ((numbers, 0.5, "words"), (make_env(DOOR), 1.0, "`--entropy`"), (Rail(), 0.5, "choose")):
        with pytest.raises(UserError, match=cause):
            calibrate(load_base_model(), env, 5, entropy=aim)


def test_settings_come_from_the_file_and_options_stand_above():
    found = read_settings(EXAMPLES / "verco.yaml")
    assert found.env == "rllib_llm_comm/overcooked_text-v0" and found.env_config["map_name"] == "B"
    assert found.model.base_model == "embedded" and found.present == ("sum", 1.5)
    assert read_settings(EXAMPLES / "verco_door.yaml").env == DOOR  # two stages of the same game, model and scores
    other = read_settings(EXAMPLES / "verco.yaml", CalibrationOptions(base_model="mine", dtype="auto", env=DOOR))
    assert (other.model.base_model, other.model.dtype) == ("mine", "auto")
    assert (other.env, other.env_config) == (DOOR, {})
    assert found.prompts == other.prompts == {"default": read_prompts("default")}


def test_a_temperature_of_rllibs_own_is_no_language_models(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(f"offline: {{run: CQL, env: {DOOR}}}")  # its `temperature` weighs the loss
    with refused("", "invalid", "0 different stages"):
        read_settings(file)


def test_prompts_come_from_the_file_and_the_option_stands_above(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(f"verco: {{run: Verco, env: {DOOR}, config: {{prompts: verco, prompt_format: chat}}}}")
    found = read_settings(file)
    assert found.prompts == {"verco": read_prompts("verco")} and found.model.prompt_format == "chat"
    (mine := tmp_path / "mine").mkdir()
    (mine / "action.txt").write_text(MINE["action"])
    above = read_settings(file, CalibrationOptions(prompts=["twosome", str(mine)], prompt_format="plain"))
    assert above.prompts == {"twosome": read_prompts("twosome"), str(mine): read_prompts(MINE)}
    assert above.model.prompt_format == "plain"
    file.write_text(f"verco: {{run: Verco, env: {DOOR}, config: {{prompts: {{action: '{MINE['action']}'}}}}}}")
    assert read_settings(file).prompts == {"the file's": read_prompts(MINE)}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"file": None}, ("", "invalid", "no game")),
        ({"file": EXAMPLES / "mappo.yaml"}, ("", "invalid", "0 different stages")),
        ({"file": EXAMPLES / "verco.yaml", "stage": "verko"}, ("--stage",)),
        ({"file": EXAMPLES / "verco.yaml", "prompts": ["twosum"]}, ("--prompts",)),
        ({"file": EXAMPLES / "verco.yaml", "prompt_format": "chta"}, ("prompt_format", "choice")),
    ],
)  # fmt: skip
def test_what_is_missing_is_told(arguments, wrong):
    options = {name: value for name, value in arguments.items() if name != "file"}
    with refused(*wrong):
        read_settings(arguments["file"], CalibrationOptions(**options))
