"""The loop in which everything is played, its observers, and the words in which players read events."""

from __future__ import annotations

import dataclasses

import pytest
from test_counterfactuals import told
from test_replay import RandomCooks
from toys import ColourTalk

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.door import parallel_env as door
from rllib_llm_comm.envs.frozen_lake import parallel_env as lake
from rllib_llm_comm.envs.overcooked_ai.kernel import EVENTS
from rllib_llm_comm.envs.overcooked_text import parallel_env
from rllib_llm_comm.evaluation.frames import event_words
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.rollout import Episode, evaluate, play, record
from rllib_llm_comm.policies.decision import Policy, unweighed
from rllib_llm_comm.policies.play_loop import Observer, PlayedGame, play_games


class First(Policy):
    """Takes the first action, in many games at once."""

    def __init__(self):
        self.resets, self.sizes = [], []

    def reset(self, seed=None):
        self.resets.append(seed)

    def act_together(self, requests, explore=True):
        self.sizes.append(len(requests))
        return [{agent: unweighed(0) for agent in request.observations} for request in requests]


class Log(Observer):
    def __init__(self):
        self.told = []

    def on_start(self, game):
        self.told.append(("start", game.seed))

    def on_decisions(self, game, decisions):
        self.told.append(("decisions", game.seed))
        assert set(decisions) == set(game.asked)

    def on_step(self, game):
        self.told.append(("step", game.seed))
        assert game.rewards

    def on_end(self, game):
        self.told.append(("end", game.seed))
        assert game.over


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_observers_see_each_game_in_order_and_a_game_that_is_over_makes_room(at_once):
    policy, log, lengths = First(), Log(), iter((2, 5, 3))
    play_games(policy, lambda: ColourTalk(length=next(lengths)), [7, 8, 9], observers=[log], at_once=at_once)
    assert policy.resets == ([7, 8, 9] if at_once == 1 else [7])
    assert max(policy.sizes) == at_once
    for seed in (7, 8, 9):
        own = [what for what, number in log.told if number == seed]
        assert own[0] == "start" and own[-1] == "end" and own[1:-1] == ["decisions", "step"] * (len(own) // 2 - 1)


def test_what_is_no_policy_is_told_at_once():
    class Acts:
        def act(self, observations, explore=True):
            raise AssertionError

    for call in (evaluate, play, record):
        for wrong in (Acts(), First, None):
            with pytest.raises(UserError, match="OneGamePolicy"):
                call(wrong, episodes=1, env=ColourTalk(length=1))
    with pytest.raises(UserError, match="environment"):
        evaluate(First(), episodes=1)


@pytest.mark.parametrize(("game", "counts"), [(parallel_env, True), (lake, True), (door, False), (ColourTalk, False)])
def test_collisions_are_told_of_games_that_count_them(game, counts):
    assert (evaluate(First(), episodes=1, env=game()).collisions_mean is not None) is counts


def test_decisions_that_nobody_weighed_are_recorded_too_and_steps_without_any_are_counted(tmp_path):
    log = Log()
    game = PlayedGame(ColourTalk(length=1), 0, [log])
    game.advance(dict.fromkeys(game.asked, 0))
    assert [what for what, _ in log.told] == ["start", "step", "end"]
    (episode,) = record(First(), env=ColourTalk(length=2))
    assert [card["phrase"] for card in episode.frames[0]["agents"].values()] == ["0", "0"]
    assert write_replay(episode, tmp_path / "page.html").is_file()


def test_players_read_events_in_words_in_all_kitchens_and_on_the_ice():
    assert event_words("overcooked_text", ["place_on_board onion", "pick_up plate1", "blocked"]) == [
        "puts the onion on the board", "picks up the bowl", "is blocked",
    ]  # fmt: skip
    soups = event_words("overcooked_ai", EVENTS)
    assert "puts an onion into a pot" in soups and len(soups) == 11
    assert event_words("frozen_lake", ["slipped", "fell"]) == ["slips", "falls into a hole"]
    assert event_words("", ["took_coin", "{}"]) == ["took coin", "{}"]
    assert event_words("overcooked_text", ["melted {0}"]) == ["melted {0}"]  # of another version
    assert not any("_" in word for word in soups)


def page_events(episode, tmp_path):
    frames = told(write_replay(episode, tmp_path / "page.html"))["frames"]
    return {event for frame in frames for card in frame["agents"].values() for event in card["events"]}


@pytest.mark.parametrize("env", [parallel_env(max_game_steps=60), lake(observe=["text"], horizon=20)])
def test_a_replay_tells_events_in_words(tmp_path, env):
    (episode,) = record(RandomCooks(), env=env)
    recorded = {event for frame in episode.frames for card in frame["agents"].values() for event in card["events"]}
    assert recorded and not recorded & page_events(episode, tmp_path)  # records keep the game's own names
    unknown: Episode = dataclasses.replace(episode, game="")
    assert page_events(unknown, tmp_path) == {event.replace("_", " ") for event in recorded}
