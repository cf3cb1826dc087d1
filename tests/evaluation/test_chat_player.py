"""Direct play by a chat model: the parser, and episodes against a real local server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from chat_server import ChatServer, completion
from hypothesis import given
from hypothesis import strategies as st
from toys import ColourTalk

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import overcooked_text
from rllib_llm_comm.evaluation.chat_player import WAYS, ChatPlayer, parse_choice
from rllib_llm_comm.evaluation.rollout import evaluate
from tests.experiments.staged import record, refused_file, run

PHRASES = ["wait", "take the tomato", "chop the tomato on the first board", "go to the counter"]


pytestmark = pytest.mark.usefixtures("chat_client_at_home")


@pytest.mark.parametrize(
    ("answer", "index", "how"),
    [
        ("Thinking...\ntake the tomato\n", 1, "exact"), ("<think>wait</think>\ngo to the counter", 3, "exact"),
        ("**Take the tomato.**", 1, "folded"), ("2. take the tomato", 1, "folded"), ("3", 2, "number"),
        ("Option (4) because it is near", 0, "fallback"), ("4) because it is near", 3, "number"),
        ("I would take the tomato now, please.", 1, "contained"), ("chop tomato on the first board", 2, "nearest"),
        ("take the tomato, then go to the counter", 0, "fallback"), ("99", 0, "fallback"),
        ("I cannot help with that.", 0, "fallback"),
    ],
)  # fmt: skip
def test_answers(answer, index, how):
    assert parse_choice(answer, PHRASES) == (index, how)


@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=6))
def test_any_answer_gives_a_candidate(answer, phrases):
    index, how = parse_choice(answer, phrases)
    assert 0 <= index < len(phrases) and how in WAYS


@given(st.lists(st.sampled_from(PHRASES), min_size=1, max_size=4, unique=True), st.data())
def test_a_candidate_means_itself(phrases, data):
    phrase = data.draw(st.sampled_from(phrases))
    assert phrases[parse_choice(phrase, phrases)[0]] == phrase
    assert phrases[parse_choice(f"  {phrase.upper()}!", phrases)[0]] == phrase


def sees(prompt: str) -> str:
    """What a model would answer that names the colour which the other sees."""
    return f"name {re.search(r'the other sees (red|blue|green)', prompt).group(1)}"


def test_plays_and_pays_once(tmp_path):
    env = ColourTalk(length=4, obvious=True)
    with ChatServer(sees) as server:
        player = ChatPlayer(server.settings(cache_dir=str(tmp_path / "cache")), env.task, env.brief)
        result = evaluate(player, episodes=2, env=env)
        assert result.return_mean == 4.0 and player.counts["exact"] == sum(player.counts.values()) == 16
        assert env.task in server.requests[0]["messages"][-1]["content"]
        asked = len(server.requests)
        again = ChatPlayer(server.settings(cache_dir=str(tmp_path / "cache")), env.task, env.brief)
        assert evaluate(again, episodes=2, env=env) == result
        assert len(server.requests) == asked and again.client.counters.cached == 16


def test_single_failures_do_not_end_the_game():
    with ChatServer(500, 500, sees) as server:
        player = ChatPlayer(server.settings(max_retries=0))
        result = evaluate(player, episodes=1, env=ColourTalk(length=3, obvious=True))
        assert result.episodes == 1 and player.counts["failures"] == player.counts["fallback"] == 2
        player.require_answers()


@pytest.mark.parametrize(("trouble", "most"), [(500, 3), (None, 3), (401, 1), (400, 5)])
def test_nobody_plays_no_game(trouble, most):
    with ChatServer(trouble) as server:
        player = ChatPlayer(server.settings(max_retries=0))
        with pytest.raises(UserError):
            evaluate(player, episodes=10, env=ColourTalk(length=3))
        assert len(server.requests) == most


def test_cut_answers_are_counted_and_a_game_without_any_answer_is_no_play():
    with ChatServer(completion("Let me think about", "length")) as server:
        player = ChatPlayer(server.settings())
        evaluate(player, episodes=1, env=ColourTalk(length=2))
        assert player.counts["truncated"] == player.counts["fallback"] == 4
    with ChatServer(400) as server:
        player = ChatPlayer(server.settings())
        evaluate(player, episodes=1, env=ColourTalk(length=2))
        with pytest.raises(UserError, match="no request"):
            player.require_answers()


def stage(**config):
    game = {"env_config": {"max_game_steps": 20}, "episodes": 1}
    return {"play": {"run": "chat_play", "env": "rllib_llm_comm/overcooked_text-v0", "config": {**game, **config}}}


def test_a_stage_against_nobody_stays_unfinished_and_goes_on_later(tmp_path, capsys):
    with ChatServer("1", 500) as server:
        asks = stage(chat=server.settings(max_retries=0))
        with pytest.raises(UserError, match="no answer to 3 questions"):
            run(asks, tmp_path)
        assert record(tmp_path, "play")["status"] == "running"
        assert not (tmp_path / "f/play/evaluation.json").exists()
        answered = [body["messages"][-1]["content"] for body in server.requests[:1]]
        server.requests.clear()
        server.replies = ["1"]
        run(asks, tmp_path)
        assert not {body["messages"][-1]["content"] for body in server.requests} & set(answered)
    assert record(tmp_path, "play")["status"] == "finished"
    figures = json.loads((tmp_path / "f/play/evaluation.json").read_text())
    assert figures["answers"]["number"] > 0 and figures["chat"]["requests"] == len(server.requests)
    assert "answers understood as" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"chat": {}}, "In `play.config.chat`: `model` is missing"), ({}, "chat"),
        ({"chat": {"local": "smollm2", "temprature": 1}}, "Did you mean 'temperature'"),
        ({"chat": {"model": "m"}, "episodes": 0}, "play.config.episodes"),
        ({"chat": {"cassette": "no_such_tape.jsonl"}}, "no_such_tape.jsonl"),
    ],
)  # fmt: skip
def test_bad_settings(config, says, tmp_path):
    refused_file(tmp_path, stage(**config), says)


def test_a_recording_of_the_package_is_played_by_its_name(tmp_path):
    with pytest.raises(UserError, match="claude_actions.jsonl. has no answer"):
        run(stage(chat={"cassette": "claude_actions"}), tmp_path)


RECORDED = Path(__file__).parents[2] / "docs" / "results" / "direct_play"


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDED.glob("*.jsonl")))
def test_recorded_games_come_to_what_is_told(name):
    told = json.loads((RECORDED / "direct_play.json").read_text())["kitchens"][name]
    env = overcooked_text.parallel_env(**told["env_config"])
    player = ChatPlayer({"cassette": str(RECORDED / f"{name}.jsonl")}, env.task, env.brief)
    result = evaluate(player, episodes=1, seed=1000, env=env)
    assert (result.return_mean, result.length_mean) == (told["return"], told["game_steps"])
    assert player.client.counters.requests == 0
