"""Controls of messages are what their names say, in every game that ships: neither silence nor the true messages."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import GAMES as GAMES_BY_NAME
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.envs.interface import asked, secret_of
from rllib_llm_comm.evaluation.play_settings import PlaySettings
from rllib_llm_comm.evaluation.rollout import evaluate, play, record
from rllib_llm_comm.verco.encoding import read_observation
from rllib_llm_comm.verco.message_protocol import MessageProtocol, Speaker, require_possible
from rllib_llm_comm.verco.settings import CommunicationSettings
from rllib_llm_comm.verco.teachers.base import TeacherMessages
from tests.refusal import refused

SALADS = {"recipe": ["tomato salad", "lettuce salad", "onion salad"], "max_game_steps": 12}
ARMY = {"told_to": ["alice"], "producers": "bob", "num_agents": 2}
TALKS = [("verco_salad", ["other_moments"])] + [
    (name, ["other_moments", "other_fact", "swapped"]) for name in ("told_salad", "door", "referential")
]
GAMES = [  # game, settings, whether another fact can be told
    ("overcooked_text", {"max_game_steps": 12}, False), ("overcooked_text", {**SALADS, "told_to": ["alice"]}, True),
    ("overcooked_text", {**SALADS, "told_to": "all"}, True),
    ("overcooked_text", {**SALADS, "told_to": "planner"}, True),
    ("overcooked_text", {"recipe": ["tomato salad"], "told_to": ["alice"]}, False),
    ("overcooked_ai", {"layout": "cramped_room", "horizon": 12}, False),
    ("overcooked_ai", {"layout": "forced_coordination", "wanted": "pot", "told_to": ["alice"], "horizon": 12}, True),
    ("minirts", {"num_agents": 2, "max_tick": 600, "action_level": "command"}, False),
    ("minirts", {**ARMY, "max_tick": 600, "action_level": "command"}, True), ("frozen_lake", {}, False),
    ("door", {}, True), ("referential", {}, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "modes"), TALKS)
def test_the_controls_of_shipped_talkers_are_neither_silence_nor_the_true_messages(name, modes):
    settings = PlaySettings(env_config={"max_game_steps": 15} if "salad" in name else {})
    for mode in modes:
        played = settings.play(load_policy(f"zoo:{name}", messages=mode), episodes=6, seed=1000, num_envs=3)
        replaced = [pair for episode in played for pair in episode.replaced]
        differing = [said for true, said in replaced if said and said != true]
        assert len(differing) > 0.4 * len(replaced), mode
        assert sum(not said for _, said in replaced) < 0.2 * len(replaced), mode


def talk(name, settings, mode, episodes=6, at_once=3):
    """Messages of the game's teacher in episodes of random actions, three at once: (true, said, secret)."""
    protocol, found = MessageProtocol(CommunicationSettings(messages=mode, max_message_words=30)), []
    rng = np.random.default_rng(0)
    envs = [TeacherMessages(make_env(f"rllib_llm_comm/{name}-v0", **settings), "scripted") for _ in range(at_once)]
    for start in range(0, episodes, at_once):
        now = [(env, *env.reset(seed=start + number), {}) for number, env in enumerate(envs)]
        while now := [entry for entry in now if entry[0].agents]:
            rows = [
                (number, agent) for number, (env, _, infos, _) in enumerate(now) for agent in asked(env.agents, infos)
            ]
            views = [read_observation(now[number][1][agent]) for number, agent in rows]
            speakers = [
                Speaker(agent, view, now[number][3], secret_of(now[number][2]))
                for (number, agent), view in zip(rows, views, strict=True)
            ]
            true = [view.teacher_message for view in views]
            said = protocol.speak(speakers, lambda prompts, true=true, **how: true)
            found += [(*pair, one.secret) for pair, one in zip(zip(true, said, strict=True), speakers, strict=True)]
            chosen = [{} for _ in now]
            for (number, agent), view in zip(rows, views, strict=True):
                chosen[number][agent] = int(rng.choice(np.flatnonzero(view.mask)))
            stepped = [env.step(actions) for (env, *_), actions in zip(now, chosen, strict=True)]
            now = [(env, seen[0], seen[4], box) for (env, _, _, box), seen in zip(now, stepped, strict=True)]
    return found


@pytest.mark.parametrize(("name", "settings", "tells"), GAMES)
def test_controls_in_every_game_do_something_or_end_with_a_sentence(name, settings, tells):
    env = make_env(f"rllib_llm_comm/{name}-v0", **settings)
    require_possible("other_moments", env)
    if GAMES_BY_NAME[name].scripted_player:  # which says something
        moments = talk(name, settings, "other_moments")
        assert any(said and said != true for true, said, _ in moments)
    if not tells:
        for mode in ("other_fact", "swapped"):
            with refused("messages"):
                require_possible(mode, env)
        return
    require_possible("other_fact", env)
    facts = talk(name, settings, "other_fact")
    assert any(said and said != true for true, said, _ in facts)
    understood = env.unwrapped.meaning
    assert not any(said and understood(said) == secret for _, said, secret in facts)


def test_without_another_fact_there_is_no_silence_in_its_place():
    with pytest.raises(UserError, match="'lettuce-tomato salad'"):
        evaluate(load_policy("zoo:verco_salad", messages="other_fact"), episodes=1)


def test_messages_of_other_episodes_are_there_also_where_games_are_played_one_after_the_other():
    policy = load_policy("zoo:door", messages="other_fact")
    first = evaluate(policy, episodes=12, num_envs=1)
    assert first.message_words_mean > 2 and first.shuffled_same_share < 0.5
    assert 0 < first.shuffled_silent_share < 0.5  # the first episode has nothing to draw from
    assert evaluate(policy, episodes=12, num_envs=1) == first


def test_a_control_that_did_nothing_is_an_error_not_a_figure():
    policy = load_policy("zoo:door", messages="other_fact")
    for playing in (play, record):
        with pytest.raises(UserError, match="'other_fact'.* nothing.* 4 messages"):
            playing(policy, episodes=1)
    # A long run ends, too.
    protocol = MessageProtocol(CommunicationSettings(messages="other_moments"))
    same = [Speaker("alice", read_observation({"text": "a", "candidates": ["go"]}), {}) for _ in range(64)]
    with pytest.raises(UserError, match="nothing"):
        for _ in range(100):
            protocol.speak(same, lambda prompts, **how: ["hello"] * len(prompts))
    busy = MessageProtocol(CommunicationSettings(messages="other_moments"))
    for number in range(100):
        busy.speak(same, lambda prompts, number=number, **how: [f"hello {number}"] * len(prompts))


def test_messages_about_another_fact_are_drawn_in_rounds_too():
    settings = PlaySettings(planner="scripted", trials=0, env_config={"max_game_steps": 12})
    played = settings.play(load_policy("zoo:told_salad", messages="other_fact"), episodes=5, seed=1000)
    assert any(said and said != true for episode in played for true, said in episode.replaced)
