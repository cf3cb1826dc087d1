"""Played under a planner: what counts, the tree of attempts on the replay page, and games side by side."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
from chat_server import ChatServer, Late
from planner_model import choices, planner
from test_replay import NASTY, checked, opened

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import figures_of
from rllib_llm_comm.policies.decision import Decision, Policy
from rllib_llm_comm.policies.policy import make_environment
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, PolicyManifest
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from tests.refusal import refused

pytestmark = pytest.mark.usefixtures("chat_client_at_home")
BY_RULES = {"planner": "scripted", "patience": 9}
SETTINGS = {"observe": ["entities"], "action_level": "goal_cell", "horizon": 40}


class Obedient(Policy):
    """Goes where it is told, but bob fetches nothing from the right crate."""

    manifest = PolicyManifest(
        "EMMA", {}, {}, env=SUBGOAL_ENV_ID, env_config={**SETTINGS, "subgoals": "sampled", "patience": 7}, kind=GROUNDED
    )

    def env(self, *, planning=None, **settings):
        self.game = make_environment(self.manifest, settings, planning)
        return self.game

    def begin(self, seed):
        return np.random.default_rng(seed)

    def act_together(self, episodes, explore=True):
        return [{agent: self.decision(agent, seen) for agent, seen in seen_by.items()} for _, seen_by in episodes]

    def decision(self, agent, seen):
        kitchen = self.game.unwrapped.kitchen
        lazy = agent == "bob" and "right onion crate" in seen["subgoal"]
        told = None if lazy else parse_subgoal(kitchen.layout, seen["subgoal"])
        x, y = told.cell if told else kitchen.cook(int(agent == "bob")).cell
        number = kitchen.layout.width * kitchen.layout.height
        return Decision(y * kitchen.layout.width + x, "", {}, list("x" * number), np.full(number, 1 / number), 0.5, "")


class Idle(Obedient):
    """Stays where it is, told or not."""

    def decision(self, agent, seen):
        return Decision(0, "", {}, ["x"], np.ones(1), 0.5, "")


class Listens(Idle):
    """Hears something at every moment and would do the same in silence, with less confidence."""

    def decision(self, agent, seen):
        return Decision(0, "", {"else": "stay"}, ["x", "y"], np.array([0.9, 0.1]), 0.5, "")

    def judge(self, rows):
        assert all(heard == {} for *_, heard in rows)
        return np.tile([0.6, 0.4], (len(rows), 1))


@pytest.fixture(scope="module")
def reflected():
    return play_planned(Obedient(), planning=BY_RULES, trials=2, seed=3, episodes=2, keep_frames=True)


def assert_shown(episode, attempt):
    """The frame of an attempt shows the subgoals of its plan."""
    told = {one["agent"]: one["subgoal"] for one in attempt["plan"]["subgoals"]}
    assert told == {agent: card["subgoal"] for agent, card in episode.frames[attempt["frame"]]["agents"].items()}


def test_what_was_put_back_counts_for_nothing(reflected):
    for episode in reflected:
        stood = [attempts[-1] for attempts in episode.rounds]
        assert episode.metrics["reflections"] == sum(len(attempts) - 1 for attempts in episode.rounds) > 0
        assert episode.length == 40 == sum(attempt["end"] - attempt["start"] for attempt in stood)
        assert episode.returns["alice"] == sum(attempt["returns"]["alice"] for attempt in stood)
        assert episode.returns["alice"] == episode.metrics["score"]
        frames = [attempt["frame"] for attempts in episode.rounds for attempt in attempts]
        assert frames == sorted(set(frames)) and frames[0] == 0
        for attempts in episode.rounds:
            steps = {episode.frames[attempt["frame"]]["game_step"] for attempt in attempts}
            assert len(steps) == 1 and all(attempt["reflection"] for attempt in attempts[:-1])
        for attempt in (attempt for attempts in episode.rounds for attempt in attempts):
            assert_shown(episode, attempt)
        # Each step of each attempt has a frame; so has the end of those that were put back, and of the episode.
        steps = sum(attempt["end"] - attempt["start"] for attempts in episode.rounds for attempt in attempts)
        assert len(episode.frames) == steps + episode.metrics["reflections"] + 1
    assert figures_of(reflected, True).metrics["reflections"] > 0


def test_without_frames_and_played_again_instead_of_put_back_the_same_comes_out(reflected):
    resets = []

    class Watched(Obedient):
        def env(self, **settings):
            game = super().env(**settings)
            reset = game.reset
            game.reset = lambda **given: resets.append(given) or reset(**given)
            return game

    again = play_planned(Watched(), planning=BY_RULES, trials=2, seed=3, episodes=2, recover="replay")
    assert [episode.metrics for episode in again] == [episode.metrics for episode in reflected]
    assert not again[0].frames
    assert len(resets) == 2 + sum(episode.metrics["reflections"] for episode in again)


@pytest.mark.parametrize("trials", [None, 1])
def test_decisions_are_scored_in_silence_in_all_attempts(trials):
    (episode,) = play_planned(Listens(), planning=BY_RULES, trials=trials, seed=3, keep_frames=True)
    cards = [card for frame in episode.frames for card in frame["agents"].values() if not card["busy"]]
    assert cards and all((card["silent"], card["influence"]) == ([0.6, 0.4], 0.3) for card in cards)
    assert episode.no_silence == "" and not any(card["changed"] for card in cards)
    how = {"trials": trials, "keep_frames": True, "counterfactuals": False}
    (plain,) = play_planned(Listens(), planning=BY_RULES, seed=3, **how)
    assert not any("silent" in card for frame in plain.frames for card in frame["agents"].values())
    assert "`counterfactuals` is off" in plain.no_silence


def test_plans_without_reflection_are_told_as_well():
    (episode,) = play_planned(Obedient(), planning={"planner": "plan4mc"}, seed=3, keep_frames=True)
    assert {len(attempts) for attempts in episode.rounds} == {1}
    assert episode.metrics["plans"] == len(episode.rounds) and episode.rounds[0][0]["plan"]["planner"] == "plan4mc"
    for (attempt,) in episode.rounds:
        assert_shown(episode, attempt)
    assert sum(attempt["returns"]["alice"] for (attempt,) in episode.rounds) == episode.returns["alice"]


def test_the_game_is_taken_without_its_own_subgoals():
    policy = Obedient()
    assert policy.env().unwrapped.metadata["name"] == "overcooked_ai_subgoals_v0"
    env = policy.env(planning={"planner": "scripted"}, horizon=12)
    assert isinstance(env, PlannedSubgoals) and env.unwrapped.metadata["name"] == "overcooked_ai_v0"
    assert env.unwrapped.settings["horizon"] == 12 and "patience" not in env.unwrapped.settings
    env.reset(seed=0)
    bare = policy.env(planning={"planner": None})
    assert bare.reset(seed=0)[0]["bob"]["subgoal"] == "" and not isinstance(bare, PlannedSubgoals)


def test_who_cannot_be_told_is_not_asked():
    manifest = PolicyManifest("MAPPO", {}, {}, env="rllib_llm_comm/overcooked_ai-v0", kind=NUMERIC)
    with pytest.raises(UserError, match="without"):
        make_environment(manifest, {}, {"planner": "scripted"})
    planner = {"planner": "scripted"}
    for how, told in (
        ({"trials": 2}, ("trials",)), ({"planning": {"patience": 5}}, ("patience",)),
        ({"planning": planner, "recover": "replay"}, ("recover", "invalid", "`trials`")),
        ({"planning": planner, "trials": 1, "recover": "hope"}, ("recover", "choice")),
    ):  # fmt: skip
        with refused(*told):
            play_planned(Obedient(), **how)


@pytest.mark.parametrize("how", [{}, {"num_envs": 2, "episodes": 2}, {"trials": 1}])
def test_episodes_without_any_plan_do_not_count(how, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    chat = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0, "requests_per_minute": 1e6}
    planning = {"planner": {"name": "chat", "chat": chat}, "patience": 9}
    with pytest.raises(UserError, match="no plan.*`base_url`"):
        play_planned(Idle(), planning=planning, **how)


def test_the_page_shows_the_tree_of_games_with_plans_alone(reflected, chromium, tmp_path):
    episode = reflected[0]
    first = episode.rounds[0][0]
    refusal = {"phase": "assignment", "subgoal": NASTY, "reason": "bob holds nothing", "instead": "", "chosen_by": ""}
    first["plan"]["refused"] = [refusal]
    page = write_replay(episode, tmp_path / "tree.html")
    assert NASTY not in page.read_text()
    data = checked(page.read_text())["sides"][0]["episodes"][0]
    # The sums of rewards begin again where the game was put back.
    last = data["frames"][-1]["agents"]["alice"]["total"]
    assert last == pytest.approx(episode.returns["alice"])
    undone = [frame for frame in data["frames"] if frame["undone"]]
    assert 0 < len(undone) < len(data["frames"])
    at = next(number for number, frame in enumerate(data["frames"]) if frame["undone"])
    dom = opened(chromium, page, at)
    assert 'data-status="ready"' in dom and 'data-undone="true"' in dom and "later put back" in dom
    attempts = sum(map(len, episode.rounds))
    assert len(re.findall(r'<button class="try', dom)) == attempts and dom.count('class="try now"') == 1
    assert dom.count('class="tag undone">put back<') == episode.metrics["reflections"]
    assert dom.count(">stands<") == len(episode.rounds) and dom.count("was blamed. ") >= episode.metrics["reflections"]
    assert "answered by: rules" in dom and "Answered by: " in dom
    assert "refused: &lt;script&gt;alert(1)" in dom and "bob holds nothing" in dom
    (bare,) = play_planned(Obedient(), seed=3, keep_frames=True)
    assert bare.rounds == [] and 'class="try' not in opened(chromium, write_replay(bare, tmp_path / "bare.html"), 0)


LAYOUT = get_layout("cramped_room")
SHORT = {**SETTINGS, "horizon": 20, "commit": True}


class Walks(Obedient):
    """Goes where it is told, or anywhere, by the numbers of its own episode."""

    manifest = PolicyManifest(
        "EMMA", {}, {}, env=SUBGOAL_ENV_ID, env_config={**SHORT, "subgoals": "sampled"}, kind=GROUNDED
    )

    def act_together(self, episodes, explore=True):
        return [{a: self._decision(rng, seen) for a, seen in by.items()} for rng, by in episodes]

    def _decision(self, rng, seen):
        number = LAYOUT.width * LAYOUT.height
        told = parse_subgoal(LAYOUT, seen["subgoal"])
        cell = int(rng.integers(number))
        if told is not None and rng.random() < 0.7:
            cell = told.cell[1] * LAYOUT.width + told.cell[0]
        return Decision(cell, "", {}, list("x" * number), np.full(number, 1 / number), 0.5, "")


def answer(prompt):
    if "Propose the next goal of the team" in prompt:
        first, second = choices(prompt)
        return json.dumps({"goal": "get on", "subgoals": [{"subgoal": first}, {"subgoal": second}]})
    return planner(prompt)


def played(chat, policy=None, **options):
    """Four games of SAMA, one after the other as far as the chat settings allow."""
    planner = {"name": "sama", "menu": "possible", "examples": 0, "chat": chat}
    how = {"trials": 1, "episodes": 4, "num_envs": 1, **options}
    return play_planned(policy or Walks(), planning={"planner": planner, "patience": 5}, seed=3, **how)


def asking(server, tape, concurrent, ahead=1):
    return server.settings(max_concurrent=concurrent, cassette=str(tape), ask_ahead=ahead)


def recorded_in(tape):
    return set(tape.read_text().splitlines()[1:])


def course(episode):
    rounds = json.loads(json.dumps(episode.rounds))
    for attempt in (attempt for attempts in rounds for attempt in attempts):
        attempt["plan"].pop("answered_by")  # which game asked first differs
        for one in attempt["plan"]["subgoals"]:
            one.pop("answered_by")
        if attempt["reflection"]:
            attempt["reflection"].pop("answered_by", None)
    return episode.seed, episode.returns, episode.length, rounds


@pytest.mark.parametrize("trials", [None, 1])
def test_games_side_by_side_take_the_same_course(tmp_path, trials):
    late, finished = Late(answer), []
    ahead = 0 if trials is None else 1
    with ChatServer(late) as server:
        alone = played(asking(server, tmp_path / "one.jsonl", 1, ahead), trials=trials)
        assert late.most == 1
        late.together = 2
        four, count = asking(server, tmp_path / "four.jsonl", 4, ahead), lambda *counts: finished.append(counts)
        beside = played(four, trials=trials, progress=count)
    assert late.most > 1 and finished == [(number, 4) for number in (1, 2, 3, 4)]
    assert [course(one) for one in beside] == [course(one) for one in alone]
    assert [one.seed for one in beside] == [3, 4, 5, 6]
    asked = recorded_in(tmp_path / "four.jsonl")
    assert recorded_in(tmp_path / "one.jsonl") == asked
    assert sum(one.metrics["plan_requests"] for one in beside) == len(asked)  # each game pays for what it asked


@pytest.mark.parametrize("trials", [None, 0])
def test_a_game_more_is_begun_while_another_waits_and_each_takes_the_same_course(tmp_path, trials):
    late, under_way = Late(answer), []

    class Watched(Walks):
        def act_together(self, episodes, explore=True):
            under_way.append(late.now)
            time.sleep(0.01)  # the question of the game that was begun ahead comes in meanwhile
            return super().act_together(episodes, explore)

    seen, games = [], []
    for ahead in (0, 1):
        with ChatServer(late) as server:
            under_way.clear()
            games.append(played(asking(server, tmp_path / f"{ahead}.jsonl", 1, ahead), Watched(), trials=trials))
            seen.append((len(server.requests), max(under_way)))
    assert late.most == 1  # one question at a time, as `max_concurrent` says
    assert seen[0][1] == 0 and seen[1][1] == 1  # cooks act while the question of another game is under way
    assert seen[0][0] == seen[1][0]  # not a question more
    assert [course(one) for one in games[0]] == [course(one) for one in games[1]]
    assert recorded_in(tmp_path / "0.jsonl") == recorded_in(tmp_path / "1.jsonl")
    with ChatServer("nobody is asked") as server:  # what was recorded ahead plays back game by game
        again = played({"cassette": str(tmp_path / "1.jsonl")}, trials=trials)
        assert not server.requests
    assert [course(one)[:3] for one in again] == [course(one)[:3] for one in games[0]]


@pytest.mark.parametrize(("messages", "temperature"), [("other_fact", 0.0), ("student", 1.0)])
def test_games_whose_messages_are_drawn_from_one_source_are_played_in_their_order(tmp_path, messages, temperature):
    """Which game draws first would depend on which answer comes first."""

    class Talks(Walks):
        communication = type("Settings", (), {"messages": messages, "message_temperature": temperature})

    late = Late(answer)
    with ChatServer(late) as server:
        played(asking(server, tmp_path / "tape.jsonl", 4), Talks())
    assert late.most == 1


def test_a_failure_of_one_game_ends_all(tmp_path):
    with ChatServer(lambda prompt: planner(prompt)) as server:
        server.replies = [answer] * 12 + [400]
        with pytest.raises(UserError, match="HTTP 400"):
            played(asking(server, tmp_path / "tape.jsonl", 4))


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
    with ChatServer(Late(answer)) as server:
        chat = server.settings(max_concurrent=4)
        planning = {"planner": {"name": "chat", "examples": 0, "chat": chat}, "patience": 5}
        games = play_planned(Walks(), planning=planning, trials=trials, episodes=4, env_config={"horizon": 6})
        prompts = [body["messages"][-1]["content"] for body in server.requests]
    assert sum("Which things of the game" in prompt for prompt in prompts) == 1
    assert sum(game.metrics["plan_requests"] for game in games) == len(prompts)
