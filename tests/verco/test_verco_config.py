"""Bad settings are refused in clear words."""

from __future__ import annotations

import json

import pytest
from toys import language_model, register

from rllib_llm_comm import MessageSFTConfig, VercoConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.learner import VercoLearner
from rllib_llm_comm.verco.message_exchange import MessageExchange
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.settings import CommunicationSettings, LanguageModelSettings
from tests.episodes import spaces


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dtype": "float23"}, "Did you mean 'float32'"),
        ({"score_normalization": "mean"}, "must be one of"),
        ({"trainable_roles": ["critic"]}, "trainable_roles"),
        ({"trainable_roles": None}, "`trainable_roles` is None"),
        ({"trainable_roles": 3}, "`trainable_roles` is 3"),
        ({"max_prompt_token": 5}, "Did you mean 'max_prompt_tokens'"),
        ({"lora_layers": "top"}, "`lora_layers` is 'top'"),
    ],
)
def test_language_model(values, words):
    with pytest.raises(UserError, match=words):
        LanguageModelSettings.from_mapping(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"messages": "studnet"}, "Did you mean 'student'"),
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


# ---- settings of Verco: defaults, YAML dicts and clear refusals --------------------------------------------------


def config():
    return VercoConfig().environment(register()).language_model(**language_model())


def test_defaults_make_a_complete_algorithm():
    settings = config()
    settings.validate()
    assert settings.is_multi_agent and settings.count_steps_by == "agent_steps"
    spec = settings.get_default_rl_module_spec()
    assert spec.module_class is LLMCommModule and spec.model_config["trainable_roles"] == ["action"]
    assert settings.get_default_learner_class() is VercoLearner


def test_fluent_and_flat_keys_mean_the_same():
    fluent = (
        VercoConfig()
        .language_model(lora_r=4, temperature=2.0)
        .communication(messages="none", max_message_words=5)
        .training(lr=1e-4, critic_lr=2e-4, lambda_=0.9, target_kl=None, value_clip_mode="min")
    )
    flat = VercoConfig().update_from_dict(
        {
            "lora_r": 4,
            "temperature": 2.0,
            "messages": "none",
            "max_message_words": 5,
            "lr": 1e-4,
            "critic_lr": 2e-4,
            "lambda": 0.9,
            "target_kl": None,
            "value_clip_mode": "min",
        }
    )
    for name in ("lora_r", "temperature", "messages", "max_message_words", "lr", "critic_lr", "lambda_"):
        assert getattr(fluent, name) == getattr(flat, name), name
    assert fluent.target_kl is flat.target_kl is None and flat.value_clip_mode == "min"
    one, other = (c.language_model_settings() for c in (fluent, flat))
    assert one == other


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("critc_lr", "critic_lr"),
        ("message", "messages"),
        ("num_env_runner", "num_env_runners"),
        ("lamda", "lambda"),
    ],
)
def test_unknown_keys_are_refused_with_a_hint(key, hint):
    with pytest.raises(UserError, match=f"`{key}` is no setting of VercoConfig.*Did you mean '{hint}"):
        VercoConfig().update_from_dict({key: 1})
    with pytest.raises(UserError, match="no setting of MessageSFTConfig"):
        MessageSFTConfig().update_from_dict({key: 1})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": "2e-3"}, "`lr` is '2e-3'"),
        ({"messages": "studnet"}, "Did you mean 'student'"),
        ({"messages": "teacher"}, "`teacher` is not set"),
        ({"anneal": 500, "lr": [[0, 1e-3], [100, 0.0]]}, "use one of both"),
        ({"anneal": 5}, "it counts decisions"),
        ({"target_kl": [[0, 0.1]]}, "`target_kl` is"),
        ({"kl_target": 0.02}, "set `target_kl`"),
        ({"use_kl_loss": True}, "set `target_kl`"),
        ({"advantage_floor": 5.0, "advantages": "grpo", "batch_mode": "complete_episodes"}, "`advantage_floor` is 5.0"),
        ({"target_kl": [[0, 0.1], [64, 0]]}, "`target_kl` is"),
        ({"critic_warmup": 9, "advantages": "rloo", "batch_mode": "complete_episodes"}, "`critic_warmup` is 9"),
        ({"num_learners": 2}, "set `minibatch_size`"),
        ({"lora_r": 0}, "`lora_r` is 0"),
        ({"entropy_coeff": float("nan")}, "`entropy_coeff` is nan"),
        ({"message_kl_coeff": float("inf")}, "`message_kl_coeff` is inf"),
        ({"policies": ["alice", "bob"]}, "but no `policy_mapping_fn` tells which agent"),
    ],
)
def test_bad_values_are_refused(values, words):
    with pytest.raises(UserError, match=words):
        config().update_from_dict(values).validate()


def test_teacher_mode_adds_its_callback_once():
    from rllib_llm_comm.verco.message_exchange import AddTeacherMessages

    settings = config().communication(messages="teacher", teacher="scripted")
    settings.validate()
    settings.validate()
    assert [cls for cls in settings.callbacks_class if cls is AddTeacherMessages] == [AddTeacherMessages]


def test_own_pieces_come_before_the_exchange_and_an_own_exchange_is_kept():
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from toys import ColourTalk

    class Mine(ConnectorV2):
        def __call__(self, *, batch, **kwargs):
            return batch

    settings = config().env_runners(env_to_module_connector=lambda env, spaces, device: [Mine()])
    pipeline = settings.build_env_to_module_connector(spaces={"__env_single__": spaces(ColourTalk())})
    names = [type(piece).__name__ for piece in pipeline.connectors]
    assert names[:3] == ["Mine", "MessageExchange", "AddObservationsInOrder"]
    own = MessageExchange(language_model=language_model(), communication={"messages": "none"})
    settings = config().env_runners(env_to_module_connector=lambda env, spaces, device: own)
    pieces = settings.build_env_to_module_connector(spaces={"__env_single__": spaces(ColourTalk())}).connectors
    assert [piece for piece in pieces if isinstance(piece, MessageExchange)] == [own]


def test_sft_needs_labels_and_no_environment():
    with pytest.raises(UserError, match="`input_` is"):
        MessageSFTConfig().validate()
    with pytest.raises(UserError, match="remove `env`"):
        MessageSFTConfig().environment(register()).offline_data(input_="/tmp").validate()
    with pytest.raises(UserError, match="`held_out_share` is 1.0"):
        MessageSFTConfig().offline_data(input_="/tmp").training(held_out_share=1.0).validate()


def test_schedules_are_said_to_count_decisions():
    config = VercoConfig().environment("toys/any").training(entropy_coeff=[[10, 0.1], [64, 0.0]])
    with pytest.raises(UserError, match=r"`entropy_coeff` .* pairs \[decision, number\] .* two decisions that rise"):
        config.validate()
