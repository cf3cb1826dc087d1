"""The scripted teacher among onion soups."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.env_registry import registration

from rllib_llm_comm.envs.games import same_request
from rllib_llm_comm.envs.overcooked_ai import ENV_ID, sayings, scripted_cooks
from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
from rllib_llm_comm.envs.overcooked_ai.planner import ScriptedCooks, plan
from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen
from rllib_llm_comm.verco.teachers.base import ScriptedTeacher, TeacherMessages
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_messages_tell_both_tasks_and_are_understood(layout):
    kitchen, rng = SoupKitchen(layout), np.random.default_rng(0)
    cooks, kinds = ScriptedCooks(kitchen), set()
    for _ in range(200):
        tasks = plan(kitchen)
        for player in range(2):
            saying = scripted_cooks.say(kitchen, player)
            message = sayings.word(saying, rng)
            assert sayings.understand(message.upper() + ".") == saying and len(message.split()) <= 10
            assert saying.mine[0] == (tasks[player].verb if saying.mine[1] else "wait")
            kinds.add(saying.mine)
        kitchen.step(cooks.actions())
    assert len(kinds) >= 5


def test_wordings_of_one_meaning_are_the_same_request():
    saying = sayings.CookSaying(("take", "onion"), ("plate", "soup"))
    wordings = {sayings.word(saying, np.random.default_rng(seed)) for seed in range(20)}
    assert len(wordings) == 3
    one = next(iter(wordings))
    assert all(same_request(one, other) for other in wordings)
    assert not same_request(one, "i plate the soup, please fetch an onion")
    assert sayings.understand("i fetch an onion") is None and not same_request(one, "i fetch an onion")


@pytest.mark.parametrize(("level", "soups"), [("primitive", 2), ("goal_cell", 5), ("goal", 3)])
def test_advice_makes_soups(level, soups):
    """Primitive advice keeps no way in mind, so cooks may block each other; still they serve."""
    env = registration.make("parallel", ENV_ID, layout="asymmetric_advantages", action_level=level)
    _, infos = env.reset(seed=0)
    teacher = ScriptedTeacher()
    while env.agents:
        actions = {a: teacher.advise(env, a) for a in env.agents if infos[a]["needs_action"]}
        _, _, _, _, infos = env.step(actions)
    assert infos["alice"]["episode_metrics"]["soups"] >= soups


def test_what_is_said_and_collected(tmp_path):
    env = TeacherMessages(registration.make("parallel", ENV_ID, action_level="goal"), "scripted")
    observations, _ = env.reset(seed=1)
    said = {agent: sayings.understand(observations[agent]["teacher_message"]) for agent in env.agents}
    assert said["alice"].mine == said["bob"].theirs == ("take", "onion")
    report = collect_labels(
        ENV_ID, tmp_path, env_config={"action_level": "goal", "horizon": 60}, policy="random", target_labels=40
    )
    assert report.complete and report.labels >= 40
