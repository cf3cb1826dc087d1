"""Played under a planner, with and without reflection: what counts, and the tree of attempts on the replay page."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pydantic import TypeAdapter
from test_replay import NASTY, opened

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.replay_schema import ReplayPage
from rllib_llm_comm.evaluation.rollout import figures_of
from rllib_llm_comm.policies.decision import Decision, Policy
from rllib_llm_comm.policies.policy import make_environment
from rllib_llm_comm.policies.policy_manifest import GROUNDED, NUMERIC, PolicyManifest
from rllib_llm_comm.sama.planned_env import PlannedSubgoals

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
    planning = {"planner": "scripted", "patience": 9}
    return play_planned(Obedient(), planning=planning, trials=2, seed=3, episodes=2, keep_frames=True)


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
            shown = episode.frames[attempt["frame"]]["agents"]
            assert {one["agent"]: one["subgoal"] for one in attempt["plan"]["subgoals"]} == {
                agent: card["subgoal"] for agent, card in shown.items()
            }
        # Each step of each attempt has a frame; so has the end of those that were put back, and of the episode.
        steps = sum(attempt["end"] - attempt["start"] for attempts in episode.rounds for attempt in attempts)
        assert len(episode.frames) == steps + episode.metrics["reflections"] + 1
    assert figures_of(reflected, True).metrics["reflections"] > 0


def test_without_frames_the_same_comes_out(reflected):
    planning = {"planner": "scripted", "patience": 9}
    again = play_planned(Obedient(), planning=planning, trials=2, seed=3, episodes=2)
    assert [episode.metrics for episode in again] == [episode.metrics for episode in reflected]
    assert not again[0].frames


def test_played_again_instead_of_put_back_the_same_comes_out(reflected):
    resets = []

    class Watched(Obedient):
        def env(self, **settings):
            game = super().env(**settings)
            reset = game.reset
            game.reset = lambda **given: resets.append(given) or reset(**given)
            return game

    planning = {"planner": "scripted", "patience": 9}
    again = play_planned(Watched(), planning=planning, trials=2, recover="replay", seed=3, episodes=2)
    assert [episode.metrics for episode in again] == [episode.metrics for episode in reflected]
    assert len(resets) == 2 + sum(episode.metrics["reflections"] for episode in again)


@pytest.mark.parametrize("trials", [None, 1])
def test_decisions_are_scored_in_silence_in_all_attempts(trials):
    planning = {"planner": "scripted", "patience": 9}
    (episode,) = play_planned(Listens(), planning=planning, trials=trials, seed=3, keep_frames=True)
    cards = [card for frame in episode.frames for card in frame["agents"].values() if not card["busy"]]
    assert cards and all((card["silent"], card["influence"]) == ([0.6, 0.4], 0.3) for card in cards)
    assert episode.no_silence == "" and not any(card["changed"] for card in cards)
    how = {"trials": trials, "keep_frames": True, "counterfactuals": False}
    (plain,) = play_planned(Listens(), planning=planning, seed=3, **how)
    assert not any("silent" in card for frame in plain.frames for card in frame["agents"].values())
    assert "`counterfactuals` is off" in plain.no_silence


def test_plans_without_reflection_are_told_as_well():
    (episode,) = play_planned(Obedient(), planning={"planner": "plan4mc"}, seed=3, keep_frames=True)
    assert {len(attempts) for attempts in episode.rounds} == {1}
    assert episode.metrics["plans"] == len(episode.rounds) and episode.rounds[0][0]["plan"]["planner"] == "plan4mc"
    for (attempt,) in episode.rounds:
        told = {one["agent"]: one["subgoal"] for one in attempt["plan"]["subgoals"]}
        shown = {agent: card["subgoal"] for agent, card in episode.frames[attempt["frame"]]["agents"].items()}
        assert shown == told
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
    with pytest.raises(UserError, match="trained without one"):
        make_environment(manifest, {}, {"planner": "scripted"})
    with pytest.raises(UserError, match="`trials` is 2 but nobody plans"):
        play_planned(Obedient(), trials=2)
    with pytest.raises(UserError, match="`patience` is 5 but nobody plans"):
        play_planned(Obedient(), planning={"patience": 5})
    with pytest.raises(UserError, match="`recover` is 'replay' but `trials` is not set"):
        play_planned(Obedient(), planning={"planner": "scripted"}, recover="replay")
    with pytest.raises(UserError, match="`recover` is 'hope'"):
        play_planned(Obedient(), planning={"planner": "scripted"}, trials=1, recover="hope")


@pytest.mark.parametrize("how", [{}, {"num_envs": 2, "episodes": 2}, {"keep_frames": True}, {"trials": 1}])
def test_episodes_without_any_plan_do_not_count(how, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    chat = {"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0, "requests_per_minute": 1e6}
    planning = {"planner": {"name": "chat", "chat": chat}, "patience": 9}
    with pytest.raises(UserError, match="made no plan.*no connection.*`base_url`"):
        play_planned(Idle(), planning=planning, **how)


def test_the_page_shows_the_tree(reflected, tmp_path):
    episode = reflected[0]
    first = episode.rounds[0][0]
    refusal = {"phase": "assignment", "subgoal": NASTY, "reason": "bob holds nothing", "instead": "", "chosen_by": ""}
    first["plan"]["refused"] = [refusal]
    page = write_replay(episode, tmp_path / "tree.html")
    text = page.read_text()
    assert NASTY not in text
    told = re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1)
    data = TypeAdapter(ReplayPage).validate_json(told)["sides"][0]["episodes"][0]
    # The sums of rewards begin again where the game was put back.
    last = data["frames"][-1]["agents"]["alice"]["total"]
    assert last == pytest.approx(episode.returns["alice"])
    undone = [frame for frame in data["frames"] if frame["undone"]]
    assert 0 < len(undone) < len(data["frames"])
    at = next(number for number, frame in enumerate(data["frames"]) if frame["undone"])
    dom = opened(page, tmp_path, at)
    assert 'data-status="ready"' in dom and 'data-undone="true"' in dom and "later put back" in dom
    attempts = sum(map(len, episode.rounds))
    assert len(re.findall(r'<button class="try', dom)) == attempts and dom.count('class="try now"') == 1
    assert dom.count('class="tag undone">put back<') == episode.metrics["reflections"]
    assert dom.count(">stands<") == len(episode.rounds) and dom.count("was blamed. ") >= episode.metrics["reflections"]
    assert "refused: &lt;script&gt;alert(1)" in dom and "bob holds nothing" in dom


def test_games_without_plans_have_no_tree(tmp_path):
    (episode,) = play_planned(Obedient(), seed=3, keep_frames=True)
    assert episode.rounds == []
    assert 'class="try' not in opened(write_replay(episode, tmp_path / "bare.html"), tmp_path, 0)
