"""Games in rounds, side by side while a chat model thinks: the same course, in less time, and told of earlier games."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest
from chat_server import ChatServer
from planner_model import choices, planner

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.policies.decision import Decision, Policy
from rllib_llm_comm.policies.policy import make_environment
from rllib_llm_comm.policies.policy_manifest import GROUNDED, PolicyManifest

pytestmark = pytest.mark.usefixtures("chat_client_at_home")

LAYOUT = get_layout("cramped_room")
SETTINGS = {"observe": ["entities"], "action_level": "goal_cell", "horizon": 20, "commit": True}


class Walks(Policy):
    """Goes where it is told, or anywhere, by the numbers of its own episode."""

    manifest = PolicyManifest(
        "EMMA", {}, {}, env=SUBGOAL_ENV_ID, env_config={**SETTINGS, "subgoals": "sampled"}, kind=GROUNDED
    )

    def env(self, *, planning=None, **settings):
        return make_environment(self.manifest, settings, planning)

    def begin(self, seed):
        return np.random.default_rng(seed)

    def act_together(self, episodes, explore=True):
        return [{a: self._decision(rng, seen) for a, seen in by.items()} for rng, by in episodes]

    def _decision(self, rng, seen):
        number = LAYOUT.width * LAYOUT.height
        told = parse_subgoal(LAYOUT, seen["subgoal"])
        cell = int(rng.integers(number))
        if told is not None and rng.random() < 0.7:
            cell = told.cell[1] * LAYOUT.width + told.cell[0]
        return Decision(cell, "", {}, list("x" * number), np.full(number, 1 / number), 0.5, "")


class Late:
    """Plans after a while, and counts how many questions are under way."""

    def __init__(self):
        self.now, self.most, self._lock = 0, 0, threading.Lock()

    def __call__(self, prompt):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self._lock:
            self.now -= 1
        return answer(prompt)


def answer(prompt):
    if "Propose the next goal of the team" in prompt:
        first, second = choices(prompt)
        return json.dumps({"goal": "get on", "subgoals": [{"subgoal": first}, {"subgoal": second}]})
    return planner(prompt)


def played(server, tape, concurrent, policy=None, ahead=1, **options):
    chat = server.settings(max_concurrent=concurrent)
    chat |= {"cassette": str(tape), "ask_ahead": ahead}
    planner = {"name": "sama", "menu": "possible", "examples": 0, "chat": chat}
    planning = {"planner": planner, "patience": 5}
    return play_planned(
        policy or Walks(), planning=planning, seed=3, **{"trials": 1, "episodes": 4, "num_envs": 1, **options}
    )


def course(episode):
    rounds = json.loads(json.dumps(episode.rounds))
    for attempt in (attempt for attempts in rounds for attempt in attempts):
        attempt["plan"].pop("answered_by")  # which game asked first differs
        for one in attempt["plan"]["subgoals"]:
            one.pop("answered_by")
        if attempt["reflection"]:
            attempt["reflection"].pop("answered_by", None)
    return episode.seed, episode.returns, episode.length, rounds


def test_games_side_by_side_take_the_same_course(tmp_path):
    late, finished = Late(), []
    with ChatServer(late) as server:
        alone = played(server, tmp_path / "one.jsonl", 1)
        assert late.most == 1
        beside = played(server, tmp_path / "four.jsonl", 4, progress=lambda done, total: finished.append(done))
        assert late.most > 1 and finished == [1, 2, 3, 4]
    assert [course(one) for one in beside] == [course(one) for one in alone]
    assert [one.seed for one in beside] == [3, 4, 5, 6]
    lines = [set((tmp_path / name).read_text().splitlines()[1:]) for name in ("one.jsonl", "four.jsonl")]
    assert lines[0] == lines[1]
    assert sum(one.metrics["plan_requests"] for one in beside) == len(lines[1])  # each game pays for what it asked


@pytest.mark.parametrize("trials", [None, 0])
def test_a_game_more_is_begun_while_another_waits_and_each_takes_the_same_course(tmp_path, trials):
    late, under_way = Late(), []

    class Watched(Walks):
        def act_together(self, episodes, explore=True):
            under_way.append(late.now)
            time.sleep(0.01)  # the question of the game that was begun ahead comes in meanwhile
            return super().act_together(episodes, explore)

    seen, games = [], []
    for ahead in (0, 1):
        with ChatServer(late) as server:
            under_way.clear()
            tape = tmp_path / f"{ahead}.jsonl"
            games.append(played(server, tape, 1, Watched(), ahead, trials=trials))
            seen.append((len(server.requests), max(under_way)))
    assert late.most == 1  # one question at a time, as `max_concurrent` says
    assert seen[0][1] == 0 and seen[1][1] == 1  # cooks act while the question of another game is under way
    assert seen[0][0] == seen[1][0]  # not a question more
    assert [course(one) for one in games[0]] == [course(one) for one in games[1]]
    lines = [set((tmp_path / f"{ahead}.jsonl").read_text().splitlines()[1:]) for ahead in (0, 1)]
    assert lines[0] == lines[1]
    with ChatServer("nobody is asked") as server:  # what was recorded ahead plays back game by game
        recorded = {"name": "sama", "menu": "possible", "examples": 0, "chat": {"cassette": str(tmp_path / "1.jsonl")}}
        planning = {"planner": recorded, "patience": 5}
        again = play_planned(Walks(), planning=planning, seed=3, trials=trials, episodes=4, num_envs=1)
        assert not server.requests
    assert [course(one)[:3] for one in again] == [course(one)[:3] for one in games[0]]


def test_games_without_rounds_are_played_side_by_side(tmp_path):
    late, finished = Late(), []
    with ChatServer(late) as server:
        alone = played(server, tmp_path / "one.jsonl", 1, ahead=0, trials=None)
        assert late.most == 1
        beside = played(
            server, tmp_path / "four.jsonl", 4, trials=None, progress=lambda done, total: finished.append((done, total))
        )
    assert late.most > 1 and finished == [(number, 4) for number in (1, 2, 3, 4)]
    assert [course(one) for one in beside] == [course(one) for one in alone]


@pytest.mark.parametrize(("messages", "temperature"), [("other_moments", 0.0), ("other_fact", 0.0), ("student", 1.0)])
def test_games_whose_messages_are_drawn_from_one_source_are_played_in_their_order(tmp_path, messages, temperature):
    """Which game draws first would depend on which answer comes first."""

    class Talks(Walks):
        communication = type("Settings", (), {"messages": messages, "message_temperature": temperature})

    late = Late()
    with ChatServer(late) as server:
        played(server, tmp_path / "tape.jsonl", 4, Talks())
    assert late.most == 1


def test_a_failure_of_one_game_ends_all(tmp_path):
    with ChatServer(lambda prompt: planner(prompt)) as server:
        server.replies = [answer] * 12 + [400]
        with pytest.raises(UserError, match="HTTP 400"):
            played(server, tmp_path / "tape.jsonl", 4)


def test_games_that_are_told_of_earlier_ones_are_played_in_their_order():
    def proposes(prompt):
        if "Which things of the game" in prompt:
            return planner(prompt)
        assert "Give each of these subgoals" not in prompt
        return json.dumps({"goal": "wait", "subgoals": [{"subgoal": "wait"}, {"subgoal": "wait"}]})

    with ChatServer(proposes) as server:
        chat = server.settings(max_concurrent=4)
        planning = {"planner": {"name": "sama", "experience": 1, "examples": 0, "chat": chat}, "patience": 5}
        play_planned(Walks(), planning=planning, trials=0, episodes=2, env_config={"horizon": 12})
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert any("In an earlier game." in prompt for prompt in prompts)


@pytest.mark.parametrize("trials", [None, 0])
def test_the_things_that_matter_are_asked_for_once(trials):
    with ChatServer(Late()) as server:
        chat = server.settings(max_concurrent=4)
        planning = {"planner": {"name": "chat", "examples": 0, "chat": chat}, "patience": 5}
        games = play_planned(Walks(), planning=planning, trials=trials, episodes=4, env_config={"horizon": 6})
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert sum("Which things of the game" in prompt for prompt in prompts) == 1
    assert sum(game.metrics["plan_requests"] for game in games) == len(prompts)
