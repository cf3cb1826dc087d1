"""Cross-play of hand-made policies whose matrix is known, its statistics, page, replay and command; under a planner."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hostile import write_checkpoint
from toys import register, write_talker
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.overcooked_ai.actions import own_actions
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings, require_metric, write_cross_play
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.evaluation.replay import write_replay
from rllib_llm_comm.evaluation.statistics import jackknife
from rllib_llm_comm.sama.planned_env import PlannedSubgoals
from rllib_llm_comm.sama.plans import Planner
from tests.evaluation.corridor import CORRIDOR
from tests.evaluation.corridor import register as register_corridor
from tests.evaluation.kitchens import AI, write_cook, write_follower
from tests.refusal import refused

DOOR, RING = "rllib_llm_comm/door-v0", "zoo:soup_coordination_ring"
register_corridor()


def door(*players, partners=None, **settings):
    return CrossPlay(players, partners, CrossPlaySettings(env=DOOR, **{"episodes": 4, **settings}))


def test_the_matrix_of_players_whose_scores_are_known():
    """Bob alone opens the door: the scripted player always, one who stays never, whoever alice is."""
    found = door("scripted", "stay").play()
    alice, bob = found.matrix(0), found.matrix(1)
    win = alice[0, 0]
    assert win > 0
    assert alice.tolist() == [[win, 0.0], [win, 0.0]] and bob.tolist() == [[win, win], [0.0, 0.0]]
    told = found.to_json()
    assert told["self_play"] == {"mean": win / 2, "standard_error": win / 2}
    assert told["cross_play"]["mean"] == win / 2 and told["cross_play"]["standard_error"] is None  # of two seeds
    assert told["cross_play"]["by_seat"]["alice"]["mean"] == win / 2
    assert told["cross_play"]["by_player"] == {"alice": [0.0, win], "bob": [win, 0.0]}
    assert told["gap"]["mean"] == 0.0
    assert len(told["games"]) == 4 and all(len(game["scores"]) == 4 for game in told["games"])
    assert {"alice": "stay", "bob": "scripted"} in [game["seats"] for game in told["games"]]


def test_groups_of_unseen_partners_in_both_seats():
    partners = {"idle": ["stay"], "helpers": [{"policy": "scripted", "name": "helper"}, "random"]}
    found = door("scripted", {"policy": "scripted", "name": "other"}, partners=partners).play()
    win = found.self_play().value
    idle = found.to_json()["groups"]["idle"]
    assert idle["matrix"] == {"alice": [[0.0], [0.0]], "bob": [[win], [win]]}
    assert idle["mean"] == win / 2 and idle["standard_error"] == 0.0
    assert idle["by_seat"]["bob"]["mean"] == win and idle["by_seat"]["alice"]["mean"] == 0.0
    helpers = found.to_json()["groups"]["helpers"]
    assert [one["name"] for one in helpers["partners"]] == ["helper", "random"]
    assert helpers["matrix"]["alice"][0][0] == win > helpers["matrix"]["alice"][0][1]
    assert found.gap().value == 0.0


def test_checkpoints_are_told_by_their_weights(tmp_path):
    """Two trainings under one path can be told apart; other players have no weights."""

    register()

    def digest():
        cross = CrossPlay([str(tmp_path / "talker"), "random"], None, CrossPlaySettings(episodes=1))
        told = cross.play().to_json()["players"]
        assert "digest" not in told[1]
        return told[0]["digest"]

    write_talker(tmp_path / "talker")
    first = digest()
    assert digest() == first
    write_talker(tmp_path / "talker", lora_layers=1)
    assert digest() != first
    twice = [{"policy": str(tmp_path / "talker"), "name": name} for name in ("a", "b")]
    notes = CrossPlay(twice, None, CrossPlaySettings(episodes=1)).play().notes
    assert notes == ["b has the weights of a: the two are one seed, counted twice."]


def test_longer_texts_than_in_the_training_of_players_and_partners_need_more_room(tmp_path):
    register()
    talker = str(write_talker(tmp_path / "talker"))
    wide = {"policy": talker, "name": "wide", "max_prompt_tokens": 600}
    cross = CrossPlay([talker, wide], None, CrossPlaySettings(episodes=1, max_prompt_tokens=8))
    assert [one.policy.network.settings.max_prompt_tokens for one in cross._entrants] == [8, 600]
    done = CliRunner().invoke(cli, ["crossplay", talker, talker, "--max-prompt-tokens", "8"])
    assert "`max_prompt_tokens` is 8" in str(done.exception)


def test_games_of_more_than_two_seats():
    three = {"num_agents": 3, "max_game_steps": 20}
    settings = CrossPlaySettings(env="rllib_llm_comm/overcooked_text-v0", episodes=1, env_config=three)
    cross = CrossPlay(["random", "stay"], None, settings)
    assert len(cross.agents) == 3
    found = cross.play()
    assert len(found.scores) == 2 + 2 * 3  # each with itself, and each in each seat beside two of the other
    assert len(found.to_json()["matrix"]) == 3
    assert found.to_json()["cross_play"]["by_player"].keys() == {"alice", "bob", "carol"}


def test_the_standard_error_is_that_over_seeds():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    found = jackknife(4, lambda kept: float(values[kept].mean()))
    assert found == pytest.approx((4.0, values.std(ddof=1) / math.sqrt(4)))
    assert math.isnan(jackknife(1, lambda kept: 1.0).standard_error)


def test_the_error_of_cross_play_covers_pairs_that_share_a_seed():
    """Scores are sums of two seeds' skills: the mean over pairs varies as twice the mean of skills."""
    rng = np.random.default_rng(0)
    means, errors, naive = [], [], []
    for _ in range(400):
        skill = rng.normal(size=6)
        table = skill[:, None] + skill[None, :]
        off = ~np.eye(6, dtype=bool)

        def mean(kept, table=table):
            part = table[np.ix_(kept, kept)]
            return float(part[~np.eye(len(kept), dtype=bool)].mean())

        found = jackknife(6, mean)
        means.append(found.value)
        errors.append(found.standard_error)
        naive.append(table[off].reshape(6, 5).mean(1).std(ddof=1) / math.sqrt(6))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.12)
    assert np.mean(naive) < 0.65 * np.std(means)


def test_page_and_replay_of_a_cell(tmp_path):
    cross = door({"policy": "scripted", "name": "<b>one"}, "stay", partners={"chance": ["random"]})
    page = write_cross_play(cross.play(), tmp_path / "cross.html").read_text(encoding="utf-8")
    assert "<b>one" not in page and "&lt;b&gt;one" in page
    assert page.count(">all others<") == 2 and page.count("<td>") == 4 * 2 + 4 * 3  # a column per seat, then figures
    assert page.count('class="cell"') == 2 * (4 + 2) and "http" not in page.replace("http-equiv", "")
    colours = set(re.findall(r"background: (rgb\([^)]*\))", page))
    assert {"rgb(255, 253, 249)", "rgb(217, 119, 66)"} <= colours
    episodes = cross.record(["stay", "<b>one"], episodes=2)
    assert [episode.success for episode in episodes] == [True, True]
    assert write_replay(episodes, tmp_path / "replay.html").stat().st_size > 1000
    with pytest.raises(UserError, match="'two'"):
        cross.record(["two", "stay"])


def test_a_metric_of_the_game_and_the_same_figures_side_by_side():
    kitchen = {"layout": "cramped_room", "horizon": 120, "observe": ["vector"]}
    how = CrossPlaySettings(env=AI, env_config=kitchen, episodes=2, metric="soups")
    both = [how.replace(num_envs=num_envs) for num_envs in (1, 2)]
    tables = [CrossPlay(["scripted", "stay"], None, one).play().matrix(0) for one in both]
    assert tables[0].tolist() == tables[1].tolist()
    assert tables[0][0, 0] >= 2 and tables[0][1, 1] == 0


@pytest.mark.parametrize(
    ("env", "settings", "told"),
    [
        (AI, {"layout": "cramped_room", "observe": ["vector"]}, "score, soups, shaped."), (DOOR, {}, "nothing"),
        (AI, {"wanted": "pot", "observe": ["vector"], "layout": "asymmetric_advantages"}, "shaped, unpaid_soups."),
        (CORRIDOR, {}, "right_ends"),
    ],
)  # fmt: skip
def test_a_wrong_metric_is_told_before_the_first_game(env, settings, told):
    how = CrossPlaySettings(env=env, env_config=settings, metric="gold")
    with pytest.raises(UserError, match=f"`metric` is 'gold' .*{told}"):
        CrossPlay(["random"], None, how)


def test_a_metric_that_a_game_tells_after_its_first_step_only():
    how = CrossPlaySettings(env=CORRIDOR, metric="right_ends", episodes=2)
    assert CrossPlay(["random", "random"], None, how).play().matrix(0).shape == (2, 2)


def test_nobody_is_asked_for_the_names_of_metrics():
    class NotToBeAsked(Planner):
        """Its plans cost something."""

        def plan(self, *_, **__):
            raise AssertionError("the planner was asked")

    game = PlannedSubgoals(make_env(AI, observe=["text"]), NotToBeAsked())
    require_metric("subgoals_share", game, 0)
    require_metric("soups", game, 0)
    with pytest.raises(UserError, match="plans, .*, score, soups, shaped"):
        require_metric("gold", game, 0)


@pytest.mark.parametrize(
    ("players", "partners", "settings", "told"),
    [
        (["stay"], None, {"env": None}, "`env`"), (["stay"], ["random"], {}, "`partners`.* mapping"),
        (["stay"], {"a": ["random"], "b": ["random"]}, {}, "`partners.b` .*'random'"),
        (["stay"], {"a": [{"policy": "random", "weight": 2}]}, {}, "alike"),
        (["stay"], {"a": []}, {}, "`partners.a`"),
        (["zoo:soup_cramped_room"], None, {"env": None, "episodes": 0}, "`episodes`"),
        (["zoo:soup_cramped_room", RING], None, {"env": None}, f"{RING}' .* 520 numbers .* 650"),
    ],
)  # fmt: skip
def test_wrong_settings_and_who_cannot_play_are_told_before_the_first_game(players, partners, settings, told):
    with pytest.raises(UserError, match=told):
        CrossPlay(players, partners, CrossPlaySettings(**{"env": DOOR, **settings}))


def test_the_command(tmp_path, monkeypatch):
    (tmp_path / "partners.yaml").write_text("idle: [stay]\nhalf asleep: [{policy: scripted, pauses: 0.5}]\n")
    words = f"crossplay one=scripted two=scripted --env {DOOR} --partners partners.yaml --episodes 3 --json cross.json"
    words += " --html cross.html --replay one,2 --replay-out replay.html"
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, words.split(), catch_exceptions=False)
    told = json.loads((tmp_path / "cross.json").read_text())
    assert told["groups"]["idle"]["matrix"]["alice"] == [[0.0], [0.0]] and told["gap"]["mean"] == 0.0
    assert "self-play" in done.output and "half asleep" in done.output
    assert "one and stay" in (tmp_path / "replay.html").read_text() and (tmp_path / "cross.html").exists()


STEPS = {"action_level": "primitive", "commit": False}
FOLLOWER = {"observe": ["entities"], "action_level": "goal_cell", "commit": True, "subgoals": "sampled", "horizon": 60}


@pytest.fixture(scope="module")
def follower(tmp_path_factory):
    return write_follower(tmp_path_factory.mktemp("follower") / "policy", **FOLLOWER)


@pytest.fixture(scope="module")
def cook(tmp_path_factory):
    """A cook of single steps, whose settings tell a default that the follower's leave away."""
    folder = tmp_path_factory.mktemp("cook") / "policy"
    return write_cook(folder, 26 * 5 * 4, vector="planes", dynamics="old", horizon=60)


@pytest.mark.parametrize("level", ["goal_cell", "goal"])
def test_goals_in_single_steps_make_the_same_game(level):
    """The environment's own goals and those of two cooks that carry theirs out: every state is the same."""
    common = {"layout": "coordination_ring", "horizon": 200, "commit": True, "observe": ["vector"]}
    theirs, single = make_env(AI, action_level=level, **common), make_env(AI, **common)
    theirs.reset(seed=5)
    single.reset(seed=5)
    cooks = {
        agent: own_actions(single, agent, {"action_level": level}, np.random.default_rng(5)) for agent in single.agents
    }
    rng, expected = np.random.default_rng(0), []
    while single.agents:
        actions = {}
        for agent, one in cooks.items():
            if one.free():
                actions[agent] = int(rng.choice(np.flatnonzero(one.mask())))
                one.choose(actions[agent])
        if actions:
            assert not expected, "a cook was asked in one of the two only"
            theirs.step(actions)
            expected = list(theirs.passed[1:])
        single.step({agent: one.action() for agent, one in cooks.items()})
        assert np.array_equal(single.kitchen.state, expected.pop(0))
    assert not theirs.agents and single.kitchen.time == 200


def test_who_trusts_a_cross_play_trusts_what_its_planner_recorded_too(follower, tmp_path):
    server = {"base_url": "http://127.0.0.1:9", "model": "m"}
    path = write_checkpoint(tmp_path, communication={"message_server": server})
    for trust, why in ((False, "recorded `message_server`"), (True, "not as a planner")):
        settings = CrossPlaySettings(planning={"planner": f"trained:{path}"}, trust=trust)
        with pytest.raises(UserError, match=why):
            CrossPlay([follower], None, settings)


def test_a_follower_with_itself_plays_as_it_does_without_partners(follower):
    settings = CrossPlaySettings(
        episodes=2, metric="plans", env_config=STEPS, planning={"planner": "scripted", "patience": 10}
    )
    cross = CrossPlay([{"policy": follower, "name": "emma"}], None, settings)
    told = cross.play().to_json()
    alone = play_planned(
        load_policy(follower), planning=settings.planning, episodes=2, env_config={"commit": False}, num_envs=2
    )
    assert told["games"][0]["scores"] == [episode.metrics["plans"] for episode in alone]
    assert told["planning"] == {"planner": "scripted", "patience": 10}
    assert told["notes"] == ["emma: told by the planner 'scripted', which plans for all seats."]
    assert told["env_config"]["action_level"] == "primitive" and "subgoals" not in told["env_config"]


def test_a_follower_beside_cooks_of_single_steps(follower, cook, tmp_path, monkeypatch):
    (tmp_path / "partners.json").write_text(json.dumps({"cooks": [{"policy": cook, "name": "cook"}, "scripted"]}))
    words = ["crossplay", f"emma={follower}", "--partners", "partners.json", "--episodes", "1", "--metric", "plans"]
    words += ["--planner", "scripted", "--env-config", json.dumps(STEPS), "--json", "cross.json"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "told by the planner" in done.output and "dynamics" not in done.output
    found = json.loads((tmp_path / "cross.json").read_text())
    assert len(found["games"]) == 5
    assert all(game["scores"][0] >= 2 for game in found["games"])  # a plan at the start, and more


def test_goals_of_its_own_are_no_game_for_a_cook_of_single_steps_and_somebody_has_to_read_subgoals(follower, cook):
    settings = CrossPlaySettings(episodes=1, planning={})
    with pytest.raises(UserError, match="`action_level` is 'goal_cell'"):
        CrossPlay([follower, cook], None, settings)
    with refused("planning"):
        CrossPlay([cook], None, CrossPlaySettings(planning={"planner": "scripted"}))
