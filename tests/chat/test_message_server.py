"""Messages from a server are those that the module would write."""

import pytest
from completion_server import CompletionServer
from local_server import LocalServer

from rllib_llm_comm.chat.message_server import MessageServer
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.verco.encoding import TextObservation
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker
from rllib_llm_comm.verco.settings import CommunicationSettings
from tests.refusal import refused


def words(prompts):
    return [f"{prompt[:3]} one two three four five six seven eight nine ten" for prompt in prompts]


def test_the_server_writes_what_the_module_would(adapted):
    texts = ["get the kale", "wait", "get the kale", "the first board"]
    speakers = [Speaker(f"a{k}", TextObservation(text, ("wait",), (True,)), {}) for k, text in enumerate(texts)]
    prompts = [message_prompt(text) for text in texts]
    own = generate_messages(adapted, prompts)
    with CompletionServer(lambda asked: generate_messages(adapted, asked)) as server:
        settings = CommunicationSettings(message_server={"base_url": server.url, "model": "student"})
        protocol = MessageProtocol(settings)
        assert protocol.speak(speakers, write=None) == own  # the module is not asked
        assert protocol.speak(speakers, write=None) == own
    (request,) = server.requests  # each distinct prompt once, then remembered
    assert server.paths[-1] == "/v1/completions" and request["model"] == "student"
    assert request["prompt"] == list(dict.fromkeys(prompts))
    assert request["temperature"] == 0 and request["stop"] == ["\n"] and request["max_tokens"] == 40


def test_limits_and_batches():
    with CompletionServer(words) as server:
        client = MessageServer(server.url, prompts_per_request=2)
        assert client.write(["abc", "def", "ghi"], max_words=3) == ["abc one two", "def one two", "ghi one two"]
        assert client.write(["abc", "abc"], max_words=1, temperature=1.0, seed=7) == ["abc", "abc"]
    assert [request["prompt"] for request in server.requests] == [["abc", "def"], ["ghi"], ["abc", "abc"]]
    assert server.requests[-1]["seed"] == 7


def test_passing_troubles_pass():
    with CompletionServer(words, 503) as server:
        assert MessageServer(server.url, max_retries=1).write(["abc"], max_words=2) == ["abc one"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("trouble", "told"), [(404, "status 404 .*busy"), ({"choices": None}, "0 texts for 1 prompts")]
)
def test_lasting_troubles_are_told(trouble, told):
    with CompletionServer(words, trouble) as server, pytest.raises(UserError, match=told) as caught:
        MessageServer(server.url, max_retries=0).write(["abc"])
    assert "`message_server`" in str(caught.value) and server.url in str(caught.value)
    with pytest.raises(UserError, match="did not answer"):  # it is down now
        MessageServer(server.url, max_retries=0, timeout=2).write(["abc"])


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"url": "http://x", "base_url": "http://x"}, "url"), ({"model": "m"}, "base_url"),
        ({"base_url": "ftp://x"}, "base_url"), ({"base_url": "http://127.0.0.1", "max_retries": True}, "max_retries"),
        ({"base_url": "http://127.0.0.1", "adapter_folder": __file__}, "adapter_folder"),
    ],
)  # fmt: skip
def test_wrong_settings_are_told(settings, name):
    with refused(f"message_server.{name}", None):
        CommunicationSettings(message_server=settings)


class OddServer(LocalServer):
    """Sends the same body under a status to everybody."""

    def __init__(self, status, headers, body):
        self._answer = status, headers, body
        super().__init__()

    def reply(self, path, headers, body):
        return self._answer


@pytest.mark.parametrize(
    "body",
    [
        b"<html>", b"[]", b"[" * 10**5, b'{"choices": [{"index": "a", "text": "x"}]}',
        b'{"choices": [{"index": 0, "text": "' + b"a" * (1 << 20) + b'"}]}',
    ],
)  # fmt: skip
def test_what_is_no_answer_is_asked_again_and_told(body):
    with OddServer(200, {}, body) as server, pytest.raises(UserError, match="`message_server` at .* answered with "):
        MessageServer(server.url, max_retries=1).write(["abc"])
    assert len(server.requests) == (1 if len(body) > 1 << 20 else 2)  # what is too large once is so again


def test_messages_are_not_asked_of_somebody_else():
    with CompletionServer(words) as elsewhere:
        headers = {"location": f"{elsewhere.url}/completions"}
        with OddServer(307, headers, b"") as server, pytest.raises(UserError, match="status 307"):
            MessageServer(server.url, max_retries=0).write(["abc"])
    assert len(server.requests) == 1 and not elsewhere.requests


def test_half_a_surrogate_pair_is_no_message():
    with OddServer(200, {}, b'{"choices": [{"index": 0, "text": "a\\ud800b c"}]}') as server:
        assert MessageServer(server.url).write(["abc"]) == ["a?b c"]
