"""Bad settings are refused in clear words."""

from __future__ import annotations

import json

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.settings import CommunicationSettings, LanguageModelSettings


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dtype": "float23"}, "Did you mean 'float32'"),
        ({"score_normalization": "mean"}, "must be one of"),
        ({"temperature": 0}, "larger than 0"),
        ({"lora_r": 0}, "from 1 to 4096"),
        ({"lora_r": 2.5}, "whole number"),
        ({"lora_dropout": 1.0}, "`lora_dropout` is 1.0"),
        ({"trainable_roles": ["critic"]}, "trainable_roles"),
        ({"trainable_roles": None}, "`trainable_roles` is None"),
        ({"trainable_roles": 3}, "`trainable_roles` is 3"),
        ({"max_prompt_token": 5}, "Did you mean 'max_prompt_tokens'"),
        ({"critic_hiddens": [0]}, "critic_hiddens"),
        ({"lora_layers": 0}, "`lora_layers` is 0"),
        ({"lora_layers": "top"}, "`lora_layers` is 'top'"),
        ({"lora_layers": True}, "`lora_layers` is True"),
        ({"lora_layers": 2.0}, "`lora_layers` is 2.0"),
        ({"trunk_cache_mb": -1}, "`trunk_cache_mb` is -1"),
        ({"trunk_cache_dtype": "int4"}, "`trunk_cache_dtype` is 'int4'"),
    ],
)
def test_language_model(values, words):
    with pytest.raises(UserError, match=words):
        LanguageModelSettings.from_mapping(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"messages": "studnet"}, "Did you mean 'student'"),
        ({"max_message_words": 0}, "from 1 to 1000"),
        ({"message_temperature": -1.0}, "`message_temperature` is -1.0"),
        ({"constant_message": "a " * 11}, "longer than `max_message_words`"),
        (
            {"messages": "menu", "message_menu": [True, False]},
            "`message_menu.0` is True but must be a text .put it in quotes",
        ),
    ],
)
def test_communication(values, words):
    with pytest.raises(UserError, match=words):
        CommunicationSettings.from_mapping(values)


def test_round_trip_through_json():
    settings = LanguageModelSettings(lora_target_modules=["q_proj"], critic_hiddens=[3], lora_layers=2)
    assert LanguageModelSettings.from_mapping(json.loads(json.dumps(settings.to_dict()))) == settings
