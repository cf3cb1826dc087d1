"""Games with people at the table, without a browser: who is asked, who is heard, who sees what."""

import json

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo import ParallelEnv

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.session_files import read_session
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.play.session_recorder import SessionRecorder
from rllib_llm_comm.play.table import SeatViews, Table
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import make_partner
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from rllib_llm_comm.verco.teachers.base import PeopleTeacher, ScriptedTeacher

SALADS = {"map_name": "B", "recipe": ["tomato salad", "onion salad"], "told_to": ["alice"], "max_game_steps": 40}


def table_of(game="overcooked_text", agents=("alice", "bob"), policy="scripted", seed=0, speech="own", **settings):
    def make(**more):
        return make_env(f"rllib_llm_comm/{game}-v0", **{**settings, **more})

    partner = make_partner(PartnerSettings(policy=policy, speech=speech), lambda path: None)
    return Table(SeatedPolicy(dict.fromkeys(agents, partner), make), make, seed=seed)


def play_as_taught(table, agent, most=200):
    """The person does what the scripted cook would."""
    teacher = ScriptedTeacher()
    for _ in range(most):
        if table.over:
            return
        if agent in table.thinking():
            table.choose(agent, teacher.advise(table.env.unwrapped, agent))
        table.advance()


class Countdown(ParallelEnv):
    """A stranger's game: numbers in place of words, other shapes and numbers of actions, one agent leaves early."""

    metadata = {"name": "countdown"}

    def __init__(self, names=("near", "far")):
        self.possible_agents, self.agents = list(names), []

    def observation_space(self, agent):
        return gym.spaces.Box(0, 9, (2,) if agent == self.possible_agents[0] else (1, 3))

    def action_space(self, agent):
        return gym.spaces.Discrete(2 if agent == self.possible_agents[0] else 4)

    def _told(self, agents):
        return {agent: np.full(self.observation_space(agent).shape, self.left, np.float32) for agent in agents}

    def reset(self, seed=None, options=None):
        self.left, self.agents = 3, list(self.possible_agents)
        return self._told(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions):
        agents, self.left = self.agents, self.left - 1
        ends = {agent: self.left == 0 or (agent == "far" and self.left == 1) for agent in agents}
        self.agents = [agent for agent in agents if not ends[agent]]
        rewards, cuts = {agent: float(actions[agent]) for agent in agents}, dict.fromkeys(agents, False)
        return self._told(agents), rewards, ends, cuts, {agent: {} for agent in agents}


@pytest.mark.parametrize("both", [True, False])
def test_a_game_of_a_stranger_has_seats(both, tmp_path):
    partner = make_partner(PartnerSettings(policy="random", noise=0.5), lambda path: None)
    table = Table(SeatedPolicy(dict.fromkeys(("near", "far"), partner), Countdown), Countdown)
    log = SessionRecorder(tmp_path / "session", table)
    table.sit("near", "Zo\u00eb")
    if both:
        table.sit("far", "Ben")
        table.say("far", "I leave early")
    table.say("near", "h\u00e4llo \u4f60\u597d")
    view = SeatViews(table).view("near")
    assert view["text"] == "[3., 3.]" and [one["action"] for one in view["options"]] == [0, 1]
    while not table.over:
        for seat in table.thinking():
            table.choose(seat, 1)
        table.advance()
    log.close()
    (episode,) = read_session(tmp_path / "session").episodes
    assert not list(PeopleTeacher(sessions=tmp_path / "session").recorded("", {})), "it saw no words"
    assert episode.returns["near"] == 3.0 and len(episode.moments) == 3
    assert episode.moments[0].agents["near"]["said"] == "h\u00e4llo \u4f60\u597d"
    assert episode.moments[0].people["near"].name == "Zo\u00eb"


def test_the_game_is_the_same_whoever_presses_the_keys():
    one, other = (table_of(seed=3, **SALADS) for _ in range(2))
    one.sit("bob")
    play_as_taught(one, "bob")
    while other.advance():
        pass
    assert one.episode.returns == other.episode.returns and one.moments == other.moments


def test_what_a_person_says_is_one_short_line_that_stays_until_the_next():
    table = table_of(**SALADS)
    table.sit("alice")
    assert table.say("alice", "Please bring\tthe  TOMATO!\n<script>") == "please bring the tomato"
    assert table.heard("bob") == {"alice": "please bring the tomato"}
    play_as_taught(table, "alice", most=3)
    assert table.heard("bob") == {"alice": "please bring the tomato"}
    assert len(table.say("alice", "word " * 500).split()) == table.max_words
    table.say("alice", "")
    assert table.heard("bob") == {}
    table.stand("alice")
    with pytest.raises(UserError, match="sit down first"):
        table.say("alice", "hello")


def test_seats_and_actions_that_cannot_be_taken():
    table = table_of(**SALADS)
    table.sit("alice", "Mary")
    for seat, told in (("alice", "Mary"), ("carol", "'carol'")):
        with pytest.raises(UserError, match=told):
            table.sit(seat)
    forbidden = int(np.flatnonzero(~table.allowed("alice"))[0])
    for action in (forbidden, -1, 99):
        with pytest.raises(UserError, match=f"action {action} "):
            table.choose("alice", action)
    red = table_of("minirts", policy="random", action_level="red", max_tick=1000)
    with pytest.raises(UserError, match="by hand"):
        red.sit("alice")


def test_a_seat_that_is_left_is_played_by_its_agent_again():
    table = table_of(**SALADS)
    table.sit("alice")
    assert not table.advance()
    table.stand("alice")
    while table.advance():
        pass
    assert table.over and table.episode.success
    table.restart(7)
    assert not table.over and table.seed == 7 and table.episodes == 2 and not table.lines


def test_a_seat_sees_what_its_agent_sees_and_no_more_and_two_are_both_waited_for():
    table = table_of(speech="scripted", **SALADS)
    order = table.env.unwrapped.kitchen.recipe
    views = SeatViews(table)
    for agent in table.agents:
        table.sit(agent)
    told, untold = (json.dumps({**views.view(agent), "picture": ""}) for agent in table.agents)
    assert order in told and order not in untold
    assert views.view("alice")["picture"] != views.view("bob")["picture"] != views.view(None)["picture"]
    assert views.view("bob")["text"] == table.game.observations["bob"]["text"]
    may = [option["action"] for option in views.view("bob")["options"]]
    assert may == np.flatnonzero(table.allowed("bob")).tolist()
    assert "texts" not in views.view("bob") and views.view(None)["texts"]["alice"]["told"] == order
    table.choose("alice", int(np.flatnonzero(table.allowed("alice"))[0]))
    assert table.thinking() == ["bob"] and not table.advance(), "two people are both waited for"
    table.choose("bob", may[0])
    assert table.advance() and table.moments == 1
    assert not [line for line in views.view("bob")["log"] if line["agent"] == "alice" and line["phrase"]]


@pytest.mark.parametrize(
    ("game", "settings", "keys"),
    [
        ("overcooked_ai", {"horizon": 40},
         {"ArrowUp": 0, "ArrowDown": 1, "ArrowRight": 2, "ArrowLeft": 3, ".": 4, " ": 5}),
        ("overcooked_ai", {"action_level": "goal", "horizon": 40}, {}),
        ("overcooked_text", {"action_level": "primitive", "max_game_steps": 20},
         {"ArrowRight": 0, "ArrowDown": 1, "ArrowLeft": 2, "ArrowUp": 3, ".": 4}),
        ("frozen_lake", {}, {".": 0, "ArrowLeft": 1, "ArrowDown": 2, "ArrowRight": 3, "ArrowUp": 4}),
        ("overcooked_text", {"max_game_steps": 20}, {}), ("door", {}, {}), ("referential", {}, {}),
    ],
)  # fmt: skip
def test_every_game_has_a_seat_for_a_person(game, settings, keys):
    table = table_of(game, policy="random", **settings)
    table.sit("alice")
    view = SeatViews(table).view("alice")
    assert view["keys"] == keys and view["asked"] and len(view["options"]) > 0 and view["text"]
    assert bool(view["picture"]) == (game in ("overcooked_ai", "overcooked_text", "frozen_lake"))
    while not table.over:
        if table.thinking():
            table.choose("alice", int(np.flatnonzero(table.allowed("alice"))[0]))
        table.advance()
    assert table.moments > 0


def test_the_lake_shows_a_walker_neither_holes_nor_targets():
    pictures = []
    for settings in ({}, {"layout": ["1..2", "....", "....", "b..a"]}):
        table = table_of("frozen_lake", policy="random", **settings)
        table.sit("alice")
        pictures.append(SeatViews(table).view("alice")["picture"])
    assert pictures[0] == pictures[1], "lakes whose walkers start in the same places look the same"
