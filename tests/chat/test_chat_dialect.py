"""Servers that want other parameters, answers that are cut off, and what is asked for."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from chat_server import ChatServer, client, completion
from pydantic import BaseModel, Field

from rllib_llm_comm.chat.answers import AnswerError, UnknownFormError, ask_for, strict_form
from rllib_llm_comm.chat.chat_model import TOKENS, ChatError, asking_for, cut_at

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


class Part(BaseModel):
    what: str = Field(min_length=1)
    reason: str = ""


class Plan(BaseModel):
    goal: str
    parts: list[Part] = Field(max_length=3)


PLAN = '{"goal": "soup", "parts": [{"what": "onion"}]}'


class Picky(ChatServer):
    """Refuses parameters with OpenAI's words.

    Args:
        refused: Parameter to words.
        silent: Whether it refuses without a word.
    """

    def __init__(self, refused: dict[str, str], *replies: Any, silent: bool = False) -> None:
        super().__init__(*replies)
        self.refused, self.silent = refused, silent

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        for name, words in self.refused.items():
            if name in body:
                error = {"error": {"message": words, "code": "unsupported_parameter", "param": name}}
                return 400, {}, b"" if self.silent else json.dumps(error).encode()
        return super().reply(path, headers, body)


def test_the_new_name_of_max_tokens_is_found_out_once(caplog):
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with Picky({"max_tokens": words}, "hello") as server:
        asked = client(server, max_tokens=70, price_per_million_output=1.0)
        assert asked.complete("hi") == asked.complete("ho") == "hello"
    assert [body.get("max_completion_tokens") for body in server.requests] == [None, 70, 70]
    assert asked.counters.failures == 0 and asked.counters.cost == pytest.approx(40e-6)


def test_a_temperature_that_is_not_taken_is_left_out():
    words = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is."
    with Picky({"temperature": words}, "hello") as server:
        assert client(server).complete("hi") == "hello"
    assert [("temperature" in body) for body in server.requests] == [True, False]


def test_further_parameters_go_into_each_request():
    with ChatServer("hello") as server:
        client(server, extra_body={"reasoning_effort": "low", "seed": 3}).complete("hi")
    assert server.requests[0]["reasoning_effort"] == "low" and server.requests[0]["seed"] == 3


def test_a_form_is_sent_as_a_strict_schema():
    with ChatServer(PLAN) as server:
        assert ask_for(client(server), "What next?", Plan).goal == "soup"
        client(server).complete("free text")
        ask_for(client(server, forms=False), "And then?", Plan)
    form = server.requests[0]["response_format"]["json_schema"]
    assert form["name"] == "Plan" and form["strict"]
    assert form["schema"]["required"] == ["goal", "parts"] and form["schema"]["additionalProperties"] is False
    part = form["schema"]["$defs"]["Part"]
    assert part["required"] == ["what", "reason"] and part["properties"]["what"] == {"type": "string"}
    assert form["schema"]["properties"]["parts"]["maxItems"] == 3
    assert not any("response_format" in body for body in server.requests[1:])


@pytest.mark.parametrize("silent", [False, True])
def test_a_server_without_forms_is_asked_without(silent, caplog):
    caplog.set_level(logging.WARNING)
    with Picky({"response_format": "response_format is not supported"}, PLAN, silent=silent) as server:
        asked = client(server)
        assert ask_for(asked, "What next?", Plan).goal == ask_for(asked, "And then?", Plan).goal == "soup"
    assert [("response_format" in body) for body in server.requests] == [True, False, False]
    assert caplog.text.count("It refuses `response_format`") == 1


def test_a_refusal_for_another_reason_does_not_cost_the_form():
    """Some servers give no reason; so the question is sent without the form, and if that is refused, too, it stays."""
    with ChatServer(400, 400, PLAN) as server:
        asked = client(server)
        with pytest.raises(ChatError, match="HTTP 400"):
            ask_for(asked, "Too long?", Plan)
        ask_for(asked, "What next?", Plan)
    assert [("response_format" in body) for body in server.requests] == [True, False, True]


def test_forms_that_servers_cannot_write():
    with pytest.raises(UnknownFormError):
        strict_form({"type": "object", "additionalProperties": {"type": "string"}})


@pytest.mark.parametrize(
    ("given", "plan", "label"),
    [(None, TOKENS["plan"], TOKENS["label"]), (70, 70, 70), ({"plan": 3000}, 3000, TOKENS["label"])],
)
def test_each_purpose_has_its_own_bound(given, plan, label):
    assert TOKENS["plan"] >= 1500
    with ChatServer(PLAN) as server:
        asked = client(server, max_tokens=given)
        ask_for(asked, "What next?", Plan)
        with asking_for("label"):
            asked.complete("hi")
    assert [body["max_tokens"] for body in server.requests] == [plan, label]


def test_a_cut_answer_is_named_and_asked_again_where_there_is_more_room(tmp_path, caplog):
    with ChatServer(completion("to be or", "length"), completion("or not", "length"), "to be") as server:
        asked = client(server, max_tokens={"other": 5}, cache_dir=tmp_path)
        answer = asked.complete("hi")
        assert answer == "to be or" and cut_at(answer) == 5 and cut_at(asked.complete("hi")) == 5
        asked.complete("ho")
        assert asked.counters.truncated == 2 and len(server.requests) == 2
        assert caplog.text.count("was cut off after 5 tokens; raise `max_tokens`") == 1
        more = client(server, max_tokens={"other": 50}, cache_dir=tmp_path)
        assert more.complete("hi") == "to be" and cut_at(more.complete("hi")) == 0


def test_a_plan_that_is_cut_off_says_so():
    with ChatServer(completion('{"goal": "so', "length")) as server:
        with pytest.raises(AnswerError, match=r"it was cut off after 12 tokens \(raise `max_tokens`\)"):
            ask_for(client(server, max_tokens=12), "What next?", Plan)
        assert "it was cut off, since it became too long" in server.requests[1]["messages"][-1]["content"]


def test_thoughts_without_an_answer_are_cut_off():
    """A model that thinks for all its tokens sends no content."""
    with ChatServer(completion(None, "length")) as server:
        asked = client(server)
        assert asked.complete("hi") == "" and asked.counters.truncated == 1
