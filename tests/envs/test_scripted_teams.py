"""Scripted teams of whom not all are told a fact: their labels, and what their talk is worth."""

from __future__ import annotations

import numpy as np
import pyarrow.dataset as ds
import pytest

from rllib_llm_comm.envs import make_env
from rllib_llm_comm.envs.minirts import commanders
from rllib_llm_comm.envs.overcooked_ai import scripted_cooks
from rllib_llm_comm.envs.overcooked_text import cooks
from rllib_llm_comm.verco.teachers.collect_labels import collect_labels

SALADS, SOUPS, WAR = (f"rllib_llm_comm/{name}-v0" for name in ("overcooked_text", "overcooked_ai", "minirts"))
TEAMS = {SALADS: cooks.ScriptedTeam, SOUPS: scripted_cooks.ScriptedTeam, WAR: commanders.ScriptedTeam}
ORDER = {"recipe": ["tomato salad", "lettuce salad", "onion salad"], "told_to": ["alice"]}
POT = {"layout": "forced_coordination", "wanted": "pot", "told_to": ["bob"]}
ARMY = {"told_to": ["alice"], "producers": "bob"}
SHORT = {"observe": ["vector"], "horizon": 200}
FAST = {"observe": ["vector"], "max_tick": 5200}


def plays(env_id, episodes, settings, talk=True):
    """Mean return and share of episodes solved of a scripted team."""
    env = make_env(env_id, **settings)
    team = TEAMS[env_id](env, talk=talk)
    returns, solved = [], []
    for seed in range(episodes):
        _, infos = env.reset(seed=seed)
        team.begin(seed)
        returns.append(0.0)
        while env.agents:
            _, rewards, _, _, infos = env.step(team.act(infos))
            returns[-1] += float(np.mean(list(rewards.values())))
        solved.append(infos["alice"].get("task_success", False))
    return np.mean(returns), np.mean(solved)


def with_and_without_talk(env_id, episodes, settings):
    return [plays(env_id, episodes, settings, talk) for talk in (True, False)]


@pytest.mark.parametrize(("env_id", "settings"), [(SALADS, ORDER), (SOUPS, POT), (WAR, ARMY)])
def test_silent_teams_hear_nothing_and_say_nothing(env_id, settings):
    env = make_env(env_id, **settings)
    for talk in (False, True):
        team = TEAMS[env_id](env, talk=talk)
        _, infos = env.reset(seed=0)
        env.step(team.act(infos))
        assert set(team.said) == (set(env.possible_agents) if talk else set())


@pytest.mark.parametrize(
    ("env_id", "settings", "sentence", "question"),
    [
        (SALADS, {**ORDER, "map_name": "B", "max_game_steps": 40}, "make a {}. i am ", "order"),
        (SOUPS, {**POT, "action_level": "goal", "horizon": 60}, "Only soup from the {} brings points.", "pot"),
        (WAR, {**ARMY, "numbers": [3], "observe": ["text"], "max_tick": 3000}, "The enemy trains {}.", "enemy"),
    ],
)
def test_labels_tell_what_their_prompt_tells_and_who_is_not_told_asks(env_id, settings, sentence, question, tmp_path):
    """So a student that sees no more than its own text can learn them."""
    how = {"target_labels": 150, "policy": "random", "num_envs": 2, "teacher_share": 0.5}
    assert collect_labels(env_id, tmp_path, env_config=settings, **how).labels >= 150
    env, telling, asking = make_env(env_id, **settings), 0, 0
    for row in ds.dataset([str(part) for part in tmp_path.rglob("*.parquet")]).to_table().to_pylist():
        told = [fact for fact in env.facts if sentence.format(fact) in row["prompt"]]
        assert len(told) == (row["agent"] in settings["told_to"])
        meant = env.meaning(row["message"])
        if meant in env.facts:
            assert told == [meant]
            telling += 1
        asking += not told and question in row["message"]
    assert telling and asking


@pytest.mark.parametrize(("map_name", "limit"), [("A", 40), ("B", 40), ("C", 60)])
def test_with_talk_cooks_of_salads_do_better_than_without(map_name, limit):
    assert plays(SALADS, 12, {**ORDER, "map_name": map_name})[1] == 1.0
    talk, silence = with_and_without_talk(SALADS, 20, {**ORDER, "map_name": map_name, "max_game_steps": limit})
    assert talk[0] > silence[0] + 0.25 and talk[1] > silence[1] + 0.2


@pytest.mark.parametrize(
    ("layout", "told", "level"),
    [
        ("asymmetric_advantages", "bob", "goal_cell"),
        ("coordination_ring", "alice", "primitive"),
        ("forced_coordination", "bob", "primitive"),
        ("counter_circuit", "alice", "goal_cell"),
    ],
)
def test_with_talk_cooks_of_soups_do_better_than_without(layout, told, level):
    own = {"layout": layout, "wanted": "pot", "wanted_anew": True, "action_level": level, **SHORT}
    talk, silence = with_and_without_talk(SOUPS, 3, {**own, "told_to": [told]})
    both = plays(SOUPS, 3, {**own, "told_to": "all"}, talk=False)
    assert min(talk[0], both[0]) >= silence[0] + 25 and talk[0] >= both[0] - 10


def test_with_talk_commanders_win_more_than_in_silence():
    talk, silence = with_and_without_talk(WAR, 10, {**ARMY, **FAST})
    assert talk[1] >= 0.8 and talk[1] >= silence[1] + 0.2


@pytest.mark.parametrize(
    ("env_id", "episodes", "settings", "who", "least"),
    [
        (SALADS, 12, {**ORDER, "max_game_steps": 40}, "bob", 0.8),  # who fetches
        (SOUPS, 3, {**POT, **SHORT}, "alice", 60),  # who stands at the pots
        (WAR, 4, {**ARMY, **FAST}, "bob", 0.4),  # who has the producers
    ],
)
def test_where_all_are_told_or_the_one_who_needs_it_talk_brings_nothing(env_id, episodes, settings, who, least):
    for told_to in ("all", [who]):
        talk, silence = with_and_without_talk(env_id, episodes, {**settings, "told_to": told_to})
        assert talk == pytest.approx(silence, abs=0.02) and talk[0] >= least
