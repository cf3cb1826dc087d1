"""A teacher that speaks in a game: an agent whose message it does not give is silent, and that is counted."""

from __future__ import annotations

import pytest
from chat_server import ChatServer

from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.verco.teachers.base import TeacherMessages

pytestmark = pytest.mark.usefixtures("chat_client_at_home")


@pytest.mark.parametrize(
    ("reply", "by_teacher", "by_nobody"),
    [("alice: bring the onion\nbob: wait", 2, 0), ("alice: go on", 1, 1), (500, 0, 2)],
)
def test_silence_in_place_of_the_teacher_is_counted(reply, by_teacher, by_nobody):
    with ChatServer(reply) as server:
        teacher = {
            "name": "chat",
            "model": "tiny",
            "base_url": server.url,
            "requests_per_minute": 1e6,
            "max_retries": 0,
        }
        env = TeacherMessages(parallel_env(max_game_steps=20), teacher)
        observations, infos = env.reset(seed=0)
    metrics = infos["bob"]["episode_metrics"]
    assert (metrics["messages_by_teacher"], metrics["messages_by_nobody"]) == (by_teacher, by_nobody)
    assert sum(bool(seen["teacher_message"]) for seen in observations.values()) == by_teacher
