"""Bad settings are refused in clear words."""

from __future__ import annotations

import json

import pytest
from ray.rllib.connectors.connector_v2 import ConnectorV2
from toys import ColourTalk, language_model, register

from rllib_llm_comm import MessageSFTConfig, VercoConfig
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.module import AddTeacherMessages, MessageExchange
from rllib_llm_comm.verco.settings import ModuleSettings
from tests.episodes import spaces
from tests.refusal import refused


def test_round_trip_through_json():
    settings = ModuleSettings(lora_target_modules=["q_proj"], critic_hiddens=[3], lora_layers=2)
    assert ModuleSettings.from_mapping(json.loads(json.dumps(settings.to_dict()))) == settings


def config():
    return VercoConfig().environment(register()).language_model(**language_model())


def test_fluent_and_flat_keys_mean_the_same():
    model, talk = {"lora_r": 4, "temperature": 2.0}, {"messages": "none", "max_message_words": 5}
    training = {"lr": 1e-4, "critic_lr": 2e-4, "target_kl": None, "value_clip_mode": "min"}
    fluent = VercoConfig().language_model(**model).communication(**talk).training(**training, lambda_=0.9)
    flat = VercoConfig().update_from_dict({**model, **talk, **training, "lambda": 0.9})
    for name in (*model, *talk, *training, "lambda_"):
        assert getattr(fluent, name) == getattr(flat, name), name
    assert flat.lambda_ == 0.9 and fluent.language_model_settings() == flat.language_model_settings()


def test_unknown_keys_are_refused_with_a_hint():
    for kind, hint in ((VercoConfig, "num_env_runners"), (MessageSFTConfig, "num_epochs")):
        with pytest.raises(UserError, match=f"`{hint[:-1]}` .*Did you mean '{hint}"):
            kind().update_from_dict({hint[:-1]: 1})


GROUPS = {"advantages": "grpo", "batch_mode": "complete_episodes"}


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"trainable_roles": 3}, ("trainable_roles", "unknown")), ({"lora_layers": "top"}, ("lora_layers", "type")),
        ({"messages": "studnet"}, ("messages", "choice")),
        ({"messages": "teacher"}, ("messages", "invalid", "`teacher`")),
        ({"constant_message": "a " * 11}, ("constant_message",)), ({"lr": "2e-3"}, ("lr", "type")),
        ({"messages": "menu", "message_menu": [True, False]}, ("message_menu.0", "type")),
        ({"messages": "menu", "message_menu": ["a", "a"]}, ("message_menu", "invalid", "different")),
        ({"messages": "menu", "message_menu": ["a", "b c d"], "max_message_words": 2},
         ("message_menu", "invalid", "longer")),
        ({"train_messages": True}, ("message_temperature",)), ({"message_credit": "team"}, ("message_credit",)),
        ({"train_messages": True, "messages": "constant"}, ("train_messages",)),
        ({"message_kl_coeff": 0, "message_kl_target": 1.0}, ("message_kl_coeff",)),
        ({"anneal": 500, "lr": [[0, 1e-3], [100, 0.0]]}, ("anneal", "invalid", "`lr`")),
        ({"anneal": 5}, ("anneal", "invalid", "decisions")),
        ({"entropy_coeff": [[10, 0.1], [64, 0.0]]}, ("entropy_coeff",)),
        ({"target_kl": [[0, 0.1], [64, 0]]}, ("target_kl",)), ({"kl_target": 0.02}, ("kl_target",)),
        ({"use_kl_loss": True}, ("use_kl_loss",)), ({"num_learners": 2}, ("minibatch_size",)),
        ({"advantage_floor": 5.0, **GROUPS}, ("advantage_floor",)),
        ({"critic_warmup": 9, **GROUPS}, ("critic_warmup",)),
        ({"policies": ["alice", "bob"]}, ("policies", "invalid", "`policy_mapping_fn`")),
    ],
)  # fmt: skip
def test_bad_values_are_refused(values, wrong):
    with refused(*wrong):
        config().update_from_dict(values).validate()


def test_teacher_mode_adds_its_callback_once():
    settings = config().communication(messages="teacher", teacher="scripted")
    settings.validate()
    settings.validate()
    assert [cls for cls in settings.callbacks_class if cls is AddTeacherMessages] == [AddTeacherMessages]


def test_own_pieces_come_before_the_exchange_and_an_own_exchange_is_kept():
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
