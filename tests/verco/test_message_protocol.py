"""Who says what and who hears it."""

from __future__ import annotations

import pytest
import torch
from adapter_server import AdapterServer
from chat_server import ChatServer

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import same_request
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.language.adapters import MESSAGE, AdaptedModel
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.generation import generate_messages
from rllib_llm_comm.language.prompts import message_prompt
from rllib_llm_comm.verco.encoding import TextObservation
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, heard_by
from rllib_llm_comm.verco.settings import CommunicationSettings
from rllib_llm_comm.verco.teachers.base import TeacherMessages
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


def speaker(agent, text, mailbox, teacher=None):
    return Speaker(agent, TextObservation(text, ("go",), (True,), teacher_message=teacher), mailbox)


def echo(prompts, *, max_words, temperature, seed):
    return [f"about {prompt.split('.')[0]}" for prompt in prompts]


def protocol(messages, seed=0, **settings):
    return MessageProtocol(CommunicationSettings(messages=messages, **settings), seed)


def test_agents_hear_the_others_and_never_themselves():
    mailbox = {}
    talk = protocol("student")
    said = talk.speak([speaker("bob", "b", mailbox), speaker("alice", "a", mailbox)], echo)
    assert said == ["about b i say:", "about a i say:"] and talk.replaced == []
    assert heard_by("alice", mailbox) == {"bob": "about b i say:"}
    assert heard_by("carol", mailbox) == {"alice": "about a i say:", "bob": "about b i say:"}
    assert list(heard_by("carol", mailbox)) == ["alice", "bob"]  # whoever spoke first


def test_teacher_messages_come_from_the_observation_and_are_cut():
    mailbox = {}
    talk = protocol("teacher", max_message_words=2)
    assert talk.speak([speaker("alice", "a", mailbox, teacher="bring the tomato")], None) == ["bring the"]
    with pytest.raises(UserError, match="`teacher_message`"):
        talk.speak([speaker("alice", "a", mailbox)], None)


def test_other_moments_are_the_students_messages_but_of_other_moments_and_agents():
    talk = protocol("other_moments", seed=1)
    said_so_far, wrong = set(), 0
    for step in range(50):
        mailbox = {}
        speakers = [speaker(agent, f"{agent} {step}", mailbox) for agent in ("alice", "bob")]
        own = [f"about {s.observation.text} i say:" for s in speakers]
        said_so_far |= set(own)
        said = talk.speak(speakers, echo)
        assert talk.replaced == own
        for now, message in zip(own, said, strict=True):
            assert message != now  # never the agent's own of now
            assert message in said_so_far
            wrong += str(step) not in message
    assert wrong > 80  # nearly all are of other moments


@pytest.mark.parametrize("messages", ["menu", "other_moments", "other_fact"])
def test_who_chose_among_phrases_hears_phrases_under_a_control_too(messages):
    asked = []

    def write(prompts, *, menu, **how):
        asked.append(menu)
        return [menu[0]] * len(prompts)

    talk = protocol(messages, message_menu=("bring it", "wait here"))
    talk.speak([speaker("alice", "a", {}), speaker("bob", "b", {})], write)
    assert asked == [("bring it", "wait here")]


def test_same_seed_same_shuffle():
    def run(seed):
        talk = protocol("other_moments", seed=seed)
        return [talk.speak([speaker(a, f"{a} {step}", {}) for a in ("alice", "bob")], echo) for step in range(20)]

    assert run(3) == run(3) != run(4)


def test_sampling_passes_a_fresh_seed_each_time():
    seeds = []

    def write(prompts, *, max_words, temperature, seed):
        seeds.append((temperature, seed))
        return [""] * len(prompts)

    talk = protocol("student", message_temperature=0.7)
    for _ in range(3):
        talk.speak([speaker("alice", "a", {})], write)
    assert len({seed for _, seed in seeds}) == 3 and all(t == 0.7 for t, _ in seeds)


def told(agent, secret, mailbox):
    return Speaker(agent, TextObservation(f"i make {secret}", ("go",), (True,)), mailbox, secret)


def test_messages_about_another_fact_come_from_episodes_with_another_order():
    talk = protocol("other_fact", seed=1)
    boxes = [{} for _ in range(6)]
    for _ in range(20):
        speakers = [told("alice", "tomato" if number % 2 else "onion", box) for number, box in enumerate(boxes)]
        said = talk.speak(speakers, echo)
        for speaking, message in zip(speakers, said, strict=True):
            assert ("onion" if speaking.secret == "tomato" else "tomato") in message


def test_a_speaker_is_silent_while_there_is_no_episode_with_another_order():
    talk = protocol("other_fact", seed=1)
    box = {}
    assert talk.speak([told("alice", "tomato", box), told("bob", "tomato", box)], echo) == ["", ""]
    assert talk.speak([told("alice", "onion", {})], echo) == ["about i make tomato i say:"]


def test_swapped_messages_are_the_same_sentences_about_something_else():
    talk = protocol("swapped")
    talk.telling_words = ("lettuce", "onion", "tomato")
    assert talk.speak([told("alice", "tomato", {})], echo) == ["about i make lettuce i say:"]
    assert talk.replaced == ["about i make tomato i say:"]
    talk.telling_words = ()
    with pytest.raises(UserError, match="tells no private facts"):
        talk.speak([told("alice", "tomato", {})], echo)


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
        # The first one lets go of an adapter that the second one has still in use, as a server does that begins anew.
        assert said(mine, model) == written_by(model)
        theirs._known.require("nothing is remembered")
        assert said(theirs, other) == written_by(other)
    assert len(list(tmp_path.iterdir())) == 2  # noqa: PLR2004


def test_what_cannot_be_served_is_told(model, tmp_path):
    with AdapterServer(fresh(), loads=False) as server, pytest.raises(UserError, match="VLLM_ALLOW_RUNTIME_LORA"):
        said(protocol_of(server, tmp_path), model)
    with AdapterServer(fresh()) as server, pytest.raises(UserError, match="adapters of their own"):
        said(protocol_of(server, tmp_path), model, fresh())
    blocked = tmp_path / "file"
    blocked.write_text("")
    with refused("message_server.adapter_folder"):
        protocol_of(server, blocked)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("please bring the tomato", "I need the tomato.", True),
        ("please bring the tomato", "please bring the lettuce", False),
        ("i bring the tomato", "please bring the tomato", False),
        ("over here, chef", "Over here,  chef!", True),
        ("over here, chef", "i wait here", False),
    ],
)
def test_same_request(one, other, same):
    assert same_request(one, other) is same
    assert same_request(other, one) is same


@pytest.mark.parametrize(
    ("reply", "by_teacher", "by_nobody"),
    [("alice: bring the onion\nbob: wait", 2, 0), ("alice: go on", 1, 1), (500, 0, 2)],
)
def test_silence_in_place_of_the_teacher_is_counted(reply, by_teacher, by_nobody):
    with ChatServer(reply) as server:
        env = TeacherMessages(parallel_env(max_game_steps=20), {"name": "chat", **server.settings(max_retries=0)})
        observations, infos = env.reset(seed=0)
    metrics = infos["bob"]["episode_metrics"]
    assert (metrics["messages_by_teacher"], metrics["messages_by_nobody"]) == (by_teacher, by_nobody)
    assert sum(bool(seen["teacher_message"]) for seen in observations.values()) == by_teacher
