"""A server that loads adapters while it runs has the run's message adapter, whatever happens to either."""

from __future__ import annotations

import pytest
import torch
from adapter_server import AdapterServer

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.verco.encoding import TextObservation
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker
from rllib_llm_comm.verco.settings import CommunicationSettings

TEXTS = ("get the kale", "wait", "the first board")


def fresh():
    return AdaptedModel(load_base_model("embedded"))


@pytest.fixture
def model():
    own = fresh()
    change(own, 1)
    return own


def change(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weights in model.named_adapter_parameters(MESSAGE):
            weights.add_(0.3 * torch.randn(weights.shape, generator=generator))


def speakers():
    return [Speaker(f"a{k}", TextObservation(text, ("wait",), (True,)), {}) for k, text in enumerate(TEXTS)]


def said(protocol, *models):
    return protocol.speak(speakers(), write=None, models=[models[k % len(models)] for k in range(len(TEXTS))])


def written_by(model):
    return generate_messages(model, [message_prompt(text) for text in TEXTS])


def protocol_of(server, folder):
    settings = {"base_url": server.url, "model": "talk", "adapter_folder": str(folder), "max_retries": 0}
    return MessageProtocol(CommunicationSettings(message_server=settings))


def test_the_server_writes_by_the_adapter_of_the_run(model, tmp_path):
    with AdapterServer(fresh()) as server:
        protocol = protocol_of(server, tmp_path / "adapters")
        assert said(protocol, model) == written_by(model) != written_by(fresh())
        first = dict(server.loaded)
        assert said(protocol, model) == written_by(model)
        assert server.paths == ["/v1/load_lora_adapter", "/v1/completions"]  # nothing is asked twice
        change(model, 2)
        assert said(protocol, model) == written_by(model)
    assert len(first) == len(server.loaded) == 1 and not first.keys() & server.loaded.keys()
    assert all(name.startswith("talk-") for name in server.loaded)


def test_several_runners_share_what_is_loaded(model, tmp_path):
    other = fresh()
    other.load_adapter(MESSAGE, model.save_adapter(MESSAGE, tmp_path / "copy"))
    tmp_path = tmp_path / "adapters"
    with AdapterServer(fresh()) as server:
        mine, theirs = protocol_of(server, tmp_path), protocol_of(server, tmp_path)
        assert said(mine, model) == said(theirs, other) == written_by(model)
        assert len(server.loaded) == 1
        change(model, 2)
        # The first one lets go of an adapter that the second one has still in use.
        assert said(mine, model) == written_by(model)
        theirs._known.require("nothing is remembered")
        assert said(theirs, other) == written_by(other)
    assert len(list(tmp_path.iterdir())) == 2  # noqa: PLR2004


def test_a_server_that_was_started_anew_is_asked_to_load_again(model, tmp_path):
    with AdapterServer(fresh()) as server:
        protocol = protocol_of(server, tmp_path)
        said(protocol, model)
        server.loaded.clear()
        protocol._known.require("nothing is remembered")
        assert said(protocol, model) == written_by(model)


def test_what_cannot_be_served_is_told(model, tmp_path):
    told = "does not load adapters .*VLLM_ALLOW_RUNTIME_LORA_UPDATING"
    with AdapterServer(fresh(), loads=False) as server, pytest.raises(UserError, match=told):
        said(protocol_of(server, tmp_path), model)
    with AdapterServer(fresh()) as server, pytest.raises(UserError, match="adapters of their own"):
        said(protocol_of(server, tmp_path), model, fresh())
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="`message_server.adapter_folder` is .*which is no folder"):
        protocol_of(server, blocked)
