"""Observations in token ids."""

from __future__ import annotations

import numpy as np
import pytest
from toys import ColourTalk, language_model, words_of

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import action_prompt, critic_prompt
from rllib_llm_comm.verco.encoding import ObservationEncoder, encoded_space, read_observation
from rllib_llm_comm.verco.settings import LanguageModelSettings


@pytest.fixture(scope="module")
def parts():
    settings = LanguageModelSettings.from_mapping(language_model())
    base = load_base_model(settings.base_model)
    return base, settings, ObservationEncoder(base, settings)


@pytest.fixture
def raw():
    observations, _ = ColourTalk().reset(seed=0)
    return observations["alice"]


def test_arrays_spell_the_prompts(parts, raw):
    base, settings, encoder = parts
    heard = {"bob": "i see red"}
    arrays = encoder.encode(read_observation({**raw, "subgoal": "win"}), heard)
    assert words_of(base, arrays["prompt_ids"]) == action_prompt(raw["text"], heard, "win")
    assert words_of(base, arrays["critic_ids"]) == critic_prompt(raw["text"], "win")
    assert [words_of(base, row) for row in arrays["candidate_ids"]] == list(raw["candidates"])
    assert arrays["candidate_words"].tolist() == [2, 2, 2]
    assert encoded_space(settings, 3).contains(arrays)


def test_a_centralised_critic_reads_a_text_of_its_own_and_nobody_else_does(parts, raw):
    base, _, encoder = parts
    own = encoder.encode(read_observation(raw), {})
    for text in ("you are alice. you see red.", "you are bob. you see blue."):
        arrays = encoder.encode(read_observation({**raw, "critic_text": text}), {})
        assert words_of(base, arrays["critic_ids"]) == critic_prompt(text, raw.get("subgoal", ""))
        assert all(np.array_equal(arrays[key], own[key]) for key in own if key != "critic_ids")


def test_forbidden_candidates_are_padding(parts, raw):
    base, _, encoder = parts
    arrays = encoder.encode(read_observation({**raw, "action_mask": [1, 0, 1]}), {})
    assert (arrays["candidate_ids"][1] == PAD).all() and arrays["candidate_words"][1] == 0
    assert arrays["action_mask"].tolist() == [1, 0, 1]


def test_equal_observations_share_their_arrays(parts, raw):
    _, _, encoder = parts
    one, other = encoder.encode(read_observation(raw), {}), encoder.encode(read_observation(raw), {})
    assert one["prompt_ids"] is other["prompt_ids"]
    assert not np.array_equal(encoder.encode(read_observation(raw), {"bob": "hi"})["prompt_ids"], one["prompt_ids"])


def test_mask_may_be_missing(raw):
    raw = {key: value for key, value in raw.items() if key != "action_mask"}
    assert read_observation(raw).mask == (True, True, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": None}, "no `text`"),
        ({"candidates": None}, "no `candidates`"),
        ({"action_mask": [0, 0, 0]}, "allow at least one"),
        ({"action_mask": [1, 1]}, "as long as the action space"),
    ],
)
def test_bad_observations_are_refused(raw, change, words):
    bad = {key: value for key, value in {**raw, **change}.items() if value is not None}
    with pytest.raises(UserError, match=words):
        read_observation(bad)


def test_too_long_is_an_error_and_never_cut(parts, raw):
    base, settings, encoder = parts
    with pytest.raises(UserError, match="`max_prompt_tokens` is 160"):
        encoder.encode(read_observation({**raw, "text": raw["text"] * 20}), {})
    with pytest.raises(UserError, match="`max_candidate_tokens` is 8"):
        encoder.encode(read_observation({**raw, "candidates": ["name red " * 9] * 3}), {})
